"""Chats to ids: messages are written out by a Jinja chat template, and what it marks as the assistant's is learned.

Special tokens are those that the template writes. A special string inside a message is ordinary text: nobody who writes
into a message can end it, or speak in another role.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, cast

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import msgspec
import numpy as np
import numpy.typing as npt

from marin.errors import ConfigurationError
from marin.processing.documents import ABSENT, Unfit
from marin.processing.tokenize.formats import Learned

_GENERATION = re.compile(r"\{%-?\s*generation\b")
_BEGIN, _END, _QUOTED = "\U000f0000", "\U000f0001", "\U000f0002"
"""Private characters of ours that mark places in what a template has written, and are taken out again."""

_COMPARED = 16
"""So many chats are encoded in two ways."""

_ESCAPED = {"\\U000f0002": _QUOTED, "\\udb80\\udc02": _QUOTED}
"""What becomes of the mark where a template prints a structure, or its JSON in ASCII."""

_MARKS = re.compile(f"[{_BEGIN}{_END}{_QUOTED}]")


class Rendered(NamedTuple):
    """A chat as a template wrote it. ``parts``: text, whether it is a special token, and whether it is learned."""

    parts: tuple[tuple[str, bool, bool], ...]
    size: int
    key: str
    has_quoted: bool


class ChatEncoder:
    """Renders and encodes chats with the reference tokenizer."""

    def __init__(
        self,
        reference: Any,
        *,
        template: str,
        label: str,
        learned: Learned,
        bos_token: str | None,
        eos_token: str | None,
    ) -> None:
        """``reference``: a ``tokenizers.Tokenizer``. Raises ``ConfigurationError`` for a template that won't do."""
        if learned == "assistant" and _GENERATION.search(template) is None:
            raise ConfigurationError(
                f"the chat template of {label} marks no assistant turns, so nothing would be learned: put "
                "{% generation %} and {% endgeneration %} around what the assistant says and give the template as "
                "ChatFormat(chat_template=...), or choose ChatFormat(learned='all')"
            )
        try:
            self._template = _environment().from_string(template)
        except jinja2.TemplateError as fault:
            raise ConfigurationError(f"the chat template of {label} can't be read: {fault}; mend it") from fault
        self._tokenizer, self._label, self._learned = reference, label, learned
        self._tokens = {"bos_token": bos_token or "", "eos_token": eos_token or ""}
        special = {token.content: id for id, token in reference.get_added_tokens_decoder().items() if token.special}
        self._special = special
        longest_first = sorted(special, key=len, reverse=True)
        # Not in front of our mark, which is also how a special string of one character is quoted.
        self._pattern = re.compile(f"(?:{'|'.join(map(re.escape, longest_first))})(?!{_QUOTED})") if special else None
        self._compared = 0

    def render(self, messages: Any, key: str, *, prompt: int = 0) -> Rendered:
        """``messages`` written out, the first ``prompt`` of which are not learned, whoever speaks there.

        Raises ``Unfit`` for what is no chat, or what the template refuses.
        """
        checked = checked_messages(messages, key)
        text = self._written(checked)
        parts = tuple(self._parts(text))
        if prompt:
            # A template may end a chat in its own way, so what it writes of the prompt alone tells only how it begins.
            alone = "".join(part for part, _, _ in self._parts(self._written(checked[:prompt])))
            parts = tuple(_not_learned(parts, _alike(alone, "".join(part for part, _, _ in parts))))
        if self._learned == "assistant" and not any(learned for _, _, learned in parts):
            raise Unfit("no assistant turn", "at least one message of the assistant")
        size = sum(len(part.encode()) for part, _, _ in parts)
        return Rendered(parts=parts, size=size, key=msgspec.json.encode(checked).decode(), has_quoted=_QUOTED in text)

    def _written(self, messages: list[dict[str, Any]]) -> str:
        """What the template makes of ``messages``, with our marks in it."""
        quoted = cast("list[Any]", _mapped(messages, self._quote))
        try:
            text = self._template.render(
                messages=quoted, add_generation_prompt=False, tools=None, documents=None, **self._tokens
            )
        except Exception as fault:  # noqa: BLE001  # a template may fail in any way that Python can
            said = fault if isinstance(fault, jinja2.TemplateError) else f"{type(fault).__name__}: {fault}"
            raise Unfit("refused by the template", f"what the chat template takes ({said})") from None
        for escaped, mark in _ESCAPED.items():
            text = text.replace(escaped, mark)
        return text

    def encode(
        self, chats: Sequence[Rendered]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Ids, lengths and which ids are learned: those that hold a character of a learned part."""
        ids, masks, lengths = list[Any](), list[Any](), list[int]()
        for chat in chats:
            count = 0
            for piece, learned_from in _joined(chat.parts):
                if isinstance(piece, str):
                    encoding = self._tokenizer.encode(piece, add_special_tokens=False)
                    found = np.array(encoding.ids, np.uint32)
                    masks.append(_touched(np.array(encoding.offsets, np.int64).reshape(-1, 2), *learned_from))
                else:
                    token, learned = piece
                    found = np.array([self._special[token]], np.uint32)
                    masks.append(np.array([learned], np.bool_))
                ids.append(found)
                count += len(found)
            lengths.append(count)
            self._compare(chat, ids, count)
        if not ids:
            return np.zeros(0, np.uint32), np.array(lengths, np.int64), np.zeros(0, np.bool_)
        return np.concatenate(ids), np.array(lengths, np.int64), np.concatenate(masks)

    def _compare(self, chat: Rendered, ids: Sequence[npt.NDArray[np.uint32]], count: int) -> None:
        """Hold the first chats against the tokenizer's own encoding of the whole: tokens may change what is beside."""
        if chat.has_quoted or self._compared >= _COMPARED or not count:
            return
        self._compared += 1
        before = self._tokenizer.encode_special_tokens
        self._tokenizer.encode_special_tokens = False
        try:
            whole = self._tokenizer.encode("".join(part for part, _, _ in chat.parts), add_special_tokens=False).ids
        finally:
            self._tokenizer.encode_special_tokens = before
        if np.concatenate(ids)[-count:].tolist() != whole:
            raise ConfigurationError(
                f"the tokenizer {self._label} changes text beside its special tokens, which chats can't be encoded "
                "with: let its special tokens have neither lstrip nor rstrip, and its pre-tokenizer add no prefix"
            )

    def _quote(self, text: str) -> str:
        """``text`` in which each special string is marked as ordinary text."""
        if _MARKS.search(text) or any(escaped in text for escaped in _ESCAPED):
            raise Unfit("private characters", "messages without the characters U+F0000 to U+F0002, also as escapes")
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: f"{found[0][0]}{_QUOTED}{found[0][1:]}", text)

    def _parts(self, text: str) -> Iterator[tuple[str, bool, bool]]:
        learned = self._learned == "all"
        for place in re.split(f"([{_BEGIN}{_END}])", text):
            if place in (_BEGIN, _END):
                learned = self._learned == "all" or place == _BEGIN
                continue
            begin = 0
            for found in self._pattern.finditer(place) if self._pattern else ():
                yield place[begin : found.start()].replace(_QUOTED, ""), False, learned
                yield found[0], True, learned
                begin = found.end()
            yield place[begin:].replace(_QUOTED, ""), False, learned


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _not_learned(parts: Sequence[tuple[str, bool, bool]], count: int) -> Iterator[tuple[str, bool, bool]]:
    """``parts``, of which the first ``count`` characters are not learned."""
    for text, is_special, learned in parts:
        # Two special tokens may begin alike: one that does not end within the count lies behind it.
        within = (len(text) if count >= len(text) else 0) if is_special else min(max(count, 0), len(text))
        if within:
            yield text[:within], is_special, False
        if within < len(text):
            yield text[within:], is_special, learned
        count -= len(text)


