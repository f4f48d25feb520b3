"""From raw text to a trained language model: no network, no account, no GPU.

The text is the source of Python's own standard library; whole modules are held out to measure what was learned.
Run it twice: the second time all is cached. Then change ``lr`` and run it again, or give ``--version dev``.
"""

import sysconfig
import zlib
from pathlib import Path

from marin.experiment.data import files, tokenized, train_lm, trained_tokenizer
from marin.experiment.main import experiment_main
from marin.experiment.models import llama_1m
from marin.training.optimizers import AdamConfig

STDLIB = sysconfig.get_path("stdlib")
HELD_OUT = f"{STDLIB}/[t-z]*.py"  # tarfile, typing, zipfile, ...
TEXT = files(f"{STDLIB}/**/*.py", format="text", exclude=(HELD_OUT, f"{STDLIB}/site-packages", f"{STDLIB}/test"))


def build():
    tokenizer = trained_tokenizer("tokenizers/stdlib", source=TEXT, vocab_size=4096, version="2026.11.30")
    tokens = tokenized(
        "tokenized/stdlib",
        source=TEXT,
        validation=files(HELD_OUT, format="text"),
        tokenizer=tokenizer,
        version="2026.11.30",
    )
    return train_lm(
        name="checkpoints/stdlib-1m",
        model=llama_1m,
        datasets={tokens: 1.0},
        optimizer=AdamConfig(lr=3e-3),
        batch_size=8,
        seq_len=256,
        num_train_steps=500,
    )


if __name__ == "__main__":
    model = experiment_main(build, version="2026.11.30")
    texts = [path.read_bytes() for path in Path(STDLIB).glob("[t-z]*.py")]
    packed = 8 * sum(len(zlib.compress(text, 9)) for text in texts) / sum(map(len, texts))
    print(model)
    print(f"zlib -9: {packed:.3f}")
