import builtins
import json
import os
import re
import shutil
import threading
import traceback
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from marin.errors import (
    AddressOccupiedError,
    ArtifactTypeError,
    ConfigurationError,
    ConflictingRecipesError,
    CorruptRecordError,
    FingerprintMismatchError,
    ImpureConfigError,
    InvalidPrefixError,
    NestedArtifactError,
    NewerRecordError,
    NotBuiltError,
    RunError,
    SourceMissingError,
    StorageFullError,
    StoreError,
)
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep
from marin.execution.options import RunOptions
from marin.execution.planning import Decision
from marin.execution.runner import load, plan, resolve, run
from tests.execution import pipelines
from tests.execution.pipelines import Poems, Report, fail, poems, report
from tests.executors.processes import PATIENCE


def record_of(options, id_):
    return json.loads(Path(options.prefix, id_.address, ".artifact.json").read_text())


def decisions(handle, options):
    return {str(step.id): str(step.decision) for step in plan(handle, options=options).steps.values()}


def drift(handle, options):
    return {
        str(s.id): [str(change) for change in s.changes]
        for s in plan(handle, options=options).steps.values()
        if s.changes
    }


# What a run makes


def test_a_step_is_built_at_its_address_and_comes_back_typed(options, built, told):
    made = resolve(poems(lines=2), options=options, reporter=told)
    assert made == Poems(lines=2)
    assert made.path == f"{options.prefix}/raw/poems/2026.07.01"
    assert Path(made.path, "poems.txt").read_text() == "rose 0\nrose 1"
    assert told.outcomes == {"raw/poems@2026.07.01": "built"}
    assert sorted(os.listdir(made.path)) == [".artifact.json", "poems.txt"]


def test_a_second_run_serves_it(options, built, told):
    resolve(report(poems()), options=options)
    again = resolve(report(poems()), options=options, reporter=told)
    assert again.words == 6
    assert len(built) == 2
    assert told.outcomes == {}
    assert told.ends == 1


def test_run_returns_the_artifacts_in_the_order_of_the_handles(options):
    one, other = run(report(poems()), poems(), options=options)
    assert (type(one), type(other)) == (Report, Poems)


def test_running_nothing_is_fine(options):
    assert run(options=options) == ()
    assert not os.path.exists(options.prefix)


def test_what_lies_upstream_of_something_served_is_not_built(options, built):
    resolve(report(poems()), options=options)
    os.system(f"rm -r {options.prefix}/raw")
    assert decisions(report(poems()), options) == {"raw/poems@2026.07.01": "skip", "reports/words@2026.07.01": "serve"}
    resolve(report(poems()), options=options)
    assert len(built) == 2


def test_dev_is_rebuilt_at_every_run_but_once_in_each(options, built):
    source = poems("dev")
    run(report(source, "dev"), report(source, "dev", name="reports/other"), options=options)
    assert len(built) == 3
    run(report(source, "dev"), report(source, "dev", name="reports/other"), options=options)
    assert len(built) == 6


def test_a_dev_build_lies_in_a_folder_of_its_own_and_its_reader_gets_that_one(options, built):
    made = resolve(report(poems("dev"), "dev"), options=options)
    assert made.source == built[0]
    assert "/raw/poems/dev/.build-" in made.source
    again = resolve(report(poems("dev"), "dev"), options=options)
    assert again.source != made.source


def test_old_dev_builds_are_removed_but_never_the_one_that_counts(options):
    for _ in range(4):
        made = resolve(poems("dev"), options=options)
    builds = [name for name in os.listdir(f"{options.prefix}/raw/poems/dev") if name.startswith(".build-")]
    assert os.path.basename(made.path) in builds
    assert len(builds) <= 2


