"""How fast a step goes, how long it will take, and one line of text that says so in the columns there are."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from marin.execution.progress import Progress

SLOW_SECONDS = 1.0
"""In a large run, steps that end sooner leave no line of their own."""

STEADY_SECONDS = 3.0
"""So long a step must move before its rate, and the time left, are told: the first guess would be wild."""

_WINDOW_SECONDS = 15.0
"""The rate is that of the last so many seconds, so that a slow start does not spoil the estimate."""

_LONGEST_ESTIMATE = 1e8
_SAMPLE_SECONDS = 0.25
_WIDEST_BAR = 30
_NARROWEST_BAR = 8
_SHORTEST_LABEL = 20
_SHORTEST_NOTE = 12
_BYTES = ("B", "byte", "bytes")

_KEYS = ("percent", "counts", "short", "rate", "note", "gist", "time", "left")
_LAYOUTS = (
    ("percent", "counts", "rate", "note", "time"),
    ("percent", "counts", "note", "time"),
    ("percent", "counts", "note", "left"),
    ("percent", "counts", "gist", "left"),
)
"""What stands beside the whole name, from rich to poor. What is left over is for the bar."""

_SCANTY_LAYOUTS = (("percent", "short", "gist", "left"), ("percent", "gist", "left"))
"""What stands beside a name that is shortened if need be."""


class Meter:
    """Follows one step. Times are seconds of one clock, whichever."""

    def __init__(self, label: str, now: float) -> None:
        self.label = label
        self.began = now
        self.status = ""
        self.last: Progress | None = None
        self._samples: deque[tuple[float, float]] = deque()
        self._moves = False

    def update(self, progress: Progress, now: float) -> None:
        """Take in how far the step is."""
        if not (math.isfinite(progress.done) and math.isfinite(progress.total)):
            progress = replace(progress, done=0, total=0)
        if self.last is not None and (progress.done < self.last.done or progress.unit != self.last.unit):
            self._samples.clear()  # another phase of the step: its pace says nothing about this one
            self._moves = False
        if not self._moves and self._samples and progress.done > self._samples[0][1]:
            # The first unit has the start in it, such as compiling: the pace is that of those after it.
            self._samples.clear()
            self._moves = True
        self.last = progress
        self.status = ""
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, progress.done))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_SECONDS:
            self._samples.popleft()

    def rate(self) -> float | None:
        """Units a second; ``None`` until they have come for a few seconds."""
        if not self._moves or len(self._samples) < 2:
            return None
        (first_time, first_done), (last_time, last_done) = self._samples[0], self._samples[-1]
        span = last_time - first_time
        return (last_done - first_done) / span if span >= STEADY_SECONDS and last_done > first_done else None

    def remaining_seconds(self) -> float | None:
        """``None`` where the total or the rate is not known."""
        rate = self.rate()
        if rate is None or self.last is None or self.last.total <= 0:
            return None
        seconds = max(0.0, (self.last.total - self.last.done) / rate)
        return seconds if seconds < _LONGEST_ESTIMATE else None

    def line(self, now: float, width: int | None) -> str:
        """The richest line about the step that fits into ``width`` columns. ``None``: all there is, without a bar."""
        texts = self._texts(now)
        if width is None:
            return "  ".join([self.label, *(texts[key] for key in _LAYOUTS[0] if texts[key])])
        shortest = min(len(self.label), _SHORTEST_LABEL)
        for label, layouts in ((len(self.label), _LAYOUTS), (shortest, _SCANTY_LAYOUTS)):
            for keys in layouts:
                kept = [texts[key] for key in keys if texts[key]]
                if label + _taken(kept) <= width:
                    return self._laid_out(kept, width)
        kept = [texts[key] for key in ("percent", "left") if texts[key]]
        if (room := width - shortest - _taken([*kept, ""])) >= _SHORTEST_NOTE and texts["gist"]:
            kept.insert(-1, shortened(texts["gist"], room))
        if shortest + _taken(kept) > width:
            kept = kept[:1]
        return "  ".join([shortened(self.label, max(4, width - _taken(kept))), *kept])[:width]

    def _laid_out(self, texts: Sequence[str], width: int) -> str:
        label = shortened(self.label, width - _taken(texts))
        spare = width - len(label) - _taken(texts) - 2
        bar = self._bar(min(spare, _WIDEST_BAR)) if spare >= _NARROWEST_BAR else ""
        return "  ".join([label, *([bar] if bar else []), *texts])

    def _texts(self, now: float) -> dict[str, str]:
        """What can be said of the step: each fact in full, and in a few columns."""
        elapsed = duration(now - self.began)
        if self.last is None:
            began = "starting" if now - self.began < STEADY_SECONDS else "running"
            told = {"note": self.status or began, "time": elapsed, "left": elapsed}
            return dict.fromkeys(_KEYS, "") | told | {"gist": told["note"]}
        progress, rate, left = self.last, self.rate(), self.remaining_seconds()
        known = progress.total > 0
        unit = progress.unit if progress.unit in _BYTES else ""
        done, total = quantity(progress.done, unit), quantity(progress.total, unit)
        short = f"{done}/{total}" if known else done if progress.done or progress.unit else ""
        note = self.status or " ".join(progress.note.split())
        remaining = f"{duration(left)} left" if left is not None and left >= 1 else ""
        return {
            "percent": f"{min(1.0, progress.done / progress.total):.0%}" if known else "",
            "counts": short if unit else f"{short} {progress.unit}".strip(),
            "short": short,
            "rate": f"{quantity(rate, unit)}/s" if rate is not None else "",
            "note": note,
            "gist": re.split(" · |, ", note)[0],
            "time": f"{elapsed}, {remaining}" if remaining else elapsed,
            "left": remaining or elapsed,
        }

    def _bar(self, width: int) -> str:
        if self.last is None or self.last.total <= 0:
            return ""
        filled = int(width * min(1.0, max(0.0, self.last.done / self.last.total)))
        return "━" * filled + "╌" * (width - filled)


def _taken(texts: Sequence[str]) -> int:
    return sum(len(text) + 2 for text in texts)


def quantity(value: float, unit: str) -> str:
    """A number as people read it.

    >>> quantity(1234567, "tokens"), quantity(3.14159, ""), quantity(1.5e9, "bytes")
    ('1,234,567 tokens', '3.14', '1.5 GB')
    """
    if unit in _BYTES:
        return size(value)
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def size(count: float) -> str:
    """Bytes in powers of 1000.

    >>> size(999), size(12_300_000)
    ('999 B', '12.3 MB')
    """
    for name in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or name == "TB":
            break
        count /= 1000
    return f"{count:,.0f} {name}" if name == "B" else f"{count:,.1f} {name}"


def duration(seconds: float) -> str:
    """A time as people read it.

    >>> duration(3.21), duration(75), duration(7260)
    ('3.2 s', '1 min 15 s', '2 h 01 min')
    """
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def shortened(text: str, width: int) -> str:
    """``text`` with its middle left out if it is longer than ``width``.

    >>> shortened("tokenized/poems@2026.07.01", 16)
    'tokeniz…26.07.01'
    """
    if len(text) <= width:
        return text
    keep = width - 1
    return f"{text[: keep // 2]}…{text[len(text) - (keep - keep // 2) :]}" if keep > 1 else text[:width]
