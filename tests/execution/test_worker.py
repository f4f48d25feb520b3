from __future__ import annotations

from pathlib import Path

import pytest

from marin.execution import job_files
from marin.execution.job_files import read_outcome, read_progress, write_progress
from marin.execution.progress import Progress
from marin.execution.worker import ProgressFile


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What has been written, report by report."""
    done: list[float] = []
    original = job_files.write_progress

    def write(folder: str, progress: Progress) -> None:
        done.append(progress.done)
        original(folder, progress)

    monkeypatch.setattr(job_files, "write_progress", write)
    return done


def test_progress_is_written_and_read(tmp_path: Path):
    progress = Progress(3, 10, "poems", "loss 3.21")
    ProgressFile(str(tmp_path)).report(progress)
    assert read_progress(str(tmp_path)) == progress


def test_a_stream_of_reports_is_thinned_out_but_the_last_is_written(tmp_path: Path, written: list[float]):
    file = ProgressFile(str(tmp_path))
    for number in range(1000):
        file.report(Progress(number, 1000, "poems"))
    assert len(written) < 20
    file.flush()
    assert read_progress(str(tmp_path)) == Progress(999, 1000, "poems")
    file.flush()
    assert written.count(999) == 1


def test_a_few_reports_are_all_written_at_once(tmp_path: Path, written: list[float]):
    file = ProgressFile(str(tmp_path))
    for number in range(3):
        file.report(Progress(number, 3, "poems"))
    assert written == [0, 1, 2]


def test_progress_that_cannot_be_written_fails_nothing(tmp_path: Path):
    write_progress(str(tmp_path / "gone"), Progress(1, 2, "poems"))
    assert read_progress(str(tmp_path / "gone")) is None


def test_a_torn_file_is_no_outcome(tmp_path: Path):
    assert read_outcome(str(tmp_path)) is None
    (tmp_path / job_files.OUTCOME_FILE).write_bytes(b"\x82\xa5")
    assert read_outcome(str(tmp_path)) is None
    (tmp_path / job_files.PROGRESS_FILE).write_bytes(b'{"done": 1')
    assert read_progress(str(tmp_path)) is None