def test_the_record_tells_how_the_artifact_was_made(options):
    handle = report(poems(), runtime_args={"device": "cpu"})
    resolve(handle, options=options)
    build = record_of(options, handle.id)["build"]
    upstream = record_of(options, poems().id)["build"]
    assert build["data"] == "."
    assert build["result"] == {"words": 6, "source": f"{options.prefix}/raw/poems/2026.07.01"}
    assert build["fingerprint"]["digest"] == handle.fingerprint().digest
    assert build["deps"] == [
        {
            "name": "raw/poems",
            "version": "2026.07.01",
            "build_id": upstream["build_id"],
            "path": "raw/poems/2026.07.01",
        }
    ]
    assert build["runtime_args"] == {"device": "cpu"}
    assert build["config"] == {"output_path": "{output_path}", "poems": "{artifact:raw/poems@2026.07.01}"}
    assert build["manifest"]["files"] == 1
    assert build["provenance"]["user"]


def test_a_store_can_be_moved(options, built, tmp_path):
    resolve(report(poems()), options=options)
    os.rename(options.prefix, tmp_path / "elsewhere")
    moved = replace(options, prefix=str(tmp_path / "elsewhere"))
    assert load(poems(), options=moved).path == f"{tmp_path}/elsewhere/raw/poems/2026.07.01"
    resolve(report(poems()), options=moved)
    assert len(built) == 2


def test_planning_and_loading_write_nothing(options):
    plan(report(poems()), options=options)
    with pytest.raises(NotBuiltError, match=r"raw/poems@2026\.07\.01 has not been built .*resolve"):
        load(poems(), options=options)
    assert not os.path.exists(options.prefix)


# Drift


def test_a_changed_literal_is_reported_and_the_cached_artifact_served(options, built):
    resolve(poems(word="rose"), options=options)
    changed = poems(word="tulip")
    assert drift(changed, options) == {"raw/poems@2026.07.01": ["config[\"word\"]: 'rose' → 'tulip'"]}
    assert "rose" in Path(resolve(changed, options=options).path, "poems.txt").read_text()
    assert len(built) == 1


def test_drift_above_something_cached_is_told(options):
    resolve(report(poems(word="rose")), options=options)
    assert drift(report(poems(word="tulip")), options) == {
        "raw/poems@2026.07.01": ["config[\"word\"]: 'rose' → 'tulip'"]
    }


def test_a_bumped_version_is_built_beside_the_old_one(options, built):
    resolve(poems("2026.07.01", word="rose"), options=options)
    resolve(poems("2026.07.02", word="tulip"), options=options)
    assert len(built) == 2
    assert "rose" in Path(load(poems("2026.07.01"), options=options).path, "poems.txt").read_text()


def test_a_bumped_dependency_is_drift_of_the_reader(options):
    resolve(report(poems("2026.07.01")), options=options)
    assert drift(report(poems("2026.07.02")), options) == {
        "reports/words@2026.07.01": ["deps.raw/poems: 2026.07.01 → 2026.07.02"]
    }


def test_runtime_arguments_region_and_prefix_are_no_drift(options):
    resolve(poems(runtime_args={"device": "cpu"}), options=options)
    assert drift(poems(runtime_args={"device": "cuda:0"}), replace(options, region="eu")) == {}


def test_an_expected_fingerprint_that_holds_is_silent(options):
    handle = poems()
    digest = handle.fingerprint().digest
    assert resolve(replace(handle, expected_fingerprint=f"1:{digest[:8]}"), options=options) == Poems(lines=3)


def test_an_expected_fingerprint_that_does_not_hold_stops_before_anything_runs(options, built):
    with pytest.raises(FingerprintMismatchError, match=r"raw/poems@2026\.07\.01: the recipe has fingerprint 1:"):
        resolve(poems(expected_fingerprint="1:00000000"), options=options)
    assert built == []


def test_an_expected_fingerprint_is_held_against_the_record_too(options):
    resolve(poems(word="rose"), options=options)
    changed = poems(word="tulip")
    with pytest.raises(FingerprintMismatchError, match="built from another recipe"):
        resolve(replace(changed, expected_fingerprint=f"1:{changed.fingerprint().digest}"), options=options)


