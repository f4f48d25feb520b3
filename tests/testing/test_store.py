"""A store for one test: everything that runs uses it, and nothing of it is left."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from marin.errors import AddressOccupiedError, ConfigurationError, NotBuiltError, OutputError, RunError
from marin.execution import Artifact, ArtifactStep, RunOptions, load, plan, resolve, run
from marin.execution.planning import Decision
from marin.experiment.main import experiment_main
from marin.testing import a_step, temporary_store
from tests.execution import pipelines
from tests.execution.pipelines import Poems, poems, report


@dataclass(frozen=True)
class Checked(Artifact):
    def verify(self):
        if not Path(self.path, "poems.txt").exists():
            raise ValueError("no poems")


def test_runs_use_the_store_and_it_goes_away():
    with temporary_store() as store:
        resolve(report(poems()))
        assert store.made == ["raw/poems@2026.07.01", "reports/words@2026.07.01"]
        assert Path(store.path, "reports/words/2026.07.01/report.txt").exists()
    assert not store.path.exists()


def test_a_store_with_a_path_stays(tmp_path):
    with temporary_store(tmp_path / "my store"):
        resolve(poems())
    assert (tmp_path / "my store/raw/poems/2026.07.01/poems.txt").exists()


def test_a_relative_path_is_meant_from_where_the_test_began(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with temporary_store("store"):
        monkeypatch.chdir(tmp_path / "elsewhere")
        resolve(poems())
    assert (tmp_path / "store/raw/poems").is_dir()


def test_stores_can_be_nested_and_the_outer_one_comes_back():
    with temporary_store() as outer, temporary_store() as inner:
        resolve(poems())
    assert (outer.made, inner.made) == ([], ["raw/poems@2026.07.01"])


@pytest.mark.parametrize("before", [None, "/data/marin"])
def test_the_environment_is_as_before_also_after_a_failure(before, monkeypatch):
    monkeypatch.setenv("MARIN_PREFIX", before) if before else monkeypatch.delenv("MARIN_PREFIX", raising=False)
    monkeypatch.delenv("MARIN_DURABLE", raising=False)
    seen: list[str] = []
    with pytest.raises(RunError):
        _fail_in_a_store(seen)
    assert os.environ.get("MARIN_PREFIX") == before
    assert "MARIN_DURABLE" not in os.environ
    assert seen
    assert not Path(seen[0]).exists()


def _fail_in_a_store(seen):
    with temporary_store():
        seen.append(os.environ["MARIN_PREFIX"])
        resolve(poems(run=pipelines.fail))


def test_options_that_name_no_store_and_other_processes_use_it_too():
    code = "from marin.execution import resolve; from tests.execution.pipelines import poems; resolve(poems())"
    with temporary_store() as store:
        resolve(poems(), options=RunOptions(max_concurrent=1))
        experiment_main(lambda: poems(name="raw/main"), argv=[])
        subprocess.run([sys.executable, "-c", code.replace("poems()", "poems(name='raw/other')")], check=True)
        assert sorted(path.name for path in Path(store.path, "raw").iterdir()) == ["main", "other", "poems"]


def test_other_options_can_be_given():
    with temporary_store(options=RunOptions(only=("reports/words",), prefix="/elsewhere")) as store:
        assert plan(report(poems())).steps[report(poems()).id].decision is Decision.BUILD
        assert store.options.prefix == str(store.path)
        with pytest.raises(NotBuiltError, match="--only leaves it out"):
            resolve(report(poems()))


def test_nothing_is_shown(capfd):
    with temporary_store():
        resolve(poems())
    assert capfd.readouterr() == ("", "")


def test_what_runs_told_is_remembered():
    with temporary_store() as store:
        bad = poems(name="raw/bad", run=pipelines.fail)
        with pytest.raises(RunError):
            run(report(bad), poems())
        assert store.told.outcomes == {"raw/poems@2026.07.01": "built"}
        assert store.told.failures["raw/bad@2026.07.01"].failure.message == "no verse today: rose"
        assert store.told.blocks == {"reports/words@2026.07.01": "raw/bad@2026.07.01"}
        assert store.told.ends == 1


def test_a_dev_step_is_made_as_often_as_it_is_told():
    with temporary_store() as store:
        resolve(poems("dev"))
        resolve(poems("dev"))
        assert store.made == ["raw/poems@dev"] * 2


# Artifacts that are put there


def test_what_was_put_into_the_store_is_served_without_drift_and_its_step_never_runs():
    source = poems(lines=1_000_000, run=pipelines.fail)
    with temporary_store() as store:
        given = store.put(source, Poems(lines=2), files={"poems.txt": "a rose\nis a rose"})
        assert given == Poems(lines=2) == load(source)
        assert Path(given.path, "poems.txt").read_text() == "a rose\nis a rose"
        assert plan(source).steps[source.id].changes == ()
        assert resolve(report(source)).words == 5
        assert store.made == ["reports/words@2026.07.01"]


def test_what_was_put_there_drifts_like_anything_else():
    with temporary_store() as store:
        store.put(poems(word="rose"), Poems(lines=2))
        (change,) = plan(poems(word="lily")).steps[poems().id].changes
        assert str(change) == "config[\"word\"]: 'rose' → 'lily'"


def test_files_may_lie_in_folders_and_hold_bytes():
    with temporary_store() as store:
        put = store.put(poems(), Poems(lines=0), files={"a b/ü.bin": b"\xff", "empty": ""})
        assert Path(put.path, "a b/ü.bin").read_bytes() == b"\xff"
        assert Path(put.path, "empty").read_bytes() == b""


@pytest.mark.parametrize("path", ["/etc/poems", "../poems.txt", "a/../../poems.txt"])
def test_files_stay_inside_the_artifact(path):
    with temporary_store() as store:
        with pytest.raises(ConfigurationError, match="give a path below the artifact's folder"):
            store.put(poems(), Poems(lines=0), files={path: "x"})
        assert store.put(poems(), Poems(lines=1)).lines == 1  # nothing is in its way


def test_an_artifact_that_its_readers_could_not_read_is_refused():
    handle = replace(poems(), artifact_type=Checked)
    with temporary_store() as store:
        with pytest.raises(OutputError, match="verify says ValueError: no poems"):
            store.put(handle, Checked())
        store.put(handle, Checked(), files={"poems.txt": ""})


def test_an_artifact_of_another_type_is_refused():
    with temporary_store() as store, pytest.raises(OutputError, match="its artifact_type is Poems"):
        store.put(poems(), Checked())


def test_an_artifact_is_put_there_once():
    with temporary_store() as store:
        store.put(poems(), Poems(lines=1))
        with pytest.raises(AddressOccupiedError):
            store.put(poems(), Poems(lines=2))
        assert load(poems()).lines == 1


@pytest.mark.parametrize(
    ("handle", "why"),
    [
        (poems("dev"), "dev versions are rebuilt at every run"),
        (ArtifactStep.adopt(name="raw/x", version="2026.07.01", source="/data", kind=Poems), "it is adopted or pinned"),
    ],
)
def test_what_a_run_would_not_serve_can_not_be_put_there(handle, why):
    with temporary_store() as store, pytest.raises(ConfigurationError, match=why):
        store.put(handle, Poems(lines=1))


# Steps that stand in for others


def test_a_step_stands_in_for_a_real_one():
    source = a_step(artifact=Poems(lines=2), files={"poems.txt": "a rose"})
    with temporary_store() as store:
        assert resolve(report(source)).words == 2
        assert load(source) == Poems(lines=2)
        assert store.made == ["raw/poems@2026.07.01", "reports/words@2026.07.01"]


def test_what_a_step_would_write_is_its_recipe():
    assert a_step(files={"a": "1"}).fingerprint() == a_step(files={"a": "1"}).fingerprint()
    assert a_step(files={"a": "1"}).fingerprint() != a_step(files={"a": "2"}).fingerprint()
    assert a_step(artifact=Poems(lines=1)).fingerprint() != a_step(artifact=Poems(lines=2)).fingerprint()


def test_a_step_can_have_dependencies():
    first = a_step("raw/first")
    with temporary_store() as store:
        resolve(a_step("raw/second", deps=(first,)))
        assert store.made == ["raw/first@2026.07.01", "raw/second@2026.07.01"]


def test_a_handle_in_place_of_the_artifact_is_refused():
    with temporary_store() as store, pytest.raises(ConfigurationError, match=r"the handle .*such as Poems\(\.\.\.\)"):
        store.put(poems(), poems(name="raw/other"))


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["t"], "is list: give the contents by path"),
        ("t", "is str: give"),
        ({"t": 1}, r"files\['t'\] is int"),
        ({1: "t"}, "text"),
    ],
)
def test_files_that_are_no_contents_by_path_are_refused(files, told):
    with temporary_store() as store:
        with pytest.raises(ConfigurationError, match=told):
            store.put(poems(), Poems(lines=1), files=files)
        with pytest.raises(ConfigurationError, match=told):
            a_step(files=files)
        assert store.put(poems(), Poems(lines=1)).lines == 1  # nothing is in its way
