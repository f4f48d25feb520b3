import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.errors import ConfigurationError, UnusedOverrideError
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep
from marin.execution.options import RunOptions
from marin.execution.runner import TargetsCaptured, capture_targets
from marin.experiment.main import Launch, build_options, experiment_main, launched
from tests.cli.commands import python, script


@dataclass(frozen=True)
class Poems(Artifact):
    lines: int


def write(config: dict[str, str]) -> Poems:
    Path(config["output_path"], "poems.txt").write_text("vers\n")
    return Poems(lines=1)


def fail(config: dict[str, str]) -> Poems:
    raise ValueError("no verse today")


def poems(name: str = "poems", run=write) -> ArtifactStep[Poems]:
    return ArtifactStep(
        name=name, run=run, artifact_type=Poems, build_config=lambda ctx: {"output_path": ctx.output_path}
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARIN_DURABLE", "0")
    return tmp_path / "store"


def main(store: Path, build, *words: str, version: str = "2026.07.01"):
    return experiment_main(build, version=version, argv=["--prefix", str(store), *words])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (lambda: poems(), "poems"),
        (lambda: [poems("a"), poems("b")], ("a", "b")),
        (lambda: (poems("a"),), ("a",)),
        (lambda: {"one": poems("a"), "two": poems("b")}, {"one": "a", "two": "b"}),
    ],
)
def test_artifacts_come_in_the_shape_of_their_handles(store: Path, shape, expected):
    def name(artifact: Poems) -> str:
        return Path(artifact.path).parent.name

    made = main(store, shape)
    if isinstance(made, dict):
        assert {key: name(artifact) for key, artifact in made.items()} == expected
    elif isinstance(made, tuple):
        assert tuple(name(artifact) for artifact in made) == expected
    else:
        assert name(made) == expected


def test_the_version_is_that_of_the_option_else_of_the_script_else_dev(store: Path):
    assert main(store, poems).path == f"{store}/poems/2026.07.01"
    assert main(store, poems, "--version", "2026.08.01").path == f"{store}/poems/2026.08.01"
    assert main(store, poems, "--override", "poems=2026.09.01").path == f"{store}/poems/2026.09.01"
    assert experiment_main(poems, argv=["--prefix", str(store)]).path.startswith(f"{store}/poems/dev")


@pytest.mark.parametrize("word", ["run", "--plan"])
def test_an_unused_override_ends_with_1_before_anything_runs(
    store: Path, capsys: pytest.CaptureFixture[str], word: str
):
    words = ["--plan"] if word == "--plan" else []
    with pytest.raises(SystemExit, match="1"):
        main(store, poems, "--override", "poem=dev", *words)
    assert "error: override poem=dev matches no handle: did you mean poems?" in capsys.readouterr().err
    assert not store.exists()


@pytest.mark.parametrize("where", ["python", "marin run", "marin plan"])
def test_a_version_without_effect_is_told_once(tmp_path: Path, where: str):
    text = "from marin.experiment.main import experiment_main\nexperiment_main(lambda: [{}])\n"
    words = [] if where == "python" else ["-m", "marin.cli.main", where.partition(" ")[2]]
    told = "note: version 2026.12.01 has no effect: the script gives a the version 2026.07.01. Leave version= out there"
    fixed, free = "poems('a', version='2026.07.01')", "poems('b')"
    for number, (targets, times) in enumerate([(fixed, 1), (f"{fixed}, {free}", 0), (free, 0)]):
        path = script(tmp_path, text.format(targets), name=f"p{number}.py")
        assert python(tmp_path, *words, path, "--version", "2026.12.01").stderr.count(told) == times
        assert "has no effect" not in python(tmp_path, *words, path).stderr


def test_a_failure_is_told_and_ends_with_1(store: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="1"):
        main(store, lambda: [poems("bad", run=fail), poems("good")])
    said = capsys.readouterr().err
    assert re.search(r"  bad@2026\.07\.01\n    ValueError: no verse today\n    at \S*test_main\.py:\d+ in fail\n", said)
    assert said.endswith("error: 1 of 2 steps failed\n")


