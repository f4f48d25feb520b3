"""The ways in which a step is carried out, each held by the same contract."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from marin.errors import WorkerDiedError
from marin.execution.remote_function import remote
from marin.execution.runner import resolve
from tests.execution import remote_steps as steps
from tests.execution.step_contract import StepContract, Way


class TestInAThread(StepContract):
    """In the process of the run: cheap, and as mortal as the run."""

    @pytest.fixture
    def way(self) -> Way:
        return lambda function: function


class TestInAProcess(StepContract):
    """In a process of its own: what happens to it happens to no other step."""

    @pytest.fixture
    def way(self) -> Way:
        return remote

    def test_its_death_is_a_failure_of_this_step(self, options, step, told):
        fault = self.fault(options, step(steps.kill_self, int(signal.SIGKILL)), told)
        assert isinstance(fault, WorkerDiedError)
        assert "SIGKILL" in str(fault)

    def test_what_it_prints_is_in_its_log(self, options, step):
        resolve(step(print_a_line), options=options)
        log = Path(options.prefix, self.record(options)["build"]["log"])
        assert "a line of the step" in log.read_text()


def print_a_line(config: object) -> steps.Count:
    print("a line of the step")
    return steps.Count(value=1)
