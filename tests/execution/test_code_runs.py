"""Changed code as users meet it: in records, plans and runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from marin.execution import ArtifactStep, remote
from marin.execution.code import code_of
from marin.execution.planning import Decision
from marin.execution.record import decode_record
from marin.execution.runner import plan, run
from tests.cli.commands import marin, python, script
from tests.execution.projects import names

STEPS = """
from pathlib import Path
from verse import helpers

def write(config):
    Path(config["output_path"], "poem.txt").write_text(helpers.clean("Rose"))

def edit_yourself(config):
    source = Path(__file__)
    source.write_text(source.read_text().replace("Ro" + "se", "Lily"))
    write(config)
"""
HELPERS = "def clean(text): return text\n"


@pytest.fixture
def verse(project):
    project.write(verse__init="", verse__steps=STEPS, verse__helpers=HELPERS)
    return project


def poem(run="verse.steps:write", version="2026.07.01", **more):
    build_config = lambda ctx: {"output_path": ctx.output_path}  # noqa: E731
    return ArtifactStep(name="raw/poem", version=version, run=run, build_config=build_config, **more)


def record_file(options):
    return Path(options.prefix, "raw/poem/2026.07.01/.artifact.json")


def recorded(options):
    return decode_record(record_file(options).read_bytes(), "here").build.code


def told(step, options):
    return [str(change) for change in plan(step, options=options).steps[step.id].code_changes]


@pytest.mark.parametrize("step", [poem(), poem(remote("verse.steps:write"))], ids=["here", "process"])
def test_a_build_records_the_code_that_it_was_made_with(verse, options, step, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(verse.folder))
    run(step, options=options)
    assert names(recorded(options)) == {"verse.steps.write", "verse.helpers.clean"}
    assert recorded(options) == code_of("verse.steps:write")


def test_a_changed_helper_is_told_and_what_was_built_is_served(verse, options):
    run(poem(), options=options)
    before = record_file(options).read_bytes()
    verse.write(verse__helpers="def clean(text): return text.lower()\n")
    planned = plan(poem(), options=options).steps[poem().id]
    assert planned.decision is Decision.SERVE
    assert [str(change) for change in planned.code_changes] == ["helpers.clean (verse/helpers.py)"]
    run(poem(), options=options)
    assert record_file(options).read_bytes() == before


def test_the_change_is_told_for_what_lies_above_something_served_too(verse, options):
    above = poem()
    below = ArtifactStep(
        name="reports/poem",
        version="2026.07.01",
        run=len,
        deps=(above,),
        build_config=lambda ctx: [],
    )
    run(above, options=options)
    verse.write(verse__helpers="def clean(text): return text.lower()\n")
    assert told(above, options) == ["helpers.clean (verse/helpers.py)"]
    assert plan(below, options=options).steps[above.id].code_changes != ()


@pytest.mark.parametrize("edited", ["# says\n" + HELPERS, HELPERS + "\n\ndef other(): return 1\n", "def clean("])
def test_an_edit_of_no_consequence_and_one_that_cannot_be_read_say_nothing(verse, options, edited):
    run(poem(), options=options)
    verse.write(verse__helpers=edited)
    assert told(poem(), options) == []


def test_a_record_from_before_code_was_recorded_says_nothing(verse, options):
    run(poem(), options=options)
    content = json.loads(record_file(options).read_text())
    del content["build"]["code"]
    record_file(options).write_text(json.dumps(content))
    verse.write(verse__helpers="def clean(text): return 1\n")
    assert told(poem(), options) == []


def test_a_record_with_code_of_later_rules_says_nothing(verse, options):
    run(poem(), options=options)
    content = json.loads(record_file(options).read_text())
    content["build"]["code"] = {"scheme": 99, "modules": {}, "what_comes_next": [1]}
    record_file(options).write_text(json.dumps(content))
    assert told(poem(), options) == []


def test_code_that_is_edited_while_the_step_runs_is_recorded_as_it_was_planned(verse, options):
    planned = code_of("verse.steps:edit_yourself")
    run(poem("verse.steps:edit_yourself"), options=options)
    assert recorded(options) == planned
    assert told(poem("verse.steps:edit_yourself"), options) == ["steps.write (verse/steps.py)"]


def test_a_step_without_source_is_built_and_recorded_as_unknown(options):
    namespace = {"__name__": "typed_in"}
    exec("def write(config): pass", namespace)
    sys.modules["typed_in"] = type(sys)("typed_in")
    sys.modules["typed_in"].__dict__.update(namespace)
    run(poem(namespace["write"]), options=options)
    code = recorded(options)
    assert (code.modules, list(code.unknown)) == ({}, ["typed_in.write"])
    assert told(poem(namespace["write"]), options) == []


def test_pinned_and_adopted_data_have_no_code(verse, options, tmp_path):
    (tmp_path / "data").mkdir()
    adopted = ArtifactStep.adopt(
        name="raw/poem", version="2026.07.01", kind=poem().artifact_type, source=str(tmp_path / "data")
    )
    run(adopted, options=options)
    assert recorded(options) is None
    assert told(poem(None, pin=str(tmp_path / "data")), options) == []


SCRIPT = """
from tidy import clean

def write_clean(config):
    return write({**config, "lines": clean(config["lines"])})

raw = poems(run=write_clean, version="2026.07.01", lines=2)
"""


def test_a_script_and_the_modules_beside_it_are_watched_and_its_build_calls_are_not(tmp_path):
    (tmp_path / "tidy.py").write_text("def clean(lines): return lines\n")
    path = script(tmp_path, SCRIPT, "my pipeline é.py")
    assert marin(tmp_path, "run", path).returncode == 0
    script(tmp_path, "# edited\n" + SCRIPT.replace("raw =", "first = 1\n\nraw ="), path.name)
    assert "code changed" not in marin(tmp_path, "plan", path).stdout
    (tmp_path / "tidy.py").write_text("def clean(lines): return lines + 1\n")
    hint = "code changed since it was built: tidy.clean (tidy.py)"
    assert hint in marin(tmp_path, "plan", path).stdout
    again = marin(tmp_path, "run", path)
    assert again.returncode == 0
    assert f"note: raw/poems@2026.07.01: {hint}" in again.stderr
    assert "nothing to build" in again.stderr
    as_json = json.loads(marin(tmp_path, "plan", path, "--json").stdout)
    assert [change["name"] for change in as_json["steps"][0]["code_changes"]] == ["clean"]


def test_a_script_has_the_same_code_however_it_is_started_and_wherever_it_lies(tmp_path):
    (tmp_path / "tidy.py").write_text("def clean(lines): return lines\n")
    text = SCRIPT + "from marin.execution.runner import run\nif __name__ == '__main__': run(raw)\n"
    path = script(tmp_path, text)
    assert marin(tmp_path, "run", path, "--prefix", "one").returncode == 0
    moved = tmp_path / "moved"
    moved.mkdir()
    os.symlink(tmp_path / "tidy.py", moved / "tidy.py")
    other = script(moved, text)
    assert python(moved, other, MARIN_PREFIX=str(moved / "two")).returncode == 0
    codes = [
        decode_record((folder / "raw/poems/2026.07.01/.artifact.json").read_bytes(), "").build.code
        for folder in (tmp_path / "one", moved / "two")
    ]
    assert codes[0] == codes[1]
    assert names(codes[0]) == {"pipeline.write_clean", "pipeline.write", "pipeline.Poems", "tidy.clean"}
