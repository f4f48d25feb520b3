"""Write a trained model as Hugging Face's files: safetensors, config.json, generation_config.json, the tokenizer.

DIR must not be there yet, or be empty. Parameters are read one at a time, so that a model larger than the memory can
be exported.

example:
  marin export checkpoints/poet@2026.07.01 ./poet --dtype bfloat16
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict

from marin.cli.store_access import add_artifact_argument, add_store_arguments, found, opened
from marin.errors import ArtifactTypeError, NotBuiltError
from marin.execution.artifact import at_path
from marin.execution.catalog import data_url, read_entry
from marin.execution.identity import ArtifactId
from marin.execution.meter import size
from marin.execution.observe import check_data
from marin.execution.record import Build
from marin.execution.results import decode_result
from marin.processing.input_files import file_sha256
from marin.processing.tokenize.manifest import TOKENIZER_FILE
from marin.storage.local import LocalStore
from marin.training.checkpoint import HF_FOLDER, TOKENIZER_FOLDER, Checkpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_artifact_argument(parser)
    parser.add_argument("folder", metavar="DIR", help="the folder to make")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        metavar="TYPE",
        help="of the tensors: float32, in which they were trained and the default, bfloat16 or float16",
    )
    add_store_arguments(parser, json=True)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    _, store = opened(arguments)
    entry = found(store, arguments.artifact)
    path = data_url(store, entry)
    if entry.record is None or entry.build is None:
        raise NotBuiltError(f"{entry.id} is not built: there is nothing to export")
    check_data(store, entry.record, entry.build)
    if entry.build.artifact_type != Checkpoint.fingerprint_name:
        raise ArtifactTypeError(f"{entry.id} is {entry.build.artifact_type}, no trained model: give a checkpoint")
    decoded = decode_result(Checkpoint, entry.build.result, what=f"record of {entry.id}")
    checkpoint = at_path(decoded, path)
    checkpoint.checked_params_file()
    # Loads JAX, which other commands need not wait for.
    export = importlib.import_module("marin.training.hf.export").export_checkpoint
    written = export(
        checkpoint,
        arguments.folder,
        dtype=arguments.dtype,
        tokenizer_dir=_tokenizer_dir(store, entry.build, checkpoint),
    )
    if arguments.json:
        print(json.dumps({"id": str(entry.id), **asdict(written)}, indent=1))
    else:
        print(
            f"{written.folder}: {written.num_params:,} parameters of {entry.id} as {written.dtype}, "
            f"{size(written.bytes)} in {len(written.files)} files"
        )
    if not written.has_tokenizer:
        print(
            f"note: no {TOKENIZER_FILE} is among them: neither the checkpoint nor its token caches have that of "
            f"{checkpoint.tokenizer.location} any more",
            file=sys.stderr,
        )
    return 0


def _tokenizer_dir(store: LocalStore, build: Build, checkpoint: Checkpoint) -> str | None:
    """The first folder with the tokenizer that the model was trained with: its own, then those of its token caches."""
    return next(
        (
            folder
            for folder in _folders(store, build, checkpoint)
            if os.path.isfile(file := os.path.join(folder, TOKENIZER_FILE))
            and file_sha256(file) == checkpoint.tokenizer.sha256
        ),
        None,
    )


def _folders(store: LocalStore, build: Build, checkpoint: Checkpoint) -> Iterator[str]:
    yield os.path.join(checkpoint.path, TOKENIZER_FOLDER)
    yield os.path.join(checkpoint.path, HF_FOLDER)
    for dep in build.deps:
        entry = read_entry(store, ArtifactId(dep.name, dep.version))
        if entry is not None and entry.build is not None:
            yield data_url(store, entry)
