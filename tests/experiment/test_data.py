"""The builders of the data side: handles that do nothing, and recipes that hold what the author wrote."""

from __future__ import annotations

import builtins
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import marin.experiment.data
import marin.training.train
from marin.errors import ConfigurationError
from marin.execution.artifact import Artifact, at_path
from marin.execution.context import RunContext
from marin.execution.lazy import ArtifactStep
from marin.experiment.data import files, hf, hf_download, hub_tokenizer, tokenized, trained_tokenizer
from marin.experiment.tokenizers import byte_tokenizer, marin_tokenizer
from marin.processing.download import HubDownloadConfig
from marin.processing.sources import FileSource, HubSource
from marin.processing.tokenize.build import tokenize
from marin.processing.tokenize.cache import TokenCache
from marin.processing.tokenize.tokenize import TokenizeConfig, TokenizedCache
from marin.processing.tokenize.tokenizers import TokenizerSource
from marin.processing.tokenize.train_tokenizer import train_tokenizer
from tests.processing.tokenize.small import stdlib_source, write_poems

VERSION = "2026.07.01"
RAW = ArtifactStep(name="raw/poems", version=VERSION, run="my_project.poems:write")


def poems(**changes: Any) -> ArtifactStep[TokenizedCache]:
    given: dict[str, Any] = {"source": "poems/*.jsonl", "tokenizer": "bytes", "version": VERSION, **changes}
    return tokenized("tokenized/poems", **given)


def config(step: ArtifactStep[Any], output_path: Path | str = "/out", **inputs: Artifact) -> Any:
    """The config with which ``step`` runs; ``inputs`` by the last segment of their names."""
    by_id = {str(dep.id): inputs[dep.name.rsplit("/", 1)[1]] for dep in step.deps}
    return step.build_config(RunContext(step, output_path=str(output_path), prefix="/", region=None, inputs=by_id))


def test_the_call_of_the_first_tutorial_makes_a_handle():
    step = tokenized(
        name="tokenized/tinystories",
        source="roneneldan/TinyStories",
        tokenizer=marin_tokenizer,
        version="2026.07.01",
    )
    assert (str(step.id), step.artifact_type, step.deps) == ("tokenized/tinystories@2026.07.01", TokenizedCache, ())
    made = config(step)
    assert made.source == HubSource(repository="roneneldan/TinyStories")
    assert made.tokenizer == TokenizerSource(kind="hub", location="marin-community/marin-tokenizer")


def test_making_a_handle_touches_nothing(monkeypatch: pytest.MonkeyPatch):
    def forbidden(*args: object, **kwargs: object) -> Any:
        raise AssertionError(f"touched {args}")

    for module, names in {
        builtins: ["open"],
        os: ["open", "stat", "lstat", "listdir", "scandir", "getcwd"],
        os.path: ["exists", "isfile", "isdir", "realpath", "lexists"],
        socket: ["socket"],
        subprocess: ["Popen"],
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, forbidden)
    try:
        tokenizer = trained_tokenizer("tokenizers/poems", source=Path("poems"), vocab_size=300, version=VERSION)
        raw = ArtifactStep(name="raw/poems", version=VERSION, run="my_project.poems:write")
        made = [
            poems(tokenizer=tokenizer, source="/poems", validation="~/held/*.txt"),
            poems(source=None, raw=raw, glob="*.jsonl"),
            poems(source="org/poems", tokenizer="org/tokenizer", held_out=0.1),
        ]
        for step in made:
            step.fingerprint()
    finally:
        monkeypatch.undo()


def test_describing_imports_nothing_heavy():
    code = "import sys, marin.experiment.data, marin.experiment.tokenizers; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "pyarrow", "tokenizers", "huggingface_hub", "jax", "optax", "orjson", "fsspec"}
    assert "marin.experiment.data" in modules
    assert heavy.isdisjoint(modules)


