"""Where data was adopted from, or what a step is pinned to, is shown without the credentials in it."""

import io
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import ConflictingRecipesError, MarinError
from marin.execution.artifact import Artifact
from marin.execution.console import JsonReporter
from marin.execution.lazy import ArtifactStep
from marin.execution.options import RunOptions
from marin.execution.plan_text import plan_as_json, render_plan
from marin.execution.redaction import redact_text
from marin.execution.runner import plan, run
from marin.experiment.ending import tell_fault

SECRET = "hunter22-secret"
PLACES = [
    f"https://anna:{SECRET}@host/x",
    f"https://anna:p@{SECRET}@host/x",
    f"/data/https:/anna:{SECRET}@host/x",
    f"postgres://{SECRET}@host/d",
    f"/data/poems?sig={SECRET}",
    f"https://host/x?X-Amz-Signature={SECRET}&y=1",
]


def adopted(place, version="2026.07.01"):
    return ArtifactStep.adopt(name="raw/poems", version=version, source=place, kind=Artifact)


def pinned(place):
    return ArtifactStep(name="raw/poems", version="2026.07.01", pin=place)


def everything_shown(handle, options):
    out = io.StringIO()
    made = plan(handle, options=options)
    yield from (render_plan(made), json.dumps(plan_as_json(made)), repr(made), repr(list(made.steps.values())))
    yield from (str(made._repr_html_()), str(handle._repr_html_()), repr(handle))
    try:
        run(handle, options=options, reporter=JsonReporter(out))
    except MarinError as fault:
        yield str(fault)
        tell_fault(fault, out)
    yield out.getvalue()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", [adopted, pinned])
def test_credentials_of_a_place_are_in_no_plan_error_or_output(place, make, options, capfd):
    for text in everything_shown(make(place), options):
        assert SECRET not in text
    told = capfd.readouterr()
    assert SECRET not in told.out + told.err


def test_nor_those_of_a_place_that_is_there(tmp_path, options, capfd):
    place = tmp_path / f"poems?sig={SECRET}"
    place.mkdir()
    for make in (pinned, adopted):
        for text in everything_shown(make(str(place)), options):
            assert SECRET not in text
        run(make(str(place)), options=options)
    told = capfd.readouterr()
    assert SECRET not in told.out + told.err
    assert "poems?sig=***" in told.err


@pytest.mark.parametrize("command", [["ls"], ["show", "raw/poems"], ["why", "raw/poems"]])
def test_nor_in_what_the_commands_say_of_it(tmp_path, command):
    place = tmp_path / f"poems?sig={SECRET}"
    place.mkdir()
    store = str(tmp_path / "store")
    run(adopted(str(place)), options=RunOptions(prefix=store, durable=False))
    words = [sys.executable, "-m", "marin.cli.main", *command, "--prefix", store]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "sig=***" in done.stdout
    assert SECRET not in done.stdout + done.stderr


def test_what_the_environment_says_is_secret_is_not_shown_either(options, monkeypatch, capfd):
    monkeypatch.setitem(os.environ, "MY_API_KEY", SECRET)
    for text in everything_shown(pinned(f"/data/{SECRET}/poems"), options):
        assert SECRET not in text
    told = capfd.readouterr()
    assert SECRET not in told.out + told.err


def test_nor_in_the_difference_of_two_pins(options):
    one, other = pinned(PLACES[0]), pinned("/data/poems")
    reader = ArtifactStep(name="model", version="2026.07.01", run=print, deps=(one, other))
    with pytest.raises(ConflictingRecipesError, match=r"\*\*\*@host/x → /data/poems") as conflict:
        plan(reader, options=options)
    assert SECRET not in str(conflict.value)


@settings(max_examples=50)
@given(st.text("abcXYZ019!$%&*()=+.,;:@~_-", min_size=1, max_size=20).map(lambda text: f"{text}{SECRET}"))
def test_any_password_is_left_out_of_a_url(password):
    assert SECRET not in redact_text(f"see https://anna:{password}@host/x now")
