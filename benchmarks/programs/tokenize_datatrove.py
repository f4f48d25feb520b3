"""JSON lines to ``.ds`` files in datatrove: ``tokenize_datatrove.py FOLDER TOKENIZER STORE WORKERS``."""

import glob
import json
import os
import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer

INDEX_ENTRY_BYTES, TOKEN_BYTES = 8, 4

if __name__ == "__main__":
    folder, tokenizer, store, workers = sys.argv[1:]
    reader = JsonlReader(folder, glob_pattern="*.jsonl")
    # To shuffle the documents is one more copy of everything, which nobody else makes here.
    writer = DocumentTokenizer(f"{store}/tokens", tokenizer, shuffle_documents=False)
    tasks = len(glob.glob(f"{folder}/*.jsonl"))
    LocalPipelineExecutor([reader, writer], tasks=tasks, workers=int(workers), logging_dir=f"{store}/logs").run()
    documents = sum(os.path.getsize(path) for path in glob.glob(f"{store}/tokens/*.ds.index")) // INDEX_ENTRY_BYTES
    tokens = sum(os.path.getsize(path) for path in glob.glob(f"{store}/tokens/*.ds")) // TOKEN_BYTES
    print(f"measured: {json.dumps({'documents': documents, 'tokens': tokens, 'added': 0})}")
