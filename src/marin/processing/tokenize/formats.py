"""What a document of the input is: text, a chat, a pair of answers, or ids that are there already.

Light: it only describes. ``examples`` reads and encodes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from marin.errors import ConfigurationError
from marin.processing.tokenize.manifest import FormatName

Learned: TypeAlias = Literal["assistant", "all"]
"""Which tokens of a chat are learned: those that the template marks as the assistant's, or all."""


OPTIONAL_PROMPT = "prompt?"
"""The prompt of a pair of answers where nothing is said of it."""


@dataclass(frozen=True, kw_only=True)
class ChatFormat:
    """A list of messages, each with ``role`` and ``content``, written out by a chat template.

    ``chat_template``: a Jinja template; ``None``: the tokenizer's own. With ``learned="assistant"`` the loss counts
    what stands between ``{% generation %}`` and ``{% endgeneration %}``, and a template without them is refused.
    """

    fingerprint_name: ClassVar[str] = "marin.ChatFormat"

    messages_key: str = "messages"
    chat_template: str | None = None
    learned: Learned = "assistant"


@dataclass(frozen=True, kw_only=True)
class PreferenceFormat:
    """Two answers, one better than the other: each text, or a list of messages as in ``ChatFormat``.

    In the cache document 2k is the k-th chosen one and 2k + 1 the rejected one of the same record.

    ``prompt_key`` names what stands before both and is not learned: a text before texts, messages before messages.
    A record without it can't be used; with a ``?`` at its end, as by default, the field is taken where a record has
    one; ``None``: there is no prompt, whatever the fields are called. Messages that both answers begin with are not
    put before them once more. A text beside messages has to be one of the messages of both answers.
    """

    fingerprint_name: ClassVar[str] = "marin.PreferenceFormat"

    chosen_key: str = "chosen"
    rejected_key: str = "rejected"
    prompt_key: str | None = OPTIONAL_PROMPT
    chat_template: str | None = None
    learned: Learned = "assistant"


@dataclass(frozen=True, kw_only=True)
class PrebuiltFormat:
    """Ids that were made elsewhere, taken as they are: nothing is put in front or behind.

    ``mask_key`` names a list as long, true or 1 where a token is learned.
    """

    fingerprint_name: ClassVar[str] = "marin.PrebuiltFormat"

    ids_key: str = "input_ids"
    mask_key: str | None = None


DocumentFormat: TypeAlias = ChatFormat | PreferenceFormat | PrebuiltFormat
"""All but plain text, which needs no more than the name of its field."""

_BY_NAME: dict[str, DocumentFormat | None] = {
    "text": None,
    "chat": ChatFormat(),
    "preference": PreferenceFormat(),
    "prebuilt": PrebuiltFormat(),
}


def parse_format(name: str, format: object) -> DocumentFormat | None:
    """The format that ``format`` says, in the name of ``name``; ``None`` for text.

    >>> parse_format("tokenized/chats", "chat")
    ChatFormat(messages_key='messages', chat_template=None, learned='assistant')
    """
    if isinstance(format, str) and format in _BY_NAME:
        return _BY_NAME[format]
    if format is None or not isinstance(format, get_args(DocumentFormat)):
        raise ConfigurationError(
            f"{name}: format={format!r} is no format of documents: give {', '.join(map(repr, _BY_NAME))}, or "
            "ChatFormat(...), PreferenceFormat(...), PrebuiltFormat(...). How a *file* holds documents is said with "
            "file_format='jsonl'"
        )
    return _checked(name, format)


def is_framed(format: DocumentFormat | None) -> bool:
    """Whether special tokens are put around documents; chats get theirs from the template, and ids have theirs."""
    return format is None or isinstance(format, PreferenceFormat)


def format_name(format: DocumentFormat | None) -> FormatName:
    """How records call a format."""
    match format:
        case None:
            return "text"
        case ChatFormat():
            return "chat"
        case PreferenceFormat():
            return "preference"
        case PrebuiltFormat():
            return "prebuilt"


def _checked(name: str, format: Any) -> DocumentFormat:
    for key, value in vars(format).items():
        may_be_absent = key in ("chat_template", "mask_key", "prompt_key")
        if not (value is None and may_be_absent) and (not isinstance(value, str) or not value):
            raise ConfigurationError(f"{name}: {type(format).__name__}({key}={value!r}): give the name of a field")
    if getattr(format, "learned", "all") not in get_args(Learned):
        raise ConfigurationError(f"{name}: learned={format.learned!r} is neither 'assistant' nor 'all'")
    return format
