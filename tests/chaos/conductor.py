"""Starts the runners, disturbs them as a seed says, and brings everything to rest again."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path

from tests.chaos.audit import counts, did_not_happen
from tests.chaos.injected.sitecustomize import DEADLY, FORBIDDEN, FULL, KINDS, NUMB, SICK
from tests.chaos.journal import JOURNAL_VARIABLE, read_journal, tell
from tests.chaos.pipeline import FAILURES_VARIABLE, PACE_VARIABLE
from tests.chaos.runner import HESITATION_VARIABLE, READY_VARIABLE
from tests.executors.processes import MARK, marked

ROOT = Path(__file__).parents[2]
RUNNERS = 3
REST_SECONDS = 600.0
"""How long processes may take to end when told to, and the calm run at the end for each ten generations."""


EXTRA_SECONDS = 600.0
"""How much longer the storm may take until each kind of thing has happened."""

END_SECONDS = 120.0
"""How long what a run has started may outlive it."""


class Conductor:
    """A chaos over one store. ``storm``, then ``calm``; ``close`` in any case."""

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self.folder, self.seed, self.seconds = folder, seed, seconds
        self.store = folder / "store"
        self.chance = random.Random(seed)
        self.generations = max(2, int(seconds / 4))
        self.mark = uuid.uuid4().hex
        self.weather = folder / "weather"
        self.weather.write_bytes(bytes(len(KINDS)))
        self.journal = folder / "journal"
        os.environ[JOURNAL_VARIABLE] = str(self.journal)
        self.env = {
            **os.environ,
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            READY_VARIABLE: str(folder),
            "MARIN_CHAOS_BEGAN": repr(time.monotonic()),
            FAILURES_VARIABLE: "0.15",
        }
        self.ill = {
            **self.env,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "injected"), self.env["PYTHONPATH"]]),
            "MARIN_CHAOS_STORE": str(self.store),
            "MARIN_CHAOS_WEATHER": str(self.weather),
            HESITATION_VARIABLE: "0.1",
        }
        self.runners: list[subprocess.Popen[bytes]] = []
        self.witnesses: list[subprocess.Popen[bytes]] = []
        self.removals: list[tuple[subprocess.Popen[bytes], Path, str, float, str | None]] = []
        self.resume_at: dict[int, float] = {}
        self.clear_at: dict[int, float] = {}
        self.spared: dict[int, float] = {}
        self.spared_until = 0.0
        self.started = 0

    # The storm

    def storm(self) -> None:
        for kind in ("watch", "read"):
            self.witnesses.append(self._start(self.env, "tests.chaos.witness", kind, self.store, self.generations))
        self._set_weather(DEADLY, 3)
        self._set_weather(NUMB, 8)
        began = time.monotonic()
        while (lasted := time.monotonic() - began) < self.seconds or (
            # On a busy machine little happens in that time: then it is not over yet.
            lasted < self.seconds + EXTRA_SECONDS and did_not_happen(self.counts())
        ):
            self._keep_going()
            action, weight = zip(*self._actions(), strict=True)
            self.chance.choices(action, weight)[0]()
            pause = time.monotonic() + self.chance.uniform(0.0, 0.2)
            while time.monotonic() < pause:
                self._recover()
                time.sleep(0.02)
        for kind in KINDS:
            self._set_weather(kind, 0)
        self._note_stopped()
        self._recover(all_of_it=True)

    def _actions(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (lambda: self.kill("runner"), 5),
            (lambda: self.kill("worker"), 4),
            (lambda: self.kill("guard"), 3),
            (lambda: self.pause("runner"), 5),
            (lambda: self.pause("worker"), 3),
            (lambda: self.pause("guard"), 2),
            (lambda: self.darken(FULL), 3),
            (lambda: self.darken(FORBIDDEN), 3),
            (lambda: self.darken(SICK), 3),
            (self.delete_build_folder, 2),
            (self.delete_logs, 1),
            (self.delete_marin_folder, 1),
            (self.delete_artifact, 2),
            (self.remove_artifact, 3),
        ]

    def kill(self, kind: str) -> None:
        if (pid := self._pick(kind)) is not None:
            tell("killed", what=kind, who=pid)
            if kind == "guard":  # its run is spared, also by itself
                self._set_weather(DEADLY, 0)
                self.spared_until = time.monotonic() + 1.0
            _send(pid, signal.SIGKILL)
            if kind == "runner":
                tell("gone", who=pid)

    def pause(self, kind: str) -> None:
        """Up to three times the longest lease."""
        if (pid := self._pick(kind)) is not None:
            self._resume_later(pid, kind)
            _send(pid, signal.SIGSTOP)

    def _resume_later(self, pid: int, kind: str) -> None:
        seconds = self.chance.choice([0.5, 4.0, 8.0])
        tell("paused", what=kind, who=pid, seconds=seconds)
        self.resume_at[pid] = time.monotonic() + seconds

    def _note_stopped(self) -> None:
        """Those who have stopped themselves, in the middle of a call, go on some time."""
        for pid in marked(self.mark):
            if pid not in self.resume_at and _state(pid) == "T":
                self._resume_later(pid, f"{_kind(pid)} at a call")

    def darken(self, kind: int) -> None:
        tell("weather", kind=kind)
        self._set_weather(kind, self.chance.choice([20, 60, 100]))
        self.clear_at[kind] = time.monotonic() + self.chance.uniform(0.2, 1.5)

    def delete_build_folder(self) -> None:
        """Of a running attempt, of a dead one, or the one that a ``dev`` record names."""
        if folders := self._found("**/.build-*"):
            folder = self.chance.choice(sorted(folders))
            name = os.path.relpath(folder.parent, self.store)
            if not name.startswith(".marin"):
                self._delete(folder, name)

    def delete_logs(self) -> None:
        if folders := self._found("**/.logs"):
            shutil.rmtree(self.chance.choice(folders), ignore_errors=True)

    def delete_marin_folder(self) -> None:
        shutil.rmtree(self.store / ".marin", ignore_errors=True)
        tell("emptied_trash")

    def delete_artifact(self) -> None:
        """All of it, as ``rm -r`` does."""
        if found := self._artifacts():
            name = self.chance.choice(found)
            self._delete(self.store / name, name)

    def remove_artifact(self) -> None:
        """By ``marin rm``, which may be struck by all that strikes the runners."""
        if len(self.removals) < 2 and (found := self._artifacts()):
            name = self.chance.choice(found)
            log = self.folder / f"rm-{self.started}.out"
            command = ("marin.cli.main", "rm", _id(name), "--yes", "--force", "--prefix", self.store)
            build = self._build_of(name)
            self.removals.append((self._start(self.ill, *command, log=log), log, name, time.monotonic(), build))

    def _delete(self, folder: Path, name: str) -> None:
        began = time.monotonic()
        deadline = began + 10
        while folder.exists() and time.monotonic() < deadline:  # somebody may be writing into it
            shutil.rmtree(folder, ignore_errors=True)
        tell("removed", artifact=_id(name), began=began, how="deleted", path=str(folder))

    def _artifacts(self) -> list[str]:
        return [os.path.relpath(place.parent, self.store) for place in self._found("[!.]*/**/.artifact.json")]

    def _found(self, pattern: str) -> list[Path]:
        """What lies in the store, in order. Folders may go meanwhile, which ``Path.glob`` takes for a fault."""
        names = glob.glob(pattern, root_dir=self.store, recursive=True, include_hidden=True)
        return [self.store / name for name in sorted(names)]

    def _build_of(self, name: str) -> str | None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return json.loads((self.store / name / ".artifact.json").read_bytes())["build"]["build_id"]
        return None

    # Keeping it going

    def _keep_going(self) -> None:
        """As many runners as there should be; what has ended is reaped."""
        for runner in [runner for runner in self.runners if runner.poll() is not None]:
            self.runners.remove(runner)
            tell("gone", who=runner.pid, code=runner.returncode)
        while len(self.runners) < RUNNERS:
            self.runners.append(self._start(self.ill, "tests.chaos.runner", self.store, self.generations, self.seed))
        self._note_stopped()
        self._reap_removals()

    def _reap_removals(self, *, wait: float = 0.0) -> None:
        for removal in list(self.removals):
            process, log, name, began, build = removal
            if wait:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(wait)
            if process.poll() is None:
                continue
            self.removals.remove(removal)
            # One that failed may have moved the artifact before.
            tell("removed", artifact=_id(name), began=began, how="rm", code=process.returncode)
            said = log.read_text()
            if process.returncode == 0:
                place = said.partition(" is now in ")[2].partition(";")[0]
                tell("trashed", artifact=_id(name), place=place, build=build, began=began)

    def _recover(self, *, all_of_it: bool = False) -> None:
        now = time.monotonic()
        for pid, when in list(self.resume_at.items()):
            if all_of_it or now >= when:
                del self.resume_at[pid]
                _send(pid, signal.SIGCONT)
        if self.spared_until and now >= self.spared_until:
            self.spared_until = 0.0
            self._set_weather(DEADLY, 0 if all_of_it else 3)
        for kind, when in list(self.clear_at.items()):
            if all_of_it or now >= when:
                del self.clear_at[kind]
                self._set_weather(kind, 0)

    def _set_weather(self, kind: int, percent: int) -> None:
        with open(self.weather, "r+b") as file:
            file.seek(kind)
            file.write(bytes([percent]))

    def _pick(self, kind: str) -> int | None:
        """A living process of that kind, at random.

        Not the guard and the run of one step at the same time: then nobody is left who knows what the step has
        started, which is a known limit of ours.
        """
        now = time.monotonic()
        found = []
        for pid in marked(self.mark):
            if _kind(pid) != kind or pid in self.resume_at or self.spared.get(pid, 0.0) > now:
                continue
            if kind == "runner" and not (self.folder / f"ready-{pid}").exists():
                continue  # it is still importing: nobody learns anything from its end
            if kind == "guard":
                run = _parent(pid)
                if run in self.resume_at or run not in {runner.pid for runner in self.runners}:
                    continue
            found.append(pid)
        if not found:
            return None
        pid = self.chance.choice(sorted(found))
        around = [_parent(pid)] if kind == "guard" else [other for other in marked(self.mark) if _parent(other) == pid]
        self.spared |= dict.fromkeys(around, now + 1.0)
        return pid

    def _start(self, env: dict[str, str], module: str, *arguments: object, log: Path | None = None):
        self.started += 1
        log = log or self.folder / f"{self.started}-{module.rpartition('.')[2]}.out"
        with log.open("w") as output:  # not a pipe: an orphan must not keep the test waiting
            return subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=self.folder,
            )

    # Back to rest

    def calm(self) -> list[str]:
        """End all, build what is missing, tell what is there. Returns the processes that were left over."""
        self._wake()
        self._reap_removals(wait=REST_SECONDS)
        for runner in self.runners:
            _send(runner.pid, signal.SIGTERM)
        self._wait_for("a runner", self.runners)
        allowed = {witness.pid for witness in self.witnesses}
        deadline = time.monotonic() + END_SECONDS
        while (left := processes_of(self.mark, but=allowed)) and time.monotonic() < deadline:
            self._wake()
            time.sleep(0.05)
        self._run_calmly()
        for witness in self.witnesses:
            if witness.poll() is not None:
                tell("hung", what=f"witness {witness.args} ended with {witness.returncode}, so")
        for witness in self.witnesses:
            witness.kill()
            witness.wait()
        for name in self._artifacts():
            tell("final", artifact=_id(name), build=self._build_of(name))
        return left

    def _run_calmly(self) -> None:
        log = self.folder / "calm.out"
        env = {**self.env, FAILURES_VARIABLE: "0", PACE_VARIABLE: "0.1"}
        calm = self._start(env, "tests.chaos.calm", self.store, self.generations, log=log)
        try:
            code = calm.wait(REST_SECONDS * (1 + self.generations / 10))
        except subprocess.TimeoutExpired:
            calm.kill()
            code = calm.wait()
        tell("calm_run", code=code, said=log.read_text()[-3000:])

    def _wait_for(self, what: str, processes: list[subprocess.Popen[bytes]]) -> None:
        deadline = time.monotonic() + REST_SECONDS
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            self._wake()
            time.sleep(0.05)
        for process in processes:
            if process.poll() is None:
                tell("hung", what=f"{what} ({process.pid})")
            tell("gone", who=process.pid, code=process.returncode)

    def _wake(self) -> None:
        """Nobody stays stopped who has stopped himself at the last moment."""
        for pid in marked(self.mark):
            if _state(pid) == "T":
                _send(pid, signal.SIGCONT)

    def close(self) -> None:
        """Leave no process, whatever has happened."""
        for pid in self.resume_at:
            _send(pid, signal.SIGCONT)
        for _ in range(3):
            for pid in marked(self.mark):
                _send(pid, signal.SIGKILL)
            time.sleep(0.05)
        for process in [*self.runners, *self.witnesses, *(removal[0] for removal in self.removals)]:
            process.wait()

    def counts(self) -> dict[str, int]:
        return counts(read_journal(self.journal), self._injected())

    def _injected(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return Path(f"{self.weather}.log").read_text().split()
        return []

    def timeline(self, findings: list[str]) -> str:
        """What happened to the artifacts that the findings name, and to all of them at last."""
        events = read_journal(self.journal)
        told = [event for event in events if event["event"] not in ("good_read", "final")]
        named = {
            event["artifact"] for event in told if "artifact" in event and event["artifact"] in "\n".join(findings)
        }
        chosen = [event for event in told if event.get("artifact") in named][-80:] + told[-60:]
        begin = events[0]["t"] if events else 0.0
        return "\n".join(
            f"{event['t'] - begin:8.3f} {event['pid']:>7} {event['event']:<12} "
            + " ".join(f"{key}={str(value)[:120]}" for key, value in event.items() if key not in ("t", "pid", "event"))
            for event in chosen
        )


def processes_of(mark: str, *, but: Collection[int] = ()) -> list[str]:
    """Those that were started with the mark, by any of us: each with its command."""
    return [f"{pid}: {_command(pid)}" for pid in marked(mark) if pid not in but]


def _id(address: str) -> str:
    name, _, version = address.rpartition("/")
    return f"{name}@{version}"


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def _stat(pid: int) -> list[str]:
    """State, parent, …; of one that has ended nothing tells."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ["X", "0"]


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _kind(pid: int) -> str:
    words = _command(pid).split()
    if any("import guard" in word for word in words):
        return "guard"
    for module, kind in {
        "marin.execution.worker": "worker",
        "tests.chaos.runner": "runner",
        "marin.cli.main": "rm",
    }.items():
        if module in words:
            return kind
    return "other"