def test_an_expected_fingerprint_of_another_scheme_asks_to_be_renewed(options):
    with pytest.raises(FingerprintMismatchError, match=r"renew it: '1:"):
        resolve(poems(expected_fingerprint="2:00000000"), options=options)


def test_an_expected_fingerprint_holds_for_loading_as_for_running(options):
    resolve(poems(), options=options)
    with pytest.raises(FingerprintMismatchError, match=r"raw/poems@2026\.07\.01: the recipe has fingerprint 1:"):
        load(poems(expected_fingerprint="1:00000000"), options=options)


# What the store holds


def damaged(options, content):
    resolve(poems(), options=options)
    Path(options.prefix, "raw/poems/2026.07.01/.artifact.json").write_bytes(content)


@pytest.mark.parametrize("content", [b"", b'{"schema": 1, "name": "raw/po', b"hello", b"[]", b"{}", b'{"schema":1}'])
def test_a_torn_record_is_taken_over(options, built, told, content):
    damaged(options, content)
    assert decisions(poems(), options) == {"raw/poems@2026.07.01": "build"}
    assert resolve(poems(), options=options, reporter=told) == Poems(lines=3)
    assert len(built) == 2
    assert any("replaced" in note for _, note in told.notes)
    assert load(poems(), options=options) == Poems(lines=3)


def test_what_lay_beside_a_torn_record_is_kept(options):
    damaged(options, b"")
    resolve(poems(), options=options)
    kept = list(Path(options.prefix, "raw/poems/2026.07.01").glob(".stray-*/poems.txt"))
    assert len(kept) == 1


def test_a_record_of_a_newer_marin_is_refused_and_left_alone(options, built):
    damaged(options, content := b'{"schema": 99, "name": "x"}')
    for attempt in (resolve, load):
        with pytest.raises(NewerRecordError, match="install the newer Marin"):
            attempt(poems(), options=options)
    assert Path(options.prefix, "raw/poems/2026.07.01/.artifact.json").read_bytes() == content


def test_deleted_data_is_not_served(options):
    made = resolve(poems(), options=options)
    os.unlink(f"{made.path}/poems.txt")
    with pytest.raises(
        StoreError, match=r"its data is not in .* \(there is no poems.txt\).*marin rm raw/poems@2026\.07\.01"
    ):
        resolve(poems(), options=options)


def test_a_dev_version_whose_last_build_was_deleted_is_rebuilt_like_any_other(options, built):
    made = resolve(poems("dev"), options=options)
    shutil.rmtree(made.path)
    with pytest.raises(StoreError, match="its data is not in"):
        load(poems("dev"), options=options)
    with pytest.raises(StoreError, match="its data is not in"):  # --only takes it as it is
        run(report(poems("dev"), "dev"), options=replace(options, only=("reports/words",)))
    resolve(report(poems("dev"), "dev"), options=options)
    assert Path(load(poems("dev"), options=options).path, "poems.txt").exists()


def test_files_without_a_record_are_neither_served_nor_overwritten(options, built):
    place = Path(options.prefix, "raw/poems/2026.07.01")
    place.mkdir(parents=True)
    place.joinpath("poems.txt").write_text("mine")
    with pytest.raises(RunError, match="has files but no record") as caught:
        resolve(poems(), options=options)
    assert isinstance(caught.value.__cause__, AddressOccupiedError)
    assert place.joinpath("poems.txt").read_text() == "mine"


def test_a_file_where_the_folder_should_be_is_a_clear_error(options):
    Path(options.prefix, "raw").mkdir(parents=True)
    Path(options.prefix, "raw/poems").write_text("I am a file")
    with pytest.raises((RunError, StoreError), match=r"raw/poems"):
        resolve(poems(), options=options)


