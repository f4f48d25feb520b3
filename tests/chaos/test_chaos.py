"""Runners that are killed, stopped and starved over one store: whatever happens, what is committed is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.audit import audit, did_not_happen
from tests.chaos.conductor import Conductor
from tests.chaos.journal import read_journal

SEED = 20260701
SECONDS = 30.0


@pytest.fixture
def chaos(tmp_path: Path, request: pytest.FixtureRequest):
    seconds = request.config.getoption("--chaos-seconds", default=None) or SECONDS
    conductor = Conductor(tmp_path, request.config.getoption("--chaos-seed", default=None) or SEED, seconds)
    yield conductor
    conductor.close()


@pytest.mark.timeout(0)  # everything in it has a deadline of its own, and leaves no process behind
def test_nothing_is_lost_or_damaged_whatever_happens_to_the_runners(chaos: Conductor, record_property):
    chaos.storm()
    left = chaos.calm()
    events = read_journal(chaos.journal)
    found = chaos.counts()
    text = ", ".join(f"{number} {name}" for name, number in found.items())
    record_property("summary", f"chaos (seed {chaos.seed}, {chaos.seconds:g} s): {text}")
    findings = audit(chaos.store, events, left)
    told = f"seed {chaos.seed}: {text}\n{chaos.timeline(findings)}"
    assert findings == [], f"{len(findings)} findings:\n" + "\n".join(findings) + f"\n\n{told}"
    assert did_not_happen(found) == [], told
