"""What is done to one document at a time: another form of its text, or a question to a function of the user's."""

from __future__ import annotations

import hashlib
import unicodedata
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast, final

import msgspec
import numpy as np

from marin.errors import DocumentFunctionError
from marin.execution.code import code_of
from marin.execution.encoding import encode
from marin.execution.naming import describe
from marin.processing.cleaning.document_set import Document, Drop
from marin.processing.cleaning.steps import DocumentFunction, LineEnds, UnicodeForm

DROPPED = "dropped"
"""What documents are counted under for which a function returned ``False``."""


class Treatment(Protocol):
    """Looks at one document at a time, in the process of a worker. Not asked where it leaves every text as it is."""

    @property
    def is_identity(self) -> bool: ...

    @property
    def called(self) -> str:
        """What messages call it."""
        ...

    def facts(self) -> dict[str, Any]:
        """All that decides what becomes of a document, as JSON: parts made by other facts are made again."""
        ...

    def treat(self, document: Document) -> str | Drop:
        """The text that the document has from now on. Raises ``DocumentFunctionError`` where a function fails."""
        ...


@final
@dataclass(frozen=True)
class Normalization:
    """The forms of text that were asked for, and no other change."""

    unicode_form: UnicodeForm | None = None
    line_ends: LineEnds | None = None

    @property
    def is_identity(self) -> bool:
        return self.unicode_form is None and self.line_ends is None

    @property
    def called(self) -> str:
        return "normalizing"

    def facts(self) -> dict[str, Any]:
        version = unicodedata.unidata_version if self.unicode_form else None
        return {"unicode_form": self.unicode_form, "unicode": version, "line_ends": self.line_ends}

    def treat(self, document: Document) -> str | Drop:
        text = document.text
        if self.line_ends is not None and "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text if self.unicode_form is None else unicodedata.normalize(self.unicode_form, text)


@final
@dataclass(frozen=True)
class FunctionTreatment:
    """The answer of a function of the user's."""

    function: DocumentFunction

    @property
    def is_identity(self) -> bool:
        return False

    @property
    def called(self) -> str:
        return describe(self.function)

    def facts(self) -> dict[str, Any]:
        code = code_of(cast("Any", self.function))
        # Of code that can't be read nobody knows whether it is still the same.
        unknown = uuid.uuid4().hex if code.unknown else None
        return {"function": encode(self.function, "function"), "code": msgspec.to_builtins(code), "unknown": unknown}

    def treat(self, document: Document) -> str | Drop:
        try:
            answer: Any = self.function(document)
        except KeyboardInterrupt as interrupt:  # of whoever wants to stop, or of the function itself
            interrupt.add_note(f"{self.called} was looking at document {document.id} ({document.source})")
            raise
        except BaseException as fault:  # a SystemExit would end the step as if all were well
            kind = type(fault).__name__
            raise self._fault(document, f"raised {kind}: {_printable(str, fault)}", kind) from fault
        if isinstance(answer, bool | np.bool_):
            return document.text if answer else Drop(DROPPED)
        if type(answer) is Drop and type(answer.reason) is str:
            self._check_utf8(document, answer.reason, "Drop() with a reason")
            return answer
        if not isinstance(answer, str):
            found, expected = _printable(repr, answer)[:80], "True, False, a text or Drop('reason')"
            raise self._fault(document, f"returned {found}, which is none of {expected}", "wrong answer")
        self._check_utf8(document, answer, "a text")
        return str(answer)

    def _check_utf8(self, document: Document, text: str, called: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError as fault:
            what = f"returned {called} with half of a character in it, at {fault.start}, which is not UTF-8"
            raise self._fault(document, what, "not UTF-8") from None

    def _fault(self, document: Document, what: str, reason: str) -> DocumentFunctionError:
        return DocumentFunctionError(f"document {document.id} ({document.source}): {self.called} {what}", reason)


def document_digest(text: bytes) -> bytes:
    """The 16 bytes that tell texts apart: the first of their sha256. In hex they are the id.

    Two of 10**10 different texts have the same with a probability of 10**-19.
    """
    return hashlib.sha256(text).digest()[:16]


def _printable(show: Callable[[object], str], value: object) -> str:
    """What ``show`` makes of ``value``, whose class is a user's and may fail, as text that can be written."""
    try:
        shown = show(value)
    except Exception as fault:  # noqa: BLE001  # a class of a user may fail in any way that Python can
        return f"what can't be shown ({type(fault).__name__})"
    return shown.encode(errors="backslashreplace").decode()
