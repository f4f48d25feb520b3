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

import numpy as np
import pytest

import marin.experiment.data
import marin.training.train
from marin.errors import ConfigurationError
from marin.execution.artifact import Artifact, at_path
from marin.execution.context import RunContext
from marin.execution.lazy import ArtifactStep
from marin.experiment.data import (
    ChatFormat,
    files,
    hf,
    hf_download,
    hub_tokenizer,
    raw_download,
    tokenized,
    trained_tokenizer,
)
from marin.experiment.tokenizers import byte_tokenizer, marin_tokenizer
from marin.processing.download import HubDownloadConfig
from marin.processing.raw_download import RawDownload, RawDownloadConfig, RemoteFile
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
        {"bos_token": "<s>"},
        {"special_tokens": "template"},
        {"parse_special": True},
        {"format": "chat"},
        {"format": ChatFormat(messages_key="turns")},
        {"sample_count": 10},
        {"source": DOWNLOAD},
        {"source": DOWNLOAD, "split": "test"},
        {"source": DOWNLOAD, "subset": "fr"},
        {"on_bad_record": "skip"},
        {"on_bad_record": "skip", "max_bad_fraction": 0.5},
        {"file_format": "text", "source": "poems/*"},
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


DOWNLOAD = hf_download("raw/poems", hf_id="org/poems", revision="main", version=VERSION)
DOWNLOADED = {
    "README.md": "# Poems",
    "LICENSE": "Be good.",
    "LICENSE.txt": "Be good.",
    ".gitattributes": "*.parquet",
    "dataset_infos.json": '[{"text": "no"}]',
    "data/train-0.jsonl": '{"text": "Roses"}\n',
    "data/train-1.jsonl": '{"text": "are red."}\n',
    "data/validation.jsonl": '{"text": "held"}\n',
    "data/test.jsonl": '{"text": "Violets?"}\n',
    "fr/train.jsonl": '{"text": "Les roses"}\n',
    "train.txt": "Roses",
}


@pytest.mark.parametrize(
    ("chosen", "texts"),
    [
        ({}, ["Roses", "are red.", "Les roses"]),
        ({"split": "test"}, ["Violets?"]),
        ({"subset": "fr"}, ["Les roses"]),
        ({"glob": "data/*.jsonl"}, ["Violets?", "Roses", "are red.", "held"]),
        ({"glob": "*.txt"}, ["Be good.", "Roses"]),
        ({"subset": "data", "split": "validation"}, ["held"]),
    ],
)
def test_of_a_download_from_the_hub_the_files_of_a_split_are_read(
    tmp_path: Path, chosen: dict[str, str], texts: list[str]
):
    for name, text in DOWNLOADED.items():
        (tmp_path / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "raw" / name).write_text(text)
    for way in ("raw", "source"):
        step = poems(**{"source": None, way: DOWNLOAD, **chosen})
        made = config(step, tmp_path / f"from-{way}", poems=at_path(Artifact(), str(tmp_path / "raw")))
        cache = at_path(tokenize(made), made.output_path)
        assert [document.text for document in cache.sample(99)] == texts


def test_a_download_without_files_of_the_split_says_what_there_is(tmp_path: Path):
    (tmp_path / "test.jsonl").write_text('{"text": "a"}\n')
    made = config(poems(source=DOWNLOAD), tmp_path / "out", poems=at_path(Artifact(), str(tmp_path)))
    with pytest.raises(
        ConfigurationError,
        match=r"has no data file of split 'train'; its data files: test\.jsonl\. Choose with split= and "
        r"subset=, or with glob=",
    ):
        tokenize(made)


