"""Text to ids and back, exactly as Hugging Face ``tokenizers`` does it, with what surrounds each document.

Special strings inside a document are ordinary text unless asked otherwise. What is added in front of a document and
behind it is explicit, see ``SpecialTokens``; by default it is one end-of-text id behind.

A little over 300 lines: both encoders, and the special tokens that they share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from marin.errors import ConfigurationError
from marin.processing.tokenize.engines import ByteEngine, Engine, FlatIds, ReferenceEngine
from marin.processing.tokenize.manifest import Framing, SpecialTokens, TokenizerIdentity
from marin.processing.tokenize.tokenizer_files import TokenizerFiles, read_tokenizer_files
from marin.processing.tokenize.tokenizers import BYTES, TokenizerSource

PROBE = (
    "The quick brown fox, aged 42, doesn't jump.\r\n\n\tif x[0] >= 10_000.5:  # naïve — 東京 Привет مرحبا 👩‍🚀\x00"
    " <|endoftext|></s><s>[INST]  ﬁ Å I'LL    \n\n\n"
)
"""Its ids tell one tokenizer from another: case, digits, spaces, scripts, special strings, normal forms."""

_END_OF_TEXT_NAMES = ("<|endoftext|>", "<|end_of_text|>", "<|eos|>", "<eos>", "</s>", "<|end▁of▁sentence|>")
_BEGIN_OF_TEXT_NAMES = ("<|begin_of_text|>", "<|startoftext|>", "<bos>", "<s>", "<|begin▁of▁sentence|>")


@dataclass(frozen=True, kw_only=True)
class EncodingRules:
    """What is asked of the encoding beside the tokenizer. ``None`` as a token: the one that its files declare."""

    special_tokens: SpecialTokens = "eos"
    eos_token: str | None = None
    bos_token: str | None = None
    parse_special: bool = False


class Encoder(Protocol):
    """Turns documents into ids. ``engine`` is the library that does it, and its version."""

    @property
    def identity(self) -> TokenizerIdentity: ...

    @property
    def framing(self) -> Framing: ...

    @property
    def engine(self) -> str: ...

    @property
    def file(self) -> bytes | None:
        """The ``tokenizer.json``, where there is one."""
        ...

    def encode(self, texts: Sequence[str]) -> FlatIds:
        """The ids of all documents one after the other, and the length of each, with what surrounds it."""
        ...

    def decode(self, ids: npt.NDArray[np.integer[Any]]) -> str:
        """The text of ``ids``; end-of-text ids give nothing."""
        ...


def load_encoder(
    source: TokenizerSource, *, eos_token: str | None = None, rules: EncodingRules | None = None
) -> Encoder:
    """The tokenizer that ``source`` names. One from the hub is downloaded through ``huggingface_hub``.

    ``eos_token`` is short for rules with that token. Raises ``ConfigurationError`` if the tokenizer can't be found,
    read, or has no such token.
    """
    rules = rules or EncodingRules(eos_token=eos_token)
    if source.kind == "bytes":
        return ByteEncoder(rules)
    return HuggingFaceEncoder.of_files(read_tokenizer_files(source), source=source, rules=rules)


class ByteEncoder:
    """Ids 0 to 255 are the bytes of UTF-8; 256 ends a document."""

    EOS_ID = 256

    def __init__(self, rules: EncodingRules | None = None) -> None:
        rules = rules or EncodingRules()
        if rules.eos_token is not None or rules.bos_token is not None:
            raise ConfigurationError(
                f"eos_token={rules.eos_token!r}, bos_token={rules.bos_token!r}: the tokenizer 'bytes' ends documents "
                "with id 256 and has no other special token: leave it out"
            )
        if rules.special_tokens in ("bos_eos", "template"):
            raise ConfigurationError(
                f"special_tokens={rules.special_tokens!r}: the tokenizer 'bytes' has no beginning-of-text token and no "
                "template; choose 'eos' or 'none'"
            )
        self._engine = ByteEngine()
        self.engine = self._engine.name
        self.file = None
        suffix = (self.EOS_ID,) if rules.special_tokens == "eos" else ()
        self.framing = Framing(policy=rules.special_tokens, suffix=suffix)
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

    def encode(self, texts: Sequence[str]) -> FlatIds:
        return framed(*self._engine.encode(texts), self.framing)

    def decode(self, ids: npt.NDArray[np.integer[Any]]) -> str:
        return ids[ids < self.EOS_ID].astype(np.uint8).tobytes().decode(errors="replace")


class HuggingFaceEncoder:
    """A ``tokenizer.json``, by the reference until ``use`` is given an engine that was seen to do the same."""

    def __init__(
        self,
        data: bytes,
        *,
        source: TokenizerSource,
        eos_token: str | None = None,
        rules: EncodingRules | None = None,
        declared: dict[str, str] | None = None,
        chat_template: str | None = None,
    ) -> None:
        """``declared``: the special tokens by role (``eos_token``, ``bos_token``) that its config file declares."""
        rules = rules or EncodingRules(eos_token=eos_token)
        self.reference = ReferenceEngine(data, label=source.label, parse_special=rules.parse_special)
        self._engine: Engine = self.reference
        self._tokenizer = self.reference.tokenizer
        self.file = data
        self.chat_template = chat_template
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise ConfigurationError(f"tokenizer {source.label} has an empty vocabulary: choose another")
        special = _SpecialTokens(source, vocabulary, rules, declared or {})
        self.bos_token = special.bos
        self.framing = _template(self._tokenizer, source) if rules.special_tokens == "template" else special.framing()
        self.identity = TokenizerIdentity(
            kind=source.kind,
            location=source.label,
            revision=source.revision,
            sha256=hashlib.sha256(data).hexdigest(),
            vocab_size=max(vocabulary.values()) + 1,
            bos_id=None if special.bos is None else vocabulary[special.bos],
            eos_id=None if special.eos is None else vocabulary[special.eos],
            eos_token=special.eos,
            probe_sha256=_behaviour_sha256(vocabulary, self._probe_ids(source)),
        )

    @classmethod
    def of_files(cls, files: TokenizerFiles, *, source: TokenizerSource, rules: EncodingRules) -> HuggingFaceEncoder:
        """The encoder of a tokenizer's files, with the commit that they were read from."""
        encoder = cls(
            files.data, source=source, rules=rules, declared=files.declared, chat_template=files.chat_template
        )
        if files.revision is not None:
            encoder.identity = replace(encoder.identity, revision=files.revision)
        return encoder

    @property
    def engine(self) -> str:
        return self._engine.name

    def use(self, engine: Engine) -> None:
        """Encode with ``engine`` from now on."""
        self._engine = engine

    def encode(self, texts: Sequence[str]) -> FlatIds:
        return framed(*self._engine.encode(texts), self.framing)

    def decode(self, ids: npt.NDArray[np.integer[Any]]) -> str:
        ends = [] if self.identity.eos_id is None else [self.identity.eos_id]
        return self._tokenizer.decode(ids[~np.isin(ids, ends)].tolist(), skip_special_tokens=False)

    def _probe_ids(self, source: TokenizerSource) -> list[int]:
        # With special strings as ordinary text, however documents are encoded: it is the tokenizer that is told.
        self._tokenizer.encode_special_tokens = True
        try:
            return self._tokenizer.encode(PROBE, add_special_tokens=False).ids
        except Exception as fault:  # the library raises plain Exception
            raise ConfigurationError(
                f"tokenizer {source.label} fails on ordinary text ({fault}): mend its vocabulary, or choose another"
            ) from fault
        finally:
            self._tokenizer.encode_special_tokens = not self.reference.parse_special


