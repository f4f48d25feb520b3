"""The audit of the chaos can fail: each kind of damage, planted into a healthy store and journal, is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin.execution import RunOptions
from marin.execution.events import SilentReporter
from marin.execution.identity import parse_artifact_id
from marin.execution.removal import remove
from marin.execution.runner import run
from marin.storage.local import LocalStore
from tests.chaos import pipeline
from tests.chaos.audit import NEEDED, audit, counts, damage, did_not_happen, manifest_digest
from tests.chaos.conductor import processes_of
from tests.chaos.journal import JOURNAL_VARIABLE, read_journal, tell
from tests.executors.processes import MARK, eventually

FIXED, DEV = "raw/a@2026.01.01", "raw/live@dev"


@dataclass(frozen=True)
class Evidence:
    """What a chaos leaves. ``at``: where the data of an artifact lies."""

    store: Path
    events: list[dict[str, Any]]

    def at(self, artifact: str, path: str = "") -> Path:
        address = self.store / artifact.replace("@", "/")
        build = json.loads((address / ".artifact.json").read_bytes())["build"]
        return address / build["data"] / path

    def event(self, kind: str, artifact: str = FIXED) -> dict[str, Any]:
        return next(event for event in self.events if event["event"] == kind and event["artifact"] == artifact)

    def add(self, **event: Any) -> None:
        self.events.append({"t": self.events[-1]["t"] + 10, "pid": 1, **event})


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Two artifacts, a fixed and a ``dev`` one, built in peace; and one that was removed."""
    folder = tmp_path_factory.mktemp("healthy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(JOURNAL_VARIABLE, str(folder / "journal"))
        patch.setenv(pipeline.PACE_VARIABLE, "0")
        _, _, gone, live, *_ = pipeline.handles(0)
        options = RunOptions(prefix=str(folder / "store"), durable=False)
        run(pipeline.handles(0)[0], gone, live, options=options, reporter=SilentReporter())
        store = LocalStore(folder / "store")
        for handle in (pipeline.handles(0)[0], gone, live):
            place = folder / "store" / handle.id.address
            build = json.loads((place / ".artifact.json").read_bytes())["build"]
            known = {"artifact": str(handle.id), "build": build["build_id"]}
            tell("publishing", **known)
            tell("published", digest=build["manifest"]["digest"], **known)
            if handle is gone:
                began = 0.0
                trash = remove(store, parse_artifact_id(str(gone.id)))
                tell("removed", artifact=str(gone.id), began=began, how="rm", code=0)
                tell("trashed", artifact=str(gone.id), place=trash, build=build["build_id"], began=began)
            else:
                tell("final", **known)
        tell("calm_run", code=0, said="")
    return Evidence(folder / "store", read_journal(folder / "journal"))


@pytest.fixture
def evidence(healthy: Evidence, tmp_path: Path) -> Evidence:
    shutil.copytree(healthy.store, tmp_path / "store")
    events = json.loads(json.dumps(healthy.events).replace(str(healthy.store), str(tmp_path / "store")))
    return Evidence(tmp_path / "store", events)


def test_a_healthy_store_has_no_findings(evidence: Evidence):
    assert audit(evidence.store, evidence.events) == []


def second_commit(evidence: Evidence) -> None:
    evidence.add(event="publishing", artifact=FIXED, build="another")
    evidence.add(event="published", artifact=FIXED, build="another")
    evidence.event("final")["build"] = "another"


def unannounced_commit(evidence: Evidence) -> None:
    evidence.add(event="record", artifact=DEV, state="built", build="forged", digest=None)
    evidence.event("final", DEV)["build"] = "forged"


def lost(evidence: Evidence) -> None:
    shutil.rmtree(evidence.at(FIXED))
    evidence.events.remove(evidence.event("final"))


def replaced(evidence: Evidence) -> None:
    evidence.event("final")["build"] = None


def a_removal_before_does_not_excuse(evidence: Evidence) -> None:
    evidence.events.insert(0, {"t": 0.0, "pid": 1, "event": "removed", "artifact": FIXED, "began": 0.0, "how": "rm"})
    replaced(evidence)


def a_removal_of_another_does_not_excuse(evidence: Evidence) -> None:
    evidence.add(event="removed", artifact="raw/b@2026.01.01", began=0.0, how="rm")
    replaced(evidence)


def zombie(evidence: Evidence) -> None:
    """What it changed before the digest was taken anew."""
    evidence.add(event="record", artifact=FIXED, state="built", build=evidence.event("final")["build"], digest="00")


def overwritten(evidence: Evidence) -> None:
    place = evidence.at(FIXED, "shards/1")
    place.write_bytes(place.read_bytes().swapcase())


def cut_short(evidence: Evidence) -> None:
    os.truncate(evidence.at(DEV, ".index"), 5)


def half_gone(evidence: Evidence) -> None:
    evidence.at(FIXED, "2.txt").unlink()


def grown(evidence: Evidence) -> None:
    evidence.at(FIXED, "shards/from-a-zombie").write_text("late")


def other_manifest(evidence: Evidence) -> None:
    """Data and manifest agree with each other, but the record is of something else."""
    place = evidence.at(DEV, ".manifest.json")
    entries = [entry for entry in json.loads(place.read_bytes()) if entry["path"] != "2.txt"]
    evidence.at(DEV, "2.txt").unlink()
    place.write_text(json.dumps(entries))


def mixed(evidence: Evidence) -> None:
    """Two attempts in one artifact, although each file is as the manifest says."""
    record = evidence.at(FIXED, ".artifact.json")
    content = json.loads(record.read_bytes())
    content["build"]["build_id"] = "another"
    record.write_text(json.dumps(content))


def still_building(evidence: Evidence) -> None:
    record = evidence.store / "raw/live/dev/.artifact.json"
    record.write_text(json.dumps({**json.loads(record.read_bytes()), "state": "building"}))


def unfinished(evidence: Evidence) -> None:
    evidence.at(FIXED, ".marin-tmp-0123456789abcdef").write_text("half a record")


def attempt_left(evidence: Evidence) -> None:
    (evidence.at(FIXED) / ".build-b0").mkdir()


def bad_read(evidence: Evidence) -> None:
    evidence.add(event="bad_read", artifact=FIXED, began=evidence.events[-1]["t"] + 9, wrong="2.txt is not there")


def bad_input(evidence: Evidence) -> None:
    evidence.add(event="bad_input", artifact=DEV, of=FIXED, path="p", began=evidence.events[-1]["t"] + 9, wrong="torn")


def torn_input_long_after_a_removal(evidence: Evidence) -> None:
    evidence.add(event="removed", artifact=FIXED, began=evidence.events[-1]["t"], how="rm")
    bad_input(evidence)


def torn_record(evidence: Evidence) -> None:
    evidence.add(event="record", artifact=FIXED, state="torn", build=None, digest=None)


def full_folder(evidence: Evidence) -> None:
    evidence.add(event="folder_not_empty", artifact=FIXED, build="b", found=["old"])


def bug(evidence: Evidence) -> None:
    evidence.add(event="step_failed", artifact=FIXED, cause="KeyError", message="'x'", trace="")


def escaped(evidence: Evidence) -> None:
    evidence.add(event="run_ended", outcome="escaped: OSError: [Errno 28] No space left on device")


def endless_run(evidence: Evidence) -> None:
    evidence.add(event="run_began", generation=0)
    for _ in range(40):
        evidence.add(event="good_read", artifact=FIXED)


def long_run(evidence: Evidence) -> None:
    endless_run(evidence)
    evidence.add(event="run_ended", outcome="done")


def hung(evidence: Evidence) -> None:
    evidence.add(event="hung", what="a runner")


def calm_run_failed(evidence: Evidence) -> None:
    evidence.add(event="calm_run", code=1, said="1 of 2 steps failed")


def no_calm_run(evidence: Evidence) -> None:
    evidence.events[:] = [event for event in evidence.events if event["event"] != "calm_run"]


def trash_lost(evidence: Evidence) -> None:
    shutil.rmtree(evidence.store / ".marin/trash")


def trash_damaged(evidence: Evidence) -> None:
    next((evidence.store / ".marin/trash").rglob(".index")).unlink()


DAMAGE: dict[Callable[[Evidence], None], str] = {
    second_commit: "was committed, and then another, though nobody had removed it",
    unannounced_commit: "the record named forged, which nobody has published",
    lost: "was committed and not removed, but at the end there is None",
    replaced: "was committed and not removed, but at the end there is None",
    a_removal_before_does_not_excuse: "was committed and not removed",
    a_removal_of_another_does_not_excuse: "was committed and not removed",
    zombie: "has had 2 digests",
    overwritten: "shards/1 is not what the manifest says",
    cut_short: ".index is not what the manifest says",
    half_gone: "FileNotFoundError",
    grown: "shards/from-a-zombie is not in the manifest",
    other_manifest: "the record has the digest",
    mixed: "has files of other attempts",
    still_building: "it is building at the end, not built",
    unfinished: "an unfinished file was left",
    attempt_left: ".build-b0 was left over",
    bad_read: "bad_read: 2.txt is not there",
    bad_input: "bad_input: torn",
    torn_input_long_after_a_removal: "bad_input: torn",
    torn_record: "a torn record was read",
    full_folder: "had ['old'] in it at the start",
    bug: "KeyError: 'x'",
    escaped: "escaped: OSError",
    endless_run: "a run has not ended",
    long_run: "a run took more than",
    hung: "a runner did not end when it was told to",
    calm_run_failed: "the calm run at the end failed",
    no_calm_run: "there was no calm run",
    trash_lost: "is not in the trash",
    trash_damaged: "what lies in the trash is not whole",
}


@pytest.mark.parametrize("plant", DAMAGE, ids=lambda plant: plant.__name__)
def test_planted_damage_is_found(evidence: Evidence, plant: Callable[[Evidence], None]):
    plant(evidence)
    findings = audit(evidence.store, evidence.events)
    assert any(DAMAGE[plant] in finding for finding in findings), findings


def test_what_a_removal_excuses_is_no_finding(evidence: Evidence):
    began = evidence.events[-1]["t"] + 5
    bad_read(evidence)
    evidence.add(event="removed", artifact=FIXED, began=began, how="deleted", path="p")
    replaced(evidence)
    assert audit(evidence.store, evidence.events) == []


def test_a_build_that_was_removed_before_anybody_told_of_it_is_no_finding(evidence: Evidence):
    """Its builder, and who watches, may have to wait for the processor when it is done."""
    evidence.add(event="publishing", artifact="raw/late@2026.01.01", build="late")
    evidence.add(event="removed", artifact="raw/late@2026.01.01", began=evidence.events[-1]["t"] + 9, how="deleted")
    evidence.add(event="published", artifact="raw/late@2026.01.01", build="late")
    evidence.add(event="publishing", artifact="raw/late@2026.01.01", build="next")
    evidence.add(event="published", artifact="raw/late@2026.01.01", build="next")
    evidence.add(event="final", artifact="raw/late@2026.01.01", build="next")
    assert audit(evidence.store, evidence.events) == []


def test_a_process_that_is_left_over_is_found(evidence: Evidence):
    mark = uuid.uuid4().hex
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={MARK: mark}) as child:
        findings = audit(evidence.store, evidence.events, eventually(lambda: processes_of(mark)))
        child.communicate(b"\n")
    assert [finding.partition(":")[0] for finding in findings] == ["a process was left over"]
    assert str(child.pid) in findings[0]
    assert processes_of(mark) == []


def test_a_chaos_that_did_not_happen_is_no_success(evidence: Evidence):
    found = counts(evidence.events, [])
    assert {"kills", "pauses", "takeovers", "full disk", "no permission"} <= set(did_not_happen(found))
    assert did_not_happen({name: NEEDED.get(name, 0) for name in found}) == []


def test_the_audit_and_marin_agree_about_the_digest_of_a_build(healthy: Evidence):
    """Two implementations of one format."""
    assert damage(healthy.at(FIXED)) is None
    record = json.loads(healthy.at(FIXED, ".artifact.json").read_bytes())
    assert manifest_digest(healthy.at(FIXED)) == record["build"]["manifest"]["digest"]