def _touched(offsets: npt.NDArray[np.int64], bounds: npt.NDArray[Any], states: npt.NDArray[np.bool_]) -> Any:
    """Which tokens hold a learned character. One that also holds others is learned: no answer loses its first letter.

    ``offsets``: where each begins and ends; ``states``: whether what begins at each of ``bounds`` is learned.
    """
    begins, ends = offsets[:, 0], np.maximum(offsets[:, 1], offsets[:, 0] + 1)
    lengths = np.diff(np.append(bounds, max(int(bounds[-1]), int(ends.max(initial=0)))))
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.where(states, lengths, 0))])

    def count(places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        index = np.searchsorted(bounds, places, side="right") - 1
        return before[index] + np.where(states[index], places - bounds[index], 0)

    return count(ends) > count(begins)


def _joined(parts: Sequence[tuple[str, bool, bool]]) -> Iterator[tuple[Any, Any]]:
    """Text between special tokens in one piece, with the places where being learned changes; and the tokens."""
    texts, bounds, states, length = list[str](), [0], [False], 0
    for text, is_special, learned in (*parts, ("", True, False)):
        if not is_special:
            if text:
                texts.append(text)
                bounds.append(length)
                states.append(learned)
                length += len(text)
            continue
        if texts:
            yield "".join(texts), (np.array(bounds), np.array(states, np.bool_))
        texts, bounds, states, length = [], [0], [False], 0
        if text:
            yield (text, learned), None


def checked_messages(value: Any, key: str) -> list[dict[str, Any]]:
    """``value``, if it is a list of messages. Raises ``Unfit``, which names the field ``key``."""
    if value is ABSENT:
        raise Unfit("missing key", f"a list of messages under {key!r}")
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise Unfit("wrong type", f"a list of messages under {key!r}, each with 'role' and 'content'")
    for message in value:
        if not isinstance(message.get("role"), str) or "content" not in message:
            raise Unfit("message without role or content", "messages with 'role' and 'content'")
        if message["content"] is None and "tool_calls" not in message:
            raise Unfit("null", "text as the 'content' of a message, not null")
        if isinstance(message["content"], bool | int | float):
            raise Unfit("number", "text as the 'content' of a message, not a number")
    if not value:
        raise Unfit("no messages", f"at least one message under {key!r}")
    return value


def _mapped(value: Any, change: Any) -> Any:
    """``value`` with each text in it changed."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit("lone surrogate", "text that UTF-8 can hold") from None
        return change(value)
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    if isinstance(value, dict):
        return {_mapped(key, change): _mapped(each, change) for key, each in value.items()}
    return value


class _Generation(jinja2.ext.Extension):
    """``{% generation %}…{% endgeneration %}``: what stands between them is the assistant's."""

    tags = {"generation"}  # noqa: RUF012  # so the library has it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Any) -> str:
        return f"{_BEGIN}{caller()}{_END}"


def _environment() -> jinja2.Environment:
    # The settings and functions that templates of the hub are written for.
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    cast("dict[str, Any]", environment.globals).update(raise_exception=_raise, strftime_now=_no_clock)
    return environment


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _no_clock(format: str) -> NoReturn:
    del format
    today = datetime.date.today().isoformat()
    raise jinja2.TemplateError(
        f"it asks for today's date ({today}), and the same chats would give other ids tomorrow: give a template "
        "without strftime_now"
    )