def framed(ids: npt.NDArray[np.uint32], lengths: npt.NDArray[np.int64], framing: Framing) -> FlatIds:
    """Documents with ``framing`` around each."""
    prefix, suffix = framing.prefix, framing.suffix
    if not prefix and not suffix:
        return ids, lengths
    longer = lengths + (len(prefix) + len(suffix))
    ends = np.cumsum(longer)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint32)
    is_text = np.ones(len(out), np.bool_)
    starts = ends - longer
    for place, token in enumerate(prefix):
        out[starts + place] = token
        is_text[starts + place] = False
    for place, token in enumerate(reversed(suffix), start=1):
        out[ends - place] = token
        is_text[ends - place] = False
    out[is_text] = ids
    return out, longer


class _SpecialTokens:
    """The tokens that begin and end a document: those asked for, else those declared, else those of the usual names."""

    def __init__(
        self, source: TokenizerSource, vocabulary: dict[str, int], rules: EncodingRules, declared: dict[str, str]
    ) -> None:
        self._label, self._vocabulary, self._rules = source.label, vocabulary, rules
        self.eos = self._end_of_text(rules.eos_token, declared)
        self.bos = self._begin_of_text(rules.bos_token, declared)

    def framing(self) -> Framing:
        policy = self._rules.special_tokens
        prefix = suffix = ()
        if policy == "bos_eos":
            if self.bos is None:
                raise ConfigurationError(
                    f"tokenizer {self._label} declares no beginning-of-text token, which special_tokens='bos_eos' puts "
                    "in front of each document: choose one with bos_token=, or special_tokens='eos'"
                )
            prefix = (self._vocabulary[self.bos],)
        if policy in ("eos", "bos_eos"):
            assert self.eos is not None  # refused below
            suffix = (self._vocabulary[self.eos],)
        return Framing(policy=policy, prefix=prefix, suffix=suffix)

    def _end_of_text(self, asked: str | None, declared: dict[str, str]) -> str | None:
        if asked is not None:
            return self._asked("eos_token", asked)
        if (token := declared.get("eos_token")) in self._vocabulary:
            return token
        known = [token for token in _END_OF_TEXT_NAMES if token in self._vocabulary]
        if len(known) == 1:
            return known[0]
        if self._rules.special_tokens in ("template", "none"):
            return None
        found = f"several ({', '.join(known)})" if known else "none of the usual names"
        raise ConfigurationError(
            f"tokenizer {self._label} does not say which token ends a document; its vocabulary has {found}: "
            "choose one with tokenized(..., eos_token='</s>')"
        )

    def _begin_of_text(self, asked: str | None, declared: dict[str, str]) -> str | None:
        if asked is not None:
            return self._asked("bos_token", asked)
        candidates = [declared.get("bos_token"), *_BEGIN_OF_TEXT_NAMES]
        return next((token for token in candidates if token in self._vocabulary), None)

    def _asked(self, role: str, token: str) -> str:
        if token not in self._vocabulary:
            raise ConfigurationError(f"{role}={token!r} is not in the vocabulary of {self._label}")
        return token