def test_of_a_download_of_files_with_other_suffixes_those_of_the_split_are_texts(tmp_path: Path):
    for name in ("README.md", "train/a.py", "test/b.py"):
        (tmp_path / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "raw" / name).write_text(name)
    step = poems(source=DOWNLOAD, file_format="text")
    made = config(step, tmp_path / "out", poems=at_path(Artifact(), str(tmp_path / "raw")))
    assert [document.text for document in at_path(tokenize(made), made.output_path).sample(9)] == ["train/a.py"]


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
        ({"source": "org/poems", "file_format": "text"}, r"file_format='text' does not apply to HubSource"),
        ({"source": files("a", format="json"), "file_format": "text"}, r"file_format='text' does not apply to FileS"),
        (
            {"format": "jsonl"},
            r"format='jsonl' is no format of documents: give 'text', .*with file_format='jsonl'",
        ),
        ({"format": ChatFormat(messages_key="")}, r"ChatFormat\(messages_key=''\): give the name of a field"),
        ({"format": ChatFormat(learned="user")}, r"learned='user' is neither 'assistant' nor 'all'"),
        ({"special_tokens": "bos"}, r"special_tokens='bos' is none of 'eos', 'bos_eos', 'template', 'none'"),
        ({"sample_count": 0}, r"sample_count=0 is not a whole number of at least 1"),
        ({"workers": 1.5}, r"workers=1\.5 is not a whole number"),
        ({"on_bad_record": "drop"}, r"on_bad_record='drop' is neither 'error' nor 'skip'"),
        ({"max_bad_fraction": 2}, r"max_bad_fraction=2 is not a fraction from 0 to 1"),
        ({"split": "test"}, r"split choose a part of a source from the hub, which this is not"),
        ({"tokenizer": "byte"}, r"tokenizer='byte': did you mean 'bytes'\?"),
        (
            {"source": None, "raw": RAW, "file_format": "jsnl"},
            r"format='jsnl' is unknown; known are arrow, csv, json, jsonl, parquet, text",
        ),
        ({"text_key": None}, r"text_key=None is not the name of a field"),
        ({"text_key": ""}, r"text_key='' is not the name of a field"),
        ({"tokenizer": None}, r"tokenizer=None: give 'bytes'"),
        ({"source": DOWNLOAD, "revision": "v2"}, r"revision='v2' is chosen by hf_download\(revision=\)"),
        ({"source": DOWNLOAD, "glob": "*.txt", "split": "test"}, r"glob='\*\.txt' chooses the files: leave out split"),
        ({"source": RAW, "split": "test"}, r"split choose a part of a source from the hub, which this is not"),
        ({"parse_special": "yes"}, r"tokenized/poems: parse_special='yes' is neither True nor False"),
        ({"parse_special": 1}, r"parse_special=1 is neither True nor False"),
        ({"eos_token": 3}, r"eos_token=3 is no text, or an empty one: give one, or leave it out"),
        ({"bos_token": ""}, r"bos_token='' is no text, or an empty one"),
        ({"source": "org/poems", "subset": 3}, r"subset=3 is no text"),
        ({"source": "org/poems", "split": ""}, r"split='' is no text"),
        ({"source": "org/poems", "revision": 7}, r"revision=7 is no text"),
        ({"source": None, "raw": RAW, "glob": ["*.jsonl"]}, r"glob=\['\*\.jsonl'\] is no text"),
        ({"source": 3}, r"source 3 is int: give a path, a glob, a hub id"),
        ({"source": {"train": "a"}}, r"source \{'train': 'a'\} is dict: give a path"),
        ({"source": [3]}, r"a source path is 3, of int: give text, or a Path"),
        ({"source": [files("a.txt")]}, r"of FileSource: .*each is an argument: files\('a.txt', 'b.txt'\)"),
        ({"source": None, "paths": 3}, r"source 3 is int"),
        ({"source": None, "paths": hf("org/poems")}, r"paths= are files, and HubSource"),
        ({"validation": 0.1}, r"source 0\.1 is float"),
        ({"sample_count": 3.0}, r"sample_count=3\.0 is not a whole number"),
        ({"held_out": "0.1"}, r"held_out='0\.1' is not a fraction"),
        ({"max_bad_fraction": True}, r"max_bad_fraction=True is not a fraction"),
    ],
)
def test_what_can_not_work_is_refused_when_the_handle_is_made(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        poems(**changes)


def test_numbers_of_numpy_are_the_numbers_that_they_are():
    plain = {"held_out": 0.25, "max_bad_fraction": 0.5, "sample_count": 3, "workers": 2}
    given = {"held_out": np.float64(0.25), "max_bad_fraction": np.float32(0.5), "sample_count": np.int64(3)}
    step = poems(**given, workers=np.int32(2))
    assert step.fingerprint().payload == poems(**plain).fingerprint().payload
    assert step.runtime_args == {"workers": 2}
    ids: Any = np.int64(300)
    vocabulary = trained_tokenizer("tokenizers/poems", source="poems", vocab_size=ids, version=VERSION)
    assert type(config(vocabulary).vocab_size) is int


def test_a_handle_that_makes_no_tokenizer_is_refused():
    with pytest.raises(ConfigurationError, match=r"is not a tokenizer; make one with trained_tokenizer\(\)"):
        poems(tokenizer=poems())


@pytest.mark.parametrize("vocab_size", [256, 0, 300.0, True, None])
def test_a_vocabulary_needs_room_for_the_bytes_and_the_end_of_text(vocab_size: Any):
    with pytest.raises(ConfigurationError, match=r"not a whole number of at least 257"):
        trained_tokenizer("tokenizers/poems", source="poems", vocab_size=vocab_size, version=VERSION)


@pytest.mark.parametrize("vocab_size", [10_000_001, 10**9, 2**64])
def test_a_vocabulary_that_no_memory_holds_is_refused_when_the_handle_is_made(vocab_size: int):
    with pytest.raises(ConfigurationError, match=r"is more than 10,000,000: memory for all ids is set aside before"):
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hf_id": None}, "hf_id=None is not a text; write 'organisation/name'"),
        ({"hf_id": 7}, "hf_id=7 is not a text"),
        ({"hf_id": b"org/poems"}, "is not a text"),
        ({"hf_id": Path("org/poems")}, "is not a text"),
        ({"hf_id": "https://huggingface.co/datasets/org/poems"}, "is a URL; write 'org/poems'"),
        ({"hf_id": "hf://datasets/org/poems"}, "is a URL; write 'org/poems'"),
        ({"hf_id": "org/poems\n"}, "organisation/name"),
        ({"revision": None}, "revision=None is not the name of a branch, tag or commit, such as 'main'"),
        ({"revision": ""}, "revision='' is not the name"),
        ({"revision": 1234567}, "revision=1234567 is not the name of a branch, tag or commit; write '1234567'"),
        ({"revision": b"main"}, "is not the name"),
        ({"revision": "main\n"}, "is not the name"),
        ({"revision": "../main"}, "is not the name"),
        ({"revision": "a b"}, "is not the name"),
        ({"urls_glob": None}, "urls_glob=None is neither a glob nor a list of them; leave it out for all files"),
        ({"urls_glob": 7}, "urls_glob=7 is neither"),
        ({"urls_glob": b"*"}, "is neither a glob"),
        ({"urls_glob": {"a", "b"}}, "is neither a glob"),
        ({"urls_glob": iter(["a"])}, "is neither a glob"),
        ({"urls_glob": ["a", None]}, "urls_glob= has None, which is not a text; write globs such as 'data/\\*'"),
        ({"urls_glob": [Path("a")]}, "which is not a text"),
        ({"urls_glob": ""}, "has '', which no path in a repository can match"),
        ({"urls_glob": "/data/*"}, "has '/data/\\*', which no path"),
        ({"urls_glob": ["data/*", "../*"]}, r"has '\.\./\*', which no path"),
        ({"urls_glob": "./data/*"}, "which no path"),
        ({"urls_glob": "data/"}, "which no path"),
        ({"urls_glob": "hf://datasets/org/poems/*"}, "which no path"),
        ({"urls_glob": "data/*\n"}, "which no path"),
        ({"kind": ["dataset"]}, "is neither 'dataset' nor 'model'"),
        ({"kind": None}, "kind=None is neither"),
    ],
)
def test_a_download_that_can_not_be_meant_is_told(changes: dict[str, Any], message: str):
    given = {"hf_id": "org/poems", "revision": "main", "version": VERSION, **changes}
    with pytest.raises(ConfigurationError, match=message):
        hf_download("raw/poems", **given)


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/1", "refs/convert/parquet", "a" * 40, "feature_x-y"])
@pytest.mark.parametrize("globs", [(), "*", "data/**/*.parquet", ["a[0-9].txt", "b c/?.txt"], "~backup"])
def test_a_revision_and_globs_that_can_be_are_kept(revision: str, globs: Any):
    made = config(hf_download("raw/poems", hf_id="org/poems", revision=revision, urls_glob=globs, version=VERSION))
    assert made.revision == revision
    assert made.urls_glob == ((globs,) if isinstance(globs, str) else tuple(globs))


