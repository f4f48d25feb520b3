import os
import subprocess
import sys
from pathlib import Path

import pytest

from marin.errors import (
    AddressOccupiedError,
    CorruptRecordError,
    DependentsError,
    InvalidNameError,
    InvalidVersionError,
    NewerRecordError,
    NotBuiltError,
    StoreBusyError,
    StoreError,
)
from marin.execution.catalog import Condition, data_url, dependents, entries, find, read_entry, versions
from marin.execution.identity import parse_artifact_id
from marin.execution.record import record_path
from marin.execution.removal import remove
from marin.storage.local import LocalStore
from marin.storage.owner import Owner, this_process
from tests.execution.records import STRANGER, attempt, build, put


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", durable=False)


@pytest.fixture
def dead() -> Owner:
    """A process of this machine that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = this_process()
    owner = Owner(
        host=here.host,
        user=here.user,
        pid=child.pid,
        started=1,  # so that nobody who gets its number is taken for it
        machine_id=here.machine_id,
        boot_id=here.boot_id,
        pid_namespace=here.pid_namespace,
    )
    child.communicate(b"\n")
    return owner


def ids(store: LocalStore) -> list[str]:
    return [str(entry.id) for entry in entries(store)]


def condition(store: LocalStore, id_: str) -> Condition:
    entry = read_entry(store, parse_artifact_id(id_))
    assert entry is not None
    return entry.condition


def test_a_store_that_does_not_exist_has_no_entries_and_is_not_made(store: LocalStore):
    assert list(entries(store)) == []
    assert not os.path.exists(store.root)


def test_entries_come_by_name_and_version(store: LocalStore):
    for id_ in ("b/x@dev", "a@2026.07.02", "a@2026.07.01", "b@2026.07.01"):
        put(store, id_, build())
    assert ids(store) == ["a@2026.07.01", "a@2026.07.02", "b@2026.07.01", "b/x@dev"]


def test_dot_folders_and_data_inside_an_artifact_are_not_entries(store: LocalStore):
    put(store, "a@anna-dev", build())
    put(store, "a/anna-dev/copy@2026.07.01", build())
    record = store.read("a/anna-dev/.artifact.json")
    assert record is not None
    for copy in (".marin/trash/a/2026.07.01", "a/anna-dev/.build-b/dev", "mine/backup"):
        store.write(f"{copy}/.artifact.json", record)
    assert ids(store) == ["a@anna-dev"]


def test_a_torn_record_is_an_entry_with_its_fault(store: LocalStore):
    put(store, "a@2026.07.01", build())
    store.write("a/2026.07.01/.artifact.json", b'{"schema": 1, "na')
    (entry,) = entries(store)
    assert entry.condition is Condition.UNREADABLE
    assert isinstance(entry.fault, CorruptRecordError)


def test_a_record_of_a_newer_marin_is_an_entry_with_its_fault(store: LocalStore):
    store.write("a/2026.07.01/.artifact.json", b'{"schema": 999}')
    (entry,) = entries(store)
    assert isinstance(entry.fault, NewerRecordError)


def test_a_record_that_was_copied_to_another_address_is_told_apart(store: LocalStore):
    put(store, "a@2026.07.01", build())
    store.write("b/2026.07.01/.artifact.json", store.read("a/2026.07.01/.artifact.json") or b"")
    entry = find(store, "b@2026.07.01")
    assert "the record of a@2026.07.01" in str(entry.fault)


def test_the_condition_follows_from_the_record_and_from_who_lives(store: LocalStore, dead: Owner):
    put(store, "built@dev", build())
    put(store, "building@dev", attempt=attempt())
    put(store, "rebuilding@dev", build(), attempt())
    put(store, "interrupted@dev", attempt=attempt(owner=dead))
    put(store, "far@dev", attempt=attempt(owner=STRANGER))
    put(store, "failed@dev", build(), attempt(error="ValueError: no"))
    # Nobody builds a fixed version twice: it was a removal that died.
    put(store, "built@2026.07.01", build(), attempt(owner=dead))
    told = {entry.id.name: entry.condition.value for entry in entries(store)}
    assert told == {"far": "building"} | {name: name for name in told if name != "far"}
    assert len(told) == 6
    assert condition(store, "built@2026.07.01") is Condition.BUILT


def test_a_name_alone_means_the_newest_fixed_version_by_date_and_number(store: LocalStore):
    for version in ("2026.07.01.9", "2026.07.01.10", "2025.12.31", "dev", "anna-dev"):
        put(store, f"a@{version}", build())
    assert find(store, "a").id.version == "2026.07.01.10"
    assert versions(store, "a") == ["2026.07.01.10", "2026.07.01.9", "2025.12.31", "dev", "anna-dev"]


def test_without_a_fixed_version_a_name_means_dev(store: LocalStore):
    put(store, "a@anna-dev", build())
    assert find(store, "a").id.version == "anna-dev"
    put(store, "a@dev", build())
    assert find(store, "a").id.version == "dev"


def test_a_folder_without_a_record_is_no_version(store: LocalStore):
    put(store, "a@2026.07.01", build())
    store.write("a/2026.08.01/poems.txt", b"")
    assert find(store, "a").id.version == "2026.07.01"


def test_an_address_is_understood_as_well(store: LocalStore):
    put(store, "tokenized/poems@2026.07.01", build())
    assert str(find(store, "tokenized/poems/2026.07.01").id) == "tokenized/poems@2026.07.01"


def test_a_wrong_name_asks_what_was_meant(store: LocalStore):
    put(store, "tokenized/poems@2026.07.01", build())
    with pytest.raises(NotBuiltError, match=r"Did you mean tokenized/poems\?"):
        find(store, "tokenised/poem")
    with pytest.raises(NotBuiltError, match=r"Did you mean tokenized/poems\?"):
        find(store, "poems@2026.07.01")


def test_a_wrong_version_names_those_that_are_there(store: LocalStore):
    put(store, "a@2026.07.01", build())
    with pytest.raises(NotBuiltError, match=r"a@2026\.07\.02 is not in .*There is a@2026\.07\.01"):
        find(store, "a@2026.07.02")


def test_an_empty_store_asks_whether_it_is_the_right_one(store: LocalStore):
    with pytest.raises(NotBuiltError, match="Is it the right --prefix"):
        find(store, "a")


@pytest.mark.parametrize(
    ("text", "error"), [("a@latest", InvalidVersionError), ("../etc", InvalidNameError), ("a b", InvalidNameError)]
)
def test_what_can_not_be_an_artifact_is_refused(store: LocalStore, text: str, error: type[Exception]):
    with pytest.raises(error):
        find(store, text)


def test_dependents_are_those_made_and_those_being_made_from_it(store: LocalStore):
    tokens = put(store, "tokens@2026.07.01", build())
    put(store, "model@2026.07.01", build(deps=("tokens@2026.07.01",)))
    put(store, "other@2026.07.01", build(deps=("tokens@2026.07.02",)))
    put(store, "next@2026.07.01", attempt=attempt(inputs=build(deps=("tokens@2026.07.01",)).deps))
    assert [str(id_) for id_ in dependents(store, tokens)] == ["model@2026.07.01", "next@2026.07.01"]


def test_data_lies_where_the_record_says(store: LocalStore):
    put(store, "a@2026.07.01", build())
    put(store, "a@dev", build(data=".build-b1"))
    put(store, "c@dev", build(data="/data/poems", source="/data/poems"))
    assert data_url(store, find(store, "a")) == f"{store.root}/a/2026.07.01"
    assert data_url(store, find(store, "a@dev")) == f"{store.root}/a/dev/.build-b1"
    assert data_url(store, find(store, "c")) == "/data/poems"


def test_there_is_no_data_without_a_complete_build(store: LocalStore):
    put(store, "a@dev", attempt=attempt(error="no"))
    with pytest.raises(NotBuiltError, match="it is failed"):
        data_url(store, find(store, "a"))


def test_removing_moves_everything_to_the_trash_and_moving_it_back_restores_it(store: LocalStore):
    id_ = put(store, "tokenized/poems@2026.07.01", build())
    before = store.read(record_path(id_.address))
    place = remove(store, id_)
    assert ids(store) == []
    assert Path(place).parent == Path(store.root, ".marin/trash/tokenized/poems")
    assert Path(place).name.startswith("2026.07.01-")
    assert Path(place, "poems.txt").read_bytes() == b"il pleure dans mon coeur"
    os.rename(place, store.url(id_.address))
    assert store.read(record_path(id_.address)) == before


def test_the_same_artifact_can_be_removed_again_and_again(store: LocalStore):
    places = {remove(store, put(store, "a@dev", build())) for _ in range(3)}
    assert len(places) == 3


def test_what_others_were_made_from_is_removed_only_by_force(store: LocalStore):
    tokens = put(store, "tokens@2026.07.01", build())
    put(store, "model@2026.07.01", build(deps=("tokens@2026.07.01",)))
    with pytest.raises(DependentsError, match=r"model@2026\.07\.01 was made from tokens@2026\.07\.01.* --force"):
        remove(store, tokens)
    assert find(store, "tokens").condition is Condition.BUILT
    remove(store, tokens, force=True)
    assert ids(store) == ["model@2026.07.01"]


@pytest.mark.parametrize("owner", [this_process(), STRANGER])
def test_what_is_being_built_is_not_removed_even_by_force(store: LocalStore, owner: Owner):
    id_ = put(store, "a@dev", build(), attempt(owner=owner))
    with pytest.raises(StoreBusyError, match=f"a@dev is being built by pid {owner.pid}"):
        remove(store, id_, force=True)
    assert condition(store, "a@dev") is Condition.REBUILDING


def test_what_a_dead_builder_left_and_what_failed_and_what_is_torn_can_be_removed(store: LocalStore, dead: Owner):
    remove(store, put(store, "a@dev", attempt=attempt(owner=dead)))
    remove(store, put(store, "b@dev", attempt=attempt(error="no")))
    torn = put(store, "c@dev", build())
    store.write(record_path(torn.address), b"")
    remove(store, torn)
    assert ids(store) == []


def test_a_builder_that_begins_while_we_remove_wins_or_waits_but_never_builds_in_a_folder_that_goes(store: LocalStore):
    class Raced:
        """A store in which somebody takes the lease right before we do."""

        def __getattr__(self, name: str):
            return getattr(store, name)

        def compare_and_swap(self, path: str, expected: bytes | None, new: bytes) -> bool:
            put(store, "a@dev", build(), attempt(owner=STRANGER))
            return store.compare_and_swap(path, expected, new)

    id_ = put(store, "a@dev", build())
    with pytest.raises(StoreBusyError, match="just been changed"):
        remove(Raced(), id_)  # type: ignore[arg-type]
    assert condition(store, "a@dev") is Condition.REBUILDING


def test_while_it_is_removed_others_see_who_holds_it(store: LocalStore):
    seen: list[Condition] = []

    class Watched:
        def __getattr__(self, name: str):
            return getattr(store, name)

        def move_folder(self, source: str, target: str) -> None:
            seen.append(condition(store, "a@dev"))
            store.move_folder(source, target)

    remove(Watched(), put(store, "a@dev", build()))  # type: ignore[arg-type]
    assert seen == [Condition.REBUILDING]


def test_what_can_not_be_moved_away_stays_as_it_was(store: LocalStore):
    id_ = put(store, "a@2026.07.01", build())
    before = store.read(record_path(id_.address))
    store.write(".marin/trash", b"a file where the trash should be")
    with pytest.raises(AddressOccupiedError, match=r"trash is a file where a folder should be"):
        remove(store, id_)
    assert store.read(record_path(id_.address)) == before


def test_what_is_not_there_can_not_be_removed(store: LocalStore):
    with pytest.raises(NotBuiltError, match=r"a@dev is not in"):
        remove(store, parse_artifact_id("a@dev"))


def test_what_may_not_be_read_hides_nothing_else(store, monkeypatch):
    for name in ("a", "closed", "z"):
        put(store, f"{name}@2026.07.01", build())
    listing = LocalStore.list

    def closed(self, path):
        if path == "closed/2026.07.01":
            raise StoreError(f"{path} can't be read")
        return listing(self, path)

    monkeypatch.setattr(LocalStore, "list", closed)
    told = []
    assert [entry.id.name for entry in entries(store, told.append)] == ["a", "z"]
    assert [str(fault) for fault in told] == ["closed/2026.07.01 can't be read"]
    with pytest.raises(StoreError):
        list(entries(store))
