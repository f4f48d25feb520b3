import signal

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine a slow example is no fault, nor is one that is slowly made.
settings.register_profile("marin", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("marin")

# A shell lets what it starts in the background ignore these, and so would all that the tests start and interrupt.
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("tests.executors.contract", "tests.storage.contract", "tests.execution.step_contract")


def pytest_addoption(parser):
    parser.addoption("--chaos-seconds", type=float, help="how long tests/chaos disturbs its runners (default: 30)")
    parser.addoption("--chaos-seed", type=int, help="which sequence of disturbances")


def pytest_terminal_summary(terminalreporter):
    """What a test has to say also if it passes, and with -q: its property ``summary``."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, value in report.user_properties:
                    if name == "summary":
                        terminalreporter.write_line(value)
