"""From raw text to a trained language model: no network, no account, no GPU, about two minutes on two cores.

The text is the source of Python's own standard library; some modules are held out to measure what was learned.
"""

import sysconfig
import zlib
from pathlib import Path

from marin.experiment.data import files, tokenized, train_lm, trained_tokenizer
from marin.experiment.main import experiment_main
from marin.experiment.models import llama_1m
from marin.training.optimizers import AdamConfig

STDLIB = sysconfig.get_path("stdlib")
HELD_OUT = "[u-z]*.py"  # uuid, warnings, weakref, zipfile, ...
NOT_READ = (f"{STDLIB}/{HELD_OUT}", f"{STDLIB}/site-packages", f"{STDLIB}/test")


def build():
    text = files(f"{STDLIB}/**/*.py", format="text", exclude=NOT_READ)
    held_out = files(f"{STDLIB}/{HELD_OUT}", format="text")
    tokenizer = trained_tokenizer("tokenizers/stdlib", source=text, vocab_size=4096, version="2026.11.30")
    tokens = tokenized("tokenized/stdlib", source=text, validation=held_out, tokenizer=tokenizer, version="2026.11.30")
    model = train_lm(
        name="checkpoints/stdlib-1m",
        model=llama_1m,
        datasets={tokens: 1.0},
        optimizer=AdamConfig(lr=5e-3, betas=(0.9, 0.99)),
        batch_size=4,
        seq_len=256,
        num_train_steps=800,
    )
    return {"tokenizer": tokenizer, "tokens": tokens, "model": model}


if __name__ == "__main__":
    model = experiment_main(build, version="2026.11.30")["model"]
    texts = [path.read_bytes() for path in Path(STDLIB).glob(HELD_OUT)]
    packed = 8 * sum(len(zlib.compress(text, 9)) for text in texts) / sum(map(len, texts))
    before, after = model.initial_validation.bits_per_byte, model.validation.bits_per_byte
    print(f"bits per byte of the held-out modules: {before:.3f} untrained, {after:.3f} trained; zlib -9: {packed:.3f}")
    print("next: run this again; change lr and run; give it another version= and run; or run with --version dev")
