from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from marin.storage.local import LocalStore
from tests.cli.commands import Terminal, marin, python, script
from tests.execution.records import STRANGER, attempt, build, put

PIPELINE = """
raw = poems(version="2026.07.01", lines=3)
tokens = poems("tokens", raw, version="2026.07.01")
model = poems("model", tokens, version="2026.07.01")
"""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "marin_store", durable=False)


def built(folder: Path, text: str = PIPELINE) -> Path:
    path = script(folder, text)
    assert marin(folder, "run", path).returncode == 0
    return path


def why(folder: Path, *words: str | Path, **environ: str) -> str:
    done = marin(folder, "why", *words, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(folder: Path, *words: str | Path) -> dict:
    return json.loads(why(folder, *words, "--json"))


# With a script


def test_of_a_step_to_build_who_needs_it_is_told(tmp_path: Path):
    text = why(tmp_path, "raw/poems", script(tmp_path, PIPELINE))
    assert text.splitlines()[:4] == [
        "raw/poems@2026.07.01 would be built: not built yet",
        "  needed by",
        "    tokens@2026.07.01  build   not built yet",
        "    model@2026.07.01   build   not built yet, which was asked for",
    ]
    assert not (tmp_path / "marin_store").exists()


def test_of_a_new_version_what_differs_from_the_one_before_is_told(tmp_path: Path):
    path = built(tmp_path)
    path.write_text(path.read_text().replace('tokens, version="2026.07.01"', 'tokens, version="2026.07.02", lines=9'))
    lines = why(tmp_path, "model", path).splitlines()
    assert lines[0] == "model@2026.07.02 would be built: not built yet"
    assert re.fullmatch(r"  model@2026\.07\.01 is there, built \S+, from another recipe:", lines[2])
    assert lines[3] == '    config["lines"]: 3 → 9'


def test_of_what_is_served_the_record_and_the_fingerprint_are_told(tmp_path: Path):
    text = why(tmp_path, "model@2026.07.01", built(tmp_path))
    assert re.match(
        r"model@2026\.07\.01 is served as it is: built \S+\n  needed        asked for by the script\n", text
    )
    assert re.search(r"  fingerprint   1:[0-9a-f]{16}, as recorded\n", text)
    assert "  inputs        1 and 1 further up, none of them rebuilt since\n" in text


def test_drift_above_a_cached_child_is_told(tmp_path: Path):
    path = built(tmp_path)
    path.write_text(path.read_text().replace("lines=3)\ntokens", "lines=4)\ntokens"))
    said = "the recipe of raw/poems@2026.07.01 has changed, but what was made from it is served as it was built:"
    change = 'config["lines"]: 3 → 4'
    assert f"  further up\n    {said}\n      {change}\n" in why(tmp_path, "model", path)
    assert f"warning: {said}\n    {change}\n" in marin(tmp_path, "run", path).stderr
    assert change in marin(tmp_path, "plan", path).stdout
    (above,) = as_json(tmp_path, "model", path)["plan"]["above"]
    assert [change["text"] for change in above["changes"]] == [change]


def test_drift_of_the_step_itself_is_told_with_every_key_and_the_remedy(tmp_path: Path):
    path = built(tmp_path)
    path.write_text(path.read_text().replace("lines=3)\ntokens", "lines=4, pause=0.0)\ntokens"))
    assert (
        "  the recipe has changed, but what was made from it is served as it was built:\n"
        '    config["lines"]: 3 → 4\n    config["pause"]: 0 → 0.0\n'
        "  bump the version to build the new recipe\n"
    ) in why(tmp_path, "raw/poems", path)


def test_changed_code_is_told_of_the_step_and_of_those_above(tmp_path: Path):
    path = built(tmp_path)
    text = why(tmp_path, "model", path)
    assert "  code          not changed since it was built\n" in text
    path.write_text(path.read_text().replace('"vers\\n"', '"ligne\\n"'))
    changed = "pipeline.write (pipeline.py)"
    text = why(tmp_path, "model", path)
    assert f"  code changed since it was built:\n    {changed}\n" in text
    assert f"    raw/poems@2026.07.01: code changed since it was built: {changed}\n" in text
    assert as_json(tmp_path, "model", path)["plan"]["code"]["changes"][0]["name"] == "write"


def test_code_that_was_not_recorded_is_not_called_unchanged(tmp_path: Path):
    path = built(tmp_path)
    record = tmp_path / "marin_store/model/2026.07.01/.artifact.json"
    whole = json.loads(record.read_text())
    del whole["build"]["code"]
    record.write_text(json.dumps(whole))
    assert "  code          not recorded, so nobody can tell" in why(tmp_path, "model", path)


def test_a_stale_input_is_told_directly_and_through_others(tmp_path: Path):
    path = built(tmp_path)
    marin(tmp_path, "rm", "raw/poems@2026.07.01", "--yes", "--force")
    path.write_text(path.read_text() + 'other = poems("other", raw, version="2026.07.01")\n')
    assert marin(tmp_path, "run", path).returncode == 0
    told = r"    raw/poems@2026\.07\.01  stale input: rebuilt \S+Z \(build \S+\), used{} was build \S+\n"
    for words in (("tokens", path), ("tokens",)):
        assert re.search(told.format(""), why(tmp_path, *words))
    for words in (("model", path), ("model",)):
        assert re.search(told.format(r" by tokens@2026\.07\.01"), why(tmp_path, *words))
    stale = as_json(tmp_path, "model")["made_from"][1]
    assert (stale["id"], stale["fate"], stale["used_by"]) == ("raw/poems@2026.07.01", "rebuilt", "tokens@2026.07.01")
    assert stale["build"] != stale["used_build"]


def test_a_missing_ancestor_is_a_note(tmp_path: Path):
    path = built(tmp_path)
    marin(tmp_path, "rm", "raw/poems@2026.07.01", "--yes", "--force")
    for words in (("model", path), ("model",)):
        text = why(tmp_path, *words)
        assert "raw/poems@2026.07.01  no longer in the store, used by tokens@2026.07.01 was build" in text
    assert "note: tokens@2026.07.01: its input raw/poems@2026.07.01 is no longer in the store" in (
        marin(tmp_path, "run", path).stderr
    )


def test_another_scheme_of_fingerprints_is_told_and_not_called_drift(tmp_path: Path):
    path = built(tmp_path)
    record = tmp_path / "marin_store/model/2026.07.01/.artifact.json"
    record.write_text(record.read_text().replace('"scheme": 1', '"scheme": 0'))
    text = why(tmp_path, "model", path)
    assert "  note: recorded with an older scheme of fingerprints (0, now 1): not compared\n" in text
    assert " of another scheme\n" in text


def test_a_refused_step_is_told_with_its_error_and_ends_with_1(tmp_path: Path):
    path = script(tmp_path, 'model = poems("model", version="2026.07.01", expected_fingerprint="1:00000000")\n')
    done = marin(tmp_path, "why", "model", path)
    assert done.returncode == 1
    assert done.stdout.startswith(
        "model@2026.07.01 is refused: expected_fingerprint does not hold\n  model@2026.07.01:"
    )
    assert "  expected      1:00000000, which does not hold\n" in done.stdout


def test_a_step_that_is_fine_in_a_run_that_is_not_says_so(tmp_path: Path):
    text = 'good = poems("good")\nbad = poems("bad", version="2026.07.01", expected_fingerprint="1:00000000")\n'
    told = why(tmp_path, "good", script(tmp_path, text))
    assert (
        "  a run would be refused, because of\n    bad@2026.07.01  refuse  expected_fingerprint does not hold" in told
    )


def test_versions_and_only_reach_the_script(tmp_path: Path):
    path = script(tmp_path, "raw = poems()\nmodel = poems('model', raw)\n")
    assert why(tmp_path, "model", path, "--version", "2026.07.01").startswith("model@2026.07.01 would be built")
    done = marin(tmp_path, "why", "raw/poems", path, "--only", "model")
    assert done.returncode == 1
    assert "raw/poems@dev is refused: not built, and not among the steps of --only" in done.stdout


def test_words_after_two_dashes_are_the_scripts_own(tmp_path: Path):
    path = script(tmp_path, "import sys\nmodel = poems(sys.argv[1])\n")
    assert why(tmp_path, "mine", path, "--", "mine").startswith("mine@dev would be built: dev versions are rebuilt")


@pytest.mark.parametrize(
    ("artifact", "said"),
    [
        ("model@2026.07.09", "pipeline.py describes model@2026.07.01, not model@2026.07.09"),
        ("modle", "pipeline.py describes no step modle. Did you mean model?"),
        ("poems", "pipeline.py describes no step poems. Did you mean raw/poems?"),
    ],
)
def test_a_step_that_the_script_does_not_describe_is_an_error_with_what_it_does(
    tmp_path: Path, artifact: str, said: str
):
    script(tmp_path, PIPELINE)
    done = marin(tmp_path, "why", artifact, "pipeline.py")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {said}\n")


# Without a script


def test_the_command_that_compares_recipes_is_told_and_works(tmp_path: Path):
    folder = tmp_path / "my project"
    folder.mkdir()
    path = script(folder, "import sys\nmodel = poems(sys.argv[1])\n")
    done = marin(tmp_path, "run", path, "--version", "2026.07.01", "--max-concurrent", "1", "--", "mine", "--own")
    assert done.returncode == 0
    command = as_json(tmp_path, "mine")["compare_with"]
    assert command == "marin why mine@2026.07.01 'my project/pipeline.py' --version 2026.07.01 -- mine --own"
    assert why(tmp_path, *shlex.split(command)[2:]).startswith("mine@2026.07.01 is served as it is")


def test_a_script_that_python_ran_is_told_with_its_options(tmp_path: Path):
    text = "from marin.experiment.main import experiment_main\nexperiment_main(lambda: poems())\n"
    python(tmp_path, script(tmp_path, text), "--version", "2026.07.01", "--fail-fast")
    command = as_json(tmp_path, "raw/poems")["compare_with"]
    assert command == "marin why raw/poems@2026.07.01 pipeline.py --version 2026.07.01"
    assert why(tmp_path, *shlex.split(command)[2:]).startswith("raw/poems@2026.07.01 is served as it is")


@pytest.mark.parametrize(
    ("provenance", "said"),
    [
        ({}, "the record keeps no command line"),
        ({"command": ["python", "-c", "x"], "cwd": "/"}, "it was not made by a script"),
        ({"command": ["python", "gone.py"], "cwd": "/nowhere"}, "the script that made it, /nowhere/gone.py, is not"),
        ({"command": "nonsense", "cwd": 7}, "the record keeps no command line"),
    ],
)
def test_where_the_script_is_not_known_that_is_said(tmp_path: Path, store: LocalStore, provenance: dict, said: str):
    put(store, "model@dev", build(provenance=provenance))
    text = why(tmp_path, "model")
    assert f"    marin why model@dev SCRIPT\n    ({said}" in text


def test_a_command_whose_secrets_were_left_out_is_not_offered(tmp_path: Path, store: LocalStore):
    path = script(tmp_path, "")
    provenance = {"command": ["python", str(path), "--api-key", "***"], "cwd": str(tmp_path)}
    put(store, "model@dev", build(provenance=provenance))
    assert "(secrets were left out of the command line" in why(tmp_path, "model")


def test_who_holds_the_lease_and_whether_they_live_is_told(tmp_path: Path, store: LocalStore):
    put(store, "alive@dev", attempt=attempt())
    put(store, "far@dev", build(), attempt(owner=STRANGER))
    text = why(tmp_path, "alive")
    assert text.startswith("alive@dev is being built: other runs wait for it\n")
    assert re.search(r"  builder       pid \d+ of \S+ on \S+, since 2026-07-02T10:00:00Z, alive\n", text)
    text = why(tmp_path, "far")
    assert text.startswith("far@dev is being rebuilt: the build before is served meanwhile\n")
    assert "pid 4 of anna on node7, since 2026-07-02T10:00:00Z, whether it lives can't be told from here\n" in text
    assert as_json(tmp_path, "alive")["builder"]["life"] == "alive"


def test_a_failed_attempt_is_told_with_error_place_and_log(tmp_path: Path):
    path = script(tmp_path, "bad = poems('bad', version='2026.07.01', run=fail)\n")
    assert marin(tmp_path, "run", path).returncode == 1
    for words, head in (
        (("bad",), "bad@2026.07.01 has failed: the next run tries again\n"),
        (("bad", path), "bad@2026.07.01 would be built: the attempt of "),
    ):
        text = why(tmp_path, *words)
        assert text.startswith(head)
        assert "  error         ValueError: no verse today\n  at            pipeline.py:" in text
        assert re.search(r"  log           \S+/bad/2026\.07\.01/\.logs/\S+\.log\n", text)


def test_options_that_only_a_script_needs_are_wrong_without_one(tmp_path: Path):
    for words in (("--version", "dev"), ("--only", "a"), ("--", "own")):
        done = marin(tmp_path, "why", "model", *words)
        assert done.returncode == 2
        assert "need a SCRIPT" in done.stderr


def test_an_artifact_that_is_not_there_is_an_error(tmp_path: Path):
    done = marin(tmp_path, "why", "model")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: model is not in ")


# Both


def test_secrets_are_not_shown(tmp_path: Path):
    text = """
def secretive(key, version="2026.07.01"):
    return ArtifactStep(name="hub", version=version, run=write, artifact_type=Poems, build_config=lambda ctx: {
        "output_path": ctx.output_path, "lines": 1, "api_key": key, "note": "s3cr3t-value " + key[:3]})
"""
    path = script(tmp_path, text + "hub = secretive('hunter2222')\n")
    marin(tmp_path, "run", path)
    for last in ("hub = secretive('other2222')\n", "hub = secretive('other2222', '2026.07.02')\n"):
        path.write_text(path.read_text().rpartition("hub = ")[0] + last)
        for words in (("hub", path), ("hub", path, "--json"), ("hub",), ("hub", "--json")):
            shown = why(tmp_path, *words, MY_TOKEN="s3cr3t-value")
            assert not re.search("hunter2222|other2222|s3cr3t", shown)
            assert "***" in shown or len(words) == 1 or words[1] == "--json"


def test_on_pipes_and_with_no_color_there_are_no_colors(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", build(deps=("raw@dev",)))
    assert "\x1b[" not in why(tmp_path, "model")
    assert "\x1b[33m" in Terminal(tmp_path, "why", "model").end()[1]
    assert "\x1b[" not in Terminal(tmp_path, "why", "model", NO_COLOR="1").end()[1]


def test_many_inputs_are_shortened_for_people_and_whole_for_programs(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", build(deps=tuple(f"raw-{number:03}@dev" for number in range(300))))
    assert "    … and 280 more: --json has all\n" in why(tmp_path, "model")
    assert len(as_json(tmp_path, "model")["made_from"]) == 300
