"""Describe tokenizers: where one comes from, and the artifact of one that was trained here."""

from __future__ import annotations

import difflib
import hashlib
import os
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from marin.errors import ConfigurationError, DataError
from marin.execution.artifact import Artifact
from marin.execution.fingerprint import execution_only
from marin.processing.sources import PathText, Source, is_hub_id
from marin.processing.tokenize.manifest import TOKENIZER_FILE, TokenizerIdentity

BYTES = "bytes"
"""The tokenizer without a vocabulary: ids 0 to 255 are bytes of UTF-8, 256 ends a document."""

_NEARLY = 0.75
"""How near to ``bytes`` a slip of the pen is. ``byt5``, which is a tokenizer of the hub, is farther away."""

END_OF_TEXT = "<|endoftext|>"
"""Ends each document in vocabularies that are trained here."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSource:
    """Where a tokenizer is read from. ``location``: a ``tokenizer.json`` or its folder, a hub id, or ``bytes``.

    ``called`` is what records and messages say in place of ``location``: of one that another step made, its id.
    ``guessed``: its author wrote a bare text, which may be a path after all.
    """

    fingerprint_name: ClassVar[str] = "marin.TokenizerSource"

    kind: Literal["bytes", "file", "hub"]
    location: str
    revision: str | None = None
    called: str | None = field(default=None, metadata=execution_only())
    guessed: bool = field(default=False, compare=False, repr=False, metadata=execution_only())

    @property
    def label(self) -> str:
        return self.called or self.location


def parse_tokenizer(tokenizer: PathText | TokenizerSource) -> TokenizerSource:
    """What a text means as a tokenizer.

    ``"bytes"`` needs no vocabulary. A ``Path``, a name that ends in ``.json`` or begins with ``.``, ``/`` or ``~``,
    and one with two or more ``/`` is a file or its folder. All else is a hub id, but for what is nearly ``"bytes"``.

    >>> parse_tokenizer("marin-community/marin-tokenizer").kind
    'hub'
    >>> parse_tokenizer("./tokenizer.json").kind
    'file'
    """
    if isinstance(tokenizer, TokenizerSource):
        return tokenizer
    given: Any = tokenizer
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise ConfigurationError(
            f"tokenizer={given!r}: give 'bytes', a path, a hub id, or a trained_tokenizer() handle"
        )
    text = str(os.fspath(given))
    if isinstance(given, os.PathLike):
        return TokenizerSource(kind="file", location=text)
    if text == BYTES:
        return TokenizerSource(kind="bytes", location=BYTES)
    if is_hub_id(text) or ("/" not in text and text[0] not in ".~" and not text.endswith(".json")):
        if difflib.get_close_matches(text.lower(), [BYTES], cutoff=_NEARLY):
            raise ConfigurationError(
                f"tokenizer={text!r}: did you mean {BYTES!r}? For a tokenizer of the hub that is called so, write "
                f"hub_tokenizer({text!r}, revision='main')"
            )
        return TokenizerSource(kind="hub", location=text, guessed=True)
    return TokenizerSource(kind="file", location=text)


def hub_tokenizer(repository: str, *, revision: str) -> TokenizerSource:
    """A tokenizer of the hub at one ``revision``: a commit, tag or branch.

    >>> hub_tokenizer("marin-community/marin-tokenizer", revision="main").revision
    'main'
    """
    return TokenizerSource(kind="hub", location=repository, revision=revision)


@dataclass(frozen=True, kw_only=True)
class TrainTokenizerConfig:
    """What the step that trains a tokenizer is asked to do.

    ``vocab_size`` counts the 256 bytes and the end-of-text token. Documents that ``tokenized`` with the same
    ``held_out`` keeps for validation are not looked at.
    """

    fingerprint_name: ClassVar[str] = "marin.TrainTokenizerConfig"

    output_path: str
    source: Source
    vocab_size: int
    held_out: float = 0.0
    text_key: str = "text"
    batch_bytes: int = field(default=1_000_000, metadata=execution_only())


@dataclass(frozen=True, kw_only=True)
class TrainedTokenizer(Artifact):
    """A byte-level BPE vocabulary: ``tokenizer.json`` at ``path``, as Hugging Face ``tokenizers`` reads it.

    ``documents`` and ``text_bytes`` (UTF-8) are what it was trained on.
    """

    fingerprint_name: ClassVar[str] = "marin.TrainedTokenizer"

    tokenizer: TokenizerIdentity
    documents: int
    text_bytes: int

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @property
    def file(self) -> str:
        """The ``tokenizer.json``."""
        return os.path.join(self.path, TOKENIZER_FILE)

    def verify(self) -> None:
        """Raise ``DataError`` unless the file at ``path`` is the one that was made."""
        try:
            with open(self.file, "rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        except FileNotFoundError:
            raise DataError(f"{self.file} is missing: build the tokenizer again") from None
        if found != self.tokenizer.sha256:
            raise DataError(f"{self.file} is not the tokenizer that was made: its sha256 is {found}; build it again")
