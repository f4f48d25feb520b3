"""What is checked before a cache of another tool becomes an artifact: all of it is read once, nothing is copied."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from marin.errors import ArtifactTypeError, ConfigurationError, DataError, MarinError, TokenizerMismatchError
from marin.execution.artifact import at_path
from marin.execution.progress import report
from marin.processing.tokenize.cache import token_type
from marin.processing.tokenize.encoder import Encoder, load_encoder
from marin.processing.tokenize.foreign.flat import FlatStream
from marin.processing.tokenize.foreign.recognise import ForeignCache, recognise
from marin.processing.tokenize.foreign.text_bytes import bytes_of_ids
from marin.processing.tokenize.manifest import TOKENIZER_FILE, TokenizerIdentity
from marin.processing.tokenize.stream import TokenStream
from marin.processing.tokenize.tokenize import SplitSummary, TokenizedCache
from marin.processing.tokenize.tokenizers import parse_tokenizer

_READ_AT_ONCE = 1 << 20
_SPOTS, _SPOT_TOKENS = 64, 1024

HOW_TO_GIVE = (
    "config={'tokenizer': ...}: the path of its tokenizer.json, a hub id, 'bytes', or the fields of TokenizerIdentity"
)


def adopted_cache(path: str, config: Mapping[str, Any]) -> TokenizedCache:
    """The artifact of the cache at ``path``, after all its tokens have been read.

    Raises ``ConfigurationError`` for a place without a cache and for a tokenizer that is not known, ``DataError`` for
    files that are damaged, empty, or hold ids that the tokenizer does not have.
    """
    cache = recognise(path, config.get("layout"))
    streams = {split: cache.open(split) for split in cache.splits}
    for stream in streams.values():
        if not stream.num_tokens:
            raise DataError(f"{path}: the {stream.split} split has no tokens; remove its files, or give others")
    identity, encoder = _tokenizer(cache, config)
    wide = any(stream.dtype.itemsize > 2 for stream in streams.values())
    if not wide and token_type(identity.vocab_size) != "uint16":
        raise DataError(
            f"{path} holds ids of 16 bits, and {identity.location} has {identity.vocab_size:,}, which do not fit: its "
            f"larger ids would have been cut. Give the tokenizer that made it, as {HOW_TO_GIVE}"
        )
    per_id = None if encoder is None else bytes_of_ids(encoder)
    total, done = sum(stream.num_tokens for stream in streams.values()), 0
    surveys = dict[str, _Survey]()
    for split, stream in streams.items():
        surveys[split] = _survey(stream, identity, per_id, done=done, total=total)
        done += stream.num_tokens
    content = hashlib.sha256(("uint32" if wide else "uint16").encode())
    for split, survey in sorted(surveys.items()):
        content.update(f"\n{split} {survey.tokens_sha256} {survey.lengths_sha256}".encode())
    adopted = TokenizedCache(
        splits={split: survey.summary for split, survey in surveys.items()},
        dtype="uint32" if wide else "uint16",
        vocab_size=identity.vocab_size,
        tokenizer=identity,
        content_sha256=content.hexdigest(),
        sources=(path,),
        layout=cache.layout.name,
        spot_sha256={split: spot_sha256(stream) for split, stream in streams.items()},
    )
    return at_path(adopted, path)


def verify_adopted(cache: TokenizedCache) -> None:
    """Raise ``DataError`` unless the files at ``cache.path`` are those that were adopted, by size and a sample."""
    there = recognise(cache.path, cache.layout)
    for split, summary in cache.splits.items():
        stream = there.open(split)
        if stream.num_tokens != summary.tokens or spot_sha256(stream) != cache.spot_sha256.get(split):
            raise DataError(
                f"{cache.path}: the {split} split holds other tokens than when it was adopted ({stream.num_tokens:,}, "
                f"then {summary.tokens:,}): put the files back, or adopt them under another version"
            )


def spot_sha256(stream: TokenStream) -> str:
    """A digest of the sizes of ``stream`` and of a sample of its tokens, the first and the last among them."""
    length = min(_SPOT_TOKENS, stream.num_tokens)
    digest = hashlib.sha256(f"{stream.num_tokens} {stream.num_documents} ".encode())
    for number in range(_SPOTS):
        start = (stream.num_tokens - length) * number // (_SPOTS - 1)
        digest.update(stream.tokens(start, length).astype("<u4").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Survey:
    summary: SplitSummary
    tokens_sha256: str
    lengths_sha256: str


def _survey(
    stream: FlatStream,
    tokenizer: TokenizerIdentity,
    per_id: npt.NDArray[np.int64] | None,
    *,
    done: int,
    total: int,
) -> _Survey:
    stream.check()
    tokens_digest, lengths_digest = hashlib.sha256(), hashlib.sha256()
    documents = text_bytes = last_end = 0
    for start in range(0, stream.num_tokens, _READ_AT_ONCE):
        count = min(_READ_AT_ONCE, stream.num_tokens - start)
        ids, ends = stream.tokens(start, count), stream.document_ends(start, count)
        _check_ids(stream, start, ids, tokenizer)
        tokens_digest.update(np.ascontiguousarray(ids, ids.dtype.newbyteorder("<")).data)
        lengths_digest.update(np.diff(ends, prepend=last_end).astype("<i8").tobytes())
        last_end = int(ends[-1]) if len(ends) else last_end
        documents += len(ends)
        text_bytes += 0 if per_id is None else int(per_id[ids].sum())
        report(done + start + count, total, "tokens", f"checking {stream.split}")
    return _Survey(
        summary=SplitSummary(
            tokens=stream.num_tokens,
            documents=documents,
            text_bytes=text_bytes,
            empty_documents=stream.num_documents - documents,
        ),
        tokens_sha256=tokens_digest.hexdigest(),
        lengths_sha256=lengths_digest.hexdigest(),
    )


def _check_ids(stream: FlatStream, start: int, ids: npt.NDArray[Any], tokenizer: TokenizerIdentity) -> None:
    if int(ids.max()) < tokenizer.vocab_size:
        return
    at = int(np.argmax(ids >= tokenizer.vocab_size))
    raise DataError(
        f"{stream.path}: token {start + at:,} of the {stream.split} split is id {int(ids[at]):,}, which is not below "
        f"the vocabulary size {tokenizer.vocab_size:,} of {tokenizer.location}: give the tokenizer that made it, as "
        f"{HOW_TO_GIVE}"
    )


def _tokenizer(cache: ForeignCache, config: Mapping[str, Any]) -> tuple[TokenizerIdentity, Encoder | None]:
    """The tokenizer that ``config`` gives, else the one that lies beside the tokens, else the one that they name."""
    path, given, eos_token = cache.place.path, config.get("tokenizer"), config.get("eos_token")
    file = os.path.join(cache.place.root, TOKENIZER_FILE)
    beside = file if os.path.isfile(file) else None
    if given is not None:
        identity, encoder = given_tokenizer(path, given, eos_token)
        if beside is not None:
            own = load_encoder(
                parse_tokenizer(os.path.abspath(beside)), eos_token=eos_token or identity.eos_token or None
            )
            if not identity.agrees_with(own.identity):
                raise TokenizerMismatchError(
                    f"{path} has a {TOKENIZER_FILE} beside its tokens (vocabulary {own.identity.vocab_size:,}), "
                    f"config['tokenizer'] says {identity.location} (vocabulary {identity.vocab_size:,}): "
                    "leave the entry out, or remove the file"
                )
        return identity, encoder
    named = beside or cache.tokenizer()
    if named is None:
        raise ConfigurationError(
            f"{path} ({cache.layout.name}) does not say which tokenizer made it: adopt it with {HOW_TO_GIVE}"
        )
    try:
        encoder = load_encoder(parse_tokenizer(named), eos_token=eos_token)
    except MarinError as fault:
        raise ConfigurationError(
            f"{path} ({cache.layout.name}) names the tokenizer {named}, which can't be loaded here ({fault}): "
            f"adopt it with {HOW_TO_GIVE}"
        ) from fault
    return encoder.identity, encoder


def given_tokenizer(path: str, given: Any, eos_token: str | None) -> tuple[TokenizerIdentity, Encoder | None]:
    """What ``config['tokenizer']`` means: something to load, or the fields of an identity as they are."""
    if isinstance(given, TokenizerIdentity):
        return given, None
    if not isinstance(given, Mapping | int | float | list | tuple):
        encoder = load_encoder(parse_tokenizer(given), eos_token=eos_token)
        return encoder.identity, encoder
    try:
        return msgspec.convert(given, TokenizerIdentity), None
    except msgspec.ValidationError as fault:
        raise ArtifactTypeError(
            f"adopting {path}: config['tokenizer'] is not a TokenizerIdentity: {fault}. Give it as {HOW_TO_GIVE}"
        ) from fault
