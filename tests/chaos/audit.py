"""What must hold after any chaos: from the journal, the store and the list of processes to a list of findings.

Each check gives one line for each fault that it finds; no line means that all is well. The tests in
``test_audit.py`` plant one fault of each kind and see it found.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]

CONTROL = {".artifact.json", ".manifest.json", ".logs"}

SLACK_SECONDS = 0.5
"""How much later than its cause an effect may be told; a removal's journal line and its first unlink are two calls."""

HANG_SECONDS = 300.0
"""No run of the chaos's small graph takes that long, however often it is disturbed."""

BUGS = {
    "AssertionError", "AttributeError", "IndexError", "KeyError", "NameError", "RecursionError", "RuntimeError",
    "TypeError", "UnboundLocalError", "JSONDecodeError", "UnicodeDecodeError",
}  # fmt: skip
"""What no fault of a disk or a process may turn into."""


def audit(store: str | Path, events: Sequence[Event], processes: Iterable[str] = ()) -> list[str]:
    """All findings. ``processes``: those of the chaos that are still there."""
    findings = [f"a process was left over: {process}" for process in processes]
    for check in CHECKS:
        findings += check(events)
    findings += store_is_whole(Path(store), events)
    return list(dict.fromkeys(findings))


# What the journal tells


def committed_once(events: Sequence[Event]) -> Iterator[str]:
    """Of a fixed version there is one build, unless it was removed in between."""
    announced = {(event["artifact"], event["build"]) for event in events if event["event"] == "publishing"}
    for artifact, commits in _commits(events).items():
        for _, _, build in commits:
            if (artifact, build) not in announced:
                yield f"{artifact}: the record named {build}, which nobody has published"
        if is_fixed(artifact):
            for (first, _, one), (_, second, other) in itertools.pairwise(commits):
                if not _removed_between(events, artifact, first, second):
                    yield f"{artifact}: {one} was committed, and then {other}, though nobody had removed it"


def nothing_is_lost(events: Sequence[Event]) -> Iterator[str]:
    """What was built last, and not removed since, is what the record names at the end."""
    last = {event["artifact"]: event for event in events if event["event"] == "final"}
    for artifact, commits in _commits(events).items():
        when, _, build = commits[-1]
        final = last.get(artifact)
        if final is not None and final["build"] == build:
            continue
        if not _removed_between(events, artifact, when, float("inf")):
            there = final and final["build"]
            yield f"{artifact}: {build} was committed and not removed, but at the end there is {there}"


def readers_saw_whole_builds(events: Sequence[Event]) -> Iterator[str]:
    """Who loads an artifact, or gets one as input, finds all of it, unless somebody has deleted it or is doing so."""
    for event in events:
        if event["event"] in ("bad_read", "bad_input"):
            artifact, began = event["artifact"], event["began"]
            if event["event"] == "bad_input":
                artifact = event["of"]
                # Its run may have decided to use it, and then somebody removed it; that it is gone is no torn data.
                began -= HANG_SECONDS if "No such file" in event["wrong"] else 0.0
            if not (_removed_between(events, artifact, began, event["t"]) or _was_deleted(events, event)):
                yield f"{artifact}: {event['event']}: {event['wrong']} ({event.get('path')})"
        elif event["event"] == "record" and event["state"] == "torn":
            yield f"{event['artifact']}: a torn record was read"
        elif event["event"] == "folder_not_empty":
            yield f"{event['artifact']}: the folder of attempt {event['build']} had {event['found']} in it at the start"


def _was_deleted(events: Sequence[Event], bad: Event) -> bool:
    """Whether the folder that was found wanting is one that the conductor had deleted: it is said, not served."""
    told = f"{bad['wrong']} {bad.get('path')}"
    gone = ("its data is not in" in told, "FileNotFoundError" in told)
    deleted = [event["path"] for event in events if event["event"] == "removed" and "path" in event]
    return any(gone) and any(path in told for path in deleted if "/.build-" in path)


def nobody_changed_a_build(events: Sequence[Event]) -> Iterator[str]:
    """The digest of a build is the same whenever it is looked at: no zombie has touched it."""
    digests: dict[tuple[str, str], set[str]] = defaultdict(set)
    for event in events:
        if event.get("digest") and event.get("build"):
            digests[event["artifact"], event["build"]].add(event["digest"])
    for (artifact, build), seen in digests.items():
        if len(seen) > 1:
            yield f"{artifact}: build {build} has had {len(seen)} digests"