def test_what_is_written_is_identity_and_what_only_moves_the_work_is_not():
    base = poems().fingerprint().digest
    changes: list[dict[str, Any]] = [
        {"source": "poems/*"},
        {"source": files("poems/*.jsonl", format="text")},
        {"source": files("poems/*.jsonl", exclude="poems/old.jsonl")},
        {"source": hf("poems/all")},
        {"source": hf("poems/all", revision="v2")},
        {"source": hf("poems/other", split="test")},
        {"tokenizer": "./tokenizer.json"},
        {"tokenizer": "org/tokenizer"},
        {"validation": "held/*.jsonl"},
        {"held_out": 0.1},
        {"text_key": "body"},
        {"eos_token": "</s>"},
        {"format": "text", "source": "poems/*"},
    ]
    digests = [poems(**change).fingerprint().digest for change in changes]
    assert len({base, *digests}) == len(changes) + 1
    assert poems(source=Path("poems/*.jsonl")).fingerprint().digest == base
    assert poems(source=None, paths="poems/*.jsonl").fingerprint().digest == base
    assert poems(source=["poems/*.jsonl"]).fingerprint().digest == base
    assert poems(held_out=0).fingerprint().digest == base
    outright = poems(source=hf("poems/all"), tokenizer=TokenizerSource(kind="hub", location="org/tokenizer"))
    guessed = poems(source="poems/all", tokenizer="org/tokenizer")
    assert guessed.fingerprint().payload == outright.fingerprint().payload


def test_relative_paths_stay_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = poems().fingerprint().digest
    monkeypatch.chdir(tmp_path)
    assert poems().fingerprint().digest == before
    assert config(poems()).source == FileSource(paths=("poems/*.jsonl",))


def test_a_trained_tokenizer_is_a_dependency_and_its_version_counts():
    first, second = (
        trained_tokenizer("tokenizers/poems", source="poems", vocab_size=300, version=version)
        for version in (VERSION, "2026.07.02")
    )
    step = poems(tokenizer=first)
    assert step.deps == (first,)
    assert step.fingerprint().digest != poems(tokenizer=second).fingerprint().digest
    made = config(step, poems=at_path(Artifact(), "/store/tokenizers/poems"))
    assert made.tokenizer == TokenizerSource(
        kind="file", location="/store/tokenizers/poems/tokenizer.json", called="tokenizers/poems@2026.07.01"
    )


def test_the_output_of_another_step_can_be_the_source_and_the_validation():
    raw = ArtifactStep(name="raw/poems", version=VERSION, run="my_project.poems:write")
    folder = at_path(Artifact(), "/store/raw/poems")
    assert config(poems(source=raw), poems=folder).source == FileSource(paths=("/store/raw/poems",))
    held = ArtifactStep(name="raw/held", version=VERSION, run="my_project.poems:write")
    globbed = poems(source=None, raw=raw, glob="a/*.txt", validation=held)
    assert globbed.deps == (raw, held)
    made = config(globbed, poems=folder, held=at_path(Artifact(), "/store/raw/held"))
    assert made.source == FileSource(paths=("/store/raw/poems/a/*.txt",))
    assert made.validation == FileSource(paths=("/store/raw/held",))
    assert poems(source=raw, validation=raw).deps == (raw,)


def test_the_whole_path_from_text_to_tokens_runs_from_two_handles(tmp_path: Path):
    source = stdlib_source(20)
    tokenizer = trained_tokenizer("tokenizers/code", source=source, vocab_size=400, held_out=0.3, version=VERSION)
    code = tokenized("tokenized/code", source=source, tokenizer=tokenizer, held_out=0.3, version=VERSION)
    (tmp_path / "tokenizer").mkdir()
    trained = at_path(train_tokenizer(config(tokenizer, tmp_path / "tokenizer")), str(tmp_path / "tokenizer"))
    made = at_path(tokenize(config(code, tmp_path / "tokens", code=trained)), str(tmp_path / "tokens"))
    made.verify()
    assert made.tokenizer.location == "tokenizers/code@2026.07.01"
    assert made.tokenizer.agrees_with(trained.tokenizer)
    assert trained.text_bytes == made.splits["train"].text_bytes
    assert TokenCache.open(made.path, "validation").num_tokens == made.splits["validation"].tokens


