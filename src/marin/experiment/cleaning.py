"""Builders that prepare text: documents in, documents out. Each returns a handle and does no work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

from marin.errors import ConfigurationError
from marin.execution.context import StepContext
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import RemoteFunction, remote
from marin.execution.version_codex import AMBIENT_VERSION
from marin.executors.resources import ResourceConfig
from marin.experiment.sources import (
    Documents,
    ParsedSource,
    StepOutput,
    check_bad_records,
    check_text_key,
    handles,
    located_source,
    one_source,
    parsed_source,
    part_of_hub,
)
from marin.processing.bad_records import MAX_BAD_FRACTION, OnBadRecord
from marin.processing.cleaning.document_set import OWN_COLUMNS, Document, DocumentSet, Drop
from marin.processing.cleaning.steps import (
    DocumentFunction,
    DocumentInput,
    FilterConfig,
    FilterFunction,
    LineEnds,
    NormalizeConfig,
    OnError,
    UnicodeForm,
)
from marin.processing.sources import FileFormat, PathText

__all__ = [
    "Document",
    "DocumentFunction",
    "DocumentSet",
    "Documents",
    "Drop",
    "FileFormat",
    "LineEnds",
    "OnBadRecord",
    "OnError",
    "PathText",
    "ResourceConfig",
    "UnicodeForm",
    "filtered",
    "normalized",
]


_LEAST_SHARD_BYTES = 1_000_000
"""A terabyte of input makes a million files of this size."""


def normalized(
    name: str,
    *,
    version: str = AMBIENT_VERSION,
    source: Documents | None = None,
    paths: PathText | Sequence[PathText] | None = None,
    raw: ArtifactStep[Any] | None = None,
    glob: str | None = None,
    file_format: FileFormat | None = None,
    subset: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    text_key: str = "text",
    keep: Sequence[str] | Mapping[str, str] = (),
    deduplicate: bool = True,
    unicode_form: UnicodeForm | None = None,
    line_ends: LineEnds | None = None,
    on_bad_record: OnBadRecord = "error",
    max_bad_fraction: float = MAX_BAD_FRACTION,
    shard_bytes: int | None = None,
    workers: int | None = None,
    resources: ResourceConfig | str | None = None,
) -> ArtifactStep[DocumentSet]:
    """A handle for documents as Parquet shards, each text once.

    The documents are given as to ``tokenized``: as ``source``, ``paths`` or ``raw``, with the same arguments. Each
    gets an ``id``, which is a digest of its text, its ``text``, and its ``source``, where it was read. ``keep`` names
    further fields that become columns of text, ``{"column": "key"}`` under other names; of a handle that is itself
    one of documents, its sources and columns are kept anyway.

    Of equal texts the first in reading order stays. Texts are kept exactly as they are, unless ``unicode_form``
    (``"NFC"`` and so on) or ``line_ends="lf"`` asks for another form, which comes before all comparing. Empty texts
    are left out and counted.

    ``shard_bytes`` of input, at least a megabyte, become one shard; ``workers`` processes share the work, one for each
    core if left out; they and ``resources`` are not identity.

    >>> normalized("documents/poems", source="poems/*.jsonl", version="2026.07.01")
    ArtifactStep[DocumentSet](documents/poems@2026.07.01)
    """
    parsed = part_of_hub(
        name,
        parsed_source(name, one_source(name, source=source, paths=paths, raw=raw), glob=glob, format=file_format),
        subset=subset,
        split=split,
        revision=revision,
    )
    read = _reader(name, parsed, text_key, keep, on_bad_record, max_bad_fraction)
    _check_choice(name, "unicode_form", unicode_form, UnicodeForm)
    _check_choice(name, "line_ends", line_ends, LineEnds)
    _check_sizes(name, workers, shard_bytes)
    _check_truth(name, deduplicate)

    def build_config(ctx: StepContext) -> NormalizeConfig:
        return NormalizeConfig(
            output_path=ctx.output_path,
            documents=read(ctx),
            deduplicate=deduplicate,
            unicode_form=unicode_form,
            line_ends=line_ends,
            workers=ctx.runtime_arg("workers"),
            shard_bytes=ctx.runtime_arg("shard_bytes"),
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=_remote("marin.processing.cleaning.build:normalize", resources, workers),
        artifact_type=DocumentSet,
        build_config=build_config,
        deps=handles(parsed),
        runtime_args={"workers": workers, "shard_bytes": shard_bytes},
    )


def filtered(
    name: str,
    *,
    function: DocumentFunction,
    version: str = AMBIENT_VERSION,
    source: Documents | None = None,
    paths: PathText | Sequence[PathText] | None = None,
    raw: ArtifactStep[Any] | None = None,
    glob: str | None = None,
    file_format: FileFormat | None = None,
    subset: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    text_key: str = "text",
    keep: Sequence[str] | Mapping[str, str] = (),
    on_error: OnError = "error",
    on_bad_record: OnBadRecord = "error",
    max_bad_fraction: float = MAX_BAD_FRACTION,
    shard_bytes: int | None = None,
    workers: int | None = None,
    resources: ResourceConfig | str | None = None,
) -> ArtifactStep[DocumentSet]:
    """A handle for the documents that ``function`` keeps, as Parquet shards, in the order in which they were read.

    ``function`` takes a ``Document`` and returns ``True`` to keep it, ``False`` or ``Drop("reason")`` to leave it out,
    or a text, which takes the place of the document's. Documents are asked about one at a time and in any order, in
    several processes. It is a function at the top of a module or script. Its name is identity; a change in its code is
    told as for any step.

    What it raises ends the step, and the error names the document; with ``on_error="skip"`` such documents are left
    out and counted, up to ``max_bad_fraction`` of all. The other arguments are those of ``normalized``.

    >>> def long_enough(document: Document) -> bool:
    ...     return len(document.text) > 200
    >>> filtered("documents/long", source="poems/*.jsonl", function=long_enough, version="2026.07.01")
    ArtifactStep[DocumentSet](documents/long@2026.07.01)
    """
    parsed = part_of_hub(
        name,
        parsed_source(name, one_source(name, source=source, paths=paths, raw=raw), glob=glob, format=file_format),
        subset=subset,
        split=split,
        revision=revision,
    )
    read = _reader(name, parsed, text_key, keep, on_bad_record, max_bad_fraction)
    _check_choice(name, "on_error", on_error, OnError, is_needed=True)
    _check_sizes(name, workers, shard_bytes)
    _check_function(name, function)

    def build_config(ctx: StepContext) -> FilterConfig:
        return FilterConfig(
            output_path=ctx.output_path,
            documents=read(ctx),
            on_error=on_error,
            workers=ctx.runtime_arg("workers"),
            shard_bytes=ctx.runtime_arg("shard_bytes"),
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=_remote(FilterFunction(function), resources, workers),
        artifact_type=DocumentSet,
        build_config=build_config,
        deps=handles(parsed),
        runtime_args={"workers": workers, "shard_bytes": shard_bytes},
    )


def _remote(
    function: Callable[..., Any] | str, resources: ResourceConfig | str | None, workers: int | None
) -> RemoteFunction:
    given = resources if resources is not None else ResourceConfig(cpus=workers or 1)
    return remote(function, resumable=True, resources=given)


def _reader(
    name: str, parsed: ParsedSource, text_key: str, keep: object, on_bad_record: OnBadRecord, max_bad_fraction: float
) -> Callable[[StepContext], DocumentInput]:
    """What is checked now, and becomes the config of what a step reads once it runs."""
    check_text_key(name, text_key)
    check_bad_records(name, on_bad_record, max_bad_fraction)
    columns = _columns(name, keep)
    is_set = isinstance(parsed, StepOutput) and issubclass(cast("type", parsed.step.artifact_type), DocumentSet)
    if is_set and text_key != "text":
        raise ConfigurationError(f"{name}: text_key={text_key!r}, but {parsed} has its text in 'text': leave it out")

    def read(ctx: StepContext) -> DocumentInput:
        return DocumentInput(
            source=located_source(ctx, parsed),
            text_key=text_key,
            keep=columns,
            is_document_set=is_set,
            on_bad_record=on_bad_record,
            max_bad_fraction=float(max_bad_fraction),
        )

    return read


def _columns(name: str, keep: object) -> tuple[tuple[str, str], ...]:
    if isinstance(keep, Mapping):
        pairs = list(cast("Mapping[object, object]", keep).items())
    elif isinstance(keep, Sequence) and not isinstance(keep, str):
        pairs = [(key, key) for key in cast("Sequence[object]", keep)]
    else:
        raise ConfigurationError(f"{name}: keep={keep!r} is no list of fields: write keep=['url', 'meta.language']")
    if len({column for column, _ in pairs}) < len(pairs):
        raise ConfigurationError(f"{name}: keep={keep!r} names a field twice")
    for column, key in pairs:
        if not (isinstance(column, str) and column and isinstance(key, str) and key):
            raise ConfigurationError(f"{name}: keep has {key!r}, which is not the name of a field, such as 'meta.url'")
        if column in OWN_COLUMNS:
            raise ConfigurationError(
                f"{name}: keep has {column!r}, a column that all documents have: "
                f"give it another name, keep={{'original_{column}': {key!r}}}"
            )
    return tuple((str(column), str(key)) for column, key in pairs)


def _check_function(name: str, function: object) -> None:
    if not callable(function):
        raise ConfigurationError(f"{name}: function={function!r} can't be called: give a function of a Document")


def _check_choice(name: str, key: str, value: object, choices: Any, *, is_needed: bool = False) -> None:
    known = get_args(choices)
    if value not in known and (is_needed or value is not None):
        raise ConfigurationError(f"{name}: {key}={value!r} is none of {', '.join(map(repr, known))}")


def _check_sizes(name: str, workers: object, shard_bytes: object) -> None:
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ConfigurationError(f"{name}: workers={workers!r} is not a whole number of at least 1")
    if shard_bytes is not None and (type(shard_bytes) is not int or shard_bytes < _LEAST_SHARD_BYTES):
        raise ConfigurationError(
            f"{name}: shard_bytes={shard_bytes!r} is not a whole number of bytes of at least {_LEAST_SHARD_BYTES:,}: "
            "less would make more files than are good for any disk; leave it out for shards of 16 to 256 MB of input"
        )


def _check_truth(name: str, deduplicate: object) -> None:
    if not isinstance(deduplicate, bool):
        raise ConfigurationError(f"{name}: deduplicate={deduplicate!r} is neither True nor False")
