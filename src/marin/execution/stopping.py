"""Asking whoever builds an artifact to end that one step: a request in its record, which its builder soon notices."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from marin.execution.catalog import Condition, Entry, read_entry
from marin.execution.record import StopRequest, encode_record, record_path, timestamp
from marin.storage.owner import this_process
from marin.storage.store import BuildStore

_BUILDING = (Condition.BUILDING, Condition.REBUILDING)


class Answer(StrEnum):
    """What has become of a request to stop."""

    ASKED = "asked"
    """It is written, and the builder has not ended yet."""
    STOPPED = "stopped"
    ENDED = "ended"
    """The step has ended otherwise meanwhile: it was done, or it failed."""
    NOT_BUILDING = "not being built"
    ABANDONED = "its builder is gone"
    """Nobody builds it, though its record says so: the builder has died. The next run takes over."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An attempt that was asked to end: ``nonce`` is that of its lease."""

    entry: Entry
    nonce: str


def ask_to_stop(store: BuildStore, entry: Entry) -> Asked | Answer:
    """Write the request into the record of ``entry``, unless nobody builds it. Raises what is wrong with the record."""
    while True:
        if entry.fault is not None:
            raise entry.fault
        record, attempt = entry.record, entry.attempt
        if entry.condition is Condition.INTERRUPTED:
            return Answer.ABANDONED
        if record is None or attempt is None or entry.condition not in _BUILDING:
            return Answer.NOT_BUILDING
        asked = Asked(entry=entry, nonce=attempt.lease.nonce)
        if attempt.stop is not None:
            return asked
        us = this_process()
        request = StopRequest(by=f"{us.user}@{us.host}", at=timestamp(datetime.datetime.now(datetime.UTC)))
        wanted = msgspec.structs.replace(record, attempt=msgspec.structs.replace(attempt, stop=request))
        if store.compare_and_swap(record_path(entry.id.address), entry.raw, encode_record(wanted)):
            return asked
        # Its builder has just shown that it lives, or has ended: look again.
        now = read_entry(store, entry.id)
        if now is None:
            return Answer.NOT_BUILDING
        entry = now


def answer(store: BuildStore, asked: Asked) -> tuple[Answer, Entry | None]:
    """What has become of the request by now, and how the artifact is."""
    now = read_entry(store, asked.entry.id)
    if now is None or now.attempt is None or now.attempt.lease.nonce != asked.nonce:
        return Answer.ENDED, now
    if now.condition is Condition.FAILED:
        return (Answer.STOPPED if now.attempt.stop is not None else Answer.ENDED), now
    if now.condition is Condition.INTERRUPTED:
        return Answer.ABANDONED, now
    return Answer.ASKED, now
