"""Small data and a small real vocabulary for the tests of the tokenize step."""

from __future__ import annotations

import functools
import itertools
import json
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from marin.processing.sources import FileSource, files
from marin.processing.tokenize.tokenize import TokenizeConfig
from marin.processing.tokenize.tokenizers import TokenizerSource

POEMS = [
    "Roses are red, violets are blue.\n",
    "Veilchen sind blau — 東京 👩‍🚀\r\n\r\n",
    "A literal <|endoftext|> and <s> in the text.",
    "x",
    " \t\n",
    "\x00\x01 control",
]


def write_poems(path: Path, poems: Iterable[str] = POEMS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": poem}) + "\n" for poem in poems))
    return path


@functools.cache
def vocabulary() -> str:
    """A byte-level BPE vocabulary of 600 ids, as JSON."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=["<|endoftext|>", "<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([path.read_text() for path in stdlib_files(12)], trainer)
    return tokenizer.to_str()


def vocabulary_file(folder: Path, **changes: Any) -> TokenizerSource:
    """The vocabulary as a ``tokenizer.json`` with top-level entries changed."""
    path = folder / "tokenizer.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(json.loads(vocabulary()) | changes))
    return TokenizerSource(kind="file", location=str(path))


def stdlib_files(count: int) -> list[Path]:
    """Source files of the standard library, some of the ``json`` and ``email`` packages first."""
    root = Path(sysconfig.get_paths()["stdlib"])
    names = itertools.chain(*(sorted((root / part).glob("*.py")) for part in ("json", "email", "asyncio")))
    return list(itertools.islice(names, count))


def stdlib_source(count: int) -> FileSource:
    return files(*stdlib_files(count), format="text")


BYTES = TokenizerSource(kind="bytes", location="bytes")


def config(output_path: Path, source: FileSource | Path, **changes: Any) -> TokenizeConfig:
    """Tokenize ``source`` by bytes into ``output_path``."""
    given: dict[str, Any] = {"tokenizer": BYTES, **changes}
    return TokenizeConfig(
        output_path=str(output_path), source=source if isinstance(source, FileSource) else files(source), **given
    )


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``, by relative name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