def test_a_download_of_urls_describes_each_file():
    urls = ["https://host/a%20b.jsonl", "s3://bucket/c.gz"]
    step = raw_download("raw/poems", urls=urls, sha256={urls[1]: "AB" * 32}, version=VERSION)
    assert (step.artifact_type, step.deps) == (RawDownload, ())
    assert config(step) == RawDownloadConfig(
        output_path="/out",
        files=(
            RemoteFile(name="a b.jsonl", url=urls[0]),
            RemoteFile(name="c.gz", url=urls[1], sha256="ab" * 32),
        ),
    )


def test_train_lm_is_the_trainings_own():
    assert marin.experiment.data.train_lm is marin.training.train.train_lm


@pytest.mark.parametrize("builder", [tokenized, trained_tokenizer, hf_download, raw_download, files, hf, hub_tokenizer])
def test_every_name_of_a_signature_can_be_imported_from_where_the_builder_is(builder: Any):
    signature = " ".join(str(each) for each in builder.__annotations__.values())
    elsewhere = {"ArtifactStep", "Any", "Mapping", "Sequence", "None", "str", "int", "float", "bool"}
    named = set(re.findall(r"\w+", signature)) - elsewhere
    assert named <= set(marin.experiment.data.__all__)


def test_exports_are_deliberate():
    assert marin.experiment.data.__all__ == [
        "ChatFormat",
        "DocumentFormat",
        "Documents",
        "FileFormat",
        "FileSource",
        "FormatName",
        "HubDownload",
        "HubSource",
        "Mixture",
        "OnBadRecord",
        "PathText",
        "PrebuiltFormat",
        "PreferenceFormat",
        "RawDownload",
        "RepositoryKind",
        "ResourceConfig",
        "Source",
        "SpecialTokens",
        "TokenizedCache",
        "TokenizerSource",
        "TrainedTokenizer",
        "files",
        "filtered",
        "hf",
        "hf_download",
        "hub_tokenizer",
        "interpolated",
        "mixture",
        "normalized",
        "raw_download",
        "tokenized",
        "train_lm",
        "trained_tokenizer",
    ]
