"""Builders of the data side: each returns a handle and does no work, not even looking whether a file exists.

Longer than 300 lines for its docstrings alone: the arguments of these functions are what people look up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from marin.errors import ConfigurationError
from marin.execution.context import StepContext
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import remote
from marin.execution.version_codex import AMBIENT_VERSION
from marin.executors.resources import ResourceConfig
from marin.experiment.cleaning import filtered, normalized
from marin.experiment.sources import (
    Documents,
    check_bad_records,
    check_text_key,
    handles,
    located_source,
    one_source,
    parsed_source,
    part_of_hub,
)
from marin.processing.bad_records import OnBadRecord
from marin.processing.download import HubDownload, HubDownloadConfig, RepositoryKind, checked_request
from marin.processing.mixture.mixture import Mixture, interpolated, mixture
from marin.processing.raw_download import RawDownload, RawDownloadConfig, remote_files
from marin.processing.scalars import finite_number, whole_number
from marin.processing.sources import (
    FileFormat,
    FileSource,
    HubSource,
    PathText,
    Source,
    check_texts,
    files,
    hf,
)
from marin.processing.tokenize.formats import (
    ChatFormat,
    DocumentFormat,
    PrebuiltFormat,
    PreferenceFormat,
    format_name,
    is_framed,
    parse_format,
)
from marin.processing.tokenize.manifest import TOKENIZER_FILE, FormatName, SpecialTokens
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

_SMALLEST_VOCABULARY = 257
"""The 256 bytes and the end-of-text token."""

_LARGEST_VOCABULARY = 10_000_000
"""Some tens of times as many as the largest of a language model; for these the library sets aside 1 GB."""


def tokenized(
    name: str,
    *,
    tokenizer: PathText | TokenizerSource | ArtifactStep[TrainedTokenizer],
    version: str = AMBIENT_VERSION,
    source: Documents | None = None,
    paths: PathText | Sequence[PathText] | None = None,
    raw: ArtifactStep[Any] | None = None,
    glob: str | None = None,
    file_format: FileFormat | None = None,
    subset: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    format: FormatName | DocumentFormat = "text",
    text_key: str = "text",
    validation: Documents | None = None,
    held_out: float = 0.0,
    sample_count: int | None = None,
    special_tokens: SpecialTokens = "eos",
    eos_token: str | None = None,
    bos_token: str | None = None,
    parse_special: bool = False,
    on_bad_record: OnBadRecord = "error",
    max_bad_fraction: float = 0.01,
    workers: int | None = None,
    resources: ResourceConfig | str | None = None,
) -> ArtifactStep[TokenizedCache]:
    """A handle for documents as token ids.

    The documents are given once: as ``source``, where syntax alone tells a hub id from a path (see ``Documents``); as
    ``paths``, which are always files; or as ``raw``, the output of another step, of which ``glob`` may choose files. Of
    an ``hf_download`` without a ``glob`` the files of ``split`` and ``subset`` are read, as of a source from the hub.
    ``file_format`` overrules the suffix of files: ``"text"`` makes each file one document. Of a source from the hub,
    ``subset``, ``split`` and ``revision`` say which part; it is downloaded within the step, at the commit that its
    revision has then, which the artifact records, and the raw files are not kept. What is identity is what is written
    here, never what a glob matches.

    ``format``: ``"text"``, of which ``text_key`` is the field, with dots into nested ones; ``"chat"``,
    ``"preference"`` or ``"prebuilt"`` ids, and ``ChatFormat(...)`` and so on for more than their defaults.

    A validation split is either ``validation``, whole files that are then left out of training, or ``held_out``, the
    fraction of documents chosen by a hash of their content. ``sample_count`` takes the first documents only.

    ``tokenizer`` is a hub id, a ``tokenizer.json``, ``"bytes"``, or a handle of ``trained_tokenizer``. Ids are those of
    Hugging Face ``tokenizers``, with ``special_tokens`` around each document: ``"eos"``, one end-of-text token behind
    it; ``"bos_eos"``, also one in front; ``"template"``, what the tokenizer's own post-processor adds; ``"none"``.
    ``eos_token`` and ``bos_token`` name them; ``None``: those that the tokenizer declares. A special string inside a
    document is ordinary text, unless ``parse_special``. A chat has what its template writes.

    A record that can't be read is an error; with ``on_bad_record="skip"`` up to ``max_bad_fraction`` of all are left
    out and counted. ``workers`` processes share the work, one for each core if left out; they and ``resources`` are
    not identity.

    >>> tokenized("tokenized/poems", source="poems/*.jsonl", tokenizer="bytes", version="2026.07.01")
    ArtifactStep[TokenizedCache](tokenized/poems@2026.07.01)
    """
    documents = one_source(name, source=source, paths=paths, raw=raw)
    _check_split(name, held_out, validation)
    check_text_key(name, text_key)
    check_bad_records(name, on_bad_record, max_bad_fraction)
    _check_encoding(name, special_tokens, parse_special, parse_format(name, format))
    check_texts(name, may_be_none=True, eos_token=eos_token, bos_token=bos_token)
    sample_count, workers = _checked_count(name, "sample_count", sample_count), _checked_count(name, "workers", workers)
    document_format = parse_format(name, format)
    training = part_of_hub(
        name,
        parsed_source(name, documents, glob=glob, format=file_format),
        subset=subset,
        split=split,
        revision=revision,
    )
    validating = None if validation is None else parsed_source(name, validation, format=file_format)
    spec = _parsed_tokenizer(name, tokenizer)

    def build_config(ctx: StepContext) -> TokenizeConfig:
        return TokenizeConfig(
            output_path=ctx.output_path,
            source=located_source(ctx, training),
            validation=None if validating is None else located_source(ctx, validating),
            tokenizer=_located_tokenizer(ctx, spec),
            held_out=float(held_out),
            text_key=text_key,
            eos_token=eos_token,
            bos_token=bos_token,
            special_tokens=special_tokens,
            parse_special=parse_special,
            format=document_format,
            sample_count=sample_count,
            on_bad_record=on_bad_record,
            max_bad_fraction=float(max_bad_fraction),
            workers=ctx.runtime_arg("workers"),
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=remote(
            "marin.processing.tokenize.start:tokenize",
            resumable=True,
            resources=resources if resources is not None else ResourceConfig(cpus=workers or 1),
        ),
        artifact_type=TokenizedCache,
        build_config=build_config,
        deps=handles(training, validating, spec),
        runtime_args={"workers": workers},
    )


def trained_tokenizer(
    name: str,
    *,
    source: Documents,
    vocab_size: int,
    version: str = AMBIENT_VERSION,
    glob: str | None = None,
    file_format: FileFormat | None = None,
    held_out: float = 0.0,
    text_key: str = "text",
) -> ArtifactStep[TrainedTokenizer]:
    """A handle for a byte-level BPE vocabulary of exactly ``vocab_size`` ids, trained on documents.

    The ids are 256 bytes, the end-of-text token and the merges. With the ``held_out`` that ``tokenized`` is given, the
    documents that it keeps for validation are not looked at. The same documents give the same vocabulary.

    >>> trained_tokenizer("tokenizers/poems", source="poems/*.jsonl", vocab_size=4096, version="2026.07.01")
    ArtifactStep[TrainedTokenizer](tokenizers/poems@2026.07.01)
    """
    ids = _checked_vocabulary(name, vocab_size)
    _check_split(name, held_out, None)
    check_text_key(name, text_key)
    training = parsed_source(name, source, glob=glob, format=file_format)

    def build_config(ctx: StepContext) -> TrainTokenizerConfig:
        return TrainTokenizerConfig(
            output_path=ctx.output_path,
            source=located_source(ctx, training),
            vocab_size=ids,
            held_out=float(held_out),
            text_key=text_key,
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=remote("marin.processing.tokenize.train_tokenizer:train_tokenizer"),
        artifact_type=TrainedTokenizer,
        build_config=build_config,
        deps=handles(training),
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
    files by their path in the repository; ``*`` crosses folders. Each file is checked against the hub's digest. An
    attempt that was cut goes on where it was.

    >>> hf_download("raw/stories", hf_id="roneneldan/TinyStories", revision="main", version="2026.07.01")
    ArtifactStep[HubDownload](raw/stories@2026.07.01)
    """
    globs, checked_kind = checked_request(name, hf_id=hf_id, revision=revision, urls_glob=urls_glob, kind=kind)
    repository = hf(hf_id, revision=revision)

    def build_config(ctx: StepContext) -> HubDownloadConfig:
        return HubDownloadConfig(
            output_path=ctx.output_path,
            hf_id=repository.repository,
            revision=repository.revision,
            urls_glob=globs,
            kind=checked_kind,
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=remote("marin.processing.download_hub:download", resumable=True),
        artifact_type=HubDownload,
        build_config=build_config,
    )


