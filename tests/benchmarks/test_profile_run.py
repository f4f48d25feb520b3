"""The tables of the profile: parsed right, and per step."""

from __future__ import annotations

import cProfile

import pytest

from benchmarks.profile_run import functions, per_step, system_calls

STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000300         100         3           openat
 40.00    0.000200          50         4         2 newfstatat
------ ----------- ----------- --------- --------- ----------------
100.00    0.000500          71         7         2 total
"""


def test_the_table_of_strace_is_read_with_and_without_errors():
    assert system_calls(STRACE) == {"openat": (3, 0.0003), "newfstatat": (4, 0.0002)}


def test_what_is_spent_once_is_left_out_and_the_dearest_comes_first():
    small = {"read": (5, 0.001), "once": (1, 0.5)}
    large = {"read": (25, 0.002), "once": (1, 0.5), "new": (10, 0.1)}
    assert per_step(large, small, 10) == [
        ("new", 1.0, pytest.approx(10_000)),
        ("read", 2.0, pytest.approx(100)),
        ("once", 0.0, 0.0),
    ]


def test_calls_and_time_of_functions_are_those_of_the_profile(tmp_path):
    def callee():
        return sum(range(1000))

    def caller():
        return [callee() for _ in range(3)]

    profile = cProfile.Profile()
    profile.runcall(caller)
    profile.dump_stats(tmp_path / "stats")
    own = {name.rpartition("(")[2]: entry for name, entry in functions(tmp_path / "stats", cumulative=False).items()}
    full = {name.rpartition("(")[2]: entry for name, entry in functions(tmp_path / "stats", cumulative=True).items()}
    assert own["callee)"][0] == 3
    assert full["caller)"][1] >= full["callee)"][1] >= own["callee)"][1]
