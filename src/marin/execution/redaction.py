"""Secrets are left out of records, logs and messages: by the name of what holds them, and by their value."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

REDACTED = "***"

_SHORTEST_SECRET = 6

# Names of environment variables and options: a word of the name. "tokenizer" and "max_tokens" are not "token".
_SECRET_WORD = re.compile(
    r"(?:^|[^a-z0-9])(?:token|secrets?|passwd|password|passphrase|pwd|key|apikey|credentials?|authorization)(?:[^a-z0-9]|$)"
)
_NO_SECRET = {"PWD", "OLDPWD"}
# Keys of a config, where "eos_token" and "text_key" are everyday words.
_SECRET_KEY = re.compile(
    r"(?:^|[^a-z0-9])(?:secrets?|passwd|passwords?|passphrases?|credentials?|authorization|cookies?"
    r"|(?:api|access|private|secret|auth|account|encryption|hf|wandb|openai|anthropic|aws|github|gitlab)[^a-z0-9]?keys?"
    r"|(?:hf|hub|api|access|auth|bearer|session|refresh|wandb|github|gitlab)[^a-z0-9]?tokens?)(?:[^a-z0-9]|$)"
    r"|^(?:token|key)$"
)
_BARE = ("token", "key")
"""Secrets as the name of a field; in a list of words more likely the name of a column."""
_NUMBERS = (int, float, bool, type(None))
_MAPPINGS = {"dict", "ordered_dict", "default_dict", "mapping_proxy", "keywords"}
"""Encodings whose content is pairs of key and value where a key is not plain text. See ``encoding``."""
_BYTES = ("bytes", "bytearray")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Bounded repetitions: a pattern that looks far ahead from every letter takes for ever on megabytes of text.
# A password may have an @ itself; a path has lost one of the two slashes.
_URL_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}:/{1,3})[^/\s'\"<>]{1,1000}@")
_URL_QUERY = re.compile(
    r"([?&](?:[^=&\s]{0,100}(?:token|secret|password|signature|credential|key)|sig)=)[^&\s#]+", re.IGNORECASE
)
_WELL_KNOWN = re.compile(r"\b(?:hf_|ghp_|gho_|github_pat_|glpat-|sk-)[A-Za-z0-9_-]{16,}")


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of the environment variables whose name speaks of a secret, the longest first."""
    values = {
        value
        for name, value in environ.items()
        if name not in _NO_SECRET
        and len(value) >= _SHORTEST_SECRET
        and _SECRET_WORD.search(name.lower().replace("_", "-"))
    }
    return tuple(sorted(values, key=len, reverse=True))