def raw_download(
    name: str,
    *,
    urls: str | Sequence[str] | Mapping[str, str],
    version: str = AMBIENT_VERSION,
    sha256: str | Mapping[str, str] | None = None,
) -> ArtifactStep[RawDownload]:
    """A handle for files at URLs of ``http(s)://``, ``s3://`` or ``gs://``.

    A file gets the last part of its URL as its name; ``urls={name: url}`` gives others. ``sha256`` is what a file must
    have: one text for one URL, or ``{url: sha256}`` for as many as are known. The digest of each is recorded. An
    attempt that was cut goes on where it was, unless the file has changed at its URL.

    >>> raw_download("raw/stories", urls="https://example.org/stories.jsonl", version="2026.07.01")
    ArtifactStep[RawDownload](raw/stories@2026.07.01)
    """
    wanted = remote_files(name, urls, sha256)

    def build_config(ctx: StepContext) -> RawDownloadConfig:
        return RawDownloadConfig(output_path=ctx.output_path, files=wanted)

    return ArtifactStep(
        name=name,
        version=version,
        run=remote("marin.processing.download_raw:download", resumable=True),
        artifact_type=RawDownload,
        build_config=build_config,
    )


def _check_split(name: str, held_out: float, validation: Documents | None) -> None:
    fraction = finite_number(held_out)
    if fraction is None or not 0 <= fraction < 1:
        raise ConfigurationError(f"{name}: held_out={held_out!r} is not a fraction from 0 to below 1, such as 0.01")
    if validation is not None and fraction:
        raise ConfigurationError(f"{name}: validation= and held_out= exclude each other; give one")
    if isinstance(cast("object", validation), bool):
        raise ConfigurationError(f"{name}: validation={validation} says no files; give paths, or held_out=0.01")


