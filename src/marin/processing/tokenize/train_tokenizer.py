"""The step that trains a byte-level BPE vocabulary on documents."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Iterator
from dataclasses import dataclass

import tokenizers
import tokenizers.decoders
import tokenizers.models
import tokenizers.pre_tokenizers
import tokenizers.trainers

from marin.errors import DataError
from marin.execution.progress import report
from marin.processing.bad_records import BadRecords
from marin.processing.documents import is_held_out, read_documents
from marin.processing.durable import write_whole
from marin.processing.input_files import InputFile
from marin.processing.inputs import check_not_local, open_inputs
from marin.processing.pieces import Piece
from marin.processing.tokenize.encoder import HuggingFaceEncoder
from marin.processing.tokenize.manifest import TOKENIZER_FILE
from marin.processing.tokenize.tokenizers import END_OF_TEXT, TokenizerSource, TrainedTokenizer, TrainTokenizerConfig


@dataclass(slots=True)
class _Count:
    documents: int = 0
    held_out: int = 0
    text_bytes: int = 0


def train_tokenizer(config: TrainTokenizerConfig) -> TrainedTokenizer:
    """Train a vocabulary of exactly ``vocab_size`` ids. The same documents give the same file.

    Raises ``DataError`` if there are no documents, or too few different words for that many ids.
    """
    check_not_local(config.source)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        show_progress=False,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    count = _Count()
    # The library draws from the iterator in a thread of its own, which would not know where reports go.
    context = contextvars.copy_context()
    with open_inputs(config.source, scratch=config.output_path) as inputs:
        tokenizer.train_from_iterator(_batches(config, inputs.files, count, context), trainer)
    if not count.documents:
        held = f": held_out={config.held_out} takes all {count.held_out}; make it smaller" if count.held_out else ""
        raise DataError(f"no documents to train a tokenizer on in {inputs.description}{held}")
    if (made := tokenizer.get_vocab_size()) != config.vocab_size:
        raise DataError(
            f"{inputs.description} has text for a vocabulary of {made:,}, not {config.vocab_size:,}: "
            "ask for a smaller vocab_size, or give more text"
        )
    data = tokenizer.to_str(pretty=True).encode()
    path = os.path.join(config.output_path, TOKENIZER_FILE)
    write_whole(path, data)
    source = TokenizerSource(kind="file", location=TOKENIZER_FILE)
    identity = HuggingFaceEncoder(data, source=source, eos_token=END_OF_TEXT).identity
    return TrainedTokenizer(tokenizer=identity, documents=count.documents, text_bytes=count.text_bytes)


def _batches(
    config: TrainTokenizerConfig, files: tuple[InputFile, ...], count: _Count, context: contextvars.Context
) -> Iterator[list[str]]:
    total, done = sum(file.size for file in files) / 1e6, 0
    batch, size = list[str](), 0
    for file in files:
        for text, consumed in read_documents(Piece(file=file), config.text_key, BadRecords()):
            if not text:
                continue
            if is_held_out(text, config.held_out):
                count.held_out += 1
                continue
            batch.append(text)
            size += len(text.encode())
            count.documents += 1
            if size >= config.batch_bytes:
                count.text_bytes += size
                context.run(report, (done + consumed) / 1e6, total, "MB", f"{count.documents:,} documents")
                yield batch
                batch, size = [], 0
        done += file.size
    count.text_bytes += size
    yield batch
    context.run(report, total, total, "MB", "choosing the merges")
