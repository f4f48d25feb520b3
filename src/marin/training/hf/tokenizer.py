"""The tokenizer's files of a model: kept beside an imported one, written with an exported one."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from typing import Any

import tokenizers

from marin.errors import ConfigurationError, DataError, TokenizerMismatchError
from marin.processing.durable import write_whole
from marin.processing.input_files import file_sha256
from marin.processing.tokenize.encoder import EncodingRules, HuggingFaceEncoder, load_encoder
from marin.processing.tokenize.manifest import TOKENIZER_FILE, TokenizerIdentity
from marin.processing.tokenize.tokenizer_files import CONFIG_FILE, TEMPLATE_FILE, read_tokenizer_files
from marin.processing.tokenize.tokenizers import BYTES, END_OF_TEXT, TokenizerSource

GENERATION_FILE = "generation_config.json"

FILES = (TOKENIZER_FILE, CONFIG_FILE, TEMPLATE_FILE, "special_tokens_map.json", GENERATION_FILE)
"""What is kept of a tokenizer, where it is there."""

# Documents are not framed here, so a tokenizer need not say what ends one.
_RULES = EncodingRules(special_tokens="none")


def keep_tokenizer(source: TokenizerSource, folder: str, *, beside: str | None = None) -> TokenizerIdentity:
    """Put the files of a tokenizer into ``folder``, and tell which it is.

    ``beside``: the folder that its files lie in already; ``source`` then only says where they come from.
    """
    if source.kind == BYTES:
        return load_encoder(source, rules=_RULES).identity
    where = source if beside is None else TokenizerSource(kind="file", location=beside, called=source.label)
    files = read_tokenizer_files(where)
    identity = HuggingFaceEncoder.of_files(files, source=source, rules=_RULES).identity
    os.makedirs(folder, exist_ok=True)
    write_whole(os.path.join(folder, TOKENIZER_FILE), files.data)
    if files.chat_template is not None:
        write_whole(os.path.join(folder, TEMPLATE_FILE), files.chat_template.encode())
    if beside is None:
        write_whole(os.path.join(folder, CONFIG_FILE), _json(_tokenizer_config(files.declared)))
    else:
        for name in FILES:
            if os.path.isfile(given := os.path.join(beside, name)):
                shutil.copyfile(given, os.path.join(folder, name))
    return replace(identity, revision=source.revision or identity.revision)


def write_tokenizer(
    folder: str,
    identity: TokenizerIdentity,
    *,
    found_in: str | None,
    max_seq_len: int,
    chat_template: str | None = None,
) -> bool:
    """Write the tokenizer's files for an exported model; False if there is no ``tokenizer.json`` to write.

    ``found_in``: a folder with its ``tokenizer.json`` and what else is kept of it. Raises ``TokenizerMismatchError`` if
    that is another tokenizer.
    """
    if identity.kind == BYTES:
        write_whole(os.path.join(folder, TOKENIZER_FILE), _byte_tokenizer().encode())
        tokens = {"eos_token": END_OF_TEXT}
    else:
        if found_in is None or not os.path.isfile(file := os.path.join(found_in, TOKENIZER_FILE)):
            return False
        if file_sha256(file) != identity.sha256:
            raise TokenizerMismatchError(
                f"{file} is not the tokenizer that the model was trained with, {identity.location}: its sha256 is "
                "another one"
            )
        for name in FILES:
            if os.path.isfile(kept := os.path.join(found_in, name)):
                shutil.copyfile(kept, os.path.join(folder, name))
        tokens = _special_tokens(file, identity)
    if not os.path.exists(config := os.path.join(folder, CONFIG_FILE)):
        write_whole(config, _json({**_tokenizer_config(tokens), "model_max_length": max_seq_len}))
    if chat_template is not None:
        write_whole(os.path.join(folder, TEMPLATE_FILE), chat_template.encode())
    return True


def write_generation_config(folder: str, identity: TokenizerIdentity | None) -> None:
    """Write which tokens begin and end a text, unless it came with the tokenizer."""
    if not os.path.exists(path := os.path.join(folder, GENERATION_FILE)):
        write_whole(path, _json({"_from_model_config": True, **special_ids(identity)}))


def special_ids(identity: TokenizerIdentity | None) -> dict[str, int | None]:
    """Ids that end and begin a text. Also where there are none: readers would take those of another model."""
    return {
        "bos_token_id": identity.bos_id if identity else None,
        "eos_token_id": identity.eos_id if identity else None,
        "pad_token_id": None,
    }


def _special_tokens(file: str, identity: TokenizerIdentity) -> dict[str, str]:
    vocabulary: Any = tokenizers.Tokenizer.from_file(file)
    found = {"bos_token": identity.bos_id, "eos_token": identity.eos_id}
    return {role: vocabulary.id_to_token(id_) for role, id_ in found.items() if id_ is not None}


def _tokenizer_config(tokens: dict[str, str]) -> dict[str, Any]:
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **tokens}


def _byte_tokenizer() -> str:
    """``"bytes"`` as a ``tokenizer.json``: ids 0 to 255 are the bytes, 256 ends a document."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415  # their own names

    vocabulary = {letter: byte for byte, letter in _letters().items()}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(END_OF_TEXT, special=True)])
    return made.to_str()


def _letters() -> dict[int, str]:
    """What stands for each byte in byte-level vocabularies: its own letter where that can be seen, else another."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + place) for place, byte in enumerate(unseen)}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def no_tokenizer(origin: str, fault: ConfigurationError | DataError) -> ConfigurationError:
    """The error for a model whose tokenizer can't be had."""
    return ConfigurationError(
        f"{origin}: its tokenizer can't be had: {fault}. Say which it is with hf_model(..., tokenizer=...)"
    )