def _check_encoding(name: str, special_tokens: object, parse_special: object, format: DocumentFormat | None) -> None:
    if special_tokens not in get_args(SpecialTokens):
        known = ", ".join(map(repr, get_args(SpecialTokens)))
        raise ConfigurationError(f"{name}: special_tokens={special_tokens!r} is none of {known}")
    if special_tokens != "eos" and not is_framed(format):
        raise ConfigurationError(
            f"{name}: special_tokens={special_tokens!r} has no effect with format={format_name(format)!r}, whose "
            "documents bring their own special tokens: leave it out"
        )
    if not isinstance(parse_special, bool):
        raise ConfigurationError(f"{name}: parse_special={parse_special!r} is neither True nor False")


def _checked_count(name: str, key: str, given: object) -> int | None:
    if given is None:
        return None
    count = whole_number(given)
    if count is None or count < 1:
        raise ConfigurationError(f"{name}: {key}={given!r} is not a whole number of at least 1")
    return count


def _checked_vocabulary(name: str, vocab_size: object) -> int:
    ids = whole_number(vocab_size)
    if ids is None or ids < _SMALLEST_VOCABULARY:
        raise ConfigurationError(
            f"{name}: vocab_size={vocab_size!r} is not a whole number of at least {_SMALLEST_VOCABULARY}, "
            "the 256 bytes and the end-of-text token"
        )
    if ids > _LARGEST_VOCABULARY:
        raise ConfigurationError(
            f"{name}: vocab_size={vocab_size!r} is more than {_LARGEST_VOCABULARY:,}: memory for all ids is set aside "
            "before the first is found; models have up to some 300,000"
        )
    return ids


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
