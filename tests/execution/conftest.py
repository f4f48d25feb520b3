import pytest

from marin.execution.options import RunOptions
from marin.testing import RecordingReporter
from tests.execution import pipelines


@pytest.fixture
def options(tmp_path):
    return RunOptions(prefix=str(tmp_path / "store"), durable=False)


@pytest.fixture
def built():
    """The output paths of the steps that ran since the test began."""
    pipelines.BUILDS.clear()
    return pipelines.BUILDS


@pytest.fixture
def told():
    return RecordingReporter()
