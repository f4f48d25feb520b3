from hypothesis import given
from hypothesis import strategies as st

from marin.execution.schedule import Schedule


@st.composite
def graphs(draw):
    size = draw(st.integers(0, 12))
    return {
        node: draw(st.lists(st.integers(0, node - 1), unique=True, max_size=4)) if node else [] for node in range(size)
    }


@given(graphs(), st.data())
def test_every_step_ends_and_none_starts_early(graph, data):
    schedule = Schedule(graph)
    finished, failed, blocked, running = set(), set(), set(), []
    while not schedule.done:
        while (key := schedule.pop_ready()) is not None:
            assert set(graph[key]) <= finished
            running.append(key)
        assert running, "nothing runs, nothing is ready, and the schedule is not done"
        key = running.pop(data.draw(st.integers(0, len(running) - 1)))
        if data.draw(st.booleans()):
            schedule.finish(key)
            finished.add(key)
        else:
            failed.add(key)
            blocked.update(schedule.fail(key))
    assert finished | failed | blocked == set(graph)
    assert not finished & blocked
    for key in blocked:
        assert set(graph[key]) & (failed | blocked)


@given(graphs(), st.data())
def test_after_giving_up_only_the_running_end(graph, data):
    schedule = Schedule(graph)
    running = []
    while (key := schedule.pop_ready()) is not None and len(running) < 2:
        running.append(key)
    if key is not None:
        running.append(key)
    left = schedule.abandon_waiting()
    assert sorted([*left, *running]) == sorted(graph)
    for key in running:
        schedule.finish(key) if data.draw(st.booleans()) else schedule.fail(key)
        assert schedule.pop_ready() is None
    assert schedule.done


def test_a_chain_of_a_hundred_thousand_is_no_problem():
    schedule = Schedule({n: [n - 1] if n else [] for n in range(100_000)})
    assert schedule.pop_ready() == 0
    assert len(schedule.fail(0)) == 99_999
    assert schedule.done


def test_what_is_not_in_the_graph_counts_as_finished():
    assert Schedule({"train": ["tokens"]}).pop_ready() == "train"


def test_a_dependency_named_twice_is_waited_for_once():
    schedule = Schedule({"train": ["tokens", "tokens"], "tokens": []})
    schedule.finish(schedule.pop_ready())
    assert schedule.pop_ready() == "train"


def test_what_is_put_back_is_the_next_again_in_its_order():
    schedule = Schedule({"a": [], "b": [], "c": []})
    taken = [schedule.pop_ready(), schedule.pop_ready()]
    schedule.put_back(["a", "b"])
    assert taken == ["a", "b"]
    assert schedule.ready_count == 3
    assert [schedule.pop_ready() for _ in range(4)] == ["a", "b", "c", None]