def test_a_text_handle_runs_with_the_bytes_tokenizer(tmp_path: Path):
    write_poems(tmp_path / "poems.jsonl", ["ab"])
    step = poems(source=tmp_path / "*.jsonl", tokenizer=byte_tokenizer)
    made: TokenizeConfig = config(step, tmp_path / "out")
    assert tokenize(made).num_train_tokens == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": None}, r"tokenized/poems: give the documents once, as source=, paths= or raw=; none is given"),
        ({"paths": ["a"]}, r"source, paths are given"),
        ({"source": None, "raw": "raw/poems"}, r"raw= is the handle of another step; .* paths='raw/poems'"),
        ({"glob": "*.txt"}, r"glob='\*\.txt' chooses files of another step"),
        ({"held_out": 1}, r"held_out=1 is not a fraction"),
        ({"held_out": -0.1}, r"held_out=-0\.1 is not a fraction"),
        ({"held_out": float("nan")}, r"held_out=nan is not a fraction"),
        ({"held_out": True}, r"held_out=True is not a fraction"),
        ({"held_out": 0.1, "validation": "a"}, r"validation= and held_out= exclude each other"),
        ({"validation": True}, r"validation=True says no files; give paths, or held_out="),
        ({"source": "org/poems", "format": "text"}, r"format='text' does not apply to HubSource"),
        ({"source": files("a", format="json"), "format": "text"}, r"format='text' does not apply to FileSource"),
        ({"source": "s3://bucket/a.jsonl"}, r"reading s3:// is not supported yet"),
        ({"tokenizer": "byte"}, r"tokenizer='byte': did you mean 'bytes'\?"),
        (
            {"source": None, "raw": RAW, "format": "jsnl"},
            r"format='jsnl' is unknown; known are json, jsonl, parquet, text",
        ),
        ({"text_key": None}, r"text_key=None is not the name of a field"),
        ({"text_key": ""}, r"text_key='' is not the name of a field"),
        ({"tokenizer": None}, r"tokenizer=None: give 'bytes'"),
    ],
)
def test_what_can_not_work_is_refused_when_the_handle_is_made(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        poems(**changes)


def test_a_handle_that_makes_no_tokenizer_is_refused():
    with pytest.raises(ConfigurationError, match=r"is not a tokenizer; make one with trained_tokenizer\(\)"):
        poems(tokenizer=poems())


@pytest.mark.parametrize("vocab_size", [256, 0, 300.0, True, None])
def test_a_vocabulary_needs_room_for_the_bytes_and_the_end_of_text(vocab_size: Any):
    with pytest.raises(ConfigurationError, match=r"not a whole number of at least 257"):
        trained_tokenizer("tokenizers/poems", source="poems", vocab_size=vocab_size, version=VERSION)


def test_a_download_keeps_what_its_author_wrote():
    step = hf_download("raw/poems", hf_id="org/poems", revision="main", urls_glob="*.jsonl", version=VERSION)
    assert config(step) == HubDownloadConfig(
        output_path="/out", hf_id="org/poems", revision="main", urls_glob=("*.jsonl",), kind="dataset"
    )
    assert poems(source=step).deps == (step,)
    with pytest.raises(ConfigurationError, match="organisation/name"):
        hf_download("raw/poems", hf_id="poems", revision="main", version=VERSION)
    with pytest.raises(ConfigurationError, match="kind='space' is neither"):
        hf_download("raw/poems", hf_id="org/poems", revision="main", kind="space", version=VERSION)  # type: ignore[arg-type]


def test_train_lm_is_the_trainings_own():
    assert marin.experiment.data.train_lm is marin.training.train.train_lm


@pytest.mark.parametrize("builder", [tokenized, trained_tokenizer, hf_download, files, hf, hub_tokenizer])
def test_every_name_of_a_signature_can_be_imported_from_where_the_builder_is(builder: Any):
    signature = " ".join(str(each) for each in builder.__annotations__.values())
    elsewhere = {"ArtifactStep", "Any", "Sequence", "None", "str", "int", "float", "bool"}
    named = set(re.findall(r"\w+", signature)) - elsewhere
    assert named <= set(marin.experiment.data.__all__)


def test_exports_are_deliberate():
    assert marin.experiment.data.__all__ == [
        "Documents",
        "FileFormat",
        "FileSource",
        "HubDownload",
        "HubSource",
        "PathText",
        "RepositoryKind",
        "Source",
        "TokenizedCache",
        "TokenizerSource",
        "TrainedTokenizer",
        "files",
        "hf",
        "hf_download",
        "hub_tokenizer",
        "tokenized",
        "train_lm",
        "trained_tokenizer",
    ]
