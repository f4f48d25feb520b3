"""Hosts that are threads of this process: what they say goes over the network all the same."""

import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import SimpleNamespace

import pytest

from marin.errors import ConfigurationError, HostLostError
from marin.executors import host_line, roll_call
from marin.executors.hosts import HostPlace
from marin.executors.roll_call import RollCall
from tests.executors.hosts import free_port, on_hosts
from tests.executors.processes import PATIENCE

COMPLETE = {"MARIN_HOSTS": "2", "MARIN_HOST": "1", "MARIN_COORDINATOR": "node7:12400"}


def test_without_variables_there_is_one_host():
    assert HostPlace.of({"MARIN_HOSTS": " "}) == HostPlace(index=0, count=1)


def test_they_say_who_this_is_and_where_the_first_one_is():
    place = HostPlace.of({**COMPLETE, "MARIN_HOSTS_WAIT": "2.5"})
    assert place == HostPlace(index=1, count=2, address="node7", port=12400, wait_seconds=2.5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"MARIN_HOST": ""}, r"MARIN_HOSTS, MARIN_COORDINATOR are set, but MARIN_HOST is not"),
        ({"MARIN_HOSTS": "", "MARIN_HOST": ""}, r"MARIN_COORDINATOR is set, but MARIN_HOSTS and MARIN_HOST are not"),
        ({"MARIN_HOSTS": "two"}, r"MARIN_HOSTS='two' is not a whole number, 1 or more"),
        ({"MARIN_HOSTS": "0"}, r"MARIN_HOSTS='0' is not a whole number, 1 or more"),
        ({"MARIN_HOST": "2"}, r"MARIN_HOST=2, but with MARIN_HOSTS=2 hosts are numbered from 0 to 1"),
        ({"MARIN_COORDINATOR": "node7"}, r"MARIN_COORDINATOR='node7' is no address: .* such as node7:12400"),
        ({"MARIN_COORDINATOR": "node7:0"}, r"'node7:0' is no address"),
        ({"MARIN_COORDINATOR": "::1:80"}, r"'::1:80' is no address"),
        ({"MARIN_HOSTS_WAIT": "soon"}, r"MARIN_HOSTS_WAIT='soon' is not a number of seconds"),
    ],
)
def test_what_is_missing_or_malformed_is_told(changes, said):
    with pytest.raises(ConfigurationError, match=said):
        HostPlace.of({**COMPLETE, **changes})


def test_an_address_of_ipv6_stands_in_brackets():
    assert HostPlace.of({**COMPLETE, "MARIN_COORDINATOR": "[fe80::1]:80"}).address == "fe80::1"


def test_all_get_what_each_has_given():
    def talk(hosts):
        first = hosts.exchange("number", hosts.index)
        return first, hosts.exchange("number", {"twice": 2 * hosts.index}), hosts.exchange("other", (1, "ü\n"))

    expected = [0, 1, 2], [{"twice": 0}, {"twice": 2}, {"twice": 4}], [[1, "ü\n"]] * 3
    assert on_hosts(3, talk) == [expected] * 3


def test_a_host_that_fails_ends_the_others_with_its_reason(capfd):
    def talk(hosts):
        if hosts.index == 1:
            raise ValueError("no such shard")
        hosts.exchange("number")

    first, second, third = on_hosts(3, talk)
    assert isinstance(second, ValueError)
    for fault in (first, third):
        assert isinstance(fault, HostLostError)
        assert str(fault).startswith("host 1 of 3 failed: ValueError: no such shard. The others can't go on")
    assert "host 1 of 3 failed" in capfd.readouterr().err


def test_a_host_whose_process_ends_without_a_word_is_missed_at_once():
    def talk(hosts):
        if hosts.index == 1:
            hosts._lines[0].socket.shutdown(socket.SHUT_RDWR)  # as the kernel does it for a process that is killed
        hosts.exchange("number")

    first, _ = on_hosts(2, talk)
    assert isinstance(first, HostLostError)
    assert str(first).startswith("the process of host 1 of 2 ended")


