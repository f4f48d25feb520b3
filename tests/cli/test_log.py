"""``marin log`` of logs that are long, are being written, or are no text."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from marin.executors.guard import BoundedLog
from marin.storage.local import LocalStore
from tests.cli.commands import MARIN, Terminal, environment, marin, until
from tests.execution.records import attempt, build, put
from tests.executors.processes import PATIENCE

LOG = "model/dev/.logs/b1.log"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "marin_store", durable=False)


def test_a_long_log_is_printed_from_its_beginning_to_its_end(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", build(log=LOG))
    for part, text in ((".0", b"beginning\n"), (".1", b"middle\n"), ("", b"end\n")):
        store.write(f"{LOG}{part}", text)
    assert marin(tmp_path, "log", "model@dev").stdout == "beginning\nmiddle\nend\n"


def test_following_goes_on_in_the_next_part(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", attempt=attempt(log=LOG))
    store.write(LOG, b"")
    log = BoundedLog(store.url(LOG), 3 * 4000)
    log.write(b"line 0000\n")
    followed = tmp_path / "followed"
    with followed.open("wb") as output:
        words = [*MARIN, "log", "-f", "model@dev"]
        follower = subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=output, stderr=subprocess.DEVNULL)
    try:
        for number in range(1, 1000):
            log.write(b"line %04d\n" % number)
            if number % 100 == 0:
                until(lambda: f"line {number:04}" in followed.read_text(), "it is followed")  # noqa: B023
        log.close()
        put(store, "model@dev", attempt=attempt(log=LOG, error="no rhyme"))
        assert follower.wait(PATIENCE) == 0
    finally:
        follower.kill()
        follower.wait()
    lines = [line for line in followed.read_text().splitlines() if not line.startswith("marin: ")]
    assert lines == [f"line {number:04}" for number in range(1000)]


def test_a_terminal_gets_nothing_that_it_would_obey_but_colors(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", build(log=LOG))
    store.write(LOG, b"\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07 \x00\xff end\n")
    code, shown = 0, b""
    terminal = Terminal(tmp_path, "log", "model@dev")
    until(terminal._read, "it ends")  # pyright: ignore[reportPrivateUsage]
    code, shown = terminal.process.wait(), terminal.written
    assert code == 0
    assert b"\x1b[31mred\x1b[0m ?[2J?]0;title? ?\xff end" in shown


def test_a_file_gets_the_log_as_it_is(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", build(log=LOG))
    store.write(LOG, b"\x1b[2J\x00")
    assert marin(tmp_path, "log", "model@dev").stdout == "\x1b[2J\x00"


def test_a_terminal_gets_no_control_characters_that_are_two_bytes_long(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", build(log=LOG))
    # The third is parted by the end of what is read at once.
    text = "\u009b2J é \u0085".encode()
    store.write(LOG, text + b"x" * ((1 << 16) - len(text) - 1) + "\u009b31m end \u00e9".encode())
    terminal = Terminal(tmp_path, "log", "model@dev")
    until(terminal._read, "it ends")  # pyright: ignore[reportPrivateUsage]
    assert terminal.process.wait() == 0
    shown = terminal.written.decode()
    assert not [character for character in shown if "\x80" <= character <= "\x9f"]
    assert "?2J é ?" in shown
    assert "end é" in shown