def test_a_dangling_link_in_place_of_a_record_counts_as_no_record(options):
    place = Path(options.prefix, "raw/poems/2026.07.01")
    place.mkdir(parents=True)
    place.joinpath(".artifact.json").symlink_to("nowhere")
    assert resolve(poems(), options=options) == Poems(lines=3)
    assert load(poems(), options=options) == Poems(lines=3)


def test_an_artifact_inside_another_is_refused_before_the_first_write(options, built):
    resolve(poems("x-dev", name="raw"), options=options)
    with pytest.raises(RunError, match="inside the artifact"):
        resolve(poems(name="raw/x-dev/poems"), options=options)
    with pytest.raises(NestedArtifactError, match="inside the folder"):
        run(poems("x-dev", name="raw"), poems(name="raw/x-dev/poems"), options=options)
    assert len(built) == 1


def test_another_type_under_one_version_is_a_clear_error(options):
    resolve(poems(), options=options)
    other = ArtifactStep(name="raw/poems", version="2026.07.01", artifact_type=Report, run=fail)
    with pytest.raises(
        ArtifactTypeError, match=r"raw/poems@2026\.07\.01 \(a .*Poems\) does not fit Report, which has no lines"
    ):
        load(other, options=options)


def test_a_full_disk_is_said_with_the_path(options, monkeypatch):
    def no_space(config):
        raise OSError(28, "No space left on device", f"{config['output_path']}/poems.txt")

    with pytest.raises(RunError, match=r"No space left on device.*poems.txt"):
        resolve(poems(run=no_space), options=options)


def test_a_full_disk_at_the_record_is_said_with_the_path(options, monkeypatch):

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises((RunError, StorageFullError), match=r"raw/poems|store"):
        resolve(poems(), options=options)
    monkeypatch.undo()
    assert resolve(poems(), options=options) == Poems(lines=3)


# Failures


def test_a_failure_names_the_step_the_users_frame_and_the_log(options, told):
    with pytest.raises(RunError) as caught:
        resolve(poems(run=fail), options=options, reporter=told)
    message = str(caught.value)
    assert "raw/poems@2026.07.01: ValueError: no verse today: rose" in message
    assert "pipelines.py" in message
    assert "in fail" in message
    log = told.failures["raw/poems@2026.07.01"].log
    assert log is not None
    assert log in message
    assert "no verse today" in Path(log).read_text()
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_traceback_of_a_failure_begins_at_the_users_code(options):
    with pytest.raises(RunError) as caught:
        resolve(poems(run=fail), options=options)
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [frame.name for frame in frames] == ["fail"]


def return_three(config):
    return 3


def test_an_error_of_ours_names_no_line_of_ours(options, told):
    handle = ArtifactStep(name="x", version="2025.12.01", run=return_three, build_config=lambda ctx: {})
    with pytest.raises(RunError) as caught:
        resolve(handle, options=options, reporter=told)
    assert told.failures[str(handle.id)].failure.frame == ""
    assert " at " not in str(caught.value)


def test_dependents_are_blocked_and_the_rest_is_built(options, told):
    broken = poems(name="raw/broken", run=fail)
    top = report(report_of_broken := report(broken), name="reports/top", run=fail)
    with pytest.raises(RunError, match=r"2 not made because of them"):
        run(top, poems(), options=options, reporter=told)
    assert set(told.failures) == {"raw/broken@2026.07.01"}
    assert told.blocks == {str(report_of_broken.id): str(broken.id), str(top.id): str(broken.id)}
    assert told.outcomes == {"raw/poems@2026.07.01": "built"}


def test_a_failed_step_is_tried_again_by_the_next_run(options, told):
    with pytest.raises(RunError):
        resolve(poems(run=fail), options=options)
    assert plan(poems(), options=options).steps[poems().id].reason.endswith(" failed: ValueError: no verse today: rose")
    assert resolve(poems(), options=options) == Poems(lines=3)


