"""Text to ids and back, by the reference: Hugging Face ``tokenizers``, or plain bytes.

Special strings inside a document are ordinary text, no token is added in front, and one end-of-text id is added behind
each document. So the ids of a document are those of the reference, followed by ``eos_id``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import huggingface_hub
import numpy as np
import numpy.typing as npt
import tokenizers

from marin.errors import ConfigurationError, DataError, HubUnreachableError
from marin.processing.hub import current_commit, plainly
from marin.processing.near import near_names
from marin.processing.tokenize.manifest import TOKENIZER_FILE, TokenizerIdentity
from marin.processing.tokenize.tokenizers import BYTES, TokenizerSource

CONFIG_FILE = "tokenizer_config.json"

PROBE = (
    "The quick brown fox, aged 42, doesn't jump.\r\n\n\tif x[0] >= 10_000.5:  # naïve — 東京 Привет مرحبا 👩‍🚀\x00"
    " <|endoftext|></s><s>[INST]  ﬁ Å I'LL    \n\n\n"
)
"""Its ids tell one tokenizer from another: case, digits, spaces, scripts, special strings, normal forms."""

_END_OF_TEXT_NAMES = ("<|endoftext|>", "<|end_of_text|>", "<|eos|>", "<eos>", "</s>", "<|end▁of▁sentence|>")
_BEGIN_OF_TEXT_NAMES = ("<|begin_of_text|>", "<|startoftext|>", "<bos>", "<s>", "<|begin▁of▁sentence|>")


class Encoder(Protocol):
    """Turns documents into ids. ``engine`` is the library that does it, and its version."""

    @property
    def identity(self) -> TokenizerIdentity: ...

    @property
    def engine(self) -> str: ...

    @property
    def file(self) -> bytes | None:
        """The ``tokenizer.json``, where there is one."""
        ...

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of all documents one after the other, and the length of each, with its end-of-text id."""
        ...

    def decode(self, ids: npt.NDArray[np.integer[Any]]) -> str:
        """The text of ``ids``; end-of-text ids give nothing."""
        ...


def load_encoder(source: TokenizerSource, *, eos_token: str | None = None) -> Encoder:
    """The tokenizer that ``source`` names. One from the hub is downloaded through ``huggingface_hub``.

    ``eos_token`` ends each document; ``None``: the one that the tokenizer's own files declare. Raises
    ``ConfigurationError`` if it can't be found, read, or has no such token.
    """
    if source.kind == "bytes":
        if eos_token is not None:
            raise ConfigurationError(
                f"eos_token={eos_token!r}: the tokenizer 'bytes' ends documents with id 256; leave it out"
            )
        return ByteEncoder()
    if source.kind == "hub":
        _check_not_local(source)
    data, declared, revision = _from_hub(source) if source.kind == "hub" else _from_file(source)
    encoder = HuggingFaceEncoder(data, source=source, eos_token=eos_token, declared=declared)
    return encoder if revision is None else encoder.at_revision(revision)


class ByteEncoder:
    """Ids 0 to 255 are the bytes of UTF-8; 256 ends a document."""

    EOS_ID = 256

    def __init__(self) -> None:
        self.engine = "marin bytes 1"
        self.file = None
        self.identity = TokenizerIdentity(
            kind="bytes",
            location=BYTES,
            sha256=hashlib.sha256(self.engine.encode()).hexdigest(),
            vocab_size=self.EOS_ID + 1,
            bos_id=None,
            eos_id=self.EOS_ID,
            eos_token="",
            probe_sha256=_ids_sha256(list(PROBE.encode())),
        )

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        return _joined([np.frombuffer(text.encode(), np.uint8) for text in texts], self.EOS_ID)

    def decode(self, ids: npt.NDArray[np.integer[Any]]) -> str:
        return ids[ids < self.EOS_ID].astype(np.uint8).tobytes().decode(errors="replace")


