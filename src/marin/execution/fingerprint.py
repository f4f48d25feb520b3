"""A recipe's fingerprint: the hash of its typed JSON, and the JSON itself so that a difference can be told.

See ``encoding`` for how values become JSON, ``recipe`` for what is in the JSON, ``drift`` for telling the difference.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Final

from marin.execution.encoding import ABSENT_MEANS, EXECUTION_ONLY, JSON, canonical, encode

__all__ = ["JSON", "SCHEME", "Fingerprint", "absent_means", "canonical", "digest", "encode", "execution_only"]

SCHEME: Final = 1
"""Number of the encoding. A record made with another one can't be compared; that is said, and is not drift."""


@dataclass(frozen=True)
class Fingerprint:
    """The hash of a recipe and the typed JSON that it was taken from. Equal scheme and digest: equal recipes.

    >>> str(Fingerprint(SCHEME, digest({"function": "poems:write"}), {"function": "poems:write"}))
    '1:adc60ad1ef1dbfad'
    """

    scheme: int
    digest: str
    # Not compared: in Python 1 == True, and here they differ.
    payload: dict[str, Any] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}:{self.digest[:16]}"


def digest(payload: JSON) -> str:
    """The sha256 of the payload's canonical bytes, in 64 hex digits."""
    return hashlib.sha256(canonical(payload)).hexdigest()


def execution_only() -> dict[str, Any]:
    """Metadata of a config field that says how the step runs, not what it makes: left out of the fingerprint.

    >>> from dataclasses import dataclass, field
    >>> @dataclass(frozen=True)
    ... class TokenizeConfig:
    ...     text_key: str
    ...     workers: int = field(default=1, metadata=execution_only())
    >>> encode(TokenizeConfig("text", workers=1), "a") == encode(TokenizeConfig("text", workers=9), "b")
    True
    """
    return {EXECUTION_ONLY: True}


def absent_means(value: object) -> dict[str, Any]:
    """Metadata of a config field that was added later: left out of the fingerprint while it has this value.

    So a library can grow a field, and artifacts that were built before do not drift.

    >>> from dataclasses import dataclass, field
    >>> @dataclass(frozen=True)
    ... class AdamConfig:
    ...     lr: int
    ...     z_loss: float = field(default=0.0, metadata=absent_means(0.0))
    >>> encode(AdamConfig(lr=1), "config")["fields"]
    {'lr': 1}
    """
    return {ABSENT_MEANS: value}
