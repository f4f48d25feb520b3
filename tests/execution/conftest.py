import sys

import pytest

from marin.execution.options import RunOptions
from marin.testing import RecordingReporter
from tests.execution import pipelines
from tests.execution.projects import Project


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


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of source files that Python would import from."""
    monkeypatch.setattr("sys.path", [str(tmp_path / "project"), *sys.path])
    yield Project(tmp_path / "project")
    for name in [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]