def test_a_process_that_does_not_end_by_itself_after_another_is_lost_is_ended(monkeypatch, capfd):
    exited, codes = threading.Event(), []

    def exit_process(code):  # in place of the end of this process
        codes.append(code)
        exited.set()

    monkeypatch.setattr(roll_call, "LEAVE_SECONDS", 0.0)
    monkeypatch.setattr(roll_call.os, "_exit", exit_process)

    def talk(hosts):
        if hosts.index:
            raise ValueError("no such shard")
        return exited.wait(30)  # as in an operation that the others never join

    first, second = on_hosts(2, talk)
    assert first is True
    assert isinstance(second, ValueError)
    assert set(codes) == {1}
    assert "this host did not end by itself for 0 s after that, and is ended" in capfd.readouterr().err


def test_a_run_that_does_other_things_meanwhile_is_not_ended_when_another_host_is_lost(monkeypatch):
    exited, port = threading.Event(), free_port()
    monkeypatch.setattr(roll_call, "LEAVE_SECONDS", 0.0)
    monkeypatch.setattr(roll_call.os, "_exit", lambda code: exited.set())

    def come(host):
        with RollCall(host, 2, ends_process=False) as hosts:
            hosts.come_together("127.0.0.1", port, about="x", seconds=30, offer=lambda: 7)
            if host:
                raise ValueError("no such shard")
            assert hosts.why_lost() is not None
            return exited.wait(0.5)

    with ThreadPoolExecutor() as pool:
        first, second = pool.submit(come, 0), pool.submit(come, 1)
        assert first.result() is False
        assert isinstance(second.exception(), ValueError)


def test_those_that_came_early_hear_from_the_first_host_while_it_waits_for_the_others(monkeypatch):
    monkeypatch.setattr(roll_call, "SILENCE_SECONDS", 1.5)
    for module in (roll_call, host_line):
        monkeypatch.setattr(module, "BEAT_SECONDS", 0.1)
    port = free_port()

    def come(host):
        if host == 2:
            threading.Event().wait(3)  # so long is too long for a silence
        with RollCall(host, 3) as hosts:
            hosts.come_together("127.0.0.1", port, about="x", seconds=30, offer=lambda: 7)
            return hosts.exchange("who", host)

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(come, range(3))) == [[0, 1, 2]] * 3


def test_a_host_that_is_silent_is_missed(monkeypatch):
    silent, done = threading.Event(), threading.Event()

    def talk(hosts):
        if hosts.index == 1:
            monkeypatch.setattr(hosts._lines[0], "send", lambda message: None)
            monkeypatch.setattr(hosts, "_check_silence", lambda now: None)  # only the other one listens
            silent.set()
            done.wait(PATIENCE)
            return
        silent.wait(PATIENCE)
        monkeypatch.setattr(roll_call, "SILENCE_SECONDS", 2.0)
        monkeypatch.setattr(roll_call, "BEAT_SECONDS", 1.0)
        try:
            hosts.exchange("number")
        finally:
            done.set()

    first, _ = on_hosts(2, talk)
    assert isinstance(first, HostLostError)
    assert str(first).startswith("host 1 of 2 has said nothing for")


def test_hosts_that_were_stopped_together_do_not_take_each_other_for_lost(monkeypatch):
    """As a scheduler suspends a job: nobody has listened meanwhile, so nobody was silent."""
    stopped, together = 0.0, threading.Barrier(2)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stopped, sleep=time.sleep)
    monkeypatch.setattr(roll_call, "time", clock)
    monkeypatch.setattr(host_line, "time", clock)

    def talk(hosts):
        nonlocal stopped
        looked, check = threading.Event(), hosts._check_silence

        def look(now):
            check(now)
            if now - time.monotonic() > 500:
                looked.set()

        monkeypatch.setattr(hosts, "_check_silence", look)
        together.wait(PATIENCE)
        stopped = 1000.0
        assert looked.wait(PATIENCE)
        hosts.check()
        return hosts.exchange("number", hosts.index)

    assert on_hosts(2, talk) == [[0, 1]] * 2


