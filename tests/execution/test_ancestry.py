from __future__ import annotations

from marin.errors import NewerRecordError
from marin.execution.ancestry import Fate, ancestry
from marin.execution.identity import ArtifactId, parse_artifact_id
from marin.execution.notes import MissingInput, StaleInput
from marin.execution.record import Input
from tests.execution.records import build, used


def walk(inputs, now):
    asked: list[ArtifactId] = []

    def read(id_):
        asked.append(id_)
        return now.get(str(id_))

    found = ancestry(tuple(inputs), read)
    assert len(asked) == len(set(asked))
    return found


def test_inputs_and_their_inputs_are_told_nearest_first():
    now = {"a@dev": build(deps=("b@dev", "c@dev")), "b@dev": build(deps=("c@dev",)), "c@dev": build()}
    found = walk([used("a@dev")], now)
    assert [(str(each.id), each.fate) for each in found] == [
        ("a@dev", Fate.SAME),
        ("b@dev", Fate.SAME),
        ("c@dev", Fate.SAME),
    ]
    assert [each.note for each in found] == [None, None, None]


def test_a_rebuilt_input_of_an_input_is_stale_and_the_way_to_it_is_told():
    now = {
        "a@dev": build(deps=("b@dev",)),
        "b@dev": build(deps=("c@dev",)),
        "c@dev": build("b2", deps=("never@dev",), finished="2026-07-03T00:00:00Z"),
    }
    *_, last = walk([used("a@dev")], now)
    assert last.note == StaleInput(
        name="c",
        version="dev",
        used_build="b1",
        newer_build="b2",
        rebuilt_at="2026-07-03T00:00:00Z",
        through=(parse_artifact_id("a@dev"), parse_artifact_id("b@dev")),
    )
    assert str(last.id) == "c@dev"


def test_an_input_without_a_record_is_missing_unless_it_lies_elsewhere():
    elsewhere = Input(name="b", version="dev", build_id="b1", path="/data/b")
    pinned = Input(name="c", version="dev", build_id="pinned", path="/data/c")
    found = walk([used("a@dev"), elsewhere, pinned], {"c@dev": build()})
    assert [each.fate for each in found] == [Fate.MISSING, Fate.ELSEWHERE, Fate.ELSEWHERE]
    assert found[0].note == MissingInput(name="a", version="dev", used_build="b1")


def test_a_record_that_can_not_be_read_is_told_and_not_followed():
    (found,) = walk([used("a@dev")], {"a@dev": NewerRecordError("too new")})
    assert (found.fate, found.note) == (Fate.UNREADABLE, None)


def test_two_builds_of_one_input_are_told_apart():
    other = Input(name="c", version="dev", build_id="b0", path="c/dev")
    now = {"a@dev": build(deps=("c@dev",)), "c@dev": build()}
    found = walk([used("a@dev"), other], now)
    assert [(each.used.build_id, each.fate) for each in found] == [
        ("b1", Fate.SAME),
        ("b0", Fate.REBUILT),
        ("b1", Fate.SAME),
    ]


def test_a_circle_of_records_ends():
    now = {"a@dev": build(deps=("b@dev",)), "b@dev": build(deps=("a@dev",))}
    assert len(walk([used("a@dev")], now)) == 2


def test_a_very_long_chain_is_followed_to_its_end():
    now = {f"s{number}@dev": build(deps=(f"s{number + 1}@dev",)) for number in range(20_000)}
    found = walk([used("s0@dev")], now)
    assert found[-1].fate is Fate.MISSING
    assert len(found) == 20_001
    assert len(found[-1].through) == 20_000
