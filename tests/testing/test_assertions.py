"""What a test says about a plan, and how it fails."""

from dataclasses import replace

import pytest

from marin.errors import ConfigurationError
from marin.execution import Artifact, ArtifactStep, resolve
from marin.testing import assert_builds, assert_cached, plan_reasons
from tests.execution.pipelines import Poems, poems, report


def test_reasons_of_what_would_be_built(marin_store):
    assert plan_reasons(report(poems())) == {
        "raw/poems@2026.07.01": "build: not built yet",
        "reports/words@2026.07.01": "build: not built yet",
    }


def test_reasons_of_what_would_be_served_have_no_times_but_drift(marin_store):
    resolve(report(poems()))
    assert plan_reasons(poems(word="lily")) == {"raw/poems@2026.07.01": "serve: config[\"word\"]: 'rose' → 'lily'"}
    assert plan_reasons(report(poems()), poems())["reports/words@2026.07.01"] == "serve"


def test_reasons_tell_stale_inputs(marin_store):
    resolve(report(poems()))
    used = marin_store.path / "raw/poems/2026.07.01"
    used.rename(marin_store.path / "away")
    resolve(poems())
    assert plan_reasons(report(poems()))["reports/words@2026.07.01"].startswith("serve: stale input: raw/poems@")


def test_reasons_of_what_is_refused(marin_store):
    gone = ArtifactStep.adopt(name="raw/x", version="2026.07.01", source="/nowhere/poems", kind=Poems)
    pinned = replace(poems(), run=None, pin="/nowhere/poems")
    assert plan_reasons(gone)["raw/x@2026.07.01"].startswith("refuse: raw/x@2026.07.01: /nowhere/poems does not exist")
    assert plan_reasons(pinned)["raw/poems@2026.07.01"].startswith("refuse: raw/poems@2026.07.01: /nowhere/poems does")
    with pytest.raises(AssertionError, match="would not serve"):
        assert_cached(pinned)


def test_a_step_that_would_be_built(marin_store):
    assert_builds(report(poems()))
    with pytest.raises(AssertionError, match=r"(?s)would not serve raw/poems@.*, reports/words@.*build: not built yet"):
        assert_cached(report(poems()))


def test_a_step_that_would_be_served(marin_store):
    resolve(report(poems()))
    assert_cached(report(poems()), poems())
    with pytest.raises(AssertionError) as failed:
        assert_builds(poems("2026.07.02"), report(poems(word="lily")))
    assert str(failed.value) == (
        "a run would not build reports/words@2026.07.01:\n"
        "  raw/poems@2026.07.02: build: not built yet\n"
        "  raw/poems@2026.07.01: skip: not needed: nothing that is built now reads it; "
        "config[\"word\"]: 'rose' → 'lily'\n"
        "  reports/words@2026.07.01: serve"
    )


def test_a_dev_step_is_never_cached(marin_store):
    resolve(poems("dev"))
    with pytest.raises(AssertionError, match="build: dev versions are rebuilt at every run"):
        assert_cached(poems("dev"))
    assert_builds(poems("dev"))


@pytest.mark.parametrize("assertion", [assert_builds, assert_cached])
def test_nothing_can_not_be_asked_for(assertion, marin_store):
    with pytest.raises(ConfigurationError, match="give the handles"):
        assertion()


def test_reasons_tell_changed_code(marin_store, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "verses.py").write_text("def write(config):\n    return None\n")
    step = ArtifactStep(name="raw/verses", version="2026.07.01", run="verses:write")
    marin_store.put(step, Artifact())
    assert plan_reasons(step) == {"raw/verses@2026.07.01": "serve"}
    (tmp_path / "verses.py").write_text("def write(config):\n    print(config)\n")
    assert plan_reasons(step) == {"raw/verses@2026.07.01": "serve: code changed: verses.write (verses.py)"}
