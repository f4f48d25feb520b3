"""Writes ``golden/``: the same documents as each tool itself writes them.

The tests read only its results. To run it again, which is needed only for a new layout:

    python -m venv tools && tools/bin/pip install torch megatron-core datatrove datasets
    tools/bin/python tests/processing/tokenize/foreign/make_golden.py tests/processing/tokenize/foreign/golden

The files there were written by megatron-core 0.19.2, datatrove 0.10.1 and datasets 5.2.0.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import tokenizers
import torch
from datasets import Dataset, DatasetDict, Features, List, Value
from datatrove.data import Document
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.tokens.tokenizer import TokenizedFile
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from texts import EMPTY_BEFORE, SENTENCES_OF, TEXTS, ids
from tokenizers import decoders, models, pre_tokenizers


def megatron(folder: Path) -> None:
    for name, dtype in (("megatron", np.uint16), ("megatron-int32", np.int32)):
        (folder / name).mkdir()
        for split, stem in (("train", "train"), ("validation", "valid")):
            prefix = str(folder / name / f"{stem}_text_document")
            builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
            for number, text in enumerate(TEXTS[split]):
                if split == "train" and number == EMPTY_BEFORE:
                    builder.add_document(torch.tensor([], dtype=torch.int64), [0])
                tokens = ids(text)
                halves = [12, len(tokens) - 12] if (split, number) == ("train", SENTENCES_OF) else [len(tokens)]
                builder.add_document(torch.tensor(tokens), halves)
            builder.finalize(f"{prefix}.idx")


def datatrove_files(folder: Path) -> None:
    """The class that writes them, with 4 bytes per token and a mask: no mask on the first character."""
    for split in TEXTS:
        file = TokenizedFile(
            str(folder / "datatrove-masked"),
            f"{split}.ds",
            save_loss_metadata=True,
            tokenizer_name_or_path="bytes",
            save_final_metadata=True,
            token_size=4,
        )
        for text in TEXTS[split]:
            tokens = ids(text)
            file.write(tokens, np.arange(len(tokens)) > 0)
        file.close()


def datatrove_pipeline(folder: Path) -> None:
    """The step that users run, with a ``tokenizer.json`` whose ids are bytes in another order."""
    out = folder / "datatrove"
    out.mkdir()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab={char: id_ for id_, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(out / "tokenizer.json"))
    os.chdir(out)
    for split in TEXTS:
        step = DocumentTokenizer(
            output_folder=".",
            tokenizer_name_or_path="tokenizer.json",
            eos_token="<|endoftext|>",
            shuffle_documents=False,
            save_filename=split,
        )
        documents = (Document(text=text, id=str(number)) for number, text in enumerate(TEXTS[split]))
        step.run(documents, rank=0, world_size=1)


def hugging_face(folder: Path) -> None:
    features = Features({"input_ids": List(Value("int32")), "length": Value("int64")})
    rows = {split: [{"input_ids": ids(text), "length": len(text)} for text in texts] for split, texts in TEXTS.items()}
    both = DatasetDict({split: Dataset.from_list(found, features=features) for split, found in rows.items()})
    both.save_to_disk(str(folder / "arrow"), num_shards={"train": 2, "validation": 1})
    (folder / "parquet").mkdir()
    for split, dataset in both.items():
        dataset.to_parquet(str(folder / "parquet" / f"{split}-00000-of-00001.parquet"), batch_size=2)


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    megatron(target)
    datatrove_files(target)
    hugging_face(target)
    datatrove_pipeline(target)
    print(json.dumps(sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()), indent=1))