def redact_command(argv: Sequence[str], secrets: Iterable[str] = ()) -> list[str]:
    """The command line without secrets.

    >>> redact_command(["train", "--api-key", "abc", "--hf-token=def", "--max-tokens", "8"])
    ['train', '--api-key', '***', '--hf-token=***', '--max-tokens', '8']
    """
    shown: list[str] = []
    hide_next = False
    secrets = tuple(secrets)
    for word in argv:
        name, equals, value = word.partition("=")
        if hide_next and not word.startswith("--"):
            shown.append(REDACTED)
            hide_next = False
        elif equals and value and _SECRET_WORD.search(_words(name.lstrip("-"))):
            shown.append(f"{name}={REDACTED}")
            hide_next = False
        else:
            shown.append(redact_text(word, secrets))
            hide_next = word.startswith("-") and not equals and bool(_SECRET_WORD.search(_words(word.lstrip("-"))))
    return shown


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without the given secrets, without logins and signatures in URLs, without well-known kinds of token.

    >>> redact_text("git clone https://anna:pw@host/repo?sig=abc")
    'git clone https://***@host/repo?sig=***'
    """
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    if "@" in text and ":/" in text:
        text = _URL_LOGIN.sub(rf"\1{REDACTED}@", text)
    if "=" in text:
        text = _URL_QUERY.sub(rf"\1{REDACTED}", text)
    return _WELL_KNOWN.sub(REDACTED, text)


def shown_place(place: str) -> str:
    """A path or URL as people see it: without logins, signatures, and what the environment says is secret."""
    return redact_text(place, secret_values(os.environ))


def redact_values(value: Any, secrets: Iterable[str] = ()) -> Any:
    """JSON values without secrets: by key, whatever the key holds, and in each text as ``redact_text`` does.

    What is under the key of a secret goes as a whole, so that nothing tells its type or length. The key may be that
    of a dict, or the first of a pair, as typed JSON has the keys of some dicts. What was redacted stays as it is.

    >>> redact_values({"api_key": ["abc"], "eos_token": "</s>", "nested": [{"password": 12}], "login": ["password", 1]})
    {'api_key': '***', 'eos_token': '</s>', 'nested': [{'password': '***'}], 'login': ['password', '***']}
    """
    return _redacted(value, secrets if isinstance(secrets, tuple) else tuple(secrets))


def _redacted(value: Any, secrets: tuple[str, ...]) -> Any:
    if type(value) in _NUMBERS:  # most values; asking an ABC takes long
        return value
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, dict | Mapping):
        return {
            redact_text(key, secrets) if isinstance(key, str) else key: REDACTED
            if is_secret_key(str(key)) and not _says_nothing(inner)
            else [_pair(member, secrets) for member in cast("list[Any]", inner)]
            if key in _MAPPINGS and isinstance(inner, list)
            else _redacted_bytes(inner, secrets)
            if key in _BYTES and isinstance(inner, str)
            else _redacted(inner, secrets)
            for key, inner in cast("Mapping[Any, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        members = cast("Sequence[Any]", value)
        if len(members) == 2 and is_secret_pair(members[0]):
            return _pair(members, secrets)
        return [_redacted(inner, secrets) for inner in members]
    return value


def _redacted_bytes(hexadecimal: str, secrets: tuple[str, ...]) -> str:
    """Bytes as they are encoded. A secret in them hides them all: a part of them would be none."""
    held = any(secret.encode(errors="surrogateescape").hex() in hexadecimal for secret in secrets)
    return REDACTED if held else redact_text(hexadecimal, secrets)


def _pair(pair: Any, secrets: tuple[str, ...]) -> Any:
    """A key and its value, in a list."""
    if not isinstance(pair, list | tuple) or len(members := cast("Sequence[Any]", pair)) != 2:
        return _redacted(pair, secrets)
    key, inner = members
    hidden = is_secret_key(_key_text(key)) and not _says_nothing(inner)
    return [_redacted(key, secrets), REDACTED if hidden else _redacted(inner, secrets)]


def _key_text(key: Any) -> str:
    """What a key that may be encoded says: text, bytes, or the member of an enumeration."""
    if isinstance(key, dict):
        named = cast("dict[str, Any]", key)
        if isinstance(content := named.get("bytes"), str):
            with contextlib.suppress(ValueError):
                return bytes.fromhex(content).decode(errors="replace")
        return _key_text(next((named[tag] for tag in ("member", "value", "text") if tag in named), ""))
    return key if isinstance(key, str) else ""


def _says_nothing(value: Any) -> bool:
    """Whether there is nothing to hide: that a secret is not there may be seen, and a switch is no secret."""
    return value is None or value is True or value is False or value == ""


def redacted_record(record: Mapping[str, Any], secrets: Iterable[str]) -> dict[str, Any]:
    """The JSON of a record as it is shown. The code in it stays: its keys are modules, which may be called anything."""
    shown = redact_values(record, secrets)
    build = record.get("build")
    if isinstance(build, Mapping) and "code" in build:
        shown["build"]["code"] = cast("Mapping[str, Any]", build)["code"]
    return shown


def redacted_payload(payload: Mapping[str, Any], secrets: Iterable[str] | None = None) -> dict[str, Any]:
    """The JSON of a fingerprint without secrets, as it is kept and shown.

    ``secrets``: the values that are secret; ``None``: those in the environment.
    """
    secrets = secret_values(os.environ) if secrets is None else tuple(secrets)
    return cast("dict[str, Any]", payload) if _is_harmless(payload, secrets) else redact_values(payload, secrets)


_SUSPICIOUS = tuple(
    b"@ = \\ token key secret pass credential authorization cookie bytes bytearray "
    b"hf_ ghp_ gho_ github_pat_ glpat- sk-".split()
)
"""In lower case, parts of each key that is secret and of each text that is redacted. Most recipes have none."""


def _is_harmless(payload: Mapping[str, Any], secrets: tuple[str, ...]) -> bool:
    """Whether ``payload`` certainly has no secret, seen by its JSON as a whole: quicker than part by part."""
    try:
        text = msgspec.json.encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    if not text.isascii() or any(secret.encode(errors="replace") in text for secret in secrets):
        return False
    text = text.lower()
    return not any(part in text for part in _SUSPICIOUS)


@functools.lru_cache(maxsize=4096)
def is_secret_key(name: str) -> bool:
    """Whether what a config calls ``name`` is a secret.

    >>> is_secret_key("hf_token"), is_secret_key("eos_token")
    (True, False)
    """
    return _SECRET_KEY.search(_words(name)) is not None


def is_secret_pair(first: Any) -> bool:
    """Whether what comes after ``first``, in a list of two, is a secret.

    >>> is_secret_pair("password"), is_secret_pair("key")
    (True, False)
    """
    return isinstance(first, str) and first.lower() not in _BARE and is_secret_key(first)


def _words(name: str) -> str:
    return _CAMEL.sub("-", name).lower().replace("_", "-")
