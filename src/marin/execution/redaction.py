"""Secrets are left out of records, logs and messages: by the name of what holds them, and by their value."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

REDACTED = "***"

_SHORTEST_SECRET = 6

# Names of environment variables and options: a word of the name. "tokenizer" and "max_tokens" are not "token".
_SECRET_WORD = re.compile(
    r"(?:^|[^a-z0-9])(?:token|secrets?|passwd|password|passphrase|pwd|key|apikey|credentials?|authorization)(?:[^a-z0-9]|$)"
)
_NO_SECRET = {"PWD", "OLDPWD"}
# Keys of a config, where "eos_token" and "text_key" are everyday words.
_SECRET_KEY = re.compile(
    r"(?:^|[^a-z0-9])(?:secrets?|passwd|password|passphrase|credentials?|authorization"
    r"|(?:api|access|private|secret|auth|account|encryption)[^a-z0-9]?key"
    r"|(?:hf|hub|api|access|auth|bearer|session|refresh|wandb|github|gitlab)[^a-z0-9]?token)(?:[^a-z0-9]|$)"
    r"|^(?:token|key)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Bounded repetitions: a pattern that looks far ahead from every letter takes for ever on megabytes of text.
_URL_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s@]{1,1000}@")
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
    if "://" in text:
        text = _URL_LOGIN.sub(rf"\1{REDACTED}@", text)
    if "=" in text:
        text = _URL_QUERY.sub(rf"\1{REDACTED}", text)
    return _WELL_KNOWN.sub(REDACTED, text)


def redact_values(value: Any, secrets: Iterable[str] = ()) -> Any:
    """JSON values without secrets: by key, and in each text as ``redact_text`` does.

    >>> redact_values({"api_key": "abc", "eos_token": "</s>", "nested": [{"password": "x"}]})
    {'api_key': '***', 'eos_token': '</s>', 'nested': [{'password': '***'}]}
    """
    secrets = secrets if isinstance(secrets, tuple) else tuple(secrets)
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, dict | Mapping):
        return {
            key: REDACTED
            if isinstance(inner, str) and inner and is_secret_key(str(key))
            else redact_values(inner, secrets)
            for key, inner in cast("Mapping[Any, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [redact_values(inner, secrets) for inner in cast("Sequence[Any]", value)]
    return value


def redacted_payload(payload: Mapping[str, Any], secrets: Iterable[str] | None = None) -> dict[str, Any]:
    """The JSON of a fingerprint without secrets, as it is kept and shown.

    ``secrets``: the values that are secret; ``None``: those in the environment.
    """
    return redact_values(payload, secret_values(os.environ) if secrets is None else secrets)


@functools.lru_cache(maxsize=4096)
def is_secret_key(name: str) -> bool:
    """Whether what a config calls ``name`` is a secret.

    >>> is_secret_key("hf_token"), is_secret_key("eos_token")
    (True, False)
    """
    return _SECRET_KEY.search(_words(name)) is not None


def _words(name: str) -> str:
    return _CAMEL.sub("-", name).lower().replace("_", "-")
