import builtins
import functools
import os
import pickle
import socket
import subprocess
from dataclasses import dataclass, replace

import pytest

from marin.errors import ConfigurationError, InvalidNameError, InvalidVersionError, RunError, UnusedOverrideError
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import remote
from marin.execution.runner import resolve
from marin.execution.version_codex import VersionCodex, build_context
from marin.testing import temporary_store


def step(name="raw/poems", version="2026.07.01", **more):
    return ArtifactStep(name=name, version=version, **{"run": "my_project.poems:write", **more})


def two(config, more):
    raise AssertionError


@dataclass(frozen=True)
class AdamConfig:
    lr: float


class Train(ArtifactStep[Artifact]):
    """The seed's form: a plain subclass whose build_config is a method."""

    config = AdamConfig(lr=6e-4)

    def build_config(self, ctx):
        device = ctx.runtime_arg("device")
        learning_rate = self.config.lr
        assert (device, learning_rate) is not None


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweep(ArtifactStep[Artifact]):
    config: AdamConfig

    def build_config(self, ctx):
        return {"output_path": ctx.output_path, "lr": self.config.lr}


def test_making_handles_touches_nothing(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a handle touched the world")

    for module, name in [
        (builtins, "open"),
        (os, "open"),
        (os, "stat"),
        (os, "lstat"),
        (os, "listdir"),
        (os, "scandir"),
        (os, "mkdir"),
        (os, "getcwd"),
        (os, "fork"),
        (socket, "socket"),
        (subprocess, "Popen"),
    ]:
        monkeypatch.setattr(module, name, forbidden)
    one = step()
    other = step("reports", deps=(one,), run=remote("a.b:c", resources="cuda:0"), build_config=lambda ctx: None)
    ArtifactStep.adopt(name="x", version="2025.12.01", adopt_source="gs://bucket/x/", kind=Artifact)
    Train(name="t", version="dev", run="a:b", runtime_args={"device": "tpu"})
    replace(other, version="2026.07.02")
    repr(other)


def test_handles_compare_and_hash_by_identity():
    assert step() != step()
    assert len({step(): 1.0, step(): 2.0}) == 2


def test_a_handle_shows_its_type_and_id():
    assert repr(step()) == "ArtifactStep[Artifact](raw/poems@2026.07.01)"


def test_the_version_that_is_left_out_is_dev():
    assert ArtifactStep(name="x", run="a:b").version == "dev"


def test_a_build_context_gives_the_version_that_is_left_out():
    with build_context(VersionCodex(default="2026.07.01", overrides={"tokens": "anna-dev"})):
        assert ArtifactStep(name="model", run="a:b").version == "2026.07.01"
        assert ArtifactStep(name="tokens", run="a:b").version == "anna-dev"
        assert ArtifactStep(name="other", run="a:b", version="2020.01.01").version == "2020.01.01"
    assert ArtifactStep(name="model", run="a:b").version == "dev"


def test_an_override_that_nothing_used_is_an_error_with_a_near_name():
    with pytest.raises(UnusedOverrideError, match=r"tokens=dev matches no handle: did you mean raw/tokens\?"):
        with build_context(VersionCodex(overrides={"tokens": "dev"})):
            ArtifactStep(name="raw/tokens", run="a:b")


def test_an_override_of_a_written_version_says_where_it_is_written():
    with pytest.raises(UnusedOverrideError, match=r"the script gives raw/poems the version 2026\.07\.01"):
        with build_context(VersionCodex(overrides={"raw/poems": "dev"})):
            step()


def test_an_error_in_the_script_is_not_hidden_by_an_unused_override():
    with pytest.raises(ZeroDivisionError), build_context(VersionCodex(overrides={"tokens": "dev"})):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"name": "a b"}, InvalidNameError, "' '"),
        ({"version": "1.0"}, InvalidVersionError, "raw/poems"),
        ({"version": ""}, InvalidVersionError, "raw/poems"),
        ({"version": None}, InvalidVersionError, "NoneType"),
        ({"run": None}, ConfigurationError, "no step function"),
        ({"run": "no_colon"}, ConfigurationError, "package.module:function"),
        ({"run": 7}, ConfigurationError, "can't be called"),
        ({"run": remote("no_colon")}, ConfigurationError, "package.module:function"),
        (
            {"run": two},
            ConfigurationError,
            r"run=two\(config, more\) takes 2 parameters, and is called with one: .* apply",
        ),
        ({"run": remote(two)}, ConfigurationError, r"takes 2 parameters"),
        ({"run": lambda: None}, ConfigurationError, r"takes no parameter"),
        ({"run": lambda *, config: None}, ConfigurationError, r"1 parameter by name only"),
        ({"run": functools.partial(two, 1, 2)}, ConfigurationError, r"takes no parameter"),
        ({"build_config": {"lr": 1.0}}, ConfigurationError, r"build_config=.* can't be called: give a function"),
        ({"artifact_type": dict}, ConfigurationError, "not a subclass of Artifact"),
        ({"deps": ("raw/x",)}, ConfigurationError, r"deps\[0\] is str"),
        ({"deps": step()}, ConfigurationError, "a tuple"),
        ({"expected_fingerprint": "abcd"}, ConfigurationError, "1:abcd1234"),
        ({"expected_fingerprint": "1:abc"}, ConfigurationError, "8 hex"),
        ({"pin": "/x", "run": None, "source": "y"}, ConfigurationError, "exclude each other"),
    ],
)
def test_a_mistake_is_told_when_the_handle_is_made(fields, error, message):
    with pytest.raises(error, match=message):
        step(**fields)


