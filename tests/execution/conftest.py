import pytest

from marin.execution.events import SilentReporter
from marin.execution.options import RunOptions
from tests.execution import pipelines


@pytest.fixture
def options(tmp_path):
    return RunOptions(prefix=str(tmp_path / "store"), durable=False)


@pytest.fixture
def built():
    """The output paths of the steps that ran since the test began."""
    pipelines.BUILDS.clear()
    return pipelines.BUILDS


class Told(SilentReporter):
    """Remembers what a run told."""

    def __init__(self):
        self.plan = None
        self.notes = []
        self.waits = []
        self.outcomes = {}
        self.failures = {}
        self.blocks = {}
        self.ends = 0

    def planned(self, plan, *, prefix, origin, hint):
        self.plan = plan

    def noted(self, id_, note):
        self.notes.append((str(id_), note))

    def waiting(self, id_, *, holder):
        self.waits.append((str(id_), holder))

    def finished(self, id_, outcome, *, seconds, path):
        self.outcomes[str(id_)] = str(outcome)

    def failed(self, failed):
        self.failures[str(failed.id)] = failed

    def blocked(self, id_, *, by):
        self.blocks[str(id_)] = str(by)

    def ended(self, *, interrupted):
        self.ends += 1


@pytest.fixture
def told():
    return Told()
