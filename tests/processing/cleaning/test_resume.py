"""An attempt that was killed is finished with the same bytes, and what it had finished is used if nothing differs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cloudpickle
import pytest

from marin.processing.cleaning import build, part_work, shards
from marin.processing.cleaning.build import normalize
from marin.processing.cleaning.manifest import PartRecord, read_manifest
from marin.processing.cleaning.part_work import Job, Told
from marin.processing.cleaning.steps import NormalizeConfig
from marin.processing.tokenize.parts import Part
from tests.executors.processes import PATIENCE
from tests.processing.cleaning.small import normalizing, tree, write_documents

ROOT = Path(__file__).parents[3]

CHILD = """
import contextlib, pathlib, pickle, sys
from marin.execution.progress import progress_sink
from marin.processing.cleaning import build, part_work, shards
from tests.processing.killed import kill_at, killing
asked = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
if sys.argv[2] == "alone":
    part_work.RUN_DOCUMENTS, shards.GROUP_ROWS = 50, 20
    kill_at(f"*/{sys.argv[3]}")
    build.normalize(asked)
else:
    build._CREW_BYTES = 0
    with progress_sink(killing(asked.output_path, sys.argv[3], 1)):
        build.normalize(asked)
"""


def killed_in_a_process(asked: NormalizeConfig, folder: Path, moment: str, how: str = "alone") -> int:
    """The process group that it had."""
    folder.joinpath("config.pickle").write_bytes(cloudpickle.dumps(asked))
    command = [sys.executable, "-c", CHILD, str(folder / "config.pickle"), how, moment]
    child = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    assert child.wait() == -signal.SIGKILL
    return child.pid


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_work, "RUN_DOCUMENTS", 50)
    monkeypatch.setattr(shards, "GROUP_ROWS", 20)


def wait_for_the_end_of(group: int) -> None:
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            assert time.monotonic() < deadline, "a process of the killed step is still there"
            time.sleep(0.01)


def many_documents(folder: Path) -> Path:
    poems = [f"poem number {(place * place) % 3001} of many" for place in range(6000)]
    return write_documents(folder / "poems.jsonl", poems)


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize(
    "moment",
    [
        "work/made-00002.json",
        "part-0000[2-9].parquet.tmp",
        "work/duplicates-*.bin",
        "work/finished-00003.json",
        "documents.manifest",
    ],
)
def test_a_killed_step_is_finished_with_the_same_bytes_and_its_parts_are_not_redone(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
):
    asked = normalizing(tmp_path / "out", many_documents(tmp_path), shard_bytes=20_000)
    killed_in_a_process(asked, tmp_path, moment)
    made = {int(path.stem[-5:]) for path in (tmp_path / "out/work").glob("made-*.json")}
    is_whole = (tmp_path / "out/documents.manifest").exists()
    redone = list[int]()
    make_part = part_work.make_part

    def counted(job: Job, part: Part, told: Told) -> PartRecord:
        redone.append(part.number)
        return make_part(job, part, told)

    monkeypatch.setattr(build, "make_part", counted)
    monkeypatch.setattr(part_work, "make_part", counted)
    again = normalize(asked)
    fresh = normalize(dataclasses.replace(asked, output_path=str(tmp_path / "fresh")))
    parts = len(read_manifest(asked.output_path).parts)
    ours = redone[: len(redone) - parts]
    assert again == fresh
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
    assert again.documents == len({f"{(place * place) % 3001}" for place in range(6000)})
    if is_whole:
        assert ours == []
    else:
        # At most the one whose shard was finished when its record was not.
        assert len(set(ours) & made) <= 1
        assert len(made) >= (2 if "work" in moment else 0)


def test_with_a_killed_step_its_workers_end_and_what_they_left_is_finished(tmp_path: Path):
    asked = normalizing(tmp_path / "out", many_documents(tmp_path), shard_bytes=20_000, workers=2)
    wait_for_the_end_of(killed_in_a_process(asked, tmp_path, "work/made-*.json", "with a crew"))
    assert normalize(asked) == normalize(dataclasses.replace(asked, output_path=str(tmp_path / "fresh")))
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


@pytest.mark.usefixtures("small_runs")
def test_a_kill_between_a_finished_shard_and_its_record_takes_no_wrong_rows_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = normalizing(tmp_path / "out", many_documents(tmp_path), shard_bytes=20_000)
    write_whole = part_work.write_whole

    def fail_at_finished(path: str, data: bytes) -> None:
        if "finished-00004" in path:
            raise KeyboardInterrupt
        write_whole(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(part_work, "write_whole", fail_at_finished)
        with pytest.raises(KeyboardInterrupt):
            normalize(asked)
    assert normalize(asked) == normalize(dataclasses.replace(asked, output_path=str(tmp_path / "fresh")))
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("change", ["input", "recipe", "shard", "digests", "record", "grouping", "earlier part"])
def test_a_part_of_an_earlier_attempt_is_used_only_if_nothing_differs(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
):
    for number, name in enumerate("abc"):
        write_documents(tmp_path / f"in/{name}.jsonl", [f"poem {place % 70}" for place in range(number, 90)])
    asked = normalizing(tmp_path / "out", tmp_path / "in", shard_bytes=600)
    with monkeypatch.context() as patch:
        patch.setattr(build, "write_manifest", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            normalize(asked)
    match change:
        case "input":
            path = tmp_path / "in/b.jsonl"
            before = path.stat()
            path.write_text(path.read_text().replace("poem 5", "poet 5"))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        case "earlier part":  # whose documents made those of later parts duplicates
            write_documents(tmp_path / "in/a.jsonl", [f"other {place}" for place in range(90)])
        case "recipe":
            asked = dataclasses.replace(asked, unicode_form="NFKC", line_ends="lf")
        case "shard":
            (tmp_path / "out/part-00001.parquet").write_bytes(b"torn")
        case "digests":
            (tmp_path / "out" / "work" / "digests-00001.bin").write_bytes(b"torn")
        case "record":
            (tmp_path / "out" / "work" / "made-00001.json").write_bytes(b'{"part": 1')
        case _:
            asked = dataclasses.replace(asked, shard_bytes=10**9)
    made = normalize(asked)
    assert made == normalize(dataclasses.replace(asked, output_path=str(tmp_path / "fresh")))
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
