"""Pairs of answers: texts or chats, with a prompt in front that is not learned."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import msgspec
import numpy as np

from marin.processing.bad_records import BadRecords
from marin.processing.documents import ABSENT, Unfit, read_rows
from marin.processing.pieces import Piece
from marin.processing.tokenize.chat import ChatEncoder, checked_messages
from marin.processing.tokenize.encoder import framed
from marin.processing.tokenize.engines import Engine
from marin.processing.tokenize.examples import Encoded, Example
from marin.processing.tokenize.formats import PreferenceFormat
from marin.processing.tokenize.manifest import Framing


@final
class PreferenceReader:
    """A chosen and a rejected answer."""

    has_mask = True
    documents = 2

    def __init__(self, format: PreferenceFormat, chat: ChatEncoder | None, engine: Engine, framing: Framing) -> None:
        self._chat, self._engine, self._framing = chat, engine, framing
        self._needs_prompt = format.prompt_key is not None and not format.prompt_key.endswith("?")
        prompt = () if format.prompt_key is None else (format.prompt_key.removesuffix("?"),)
        self._keys = (format.chosen_key, format.rejected_key, *prompt)

    def read(self, piece: Piece, bad: BadRecords) -> Iterator[Example]:
        for (pair,), consumed in read_rows(piece, self._keys, self._fit, bad):
            yield Example(pair, sum(answer.size for answer in pair), consumed, False)

    def key(self, content: Any) -> str:
        return "\n".join(answer.key for answer in content)

    def encode_long(self, content: Any) -> None:
        del content

    def encode(self, contents: Sequence[Any]) -> Encoded:
        answers = [answer for pair in contents for answer in pair]
        found = [
            self._encode_texts(list(group)) if is_text else self._encode_chats(list(group))
            for is_text, group in itertools.groupby(answers, lambda answer: isinstance(answer, _Answer))
        ]
        if not found:
            return Encoded(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.bool_))
        masks = [each.mask for each in found if each.mask is not None]
        ids, lengths = [each.ids for each in found], [each.lengths for each in found]
        return Encoded(np.concatenate(ids), np.concatenate(lengths), np.concatenate(masks))

    def _encode_chats(self, answers: Sequence[Any]) -> Encoded:
        assert self._chat is not None  # messages were refused without it
        return Encoded(*self._chat.encode(answers))

    def _encode_texts(self, answers: Sequence[_Answer]) -> Encoded:
        ids, lengths = framed(*self._engine.encode([answer.prompt + answer.text for answer in answers]), self._framing)
        prompt_ids, prompts = self._engine.encode([answer.prompt for answer in answers])
        mask = np.ones(len(ids), np.bool_)
        starts = np.cumsum(lengths) - lengths + len(self._framing.prefix)
        prompt_starts = np.cumsum(prompts) - prompts
        for start, count, at in zip(starts.tolist(), prompts.tolist(), prompt_starts.tolist(), strict=True):
            # The last letters of a prompt may be in one token with the first of the answer, which is learned then.
            differs = np.flatnonzero(ids[start : start + count] != prompt_ids[at : at + count])
            common = int(differs[0]) if len(differs) else count
            mask[start - len(self._framing.prefix) : start + common] = count == 0
        return Encoded(ids, lengths, mask)

    def _fit(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        answers, prompt = values[:2], self._prompt(values[2]) if len(values) > 2 else ""
        if all(isinstance(value, list) for value in answers):
            return (self._chats(prompt, answers),)
        if not isinstance(prompt, str):
            raise Unfit("a prompt of messages beside texts", "messages as both answers, or text as the prompt")
        texts = [_text(value, key) for value, key in zip(answers, self._keys, strict=False)]
        return (tuple(_Answer(prompt, text) for text in texts),)

    def _prompt(self, value: Any) -> str | list[dict[str, Any]]:
        if not self._needs_prompt and (value is ABSENT or value is None or value == []):
            return ""
        return checked_messages(value, self._keys[2]) if isinstance(value, list) else _text(value, self._keys[2])

    def _chats(self, prompt: str | list[dict[str, Any]], answers: Sequence[list[Any]]) -> tuple[Any, ...]:
        if self._chat is None:
            raise Unfit("messages without a template", "texts, or a tokenizer with a chat template")
        if isinstance(prompt, str):
            if prompt and not all(_holds(answer, prompt) for answer in answers):
                raise Unfit("a prompt beside messages", "the prompt as messages, or as a message of both answers")
            prompt = []
        if any(answer[: len(prompt)] != prompt for answer in answers):
            answers = [[*prompt, *answer] for answer in answers]
        rendered = [
            self._chat.render(answer, key, prompt=len(prompt)) for answer, key in zip(answers, self._keys, strict=False)
        ]
        return tuple(rendered)


def _holds(messages: list[Any], text: str) -> bool:
    """Whether one of ``messages``, not of the assistant, is ``text``."""
    others = [message for message in messages if isinstance(message, dict) and message.get("role") != "assistant"]
    return any(message.get("content") == text for message in others)


class _Answer(NamedTuple):
    prompt: str
    text: str

    @property
    def size(self) -> int:
        return len(self.prompt.encode()) + len(self.text.encode())

    @property
    def key(self) -> str:
        return msgspec.json.encode([self.prompt, self.text]).decode()


def _text(value: Any, key: str) -> str:
    if value is ABSENT:
        raise Unfit("missing key", f"text under {key!r}")
    if not isinstance(value, str):
        raise Unfit("wrong type", f"text under {key!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit("lone surrogate", f"text under {key!r} that UTF-8 can hold") from None
    return value