def test_what_a_failed_attempt_left_is_not_in_the_artifact(options):
    def half(config):
        Path(config["output_path"], "half.txt").write_text("…")
        raise ValueError("in the middle")

    with pytest.raises(RunError):
        resolve(poems(run=half), options=options)
    made = resolve(poems(), options=options)
    assert "half.txt" not in os.listdir(made.path)


def test_fail_fast_starts_nothing_more(options, built, told):
    one_at_a_time = replace(options, fail_fast=True, max_concurrent=1)
    with pytest.raises(RunError):
        run(poems(run=fail, name="a"), *(poems(name=f"b{n}") for n in range(5)), options=one_at_a_time, reporter=told)
    assert built == []
    assert len(told.blocks) == 5


def test_a_step_that_returns_another_type_fails(options):
    def wrong(config):
        return Report(words=1, source="")

    with pytest.raises(RunError, match=r"Report.*Poems|Poems.*Report"):
        resolve(poems(run=wrong), options=options)
    with pytest.raises(NotBuiltError):
        load(poems(), options=options)


def test_an_impure_config_is_an_error(options):
    numbers = iter(range(10**6))
    handle = ArtifactStep(name="x", version="dev", run=fail, build_config=lambda ctx: {"n": next(numbers)})
    with pytest.raises(RunError) as caught:
        resolve(handle, options=options)
    assert isinstance(caught.value.__cause__, ImpureConfigError)


def test_missing_data_sets_stop_before_anything_runs(options, built):
    def needs_data(ctx):
        raise ConfigurationError("datasets is missing")

    broken = ArtifactStep(name="x", version="dev", run=fail, build_config=needs_data, deps=(poems(),))
    with pytest.raises(ConfigurationError, match="datasets is missing"):
        resolve(broken, options=options)
    assert built == []


@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_whatever_ends_a_step_is_its_failure_and_frees_the_lease(options, name):
    def leave(config):
        raise getattr(builtins, name)("enough")

    with pytest.raises(RunError, match=name):
        resolve(poems(run=leave), options=options)
    assert record_of(options, poems().id)["state"] == "failed"
    assert resolve(poems(), options=options) == Poems(lines=3)


# Adopted and pinned


def test_adopted_data_stays_where_it_is_and_is_read_from_there(options, tmp_path, told):
    source = tmp_path / "outside"
    source.mkdir()
    source.joinpath("poems.txt").write_text("a b c")
    adopted = ArtifactStep.adopt(
        name="raw/outside", version="2025.12.01", adopt_source=str(source), kind=Poems, config={"lines": 1}
    )
    made = resolve(report(adopted), options=options, reporter=told)
    assert (made.words, made.source) == (3, str(source))
    assert told.outcomes["raw/outside@2025.12.01"] == "adopted"
    record = record_of(options, adopted.id)
    assert record["build"]["source"] == str(source)
    assert record["build"]["provenance"]["user"]
    assert not source.joinpath(".artifact.json").exists()


def test_a_changed_source_is_drift_and_the_recorded_one_is_served(options, tmp_path):
    for name in ("one", "two"):
        tmp_path.joinpath(name).mkdir()
        tmp_path.joinpath(name, "poems.txt").write_text(name)

    def adopt(name):
        return ArtifactStep.adopt(
            name="raw/outside", version="2025.12.01", source=str(tmp_path / name), kind=Poems, config={"lines": 1}
        )

    resolve(adopt("one"), options=options)
    (changes,) = drift(adopt("two"), options).values()
    assert any("one" in change and "two" in change for change in changes), changes
    assert resolve(adopt("two"), options=options).path == str(tmp_path / "one")


def test_a_missing_source_is_an_error_when_planned_not_when_described(options, tmp_path, built):
    handle = ArtifactStep.adopt(name="raw/outside", version="2025.12.01", source=str(tmp_path / "no"), kind=Poems)
    assert decisions(handle, options) == {"raw/outside@2025.12.01": "refuse"}
    with pytest.raises(SourceMissingError, match="does not exist"):
        run(poems(), handle, options=options)
    assert not built  # nothing has begun that would end so