class HuggingFaceEncoder:
    """A ``tokenizer.json``, run by Hugging Face ``tokenizers`` on all cores."""

    def __init__(
        self,
        data: bytes,
        *,
        source: TokenizerSource,
        eos_token: str | None = None,
        declared: dict[str, str] | None = None,
    ) -> None:
        """``declared``: the special tokens by role (``eos_token``, ``bos_token``) that its config file declares."""
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(data.decode())
        except Exception as fault:  # the library raises plain Exception
            raise ConfigurationError(
                f"tokenizer {source.label} is not a tokenizer.json that can be read: {fault}"
            ) from fault
        self._make_exact()
        self.file = data
        self.engine = f"tokenizers {tokenizers.__version__}"
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        eos = _end_of_text(source, vocabulary, eos_token, declared or {})
        bos = _begin_of_text(vocabulary, declared or {})
        self.identity = TokenizerIdentity(
            kind=source.kind,
            location=source.label,
            revision=source.revision,
            sha256=hashlib.sha256(data).hexdigest(),
            vocab_size=max(vocabulary.values()) + 1,
            bos_id=None if bos is None else vocabulary[bos],
            eos_id=vocabulary[eos],
            eos_token=eos,
            probe_sha256=_behaviour_sha256(vocabulary, self._probe_ids(source)),
        )

    def at_revision(self, revision: str) -> HuggingFaceEncoder:
        """Itself, with the commit that it was read from."""
        self.identity = replace(self.identity, revision=revision)
        return self

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return _joined([np.array(encoding.ids, np.uint32) for encoding in encodings], self.identity.eos_id)

    def decode(self, ids: npt.NDArray[np.integer[Any]]) -> str:
        kept = ids[ids != self.identity.eos_id].tolist()
        return self._tokenizer.decode(kept, skip_special_tokens=False)

    def _probe_ids(self, source: TokenizerSource) -> list[int]:
        try:
            return self._tokenizer.encode(PROBE, add_special_tokens=False).ids
        except Exception as fault:  # the library raises plain Exception
            raise ConfigurationError(
                f"tokenizer {source.label} fails on ordinary text ({fault}): mend its vocabulary, or choose another"
            ) from fault

    def _make_exact(self) -> None:
        # What a file may carry over from the use it was saved in, and what would change or cut a document.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        if getattr(self._tokenizer.model, "dropout", None):
            self._tokenizer.model.dropout = None


