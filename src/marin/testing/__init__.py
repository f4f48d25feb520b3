"""What a test of a pipeline needs: a store of its own, stand-ins for steps, what a run told, a clock, assertions.

Needs no pytest. With pytest, ``pytest_plugins = ["marin.testing"]`` in the topmost ``conftest.py`` gives the fixture
``marin_store``. Read in this order: store, stand_ins, assertions, recorder, clock, fixtures.
"""

from marin.testing.assertions import assert_builds, assert_cached, plan_reasons
from marin.testing.clock import FakeClock
from marin.testing.recorder import RecordingReporter
from marin.testing.stand_ins import a_step
from marin.testing.store import TemporaryStore, temporary_store

__all__ = [
    "FakeClock",
    "RecordingReporter",
    "TemporaryStore",
    "a_step",
    "assert_builds",
    "assert_cached",
    "plan_reasons",
    "temporary_store",
]

pytest_plugins = ["marin.testing.fixtures"]
"""For pytest, where this package is named as a plugin: the only module of it that imports pytest."""
