"""How fast a step goes, how long it will take, and one line of text that says so in the columns there are."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from marin.execution.progress import Progress

SLOW_SECONDS = 1.0
"""In a large run, steps that end sooner leave no line of their own."""

_WINDOW_SECONDS = 15.0
"""The rate is that of the last so many seconds, so that a slow start does not spoil the estimate."""

_LONGEST_ESTIMATE = 1e8
_SAMPLE_SECONDS = 0.25
_WIDEST_BAR = 30
_NARROWEST_BAR = 8
_BYTES = ("B", "byte", "bytes")


class Meter:
    """Follows one step. Times are seconds of one clock, whichever."""

    def __init__(self, label: str, now: float) -> None:
        self.label = label
        self.began = now
        self.status = ""
        self.last: Progress | None = None
        self._samples: deque[tuple[float, float]] = deque()

    def update(self, progress: Progress, now: float) -> None:
        """Take in how far the step is."""
        if not (math.isfinite(progress.done) and math.isfinite(progress.total)):
            progress = replace(progress, done=0, total=0)
        if self.last is not None and (progress.done < self.last.done or progress.unit != self.last.unit):
            self._samples.clear()  # another phase of the step: its pace says nothing about this one
        self.last = progress
        self.status = ""
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, progress.done))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_SECONDS:
            self._samples.popleft()

    def rate(self) -> float | None:
        """Units a second; ``None`` until it can be told."""
        if self.last is None or len(self._samples) < 2:
            return None
        (first_time, first_done), (last_time, last_done) = self._samples[0], self._samples[-1]
        span = last_time - first_time
        return (last_done - first_done) / span if span > 0 and last_done > first_done else None

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
            return "  ".join(text for text in [self.label, *texts.values()] if text)
        for dropped in (
            (),
            ("rate",),
            ("rate", "counts"),
            ("rate", "counts", "note"),
            ("rate", "counts", "note", "time"),
        ):
            kept = [text for key, text in texts.items() if text and key not in dropped]
            taken = len(self.label) + sum(len(text) + 2 for text in kept)
            spare = width - taken - 2
            if taken <= width:
                bar = self._bar(min(spare, _WIDEST_BAR)) if spare >= _NARROWEST_BAR else ""
                return "  ".join([self.label, *([bar] if bar else []), *kept])
        kept = [text for key, text in texts.items() if text and key in ("percent", "time")][:1]
        room = width - sum(len(text) + 2 for text in kept)
        return "  ".join([shortened(self.label, max(4, room)), *kept])[:width]

    def _texts(self, now: float) -> dict[str, str]:
        elapsed = duration(now - self.began)
        if self.last is None:
            return {"note": self.status, "time": elapsed}
        progress, rate, left = self.last, self.rate(), self.remaining_seconds()
        known = progress.total > 0
        counts = quantity(progress.done, progress.unit)
        if known:
            counts = f"{quantity(progress.done, '' if progress.unit not in _BYTES else progress.unit)}/" + quantity(
                progress.total, progress.unit
            )
        return {
            "percent": f"{min(1.0, progress.done / progress.total):.0%}" if known else "",
            "counts": counts,
            "rate": f"{quantity(rate, progress.unit if progress.unit in _BYTES else '')}/s" if rate is not None else "",
            "note": self.status or progress.note,
            "time": f"{elapsed}, {duration(left)} left" if left is not None and left >= 1 else elapsed,
        }

    def _bar(self, width: int) -> str:
        if self.last is None or self.last.total <= 0:
            return ""
        filled = int(width * min(1.0, max(0.0, self.last.done / self.last.total)))
        return "━" * filled + "╌" * (width - filled)


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