def no_bug(events: Sequence[Event]) -> Iterator[str]:
    """Faults of disks and processes are told as such, and the undisturbed run at the end succeeds."""
    for event in events:
        if event["event"] == "run_ended" and event["outcome"].startswith("escaped"):
            yield f"runner {event['pid']}: {event['outcome']}"
        elif event["event"] == "step_failed" and event["cause"] in BUGS:
            yield f"{event['artifact']}: {event['cause']}: {event['message']}\n{event['trace']}"
        elif event["event"] == "calm_run" and event["code"] != 0:
            yield f"the calm run at the end failed:\n{event['said']}"
    if not any(event["event"] == "calm_run" for event in events):
        yield "there was no calm run at the end"


def no_hang(events: Sequence[Event]) -> Iterator[str]:
    """No run waits for ever, and who is told to end does so."""
    began: dict[int, float] = {}
    end = max((event["t"] for event in events), default=0.0)
    for event in events:
        if event["event"] == "run_began":
            began[event["pid"]] = event["t"]
        elif event["event"] == "run_ended" and event["t"] - began.pop(event["pid"], event["t"]) > HANG_SECONDS:
            yield f"runner {event['pid']}: a run took more than {HANG_SECONDS:g} s"
        elif event["event"] == "gone":
            began.pop(event["who"], None)
        elif event["event"] == "hung":
            yield f"{event['what']} did not end when it was told to"
    for pid, when in began.items():
        if end - when > HANG_SECONDS:
            yield f"runner {pid}: a run has not ended after {end - when:.0f} s"


CHECKS = (committed_once, nothing_is_lost, readers_saw_whole_builds, nobody_changed_a_build, no_bug, no_hang)


def _commits(events: Sequence[Event]) -> dict[str, list[tuple[float, float, str]]]:
    """The time between which each build became the artifact, in order.

    From when its builder was about to, until it said so or a witness saw it: either may be stopped, or have to wait for
    a busy machine, when it is done and before it is told.
    """
    begun: dict[str, float] = {}
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for event in events:
        if event["event"] == "publishing":
            begun.setdefault(event["build"], event["t"])
        elif event["event"] in ("published", "record", "final") and event["build"]:
            found[event["artifact"]].setdefault(event["build"], event["t"])
    return {
        artifact: sorted((begun.get(build, told), told, build) for build, told in builds.items())
        for artifact, builds in found.items()
    }


def _removed_between(events: Sequence[Event], artifact: str, begin: float, end: float) -> bool:
    """Whether the conductor was removing the artifact, or a part of it, at some moment of that time."""
    for event in events:
        if event["event"] != "removed" or event["artifact"] != artifact:
            continue
        if event["began"] - SLACK_SECONDS <= end and event["t"] + SLACK_SECONDS >= begin:
            return True
    return False


# What lies in the store


def store_is_whole(store: Path, events: Sequence[Event]) -> Iterator[str]:
    """Each artifact is complete and as its manifest says; nothing else lies about."""
    for place in sorted(store.glob("**/.artifact.json")):
        if store / ".marin" not in place.parents:
            yield from _artifact_is_whole(store, place.parent, json.loads(place.read_bytes()))
    # A `marin rm` of a fixed version that was killed may leave one: nothing writes there any more that would clear it.
    killed = {event["artifact"] for event in events if event["event"] == "removed" and event.get("code") == -9}
    for path in sorted(store.rglob("*")):
        name, _, version = os.path.relpath(path.parent, store).rpartition("/")
        if path.name.startswith(".marin-tmp-") and f"{name}@{version}" not in killed:
            yield f"{path}: an unfinished file was left"
    yield from _trash_is_whole(events)


def _artifact_is_whole(store: Path, address: Path, record: Event) -> Iterator[str]:
    name = f"{record['name']}@{record['version']}"
    build = record["build"]
    # A fixed version with a build is served, also if a `marin rm` that was killed has left it as "building".
    if build is None or (record["state"] != "built" and not is_fixed(name)):
        yield f"{name}: it is {record['state']} at the end, not built"
        return
    folder = address / build["data"]
    if (wrong := damage(folder)) is not None:
        yield f"{name}: {wrong}"
    elif (digest := manifest_digest(folder)) != build["manifest"]["digest"]:
        yield f"{name}: the record has the digest {build['manifest']['digest']}, its manifest {digest}"
    elif not _goes_on(name) and (others := set(_writers(folder)) - {build["build_id"]}):
        yield f"{name}: has files of other attempts: {sorted(others)}, built by {build['build_id']}"
    for left in sorted([*address.glob(".build-*"), *address.glob(".job-*")]):
        if left.name != build["data"] and is_fixed(name):
            yield f"{name}: {left.relative_to(store)} was left over"


def _writers(folder: Path) -> Iterator[str]:
    """Which attempt wrote each file, as its first word says."""
    for entry in listed(folder):
        yield (folder / entry["path"]).read_text().partition(" ")[0]


def _goes_on(name: str) -> bool:
    return name.startswith(("merged", "models/"))


