"""Folders that a step has closed even to its owner. Root may do everything, so the tests give that up first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.contract import BUILD, RECORD

DROPPED = "-dac_override,-dac_read_search,-fowner,-chown"

PRELUDE = f"""
import os, sys
from pathlib import Path
from marin.storage.local import LocalStore
store = LocalStore(sys.argv[1], durable=False)
RECORD, BUILD = {RECORD!r}, {BUILD!r}
store.write(RECORD, b"building")
build = Path(store.url(BUILD))
build.mkdir()
"""


def as_anybody(tmp_path: Path, code: str) -> None:
    command = [sys.executable, "-c", PRELUDE + code, str(tmp_path / "store")]
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may do everything, and there is no setpriv to give that up: NOT held here")
        command = ["setpriv", f"--bounding-set={DROPPED}", "--inh-caps=-all", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_root_has_given_up_what_makes_it_root(tmp_path: Path):
    as_anybody(
        tmp_path,
        """
closed = build / "closed"
closed.mkdir(mode=0o000)
try:
    os.listdir(closed)
except PermissionError:
    sys.exit(0)
sys.exit("it could be read")
""",
    )


@pytest.mark.parametrize("what", ["build / 'data'", "build"])
def test_a_read_only_folder_is_published_as_it_is(tmp_path: Path, what: str):
    as_anybody(
        tmp_path,
        f"""
(build / "data").mkdir()
(build / "data" / "a").write_text("1")
({what}).chmod(0o555)
assert store.publish(RECORD, b"building", b"built", BUILD)
moved = build.parent / "data"
assert (moved / "a").read_text() == "1"
assert moved.stat().st_mode & 0o777 == (0o555 if {what!r} != "build" else 0o755)
assert not build.exists()
""",
    )


def test_a_closed_folder_of_an_earlier_attempt_is_removed(tmp_path: Path):
    as_anybody(
        tmp_path,
        """
(build / "inner").mkdir()
(build / "inner" / "a").write_text("1")
(build / "inner").chmod(0o000)
build.chmod(0o000)
assert store.remove_unheld(BUILD)
assert store.list(os.path.dirname(BUILD)) == [".artifact.json"]
""",
    )
