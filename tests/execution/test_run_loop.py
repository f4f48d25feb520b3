import os
import signal
import threading

import pytest

from marin.errors import RunInterrupted
from marin.execution.runner import resolve
from tests.execution.pipelines import poems
from tests.executors.processes import PATIENCE

OVER = threading.Event()


@pytest.fixture(autouse=True)
def over():
    """The steps go on when their test is over: nothing else ends them."""
    OVER.clear()
    yield
    OVER.set()


def _stop_the_run(config):
    os.kill(os.getpid(), signal.SIGINT)
    OVER.wait(PATIENCE)  # given up by then


def test_a_signal_that_interrupts_the_handling_of_another_does_not_hang_the_run(options, monkeypatch):
    setting = []
    original = threading.Event.set

    def interrupted(event):
        if threading.get_ident() == threading.main_thread().ident:
            assert not setting, "waits for a lock that it holds itself"
            setting.append(event)
            signal.raise_signal(signal.SIGTERM)
            setting.pop()
        original(event)

    monkeypatch.setattr(threading.Event, "set", interrupted)
    with pytest.raises(RunInterrupted) as stopped:
        resolve(poems(run=_stop_the_run), options=options)
    assert stopped.value.exit_code == 130


def _signal_to_this_thread(config):
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    OVER.wait(PATIENCE)


def test_a_signal_that_the_kernel_gives_to_another_thread_is_noticed(options):
    with pytest.raises(RunInterrupted):
        resolve(poems(run=_signal_to_this_thread), options=options)
