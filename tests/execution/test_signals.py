import os
import signal

import pytest

from marin.execution.signals import in_this_process


@pytest.fixture
def noted():
    seen = []
    handler = in_this_process(lambda number, frame: seen.append(number))
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_process_that_installed_it_obeys(noted):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert noted == [signal.SIGTERM, signal.SIGINT]


def test_a_forked_child_does_with_signals_what_python_does(noted):
    child = os.fork()
    if child == 0:
        own = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        os._exit(0 if own == (signal.SIG_DFL, signal.default_int_handler) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_signal_in_the_first_moment_of_a_child_ends_it(noted):
    child = os.fork()
    if child == 0:
        # As if the signal had come before the handlers were given back.
        signal.signal(signal.SIGTERM, in_this_process(print, owner=os.getppid()))
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert noted == []


def test_a_signal_that_comes_while_forking_is_not_lost(noted):
    for _ in range(200):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # so that a lost signal fails the test and does not hang it
            signal.pause()
        os.kill(child, signal.SIGTERM)  # most likely before the child has come round
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGTERM, signal.SIGINT} == set()


def test_handlers_of_others_are_inherited_as_ever():
    before = signal.signal(signal.SIGTERM, print)
    try:
        child = os.fork()
        if child == 0:
            os._exit(0 if signal.getsignal(signal.SIGTERM) is print else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        signal.signal(signal.SIGTERM, before)
