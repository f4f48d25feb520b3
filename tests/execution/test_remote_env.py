"""Variables that a step's process begins with."""

import os

import pytest

from marin.errors import ConfigurationError
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import remote
from marin.execution.runner import resolve


def record_environment(config):
    with open(os.path.join(config["output_path"], "env"), "w") as file:
        file.write(f"{os.environ.get('POEM_THREADS')} {os.environ.get('POEM_MODE')}")


def made(options, **env: str) -> str:
    step = ArtifactStep[Artifact](
        name="raw/env",
        version="2026.07.01",
        run=remote(record_environment, env=env),
        build_config=lambda ctx: {"output_path": ctx.output_path},
    )
    with open(os.path.join(resolve(step, options=options).path, "env")) as file:
        return file.read()


def test_a_step_has_the_variables_of_its_author_but_for_those_that_are_set(options, monkeypatch):
    monkeypatch.setenv("POEM_MODE", "mine")
    assert made(options, POEM_THREADS="4", POEM_MODE="the author's") == "4 mine"


def test_they_are_not_identity():
    plain, other = (ArtifactStep(name="raw/env", run=remote(record_environment, env=env)) for env in (None, {"A": "1"}))
    assert plain.fingerprint() == other.fingerprint()


@pytest.mark.parametrize("env", [{"A": 4}, {"": "x"}, {"A=B": "x"}, {"A": "\0"}, ["A=4"]])
def test_what_is_no_variable_is_told_at_once(env):
    with pytest.raises(ConfigurationError, match=r"env="):
        remote(record_environment, env=env)
