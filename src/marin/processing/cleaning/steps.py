"""Describe the steps that prepare text: their configs, and how a function of a user's gets into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from marin.execution.fingerprint import absent_means, execution_only
from marin.execution.step_function import load_function
from marin.processing.bad_records import MAX_BAD_FRACTION, OnBadRecord
from marin.processing.cleaning.document_set import Document, DocumentSet, Drop
from marin.processing.sources import Source

DocumentFunction: TypeAlias = Callable[[Document], bool | str | Drop]
"""``True`` keeps a document, ``False`` or ``Drop(reason)`` leaves it out, a text takes the place of its text."""

OnError: TypeAlias = Literal["error", "skip"]
"""``error``: the first document on which the function fails ends the step. ``skip``: it is left out and counted."""

UnicodeForm: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]
LineEnds: TypeAlias = Literal["lf"]
"""``lf``: CR LF and a lone CR become LF."""


@dataclass(frozen=True, kw_only=True)
class DocumentInput:
    """Which documents a step reads, and what of them.

    ``keep``: further columns, each with the key of the field that it holds. ``is_document_set``: ``source`` is one that
    a step of this package has made, of which each document keeps its source, and its columns if ``keep`` is empty.
    """

    fingerprint_name: ClassVar[str] = "marin.DocumentInput"

    source: Source
    text_key: str = "text"
    keep: tuple[tuple[str, str], ...] = ()
    is_document_set: bool = False
    on_bad_record: OnBadRecord = "error"
    max_bad_fraction: float = MAX_BAD_FRACTION


@dataclass(frozen=True, kw_only=True)
class NormalizeConfig:
    """What the normalize step is asked to do. ``None`` for a form of the text leaves it as it is.

    ``shard_bytes`` of input become one shard (``None``: by the size of the input), which is also what a killed worker
    may have to redo; ``workers`` processes work (``None``: one for each core). Neither changes which documents there
    are, nor their order.
    """

    fingerprint_name: ClassVar[str] = "marin.NormalizeConfig"

    output_path: str
    documents: DocumentInput
    deduplicate: bool = True
    unicode_form: UnicodeForm | None = field(default=None, metadata=absent_means(None))
    line_ends: LineEnds | None = field(default=None, metadata=absent_means(None))
    workers: int | None = field(default=None, metadata=execution_only())
    shard_bytes: int | None = field(default=None, metadata=execution_only())


@dataclass(frozen=True, kw_only=True)
class FilterConfig:
    """What the filter step is asked to do, with a function that it is given apart; sizes are as in the other step."""

    fingerprint_name: ClassVar[str] = "marin.FilterConfig"

    output_path: str
    documents: DocumentInput
    on_error: OnError = "error"
    workers: int | None = field(default=None, metadata=execution_only())
    shard_bytes: int | None = field(default=None, metadata=execution_only())


@dataclass(frozen=True)
class FilterFunction:
    """The step function that asks ``function`` about each document. So it is identity, and its code is watched."""

    fingerprint_name: ClassVar[str] = "marin.FilterFunction"

    function: DocumentFunction

    def __call__(self, config: FilterConfig) -> DocumentSet:
        # By name: it needs numpy and pyarrow, which a script that only describes a pipeline does not.
        filter_documents = load_function("marin.processing.cleaning.build:filter_documents")
        return filter_documents(config, self.function)
