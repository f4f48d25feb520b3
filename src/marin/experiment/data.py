"""Builders of the data side: each returns a handle and does no work, not even looking whether a file exists.

Longer than 300 lines for its docstrings alone: the arguments of these functions are what people look up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from marin.errors import ConfigurationError
from marin.execution.context import StepContext
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import remote
from marin.execution.version_codex import AMBIENT_VERSION
from marin.processing.download import HubDownload, HubDownloadConfig, RepositoryKind
from marin.processing.sources import (
    FileFormat,
    FileSource,
    HubSource,
    PathText,
    Source,
    check_format,
    files,
    hf,
    parse_source,
)
from marin.processing.tokenize.manifest import TOKENIZER_FILE
from marin.processing.tokenize.tokenize import TokenizeConfig, TokenizedCache
from marin.processing.tokenize.tokenizers import (
    TokenizerSource,
    TrainedTokenizer,
    TrainTokenizerConfig,
    hub_tokenizer,
    parse_tokenizer,
)
from marin.training.train import train_lm

__all__ = [
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

Documents: TypeAlias = PathText | Source | Sequence[PathText] | ArtifactStep[Any]
"""A hub id, path, folder, glob, list of those, ``files(...)``, ``hf(...)``, or a handle whose files are read."""


@dataclass(frozen=True, kw_only=True)
class _StepOutput:
    """Files that another step makes."""

    step: ArtifactStep[Any]
    glob: str | None
    format: FileFormat | None


_Parsed: TypeAlias = Source | _StepOutput

_SMALLEST_VOCABULARY = 257
"""The 256 bytes and the end-of-text token."""


def tokenized(
    name: str,
    *,
    tokenizer: PathText | TokenizerSource | ArtifactStep[TrainedTokenizer],
    version: str = AMBIENT_VERSION,
    source: Documents | None = None,
    paths: PathText | Sequence[PathText] | None = None,
    raw: ArtifactStep[Any] | None = None,
    glob: str | None = None,
    format: FileFormat | None = None,
    validation: Documents | None = None,
    held_out: float = 0.0,
    text_key: str = "text",
    eos_token: str | None = None,
) -> ArtifactStep[TokenizedCache]:
    """A handle for documents as token ids.

    The documents are given once: as ``source``, where syntax alone tells a hub id from a path (see ``Documents``); as
    ``paths``, which are always files; or as ``raw``, the output of another step, of which ``glob`` may choose files.
    ``format`` overrules the suffix of files: ``"text"`` makes each file one document. ``text_key`` is the field of
    the text, with dots into nested ones. What is identity is what is written here, never what a glob matches.

    A validation split is either ``validation``, whole files that are then left out of training, or ``held_out``, the
    fraction of documents chosen by a hash of their text.

    ``tokenizer`` is a hub id, a ``tokenizer.json``, ``"bytes"``, or a handle of ``trained_tokenizer``. Each document
    is followed by ``eos_token``; ``None``: the one that the tokenizer declares.

    A source from the hub is downloaded within the step, at the commit that its revision has then, which the artifact
    records; the raw files are not kept.

    >>> tokenized("tokenized/poems", source="poems/*.jsonl", tokenizer="bytes", version="2026.07.01")
    ArtifactStep[TokenizedCache](tokenized/poems@2026.07.01)
    """
    documents = _one_source(name, source=source, paths=paths, raw=raw)
    _check_split(name, held_out, validation)
    _check_text_key(name, text_key)
    training = _parsed(name, documents, glob=glob, format=format)
    validating = None if validation is None else _parsed(name, validation, format=format)
    spec = _parsed_tokenizer(name, tokenizer)

    def build_config(ctx: StepContext) -> TokenizeConfig:
        return TokenizeConfig(
            output_path=ctx.output_path,
            source=_located(ctx, training),
            validation=None if validating is None else _located(ctx, validating),
            tokenizer=_located_tokenizer(ctx, spec),
            held_out=float(held_out),
            text_key=text_key,
            eos_token=eos_token,
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=remote("marin.processing.tokenize.build:tokenize", resumable=True),
        artifact_type=TokenizedCache,
        build_config=build_config,
        deps=_handles(training, validating, spec),
    )


def trained_tokenizer(
    name: str,
    *,
    source: Documents,
    vocab_size: int,
    version: str = AMBIENT_VERSION,
    glob: str | None = None,
    format: FileFormat | None = None,
    held_out: float = 0.0,
    text_key: str = "text",
) -> ArtifactStep[TrainedTokenizer]:
    """A handle for a byte-level BPE vocabulary of exactly ``vocab_size`` ids, trained on documents.

    The ids are 256 bytes, the end-of-text token and the merges. With the ``held_out`` that ``tokenized`` is given, the
    documents that it keeps for validation are not looked at. The same documents give the same vocabulary.

    >>> trained_tokenizer("tokenizers/poems", source="poems/*.jsonl", vocab_size=4096, version="2026.07.01")
    ArtifactStep[TrainedTokenizer](tokenizers/poems@2026.07.01)
    """
    if type(vocab_size) is not int or vocab_size < _SMALLEST_VOCABULARY:
        raise ConfigurationError(
            f"{name}: vocab_size={vocab_size!r} is not a whole number of at least {_SMALLEST_VOCABULARY}, "
            "the 256 bytes and the end-of-text token"
        )
    _check_split(name, held_out, None)
    _check_text_key(name, text_key)
    training = _parsed(name, source, glob=glob, format=format)

    def build_config(ctx: StepContext) -> TrainTokenizerConfig:
        return TrainTokenizerConfig(
            output_path=ctx.output_path,
            source=_located(ctx, training),
            vocab_size=vocab_size,
            held_out=float(held_out),
            text_key=text_key,
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=remote("marin.processing.tokenize.train_tokenizer:train_tokenizer"),
        artifact_type=TrainedTokenizer,
        build_config=build_config,
        deps=_handles(training),
    )


def hf_download(
    name: str,
    *,
    hf_id: str,
    revision: str,
    version: str = AMBIENT_VERSION,
    urls_glob: str | Sequence[str] = (),
    kind: RepositoryKind = "dataset",
) -> ArtifactStep[HubDownload]:
    """A handle for files of a repository of the Hugging Face hub, a data set or a model.

    ``revision`` is a commit, tag or branch; the commit that it is when the step runs is recorded. ``urls_glob`` chooses
    files by their path in the repository; ``*`` crosses folders. Each file is checked against the hub's digest.

    >>> hf_download("raw/stories", hf_id="roneneldan/TinyStories", revision="main", version="2026.07.01")
    ArtifactStep[HubDownload](raw/stories@2026.07.01)
    """
    repository = hf(hf_id, revision=revision)
    if kind not in ("dataset", "model"):
        raise ConfigurationError(f"{name}: kind={kind!r} is neither 'dataset' nor 'model'")
    globs = (urls_glob,) if isinstance(urls_glob, str) else tuple(urls_glob)

    def build_config(ctx: StepContext) -> HubDownloadConfig:
        return HubDownloadConfig(
            output_path=ctx.output_path,
            hf_id=repository.repository,
            revision=repository.revision,
            urls_glob=globs,
            kind=kind,
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=remote("marin.processing.download_hub:download", resumable=True),
        artifact_type=HubDownload,
        build_config=build_config,
    )


def _one_source(
    name: str,
    *,
    source: Documents | None,
    paths: PathText | Sequence[PathText] | None,
    raw: ArtifactStep[Any] | None,
) -> Documents:
    given = {"source": source, "paths": paths, "raw": raw}
    ways = [key for key, value in given.items() if value is not None]
    if len(ways) != 1:
        found = f"{', '.join(ways)} are given" if ways else "none is given"
        raise ConfigurationError(f"{name}: give the documents once, as source=, paths= or raw=; {found}")
    if paths is not None:
        return files(paths) if isinstance(paths, str | os.PathLike) else files(*paths)
    if raw is not None and not isinstance(cast("object", raw), ArtifactStep):
        raise ConfigurationError(f"{name}: raw= is the handle of another step; paths are given as paths={raw!r}")
    return cast("Documents", source if raw is None else raw)


def _check_split(name: str, held_out: float, validation: Documents | None) -> None:
    if type(held_out) not in (float, int) or not 0 <= held_out < 1:
        raise ConfigurationError(f"{name}: held_out={held_out!r} is not a fraction from 0 to below 1, such as 0.01")
    if validation is not None and held_out:
        raise ConfigurationError(f"{name}: validation= and held_out= exclude each other; give one")
    if isinstance(cast("object", validation), bool):
        raise ConfigurationError(f"{name}: validation={validation} says no files; give paths, or held_out=0.01")


def _check_text_key(name: str, text_key: object) -> None:
    if not isinstance(text_key, str) or not text_key:
        raise ConfigurationError(f"{name}: text_key={text_key!r} is not the name of a field, such as 'text'")


def _parsed(name: str, documents: Documents, *, format: FileFormat | None, glob: str | None = None) -> _Parsed:
    check_format(name, format)
    if isinstance(documents, ArtifactStep):
        return _StepOutput(step=documents, glob=glob, format=format)
    parsed = parse_source(documents)
    if glob is not None:
        raise ConfigurationError(f"{name}: glob={glob!r} chooses files of another step; write paths=['folder/{glob}']")
    if format is None:
        return parsed
    if isinstance(parsed, HubSource) or parsed.format not in (None, format):
        raise ConfigurationError(f"{name}: format={format!r} does not apply to {parsed}; say it in files(..., format=)")
    return replace(files(*parsed.paths, format=format), exclude=parsed.exclude)


def _located(ctx: StepContext, parsed: _Parsed) -> Source:
    if not isinstance(parsed, _StepOutput):
        return parsed
    folder = ctx.artifact_path(parsed.step)
    path = f"{folder}" if parsed.glob is None else f"{folder}/{parsed.glob}"
    return FileSource(paths=(path,), format=parsed.format)


def _parsed_tokenizer(
    name: str, tokenizer: PathText | TokenizerSource | ArtifactStep[TrainedTokenizer]
) -> TokenizerSource | ArtifactStep[TrainedTokenizer]:
    if not isinstance(tokenizer, ArtifactStep):
        return parse_tokenizer(tokenizer)
    if not issubclass(cast("type", tokenizer.artifact_type), TrainedTokenizer):
        raise ConfigurationError(f"{name}: tokenizer={tokenizer} is not a tokenizer; make one with trained_tokenizer()")
    return tokenizer


def _located_tokenizer(
    ctx: StepContext, tokenizer: TokenizerSource | ArtifactStep[TrainedTokenizer]
) -> TokenizerSource:
    if isinstance(tokenizer, TokenizerSource):
        return tokenizer
    location = f"{ctx.artifact_path(tokenizer)}/{TOKENIZER_FILE}"
    return TokenizerSource(kind="file", location=location, called=str(tokenizer.id))


def _handles(*given: object) -> tuple[ArtifactStep[Any], ...]:
    steps = [each.step if isinstance(each, _StepOutput) else each for each in given]
    return tuple(dict.fromkeys(step for step in steps if isinstance(step, ArtifactStep)))