def test_a_source_that_went_away_is_noticed(options, tmp_path):
    source = tmp_path / "outside"
    source.mkdir()
    handle = ArtifactStep.adopt(
        name="raw/outside", version="2025.12.01", source=str(source), kind=Poems, config={"lines": 1}
    )
    resolve(handle, options=options)
    source.rmdir()
    with pytest.raises(SourceMissingError, match=str(source)):
        resolve(handle, options=options)


def test_config_that_the_source_lacks_is_asked_for_when_built(options, tmp_path):
    handle = ArtifactStep.adopt(name="raw/outside", version="2025.12.01", source=str(tmp_path), kind=Poems)
    with pytest.raises(RunError, match=r"does not fit Poems: .*lines"):
        resolve(handle, options=options)


def test_an_artifact_of_another_store_is_adopted_with_its_result_and_provenance(options, tmp_path):
    elsewhere = replace(options, prefix=str(tmp_path / "other"))
    made = resolve(poems(lines=7), options=elsewhere)
    adopted = ArtifactStep.adopt(name="raw/theirs", version="2025.12.01", source=made.path, kind=Poems)
    assert resolve(adopted, options=options) == Poems(lines=7)
    origin = record_of(options, adopted.id)["build"]["provenance"]["adopted_from"]
    assert origin["artifact"] == "raw/poems@2026.07.01"


def test_a_pinned_step_reads_there_and_never_builds(options, tmp_path, built):
    elsewhere = replace(options, prefix=str(tmp_path / "other"))
    made = resolve(poems(lines=7), options=elsewhere)
    pinned = poems(pin=made.path, lines=7)
    assert resolve(report(pinned), options=options).source == made.path
    assert not os.path.exists(f"{options.prefix}/raw/poems")
    assert len(built) == 2


def test_a_pinned_step_with_another_recipe_is_drift(options, tmp_path):
    made = resolve(poems(word="rose"), options=options)
    assert drift(poems(pin=made.path, word="tulip"), options) == {
        "raw/poems@2026.07.01": ["config[\"word\"]: 'rose' → 'tulip'"]
    }


def test_a_pin_to_nothing_is_an_error(options, tmp_path):
    with pytest.raises(SourceMissingError, match="does not exist"):
        resolve(poems(pin=str(tmp_path / "nothing")), options=options)


def test_a_pin_to_a_torn_record_is_an_error(options, tmp_path):
    (tmp_path / ".artifact.json").write_text("{")
    with pytest.raises(CorruptRecordError, match="is not a record"):
        resolve(poems(pin=str(tmp_path)), options=options)


# Only


def test_only_takes_the_rest_as_it_is(options, built):
    source = poems("dev")
    resolve(report(source, "dev"), options=options)
    built.clear()
    resolve(report(source, "dev"), options=replace(options, only=("reports/words",)))
    assert len(built) == 1
    assert "reports/words" in built[0]


def test_only_with_something_missing_names_it(options, built):
    with pytest.raises(NotBuiltError, match=r"raw/poems@2026\.07\.01 is not built, and --only leaves it out"):
        resolve(report(poems()), options=replace(options, only=("reports/words",)))
    assert built == []


def test_only_builds_an_early_step_and_asks_for_nothing_after_it(options, built):
    chosen = replace(options, only=("raw/poems",))
    with pytest.raises(NotBuiltError, match=r"reports/words@2026\.07\.01 is not built, and --only leaves it out"):
        resolve(report(poems()), options=chosen)  # it has to return something
    assert len(built) == 1
    assert run(poems(), options=chosen) == (Poems(lines=3),)
    made = resolve(report(poems()), options=options)
    assert len(built) == 2
    assert resolve(report(poems()), options=chosen) == made


