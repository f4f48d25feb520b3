"""What a training says of itself while it runs: in the display of progress, and in the log of its step."""

from __future__ import annotations

from marin.execution.meter import duration
from marin.training.metrics import Scored
from marin.training.throughput import Throughput


def training_note(loss: float | None, throughput: Throughput) -> str:
    """Short, for the display of progress, which adds steps and the time left: ``loss 4.04 · 7,174 tok/s · MFU 38%``."""
    parts = ["nothing learned yet" if loss is None else f"loss {loss:.2f}"]
    if (speed := throughput.tokens_per_second) is not None:
        parts.append(f"{speed:,.0f} tok/s")
    if (mfu := throughput.mfu) is not None:
        parts.append(f"MFU {mfu:.0%}")
    return " · ".join(parts)


def validation_note(scored: Scored) -> str:
    """The same of a validation."""
    bits = "" if scored.bits_per_byte is None else f", {scored.bits_per_byte:.3f} bits per byte"
    return f"validation loss {scored.loss:.2f}{bits}"


def log_line(done: int, total: int, note: str, seconds_left: float | None = None) -> str:
    """One line for the step's log: plain text, as it is read in files and by ``marin log -f``.

    >>> log_line(750, 80_000, "loss 4.04", seconds_left=8_400)
    'step 750/80,000  loss 4.04 · 2 h 20 min left'
    """
    left = "" if seconds_left is None or done >= total else f" · {duration(seconds_left)} left"
    return f"step {done:,}/{total:,}  {note}{left}"
