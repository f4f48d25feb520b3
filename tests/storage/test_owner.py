from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from marin.storage import owner as owners
from marin.storage.owner import Owner, SilenceWatch, describe, is_dead_here, this_process
from marin.testing import FakeClock
from tests.executors.processes import PATIENCE, eventually

PRINT_OWNER = """
import dataclasses, json
from marin.storage.owner import this_process
print(json.dumps(dataclasses.asdict(this_process())), flush=True)
input()
"""


@contextmanager
def another_process(code: str = PRINT_OWNER) -> Generator[tuple[subprocess.Popen[str], Owner]]:
    """A child that lives until it is killed, and how it sees itself."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            yield child, Owner(**json.loads(child.stdout.readline()))
        finally:
            child.kill()


def wait_until_zombie(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_living_process_is_not_dead():
    assert not is_dead_here(this_process())
    with another_process() as (child, owner):
        assert owner.pid == child.pid
        assert not is_dead_here(owner)


def test_a_killed_process_is_dead_before_and_after_its_parent_takes_note():
    with another_process() as (child, owner):
        child.kill()
        wait_until_zombie(child.pid)
        assert is_dead_here(owner)
        child.wait()
        assert is_dead_here(owner)


def test_a_stopped_process_is_not_dead():
    with another_process() as (child, owner):
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert not is_dead_here(owner)


def test_a_process_whose_main_thread_has_ended_lives_on_in_the_others():
    end_this_thread = {"x86_64": 60, "aarch64": 93}.get(os.uname().machine)
    if end_this_thread is None:
        pytest.skip("the number of the system call is not known for this machine")
    code = PRINT_OWNER.replace("input()", "") + (
        "import ctypes, threading\n"
        "threading.Thread(target=input).start()\n"
        f"ctypes.CDLL(None).syscall({end_this_thread}, 0)\n"
    )
    with another_process(code) as (child, owner):
        eventually(lambda: "State:\tZ" in Path(f"/proc/{child.pid}/status").read_text())
        assert not is_dead_here(owner)


def test_a_process_number_that_is_used_again_is_another_process():
    me = this_process()
    assert me.started > 0
    assert is_dead_here(replace(me, started=me.started - 1))
    assert not is_dead_here(replace(me, started=0))


@pytest.mark.parametrize(
    "other",
    [
        {"host": "elsewhere"},
        {"machine_id": "0" * 32},
        {"pid_namespace": "pid:[1]"},
        {"pid_namespace": ""},
        {"boot_id": ""},
        {"host": "elsewhere", "boot_id": "another boot"},
        {"machine_id": "0" * 32, "boot_id": "another boot"},
    ],
    ids=str,
)
def test_who_can_not_be_seen_from_here_is_not_called_dead(other: dict[str, str]):
    with another_process() as (child, owner):
        child.kill()
        child.wait()
        assert not is_dead_here(replace(owner, **other))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("machine_id", "dead"), [("a1b2", True), ("", False)])
def test_nobody_survives_a_reboot_of_a_machine_that_can_be_told_from_others(
    monkeypatch: pytest.MonkeyPatch, machine_id: str, dead: bool
):
    me = replace(this_process(), machine_id=machine_id, boot_id="this boot")
    monkeypatch.setattr(owners, "this_process", lambda: me)
    assert is_dead_here(replace(me, boot_id="another boot")) == dead


def test_a_process_of_another_user_that_is_hidden_is_not_dead(monkeypatch: pytest.MonkeyPatch):
    me = this_process()

    def forbidden(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)

    def hidden(pid: int) -> None:
        return None

    monkeypatch.setattr(owners, "_process_state", hidden)
    monkeypatch.setattr(owners, "this_process", lambda: me)
    assert not is_dead_here(me)


def test_a_forked_child_is_itself():
    parent = this_process()
    ours, childs = os.pipe()
    child = os.fork()
    if not child:
        me = this_process()
        os.write(childs, f"{me.pid} {me.started}".encode())
        os._exit(0)
    os.close(childs)
    with os.fdopen(ours) as pipe:
        pid, started = map(int, pipe.read().split())
    os.waitpid(child, 0)
    assert pid == child != parent.pid
    assert started >= parent.started
    assert is_dead_here(replace(parent, pid=pid, started=started))


def test_a_program_name_with_brackets_and_spaces_is_no_riddle():
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b') Z 1 (', 0, 0, 0)\n" + PRINT_OWNER
    with another_process(code) as (_, owner):
        assert owner.started >= this_process().started
        assert not is_dead_here(owner)


def test_an_owner_is_described_in_words():
    owner = Owner(host="node7", user="anna", pid=123, started=1, machine_id="", boot_id="", pid_namespace="")
    assert describe(owner) == "pid 123 of anna on node7"
    assert re.fullmatch(rf"pid {os.getpid()} of .+ on .+", describe(this_process()))


def test_silence_counts_from_the_first_look():
    clock = FakeClock()
    watch = SilenceWatch(clock=clock)
    assert not watch.expired(b"1", ttl=90)
    clock.advance(89.9)
    assert not watch.expired(b"1", ttl=90)
    clock.advance(0.1)
    assert watch.expired(b"1", ttl=90)
    assert watch.expired(b"1", ttl=90)


def test_a_sign_of_life_starts_the_count_anew():
    clock = FakeClock()
    watch = SilenceWatch(clock=clock)
    for token in (b"1", b"2", b"1"):
        assert not watch.expired(token, ttl=90)
        clock.advance(89)
        assert not watch.expired(token, ttl=90)
    clock.advance(1)
    assert watch.expired(b"1", ttl=90)


def test_the_watch_reads_a_clock_that_nobody_sets():
    watch = SilenceWatch()
    before = time.monotonic()
    assert not watch.expired(b"1", ttl=0.01)
    while not watch.expired(b"1", ttl=0.01):
        assert time.monotonic() < before + PATIENCE
    assert time.monotonic() >= before + 0.01