def test_plan_prints_the_plan_and_ends_with_0(store: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(store, poems, "--plan")
    assert ended.value.code == 0
    assert "build  poems/2026.07.01  not built yet" in capsys.readouterr().out
    assert not store.exists()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: None, r"returned NoneType, which is no handle: let it return an ArtifactStep"),
        (lambda: [poems(), "poems"], r"returned str, which is no handle"),
        (list, r"list\(\) returned no handle: there is nothing to make"),
        (poems(), r"takes a function that makes the handles, not ArtifactStep: write def build"),
    ],
)
def test_what_build_must_be_is_told(store: Path, capsys: pytest.CaptureFixture[str], build, message: str):
    with pytest.raises(SystemExit, match="1"):
        main(store, build)
    assert re.search(f"error: .*{message}", capsys.readouterr().err)


def test_an_error_of_the_script_keeps_its_traceback(store: Path):
    def build():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main(store, build)


def test_under_a_launch_its_options_count_and_errors_are_raised(store: Path):
    with launched(Launch(options=RunOptions(prefix=str(store)), version="2026.08.01")):
        assert experiment_main(poems, version="2026.07.01").path == f"{store}/poems/2026.08.01"
    with launched(Launch(options=RunOptions(prefix=str(store)), overrides={"poem": "dev"})):
        with pytest.raises(UnusedOverrideError):
            experiment_main(poems)
    with launched(Launch(options=RunOptions(prefix=str(store)))):
        with pytest.raises(ConfigurationError):
            experiment_main(list)


def test_targets_can_be_captured_without_running_anything(store: Path):
    with launched(Launch(options=RunOptions(prefix=str(store)))), capture_targets() as caught:
        with pytest.raises(TargetsCaptured):
            experiment_main(lambda: {"a": poems("a"), "b": poems("b")})
    assert [handle.id.name for handle in caught.handles] == ["a", "b"]
    assert not store.exists()


def test_build_options_reads_a_command_line():
    options, codex = build_options(
        ["--prefix", "/s", "--only", "a", "--only", "b", "--max-concurrent", "2", "--fail-fast", "--region", "eu"],
        version="2026.07.01",
    )
    assert options == RunOptions(prefix="/s", only=("a", "b"), max_concurrent=2, fail_fast=True, region="eu")
    assert (codex.default, codex.overrides) == ("2026.07.01", {})
    assert build_options(["--version", "dev"], version="2026.07.01")[1].default == "dev"


@pytest.mark.parametrize("words", [["--version", "latest"], ["--override", "a"], ["--override", "a=x"], ["--what"]])
def test_a_wrong_command_line_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        build_options(words)
    assert "error:" in capsys.readouterr().err


MAIN = """
from marin.experiment.main import experiment_main
if __name__ == "__main__":
    print(experiment_main(lambda: poems(run=write), version="2026.07.01").lines)
"""


def test_python_runs_the_script_as_marin_does(tmp_path: Path):
    path = script(tmp_path, MAIN)
    done = python(tmp_path, path)
    assert (done.returncode, done.stdout) == (0, "3\n")
    again = python(tmp_path, path, "--json")
    assert again.stdout.endswith('{"event": "ended", "interrupted": false}\n3\n')
    failed = python(tmp_path, script(tmp_path, MAIN.replace("write)", "fail, name='bad')")))
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr


NOISY = """
from marin.experiment.main import experiment_main
def noisy(config):
    print("from the step")
    return write(config)
def build():
    print("from build")
    return poems(run=noisy)
if __name__ == "__main__":
    print("before")
    experiment_main(build, version="2026.07.01")
    print("after")
"""


@pytest.mark.parametrize("words", [["--json"], ["--json", "--plan"]])
def test_json_on_stdout_is_mixed_only_with_what_the_script_itself_prints(tmp_path: Path, words: list[str]):
    path = script(tmp_path, NOISY)
    own = python(tmp_path, path, *words).stdout.splitlines()
    assert [line for line in own if not line.startswith("{")] == (
        ["before"] if "--plan" in words else ["before", "after"]
    )
    command = python(tmp_path, "-m", "marin.cli.main", "run", path, "--json").stdout.splitlines()
    assert [line for line in command if not line.startswith("{")] == []


def test_importing_the_script_helpers_is_light(tmp_path: Path):
    heavy = "('jax', 'numpy', 'rich', 'cloudpickle')"
    code = f"import sys, marin.experiment.main\nprint([name for name in {heavy} if name in sys.modules])"
    assert python(tmp_path, "-c", code).stdout == "[]\n"