def test_a_host_that_misses_the_first_one_ends_it_too(monkeypatch):
    monkeypatch.setattr(roll_call, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(roll_call, "BEAT_SECONDS", 0.1)

    def talk(hosts):
        if hosts.index == 0:
            monkeypatch.setattr(hosts._lines[1], "send", lambda message: None)  # what it hears does arrive
            hosts._lines[1].socket.settimeout(20)
        else:
            threading.Event().wait(3)
        hosts.exchange("number" if hosts.index else "another")

    first, second = on_hosts(2, talk)
    assert isinstance(first, HostLostError)
    assert isinstance(second, HostLostError)
    assert str(second).startswith("host 0 of 2 has said nothing for 1 s. The others can't go on")
    assert str(first).startswith("host 1 of 2 failed: HostLostError: host 0 of 2 has said nothing for 1 s. The others")
    assert str(first).count("start all hosts again") == 1


def test_the_first_host_ends_after_all_others():
    first_has_ended, too_early = threading.Event(), []

    def talk(hosts):
        if hosts.index:
            hosts.at_end = lambda: too_early.append(first_has_ended.wait(1))
        else:
            hosts.at_end = first_has_ended.set

    assert on_hosts(3, talk) == [None] * 3
    assert too_early == [False, False]
    assert first_has_ended.is_set()


def test_the_first_host_says_who_did_not_come():
    with RollCall(0, 3) as hosts, pytest.raises(HostLostError, match=r"of 3 hosts 1, 2 did not come to 127\.0\.0\.1:"):
        hosts.come_together("127.0.0.1", free_port(), about="x", seconds=0.3, offer=lambda: 0)


def test_the_first_host_says_why_it_did_not_let_one_in(caplog):
    port = free_port()

    def come(index, about, seconds):
        with RollCall(index, 2) as hosts:
            hosts.come_together("127.0.0.1", port, about=about, seconds=seconds, offer=lambda: 7)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(come, 0, "x", 2)
        with pytest.raises(ConfigurationError, match="it came for y"):
            come(1, "y", 30)
        with pytest.raises(HostLostError, match="Host 1 came and was not let in: it came for y, but host 0 for x"):
            first.result()
    assert "host 1, from 127.0.0.1, was not let in: it came for y, but host 0 for x" in caplog.text


def test_another_host_says_that_the_first_one_can_not_be_reached():
    port = free_port()
    with RollCall(1, 2) as hosts, pytest.raises(HostLostError, match=rf"host 0 of 2 can't be reached at 127.*:{port}"):
        hosts.come_together("127.0.0.1", port, about="x", seconds=0.3, offer=lambda: 0)


@pytest.mark.parametrize(
    ("index", "count", "about", "said"),
    [
        (1, 3, "x", r"it says that it is host 1 of 3, but host 0 has MARIN_HOSTS=2"),
        (1, 2, "y", r"it came for y, but host 0 for x"),
    ],
)
def test_who_does_not_belong_is_not_let_in_and_the_others_go_on(index, count, about, said):
    port = free_port()

    def come(host, of, what):
        with RollCall(host, of) as hosts:
            hosts.come_together("127.0.0.1", port, about=what, seconds=PATIENCE, offer=lambda: 7)
            return hosts.exchange("who", host)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(come, 0, 2, "x")
        with pytest.raises(ConfigurationError, match=said):
            come(index, count, about)
        with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as stray:
            stray.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b"no host of this Marin" in stray.recv(1000)
        assert come(1, 2, "x") == first.result() == [0, 1]


def test_a_number_can_be_taken_once():
    port, both = free_port(), threading.Barrier(2)

    def come(host):
        with RollCall(host, 3) as hosts:
            return hosts.come_together("127.0.0.1", port, about="x", seconds=PATIENCE, offer=lambda: 7)

    def come_twice():
        both.wait()
        return come(1)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(come, 0)
        twins = {pool.submit(come_twice) for _ in range(2)}
        refused = next(as_completed(twins))  # the other one waits for the third
        assert "another process is host 1 already: each needs a MARIN_HOST of its own" in str(refused.exception())
        [taken] = twins - {refused}
        assert come(2) == first.result() == taken.result() == 7
