"""The token cache that the other programs of Marin make or find."""

from marin.experiment.data import tokenized

VERSION = "2026.07.01"


def handle(folder, tokenizer):
    return tokenized(
        "bench/corpus",
        paths=[f"{folder}/*.jsonl"],
        tokenizer=tokenizer,
        eos_token="<|end_of_text|>",
        version=VERSION,
    )
