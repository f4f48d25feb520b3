"""``metrics.jsonl``: what was measured at each step, always kept beside the parameters.

One row for each step and one for each validation, each an object with ``step``: how many updates were made before it
was measured. A key whose value is not known is absent; a number that is not finite is ``null``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypedDict

import msgspec

from marin.processing.durable import whole_file
from marin.storage.faults import translated_faults
from marin.training.hosts import Hosts

Row: TypeAlias = dict[str, Any]
"""Numbers by name, ``step`` among them."""

_LOG = logging.getLogger(__name__)


class Scored(Protocol):
    """How well a text is predicted: what a row tells of an ``Evaluation``."""

    @property
    def loss(self) -> float: ...
    @property
    def bits_per_byte(self) -> float | None:
        """``None`` where it can't be known: how many bytes the learned tokens of a chat stand for is not recorded."""
        ...

    @property
    def tokens(self) -> int: ...


def step_row(
    *,
    step: int,
    loss: float | None,
    learning_rate: float,
    gradient_norm: float,
    tokens: int,
    learned_tokens: int,
    tokens_per_second: float | None,
    mfu: float | None,
    memory: Mapping[str, int],
) -> Row:
    """The row of update ``step``, counted from 1. ``tokens``: seen so far, by all processes of the training.

    ``learned_tokens``: those of this batch that count in the loss; without any there is no ``loss``.

    >>> step_row(step=1, loss=5.5, learning_rate=1e-3, gradient_norm=0.7, tokens=64, learned_tokens=64,
    ...          tokens_per_second=None, mfu=None, memory={})
    {'step': 1, 'loss': 5.5, 'learning_rate': 0.001, 'gradient_norm': 0.7, 'tokens': 64, 'learned_tokens': 64}
    """
    speed = {"tokens_per_second": tokens_per_second, "mfu": mfu}
    return {
        "step": step,
        **({} if loss is None else {"loss": loss}),
        "learning_rate": learning_rate,
        "gradient_norm": gradient_norm,
        "tokens": tokens,
        "learned_tokens": learned_tokens,
        **{name: value for name, value in speed.items() if value is not None},
        **memory,
    }


def validation_row(step: int, together: Scored, components: Mapping[str, Scored]) -> Row:
    """The row of a validation after ``step`` updates: of all components together, then of each.

    A component's values are ``validation/<component>/loss`` and ``validation/<component>/bits_per_byte``.
    """
    row: Row = {"step": step, "validation_loss": together.loss}
    if together.bits_per_byte is not None:
        row["bits_per_byte"] = together.bits_per_byte
    row["validation_tokens"] = together.tokens
    for name, scored in components.items():
        row[f"validation/{name}/loss"] = scored.loss
        if scored.bits_per_byte is not None:
            row[f"validation/{name}/bits_per_byte"] = scored.bits_per_byte
        row[f"validation/{name}/tokens"] = scored.tokens
    return row


@dataclass(kw_only=True)
class Notes:
    """Of all rows those that the end of a training tells, and that decide how it goes on."""

    last_step_row: Row | None = None
    """The last one with a loss."""
    num_skipped: int = 0
    """Steps whose update was not applied, as a number was not finite."""
    first_validation: Row | None = None
    last_validation: Row | None = None

    def note(self, row: Row) -> None:
        """Take in the next row."""
        if "validation_loss" in row:
            self.last_validation = row
            self.first_validation = self.first_validation or row
        elif "loss" in row:
            self.last_step_row = row
        self.num_skipped += "skipped" in row

    def validation(self, *, at_step: int) -> Row | None:
        """The validation after ``at_step`` updates, if that is the first or the last one."""
        for row in (self.last_validation, self.first_validation):
            if row is not None and row["step"] == at_step:
                return row
        return None


class Metrics(Protocol):
    """Where the rows of a training go; a context."""

    @property
    def notes(self) -> Notes: ...

    def write(self, row: Row) -> None:
        """Append ``row``, which has ``step``."""
        ...

    def sync(self) -> None:
        """Make what was written survive a crash of the machine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class NotedMetrics:
    """On a host that does not write them: what is known of the rows, and no file."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def write(self, row: Row) -> None:
        """Note ``row``."""
        self.notes.note(row)

    def sync(self) -> None:
        """Nothing: there is no file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class MetricsLog:
    """Appends one row per line. Opening it drops what lies after ``last_step``: that will be measured again.

    A file of any length is read in little memory, and of its rows those are kept that the end of a training tells.
    """

    def __init__(self, path: str, *, last_step: int) -> None:
        self._path = path
        self.notes = Notes()
        with translated_faults(path, writing=True):
            self._resume(last_step)
            self._file = open(path, "ab")  # noqa: SIM115  # open for the whole training; closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with translated_faults(self._path, writing=True):
            self._file.close()

    def write(self, row: Row) -> None:
        """Append ``row``, which has ``step``; readers see it at once."""
        self.notes.note(row)
        with translated_faults(self._path, writing=True):
            self._file.write(msgspec.json.encode(row) + b"\n")
            self._file.flush()

    def sync(self) -> None:
        """Make what was written survive a crash of the machine."""
        with translated_faults(self._path, writing=True):
            os.fsync(self._file.fileno())

    def _resume(self, last_step: int) -> None:
        kept = 0
        """Bytes from the beginning that stay."""
        scattered = False
        for line in _lines(self._path, tell=True):
            if line.row is not None and line.row["step"] <= last_step:
                scattered = scattered or line.start != kept
                kept = line.end
                self.notes.note(line.row)
        if scattered:
            self._rewrite(last_step)
        elif os.path.exists(self._path):
            with open(self._path, "r+b") as file:
                file.truncate(kept)
                os.fsync(file.fileno())

    def _rewrite(self, last_step: int) -> None:
        with whole_file(self._path) as scratch, open(scratch, "wb") as file:
            for line in _lines(self._path, tell=False):
                if line.row is not None and line.row["step"] <= last_step:
                    file.write(line.text)


def opened_metrics(path: str, *, last_step: int, hosts: Hosts) -> Metrics:
    """The metrics of a training that stands at ``last_step``: host 0 writes them, and tells others what is there."""
    metrics = MetricsLog(path, last_step=last_step) if hosts.index == 0 else None
    [notes, *_] = hosts.exchange("metrics", msgspec.to_builtins(metrics.notes) if metrics else None)
    return metrics or NotedMetrics(msgspec.convert(notes, Notes))


class _Step(TypedDict):
    step: int


class _Line(NamedTuple):
    start: int
    end: int
    text: bytes
    row: Row | None
    """``None`` for a line that can't be read: a crash of the machine may have spoiled it."""


def _lines(path: str, *, tell: bool) -> Iterator[_Line]:
    """The complete lines of the file; a kill may have left a torn last one. ``tell``: name those that can't be read."""
    try:
        file = open(path, "rb")  # noqa: SIM115  # closed below
    except FileNotFoundError:
        return
    start = 0
    with file:
        for number, text in enumerate(file, start=1):
            if not text.endswith(b"\n"):
                return
            row: Row | None = None
            try:
                msgspec.json.decode(text, type=_Step)
                row = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as fault:
                if tell:
                    _LOG.warning("%s, line %d: left out, it can't be read (%s)", path, number, fault)
            yield _Line(start, start + len(text), text, row)
            start += len(text)