def _joined(documents: Sequence[npt.NDArray[Any]], eos_id: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    lengths = np.array([len(document) + 1 for document in documents], np.int64)
    ids = np.empty(int(lengths.sum()), np.uint32)
    start = 0
    for document in documents:
        end = start + len(document)
        ids[start:end] = document
        ids[end] = eos_id
        start = end + 1
    return ids, lengths


def _ids_sha256(ids: list[int]) -> str:
    return hashlib.sha256(np.array(ids, "<u4").data).hexdigest()


def _behaviour_sha256(vocabulary: dict[str, int], probe_ids: list[int]) -> str:
    # Of texts that the probe is unlike, the vocabulary alone tells.
    return hashlib.sha256(json.dumps([sorted(vocabulary.items()), probe_ids]).encode()).hexdigest()


def _end_of_text(
    source: TokenizerSource, vocabulary: dict[str, int], asked: str | None, declared: dict[str, str]
) -> str:
    if asked is not None:
        if asked not in vocabulary:
            raise ConfigurationError(f"eos_token={asked!r} is not in the vocabulary of {source.label}")
        return asked
    if (token := declared.get("eos_token")) in vocabulary:
        return token
    known = [token for token in _END_OF_TEXT_NAMES if token in vocabulary]
    if len(known) == 1:
        return known[0]
    found = f"several ({', '.join(known)})" if known else "none of the usual names"
    raise ConfigurationError(
        f"tokenizer {source.label} does not say which token ends a document; its vocabulary has {found}: "
        "choose one with tokenized(..., eos_token='</s>')"
    )


def _begin_of_text(vocabulary: dict[str, int], declared: dict[str, str]) -> str | None:
    candidates = [declared.get("bos_token"), *_BEGIN_OF_TEXT_NAMES]
    return next((token for token in candidates if token in vocabulary), None)


def _from_file(source: TokenizerSource) -> tuple[bytes, dict[str, str], None]:
    path = os.path.abspath(os.path.expanduser(source.location))
    if os.path.isdir(path):
        path = os.path.join(path, TOKENIZER_FILE)
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as fault:
        near = near_names(os.path.dirname(path), os.path.basename(path))
        hint = f"did you mean {near}? Or " if near and isinstance(fault, FileNotFoundError) else ""
        raise ConfigurationError(
            f"tokenizer {source.label!r}: {path} can't be read ({fault.strerror}); {hint}"
            "give a tokenizer.json, its folder, or a hub id such as 'organisation/name'"
        ) from fault
    return data, _declared(os.path.join(os.path.dirname(path), CONFIG_FILE)), None


def _check_not_local(source: TokenizerSource) -> None:
    """A bare text was taken for a hub id, but names a tokenizer here."""
    name = source.location
    folder_or_file = os.path.isfile(name) or os.path.isfile(os.path.join(name, TOKENIZER_FILE))
    if source.guessed and folder_or_file:
        raise ConfigurationError(
            f"tokenizer {name!r} has the form of a hub id, but there is one at {os.path.abspath(name)}: "
            f"write './{name}'; for that of the hub write hub_tokenizer({name!r}, revision='main')"
        )


def _from_hub(source: TokenizerSource) -> tuple[bytes, dict[str, str], str]:
    name, revision = source.location, source.revision
    path_hint = f": a path is written './{name}'; as a hub id, it" if source.guessed else ""
    called = f"tokenizer {source.label!r}{path_hint}"
    try:
        # The client retries a download for half a minute; this tells within seconds that nobody answers.
        current_commit(name, "model", revision, called=called)
    except HubUnreachableError as fault:
        path, config = _cached(source, fault)
    else:
        with plainly(name, "model", called):
            path = huggingface_hub.hf_hub_download(name, TOKENIZER_FILE, revision=revision)
            try:
                config = huggingface_hub.hf_hub_download(name, CONFIG_FILE, revision=_commit(path))
            # Bound by the call above. Imported at the top it would load an HTTP client for every tokenizer.
            except huggingface_hub.errors.RemoteEntryNotFoundError:
                config = ""
    with open(path, "rb") as stream:
        return stream.read(), _declared(config), _commit(path)


def _cached(source: TokenizerSource, fault: HubUnreachableError) -> tuple[str, str]:
    """The tokenizer's files in the cache of the hub's client. Raises ``fault`` if they are not there."""
    path = huggingface_hub.try_to_load_from_cache(source.location, TOKENIZER_FILE, revision=source.revision)
    if not isinstance(path, str):
        raise HubUnreachableError(
            f"{fault}. It is not in this machine's cache either: give the path of a tokenizer.json, or {BYTES!r}"
        ) from fault
    config = huggingface_hub.try_to_load_from_cache(source.location, CONFIG_FILE, revision=_commit(path))
    if config is None:  # not even that there is none is known; without it the end-of-text token might be another
        raise HubUnreachableError(
            f"{fault}. The cache has its {TOKENIZER_FILE}, not its {CONFIG_FILE}: give {path!r} and eos_token="
        ) from fault
    return path, config if isinstance(config, str) else ""


def _commit(path: str) -> str:
    # The cache of the hub's client keeps each commit in a folder of its own: .../snapshots/{commit}/tokenizer.json
    return os.path.basename(os.path.dirname(path))


def _declared(config: str) -> dict[str, str]:
    """Special tokens by role, from a ``tokenizer_config.json``; empty if there is none."""
    if not os.path.isfile(config):
        return {}
    try:
        with open(config, "rb") as stream:
            entries: dict[str, Any] = json.load(stream)
    except ValueError as fault:
        raise DataError(f"{config} is not JSON: {fault}; mend or remove it") from fault
    tokens = {role: entries.get(role) for role in ("bos_token", "eos_token")}
    return {
        role: str(token["content"] if isinstance(token, dict) else token) for role, token in tokens.items() if token
    }