@pytest.mark.parametrize(
    ("name", "said"),
    [("raw/peoms", "Did you mean raw/poems?"), ("words", "Did you mean reports/words?"), ("x", "The steps are: raw/p")],
)
def test_only_with_an_unknown_name_says_which_there_are(options, name, said):
    with pytest.raises(ConfigurationError, match=f"--only {name}: no step of that name. ") as fault:
        resolve(report(poems()), options=replace(options, only=(name,)))
    assert said in str(fault.value)


# One recipe per address


def test_two_recipes_for_one_version_are_refused_with_the_difference(options, built):
    with pytest.raises(ConflictingRecipesError, match=r"config\[\"word\"\]: 'rose' → 'tulip'"):
        run(poems(word="rose"), poems(word="tulip"), options=options)
    assert built == []


def test_two_equal_handles_are_one_step(options, built):
    run(poems(), report(poems()), options=options)
    assert len(built) == 2


def test_stale_input_is_noted(options):
    source = poems("dev")
    made = report(source, "dev")
    resolve(made, options=options)
    resolve(source, options=options)
    planned = plan(made, options=replace(options, only=("raw/poems",)))
    step = planned.steps[made.id]
    assert step.decision is Decision.SERVE
    (note,) = step.notes
    assert re.fullmatch(r"stale input: raw/poems@dev was rebuilt 20\S+Z", str(note))


# Two at once, in one process


STARTED, GO = threading.Event(), threading.Event()


def _slow(config):
    pipelines.BUILDS.append(config["output_path"])
    STARTED.set()
    assert GO.wait(PATIENCE)
    return Poems(lines=1)


def test_two_threads_that_run_the_same_step_build_it_once(options, built):
    STARTED.clear()
    GO.clear()
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(resolve(poems(run=_slow), options=options))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert STARTED.wait(PATIENCE)
    GO.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert results == [Poems(lines=1)] * 2
    assert len(built) == 1


def test_the_prefix_may_have_spaces_and_letters_of_any_script(tmp_path, built):
    options = RunOptions(prefix=str(tmp_path / "my störe 店"), durable=True)
    assert resolve(report(poems()), options=options).words == 6
    assert resolve(report(poems()), options=options).words == 6
    assert len(built) == 2


@dataclass(frozen=True)
class Picky(Artifact):
    size: int

    def verify(self):
        if not Path(self.path, "data").exists():
            raise FileNotFoundError(f"{self.path}/data")


def test_an_artifact_that_can_not_be_read_back_is_not_published(options):
    handle = ArtifactStep(name="x", version="2026.07.01", artifact_type=Picky, run=_writes_nothing)
    with pytest.raises(RunError, match="refused"):
        resolve(handle, options=options)
    with pytest.raises(NotBuiltError):
        load(handle, options=options)


def _writes_nothing(config):
    return Picky(size=1)


# Secrets


def _remember(config):
    Path(config["output_path"], "poems.txt").write_text("rose")
    return Poems(lines=1)


def _remember_text(config):
    return None


def with_secret(secret):
    return ArtifactStep(
        name="raw/secret",
        version="2026.07.01",
        artifact_type=Poems,
        run=_remember,
        build_config=lambda ctx: {"output_path": ctx.output_path, "hf_token": secret, "eos_token": "</s>"},
        runtime_args={"api_key": secret},
    )


def test_secrets_are_neither_recorded_nor_shown(options):
    handle = with_secret("very-secret-1")
    resolve(handle, options=options)
    text = Path(options.prefix, handle.id.address, ".artifact.json").read_text()
    assert "very-secret" not in text
    assert "</s>" in text
    changed = plan(with_secret("very-secret-2"), options=options).steps[handle.id]
    assert changed.changes == ()
    assert list(map(str, changed.notes)) == ["the recipe differs in a secret, which is not shown"]