def _template(tokenizer: Any, source: TokenizerSource) -> Framing:
    """What the tokenizer's own post-processor adds around a document."""
    found = list[tuple[tuple[int, ...], tuple[int, ...]]]()
    for text in ("", "a", "Roses are red, 42 of them."):
        bare, whole = (tokenizer.encode(text, add_special_tokens=added).ids for added in (False, True))
        begins = [place for place in range(len(whole) - len(bare) + 1) if whole[place : place + len(bare)] == bare]
        if not begins:
            raise ConfigurationError(
                f"tokenizer {source.label}: its post-processor changes the ids of a document, not only adds some "
                "around it; choose special_tokens='eos', 'bos_eos' or 'none'"
            )
        # Of the empty text it is not told what is in front: the others tell.
        found.append((tuple(whole[: begins[0]]), tuple(whole[begins[0] + len(bare) :])))
    if found[1] != found[2] or sum(map(len, found[0])) != sum(map(len, found[1])):
        raise ConfigurationError(
            f"tokenizer {source.label}: what its post-processor adds depends on the document; choose "
            "special_tokens='eos', 'bos_eos' or 'none'"
        )
    prefix, suffix = found[1]
    return Framing(policy="template", prefix=prefix, suffix=suffix)


def _ids_sha256(ids: list[int]) -> str:
    return hashlib.sha256(np.array(ids, "<u4").data).hexdigest()


def _behaviour_sha256(vocabulary: dict[str, int], probe_ids: list[int]) -> str:
    # Of texts that the probe is unlike, the vocabulary alone tells.
    return hashlib.sha256(msgspec.json.encode([sorted(vocabulary.items()), probe_ids])).hexdigest()
