"""Read a tokenizer's files: its ``tokenizer.json``, what its config declares, its chat template."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any

from marin.errors import ConfigurationError, DataError, HubUnreachableError
from marin.processing.near import near_names
from marin.processing.tokenize.manifest import TOKENIZER_FILE
from marin.processing.tokenize.remote_chunks import is_remote, read_all
from marin.processing.tokenize.tokenizers import BYTES, TokenizerSource

CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"


@dataclass(frozen=True, kw_only=True)
class TokenizerFiles:
    """``data`` is the ``tokenizer.json``, ``declared`` the special tokens by role, ``revision`` the hub's commit."""

    data: bytes
    declared: dict[str, str] = field(default_factory=dict[str, str])
    chat_template: str | None = None
    revision: str | None = None


def read_tokenizer_files(source: TokenizerSource) -> TokenizerFiles:
    """The files that ``source`` names; one from the hub is downloaded through ``huggingface_hub``.

    Raises ``ConfigurationError`` if they can't be found or read.
    """
    if source.kind == "hub":
        _check_not_local(source)
        return _from_hub(source)
    return _from_url(source) if is_remote(source.location) else _from_folder(source)


def _from_folder(source: TokenizerSource) -> TokenizerFiles:
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
    folder = os.path.dirname(path)
    return _files(data, os.path.join(folder, CONFIG_FILE), os.path.join(folder, TEMPLATE_FILE), None)


def _from_url(source: TokenizerSource) -> TokenizerFiles:
    url = source.location if source.location.endswith(".json") else f"{source.location.rstrip('/')}/{TOKENIZER_FILE}"
    try:
        data = read_all(url)
    except (FileNotFoundError, DataError) as fault:
        what = "is not there" if isinstance(fault, FileNotFoundError) else "can't be read"
        raise ConfigurationError(
            f"tokenizer {source.label!r}: {url} {what} ({fault}); give the URL of a tokenizer.json, or of its folder"
        ) from fault
    beside = dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        for name in (CONFIG_FILE, TEMPLATE_FILE):
            beside[name] = os.path.join(folder, name)
            # Few servers can list a folder: a file that can't be had is taken for one that is not there.
            with contextlib.suppress(FileNotFoundError, DataError), open(beside[name], "wb") as file:
                file.write(read_all(f"{url.rpartition('/')[0]}/{name}"))
            if not os.path.getsize(beside[name]):
                os.unlink(beside[name])
        return _files(data, beside[CONFIG_FILE], beside[TEMPLATE_FILE], None)


def _files(data: bytes, config: str, template: str, revision: str | None) -> TokenizerFiles:
    entries = _config(config)
    tokens = {role: entries.get(role) for role in ("bos_token", "eos_token")}
    declared = {
        role: str(token["content"] if isinstance(token, dict) else token) for role, token in tokens.items() if token
    }
    chat_template = _named_template(entries.get("chat_template"))
    if os.path.isfile(template):
        with open(template, encoding="utf-8") as stream:
            chat_template = stream.read()
    return TokenizerFiles(data=data, declared=declared, chat_template=chat_template, revision=revision)


def _named_template(template: Any) -> str | None:
    """Configs hold one template, or a list of named ones, of which ``default`` is meant."""
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _config(path: str) -> dict[str, Any]:
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, "rb") as stream:
            entries: Any = json.load(stream)
    except ValueError as fault:
        raise DataError(f"{path} is not JSON: {fault}; mend or remove it") from fault
    if not isinstance(entries, dict):
        raise DataError(f"{path} holds no JSON object: mend or remove it")
    return entries


def _check_not_local(source: TokenizerSource) -> None:
    """A bare text was taken for a hub id, but names a tokenizer here."""
    name = source.location
    folder_or_file = os.path.isfile(name) or os.path.isfile(os.path.join(name, TOKENIZER_FILE))
    if source.guessed and folder_or_file:
        raise ConfigurationError(
            f"tokenizer {name!r} has the form of a hub id, but there is one at {os.path.abspath(name)}: "
            f"write './{name}'; for that of the hub write hub_tokenizer({name!r}, revision='main')"
        )


def _from_hub(source: TokenizerSource) -> TokenizerFiles:
    # The client of the hub takes a third of a second to import, which tokenizers on the disk need not wait for.
    import huggingface_hub  # noqa: PLC0415

    from marin.processing.hub import current_commit, plainly  # noqa: PLC0415

    name, revision = source.location, source.revision
    path_hint = f": a path is written './{name}'; as a hub id, it" if source.guessed else ""
    called = f"tokenizer {source.label!r}{path_hint}"
    try:
        # The client retries a download for half a minute; this tells within seconds that nobody answers.
        current_commit(name, "model", revision, called=called)
    except HubUnreachableError as fault:
        return _cached(source, fault)
    with plainly(name, "model", called):
        path = huggingface_hub.hf_hub_download(name, TOKENIZER_FILE, revision=revision)
        beside = {CONFIG_FILE: "", TEMPLATE_FILE: ""}
        for file in beside:
            try:
                beside[file] = huggingface_hub.hf_hub_download(name, file, revision=_commit(path))
            except huggingface_hub.errors.RemoteEntryNotFoundError:
                continue
    with open(path, "rb") as stream:
        return _files(stream.read(), beside[CONFIG_FILE], beside[TEMPLATE_FILE], _commit(path))


def _cached(source: TokenizerSource, fault: HubUnreachableError) -> TokenizerFiles:
    """The tokenizer's files in the cache of the hub's client. Raises ``fault`` if they are not there."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  # as above

    path = try_to_load_from_cache(source.location, TOKENIZER_FILE, revision=source.revision)
    if not isinstance(path, str):
        raise HubUnreachableError(
            f"{fault}. It is not in this machine's cache either: give the path of a tokenizer.json, or {BYTES!r}"
        ) from fault
    config = try_to_load_from_cache(source.location, CONFIG_FILE, revision=_commit(path))
    if config is None:  # not even that there is none is known; without it the end-of-text token might be another
        raise HubUnreachableError(
            f"{fault}. The cache has its {TOKENIZER_FILE}, not its {CONFIG_FILE}: give {path!r} and eos_token="
        ) from fault
    template = try_to_load_from_cache(source.location, TEMPLATE_FILE, revision=_commit(path))
    with open(path, "rb") as stream:
        return _files(
            stream.read(),
            config if isinstance(config, str) else "",
            template if isinstance(template, str) else "",
            _commit(path),
        )


def _commit(path: str) -> str:
    # The cache of the hub's client keeps each commit in a folder of its own: .../snapshots/{commit}/tokenizer.json
    return os.path.basename(os.path.dirname(path))