def test_a_secret_that_an_earlier_version_has_recorded_is_no_drift_and_not_shown(options):
    def taught(secret):
        return ArtifactStep(name="raw/old", version="2026.07.01", run=_remember_text, build_config=lambda ctx: secret)

    handle = taught(OrderedDict(password=["very-secret-1"], out="x"))
    resolve(handle, options=options)
    record = Path(options.prefix, handle.id.address, ".artifact.json")
    assert record.read_text().count("***") == 2  # in the recipe, and in the config for people
    kept = json.loads(record.read_text())
    kept["build"]["fingerprint"]["payload"]["config"]["ordered_dict"][0] = ["password", ["very-secret-1"]]
    record.write_text(json.dumps(kept))
    assert plan(handle, options=options).steps[handle.id].changes == ()
    changed = plan(taught(OrderedDict(password=["very-secret-2"], out="x")), options=options).steps[handle.id]
    assert changed.changes == ()
    assert list(map(str, changed.notes)) == ["the recipe differs in a secret, which is not shown"]


@dataclass(frozen=True)
class Measured(Artifact):
    losses: list[float]


def _not_a_number(config):
    return Measured(losses=[1.0, float("nan")])


def test_a_result_that_json_can_not_hold_is_refused(options):
    handle = ArtifactStep(name="x", version="2026.07.01", artifact_type=Measured, run=_not_a_number)
    with pytest.raises(RunError, match=r"Measured\.losses\[1\] is infinite or not a number"):
        resolve(handle, options=options)


@dataclass(frozen=True)
class Lenient(Artifact):
    """Has defaults for all, so that any result would fit."""

    size: int = 0


def test_another_type_whose_fields_have_defaults_is_refused_too(options, tmp_path):
    made = resolve(poems(), options=options)
    asked = {"name": "raw/poems", "version": "2026.07.01", "artifact_type": Lenient}
    adopted = ArtifactStep.adopt(name="theirs", version="2026.07.01", source=made.path, kind=Lenient)
    for attempt in (
        lambda: load(ArtifactStep(run=fail, **asked), options=options),
        lambda: resolve(ArtifactStep(run=fail, **asked), options=options),
        lambda: resolve(ArtifactStep(pin=made.path, **asked), options=options),
        lambda: resolve(adopted, options=options),
    ):
        with pytest.raises((ArtifactTypeError, RunError), match="Lenient, which has no lines"):
            attempt()
    assert load(ArtifactStep(name="raw/poems", version="2026.07.01", run=fail), options=options).path == made.path


def test_a_misspelt_key_of_an_adopted_config_is_named(options, tmp_path):
    adopted = ArtifactStep.adopt(
        name="theirs", version="2026.07.01", source=str(tmp_path), kind=Lenient, config={"sise": 1}
    )
    with pytest.raises(RunError, match="Lenient has no 'sise'; its fields are size"):
        resolve(adopted, options=options)


def test_a_working_folder_that_is_gone_is_said(options, tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(InvalidPrefixError, match="working folder does not exist any more"):
        resolve(poems(), options=options)


def test_secrets_in_an_error_are_not_shown(options, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")

    with pytest.raises(RunError) as caught:
        resolve(poems(run=_leak), options=options)
    assert "0123456789abcdef" not in str(caught.value)
    assert "login with *** failed" in str(caught.value)


def _leak(config):
    raise ValueError(f"login with {os.environ['WANDB_API_KEY']} failed")


@pytest.mark.parametrize("ask", [run, plan, resolve, load])
@pytest.mark.parametrize(
    ("given", "words"),
    [([poems()], "one by one"), ("raw/poems", "not its name"), (RunOptions(), "given by name")],
)
def test_what_is_no_handle_is_told_with_what_to_write(ask, given, words, options):
    with pytest.raises(TypeError, match=words):
        ask(given, options=options)


def test_one_name_is_no_list_of_names():
    with pytest.raises(ConfigurationError, match=r"write only=\('raw/poems',\)"):
        RunOptions(only="raw/poems")