def test_adopting_without_a_place_is_an_error():
    with pytest.raises(ConfigurationError, match="give the place"):
        ArtifactStep.adopt(name="x", version="dev", kind=Artifact)
    with pytest.raises(ConfigurationError, match="give the place of the data once"):
        ArtifactStep.adopt(name="x", version="dev", kind=Artifact, source="/a", adopt_source="/b")


def test_an_overriding_method_is_the_recipe_and_its_fields_count():
    one = Train(name="t", version="dev", run="a:b", runtime_args={"device": "tpu"})
    assert one.own_fields() == {"config": AdamConfig(lr=6e-4)}

    class Faster(Train):
        config = AdamConfig(lr=1e-3)

    other = Faster(name="t", version="dev", run="a:b", runtime_args={"device": "tpu"})
    assert one.fingerprint() != other.fingerprint()


def test_the_device_does_not_change_the_fingerprint():
    def on(device):
        return Train(name="t", version="dev", run="a:b", runtime_args={"device": device})

    assert on("tpu").fingerprint() == on("cuda:0").fingerprint()


def test_a_replaced_handle_builds_its_own_config_and_not_the_old_ones():
    one = Sweep(name="t", version="dev", run="a:b", config=AdamConfig(lr=1.0))
    other = replace(one, config=AdamConfig(lr=2.0))

    class Context:
        output_path = "/x"

    assert one.build_config(Context())["lr"] == 1.0
    assert other.build_config(Context())["lr"] == 2.0
    assert one.fingerprint() != other.fingerprint()


def test_a_config_given_at_construction_wins_over_the_method():
    given = Sweep(name="t", version="dev", run="a:b", config=AdamConfig(lr=1.0), build_config=lambda ctx: {"lr": 3.0})
    assert given.build_config(None) == {"lr": 3.0}


def test_where_a_handle_was_made_is_known():
    assert step().made_at.split(":")[0].endswith("test_lazy.py")
    assert replace(step(), version="2026.07.02").made_at.split(":")[0].endswith("test_lazy.py")
    adopted = ArtifactStep.adopt(name="x", version="dev", kind=Artifact, source="/a")
    assert adopted.made_at.split(":")[0].endswith("test_lazy.py")


def test_only_a_name_or_a_version_moves_the_address():
    one = step(build_config=lambda ctx: {"language": "en"})
    other = replace(one, build_config=lambda ctx: {"language": "fr"})
    assert one.id == other.id
    assert one.fingerprint() != other.fingerprint()


def test_where_a_step_runs_is_no_identity():
    plain, elsewhere = step(), step(run=remote("my_project.poems:write", resources="cuda:1", resumable=True))
    assert plain.fingerprint() == elsewhere.fingerprint()


def test_a_handle_with_importable_parts_can_be_sent():
    assert pickle.loads(pickle.dumps(step())).id == step().id


def test_handles_of_dataclass_subclasses_compare_and_hash_by_identity():
    @dataclass(frozen=True, kw_only=True)
    class Tuned(ArtifactStep):
        lr: float = 0.1

    one, other = (Tuned(name="t", version="dev", run="a:b") for _ in range(2))
    assert one != other
    assert len({one: 1.0, other: 2.0}) == 2


def test_a_build_config_that_is_no_method_is_refused_and_not_ignored():
    class Shared(ArtifactStep):
        @classmethod
        def build_config(cls, ctx):
            return {"lr": 0.1}

    with pytest.raises(ConfigurationError, match=r"Shared\.build_config is a classmethod"):
        Shared(name="t", version="dev", run="a:b")


def test_a_place_may_be_a_path_object_but_not_empty(tmp_path):
    assert step(run=None, pin=tmp_path).pin == str(tmp_path)
    with pytest.raises(ConfigurationError, match="pin is empty"):
        step(run=None, pin="")


def test_what_only_the_artifact_has_is_told():
    handle = ArtifactStep(name="raw/poems", version="2026.07.01", run=print)
    with pytest.raises(AttributeError, match=r"a handle has no 'path'; it is the artifact that has it: resolve"):
        _ = handle.path
    with pytest.raises(AttributeError, match=r"a handle has no 'pat'$"):
        _ = handle.pat


def test_a_fingerprint_in_place_of_its_text_is_told():
    handle = ArtifactStep(name="raw/poems", version="2026.07.01", run=print)
    with pytest.raises(ConfigurationError, match="is not 'scheme:hash'"):
        replace(handle, expected_fingerprint=handle.fingerprint())


@pytest.mark.parametrize(
    "run",
    [
        lambda config, more=1: None,
        lambda *configs: None,
        functools.partial(two, more=1),
        functools.wraps(two)(lambda c: 1),
    ],
)
def test_a_function_that_can_be_called_with_the_config_alone_is_taken(run):
    assert step(run=run).run is run


def test_remote_of_remote_is_refused():
    with pytest.raises(ConfigurationError, match="call it once"):
        remote(remote("my_project.poems:write"), retries=2)


def test_a_function_given_by_name_that_does_not_take_the_config_alone_fails_with_its_signature():
    with (
        temporary_store(),
        pytest.raises(RunError, match=r"step function divmod\(x, y, /\) takes 2 parameters") as failed,
    ):
        resolve(step(run="builtins:divmod"))
    assert "\n    at " not in str(failed.value)