def _trash_is_whole(events: Sequence[Event]) -> Iterator[str]:
    """What ``marin rm`` has removed can be brought back."""
    emptied = max((event["t"] for event in events if event["event"] == "emptied_trash"), default=0.0)
    for event in events:
        if event["event"] != "trashed" or event["began"] < emptied:
            continue
        place = Path(event["place"])
        try:
            build = json.loads((place / ".artifact.json").read_bytes())["build"]
        except (OSError, ValueError) as fault:
            yield f"{event['artifact']}: what was removed is not in the trash: {fault}"
            continue
        same = build is not None and build["build_id"] == event["build"]
        if same and (wrong := damage(place / build["data"])) is not None:
            yield f"{event['artifact']}: what lies in the trash is not whole: {wrong}"


def listed(folder: Path) -> list[dict[str, Any]]:
    """The manifest of the build in ``folder``: beside the data, or in the record if the files are few."""
    try:
        return json.loads((folder / ".manifest.json").read_bytes())
    except FileNotFoundError:
        if not (folder / ".artifact.json").exists():
            raise
    build = json.loads((folder / ".artifact.json").read_bytes())["build"]
    if build is None or build["manifest"].get("listed") is None:
        raise FileNotFoundError(f"No such file: {folder}/.manifest.json")
    return build["manifest"]["listed"]


def damage(folder: str | Path) -> str | None:
    """What is wrong with the build in ``folder``, by its manifest. None: nothing."""
    folder = Path(folder)
    try:
        entries = {entry["path"]: entry for entry in listed(folder)}
        for path, entry in entries.items():
            data = (folder / path).read_bytes()
            if len(data) != entry["bytes"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
                return f"{path} is not what the manifest says"
        for path in _files(folder):
            if path not in entries:
                return f"{path} is not in the manifest"
    except (OSError, ValueError) as fault:
        return f"{type(fault).__name__}: {fault}"
    return None


def _files(folder: Path) -> Iterator[str]:
    for top in os.listdir(folder):
        if top in CONTROL or top.startswith((".marin-tmp-", ".build-", ".job-", ".stray-")):
            continue
        place = folder / top
        for path in [place] if place.is_file() else place.rglob("*"):
            if path.is_file():
                yield str(path.relative_to(folder))


def manifest_digest(folder: str | Path) -> str:
    """The digest that the record should have: by an implementation of its own, from the format's description."""
    total = hashlib.sha256()
    entries = listed(Path(folder))
    for entry in sorted(entries, key=lambda entry: entry["path"].encode()):
        path = entry["path"].encode()
        total.update(len(path).to_bytes(8, "big") + path + entry["bytes"].to_bytes(8, "big"))
        total.update(bytes.fromhex(entry["sha256"]))
    return total.hexdigest()


def is_fixed(artifact: str) -> bool:
    return not artifact.endswith("dev")


# What happened


COUNTED: dict[str, Callable[[Event], bool]] = {
    "runs": lambda event: event["event"] == "run_began",
    "attempts": lambda event: event["event"] == "attempt",
    "commits": lambda event: event["event"] == "published",
    "kills": lambda event: event["event"] == "killed",
    "pauses": lambda event: event["event"] == "paused",
    "takeovers": lambda event: event["event"] == "noted" and "takes over from" in event["note"],
    "lost leases": lambda event: event["event"] == "noted" and "lost its lease" in event["note"],
    "resumed": lambda event: event["event"] == "noted" and "goes on from" in event["note"],
    "deleted folders": lambda event: event["event"] == "removed" and event["how"] == "deleted",
    "marin rm": lambda event: event["event"] == "trashed",
    "good reads": lambda event: event["event"] == "good_read",
    "failed steps": lambda event: event["event"] == "step_failed",
}

NEEDED = {
    "runs": 5,
    "attempts": 20,
    "commits": 10,
    "kills": 8,
    "pauses": 5,
    "takeovers": 3,
    "deleted folders": 2,
    "good reads": 50,
    "failed steps": 3,
    "full disk": 3,
    "no permission": 3,
    "pauses at a call": 1,
}
"""How much of it there must have been, however slow the machine."""


def counts(events: Sequence[Event], injected: Sequence[str]) -> dict[str, int]:
    """How often each kind of thing happened. ``injected``: the kind of each injected error."""
    found = {name: sum(map(counted, events)) for name, counted in COUNTED.items()}
    by_kind = Counter(injected)
    kinds = {
        "0": "full disk",
        "1": "no permission",
        "2": "failed fsync",
        "3": "kills at a call",
        "4": "pauses at a call",
    }
    return found | {label: by_kind.get(kind, 0) for kind, label in kinds.items()}


def did_not_happen(found: dict[str, int]) -> list[str]:
    """Of which kinds of chaos there was too little: then the audit says nothing."""
    return [name for name, number in NEEDED.items() if found[name] < number]
