"""JSON lines to a data set in Hugging Face datasets: ``tokenize_datasets.py FOLDER TOKENIZER STORE PROCESSES``."""

import glob
import json
import sys

import datasets
import pyarrow.compute as pc
import tokenizers

if __name__ == "__main__":
    folder, location, store, processes = sys.argv[1:]
    tokenizer = tokenizers.Tokenizer.from_file(location)
    tokenizer.encode_special_tokens = True  # special strings of a document are its text, as they are with us

    def encode(batch):
        encoded = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"input_ids": [each.ids for each in encoded]}

    files = sorted(glob.glob(f"{folder}/*.jsonl"))
    features = datasets.Features({"input_ids": datasets.List(datasets.Value("uint32"))})
    raw = datasets.load_dataset("json", data_files=files, split="train", cache_dir=f"{store}/raw")
    made = raw.map(encode, batched=True, num_proc=int(processes), remove_columns=raw.column_names, features=features)
    made.save_to_disk(f"{store}/saved", num_proc=int(processes))
    tokens = pc.sum(pc.list_value_length(made.data.column("input_ids"))).as_py()
    print(f"measured: {json.dumps({'documents': len(made), 'tokens': tokens, 'added': 0})}")
