"""How commands are timed: interleaved, checked, and never a number from one that failed."""

from __future__ import annotations

import resource
import sys
import uuid

import pytest

from benchmarks.harness.command import BenchmarkError, Command, Workplace
from benchmarks.harness.rounds import in_turn, measure, smallest_of_each
from tests.executors.processes import MARK, eventually, marked


@pytest.fixture
def workplace(tmp_path):
    return Workplace(tmp_path / "work", {"PATH": "/usr/bin:/bin", "MARIN_PREFIX": "/nowhere", "PYTHONSTARTUP": "x"})


def command(code="", *, label="tool", size=1, **kwargs):
    return Command(label=label, size=size, argv=(sys.executable, "-c", code, "{store}"), **kwargs)


WRITE = "import sys; open(sys.argv[1] + '/a.step.out', 'w').write('0123456789')"


def test_a_command_is_timed_as_a_whole(workplace):
    code = "import time; start = time.perf_counter(); sum(range(10**6)); own = time.perf_counter() - start\n"
    sample = workplace.measure(command(code + """print(f'measured: {{"own": {own}}}')"""))
    assert sample.seconds > sample.said["own"] > 0
    assert sample.cpu_seconds > 0
    assert sample.max_rss_mb > 1


def test_memory_and_processor_time_are_those_of_the_command(workplace):
    sample = workplace.measure(command("block = bytearray(200_000_000)\nfor i in range(3_000_000): pass"))
    assert sample.max_rss_mb > 190
    # The kernel counts what the process that starts a command had: a benchmark starts it from a small one.
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert workplace.measure(command()).max_rss_mb < max(100, 1.2 * ours)


def test_a_command_that_fails_is_an_error_with_its_output_and_no_number(workplace):
    with pytest.raises(BenchmarkError, match=r"(?s)tool 1: .* ended with 3:.*why it failed"):
        workplace.measure(command("import sys; print('why it failed'); sys.exit(3)"))


def test_a_command_that_hangs_is_an_error(workplace):
    with pytest.raises(BenchmarkError, match=r"did not end within 0\.2 s"):
        workplace.measure(command("import signal; signal.pause()", timeout=0.2))


def test_what_a_hanging_command_has_started_ends_with_it(workplace):
    child = "[sys.executable, '-c', 'import signal; signal.pause()']"
    code = f"import signal, subprocess, sys; subprocess.Popen({child}); print('begun', flush=True); signal.pause()"
    mark = uuid.uuid4().hex
    with pytest.raises(BenchmarkError, match=r"(?s)did not end within.*begun"):
        workplace.measure(command(code, timeout=12, env={MARK: mark}))
    eventually(lambda: not marked(mark))


def test_a_command_that_does_less_than_it_should_is_an_error(workplace):
    with pytest.raises(BenchmarkError, match="left 0 outputs where 1 were due"):
        workplace.measure(command(outputs=1))


def test_an_output_of_another_length_does_not_count(workplace):
    with pytest.raises(BenchmarkError, match="left 0 outputs where 1 were due"):
        workplace.measure(command(WRITE.replace("0123456789", "012345678"), outputs=1))


def test_every_cold_run_has_an_empty_store(workplace):
    once = command("import sys, os; assert os.listdir(sys.argv[1]) == []; " + WRITE, outputs=1)
    for _ in range(2):
        workplace.measure(once)


def test_a_cached_run_works_on_the_store_that_was_filled_once(workplace):
    fill = command(WRITE, outputs=1)
    read = command("import sys; open(sys.argv[1] + '/a.step.out')", outputs=1, filled_by=fill)
    for _ in range(2):
        workplace.measure(read)


def test_a_cached_run_that_writes_anew_is_an_error(workplace):
    fill = command(WRITE, outputs=1)
    with pytest.raises(BenchmarkError, match="was to find all done, and wrote outputs anew"):
        workplace.measure(command(WRITE, outputs=1, filled_by=fill))


def test_a_store_that_can_not_be_filled_is_an_error(workplace):
    fill = command("raise SystemExit('no disk')")
    with pytest.raises(BenchmarkError, match="no disk"):
        workplace.measure(command(filled_by=fill))


def test_what_a_program_measures_itself_is_taken_from_its_output(workplace):
    sample = workplace.measure(command("""print('hello'); print('measured: {"late": 0.5}')"""))
    assert sample.said == {"late": 0.5}


def test_settings_of_whoever_measures_reach_no_command(workplace):
    workplace.measure(command("import os; assert not {'MARIN_PREFIX', 'PYTHONSTARTUP'} & set(os.environ)"))
    workplace.measure(command("import sys; assert not sys.dont_write_bytecode and sys.pycache_prefix"))


def test_rounds_are_interleaved_and_begin_with_another_command_each():
    first, second, third = commands = [command(label=label) for label in "abc"]
    assert in_turn(commands, 0) == [first, second, third]
    assert in_turn(commands, 1) == [second, third, first]
    assert in_turn(commands, 3) == [first, second, third]


def test_each_tool_is_run_once_unmeasured_at_its_smallest_size():
    small, large, other = command(size=1), command(size=1000), command(label="other", size=5)
    assert smallest_of_each([large, small, other]) == [small, other]


def test_each_command_gives_one_sample_a_round(workplace):
    seen = []
    measured = measure([command(), command(label="other")], 3, workplace, seen.append)
    assert {key: len(samples) for key, samples in measured.samples.items()} == {("tool", 1): 3, ("other", 1): 3}
    assert len(seen) == 6


def test_commands_that_could_be_mixed_up_are_refused(workplace):
    with pytest.raises(ValueError, match="two commands have one label and size"):
        measure([command("1"), command("2")], 1, workplace, print)


def test_nothing_is_removed_while_it_is_measured(workplace):
    fill = command(WRITE, outputs=1)
    measure([command(label="cached", filled_by=fill), command()], 1, workplace, lambda line: None)
    stores = [path for path in workplace.folder.iterdir() if path.name.startswith("store-")]
    assert len(stores) == 3  # the cached command keeps its own; the other has a new one, also to warm up
