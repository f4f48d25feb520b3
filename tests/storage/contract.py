"""What every store promises. A new store inherits these tests: subclass and give a fixture ``store``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import AddressOccupiedError, InvalidNameError, NotBuiltError, OutputError
from marin.storage.store import BuildStore, Store
from tests.executors.processes import PATIENCE

RECORD = "poems/2026.07.01/.artifact.json"
ADDRESS = "poems/2026.07.01"
BUILD = f"{ADDRESS}/.build-b1"

_PATHS = ("a", "b/c", "b/.d", "e/f/g")
_DATA = st.sampled_from([b"", b"1", b"2", b"\x00\xff" * 40_000])
_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(_PATHS), st.none(), _DATA),
        st.tuples(st.just("swap"), st.sampled_from(_PATHS), st.none() | _DATA, _DATA),
        st.tuples(st.just("delete"), st.sampled_from(["a", "b", "b/c", "e", "e/f"]), st.none(), st.none()),
    ),
    max_size=15,
)


class StoreContract:
    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def hasty_threads(self) -> Generator[None]:
        """Threads that take turns so often that an update without a lock is soon lost."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(before)

    def test_nothing_is_read_where_nothing_was_written(self, store: Store):
        assert store.read("a") is None
        assert store.read("no/such/folder/a") is None

    @pytest.mark.parametrize("data", [b"", b"x", b"\x00\xff\n" * 1_000_000], ids=["empty", "small", "large"])
    def test_what_is_written_is_read(self, store: Store, data: bytes):
        store.write("a/b", b"older and longer than the new data")
        store.write("a/b", data)
        assert store.read("a/b") == data

    def test_a_swap_needs_the_expected_bytes(self, store: Store):
        assert not store.compare_and_swap(RECORD, b"1", b"2")
        assert store.read(RECORD) is None
        assert store.compare_and_swap(RECORD, None, b"1")
        assert not store.compare_and_swap(RECORD, None, b"2")
        assert not store.compare_and_swap(RECORD, b"2", b"3")
        assert store.read(RECORD) == b"1"
        assert store.compare_and_swap(RECORD, b"1", b"2")
        assert store.read(RECORD) == b"2"

    def test_empty_bytes_are_not_absent(self, store: Store):
        assert not store.compare_and_swap("a", b"", b"1")
        store.write("a", b"")
        assert not store.compare_and_swap("a", None, b"1")
        assert store.compare_and_swap("a", b"", b"1")

    def test_a_failed_swap_leaves_no_trace(self, store: Store):
        assert not store.compare_and_swap("new/folder/a", b"1", b"2")
        assert store.list("") == []

    def test_a_list_names_what_lies_directly_below(self, store: Store):
        for path in ("n/a", "n/b/c", "n/b/d", "n/.e", "nn/f", "o"):
            store.write(path, b"")
        assert store.list("n") == [".e", "a", "b/"]
        assert store.list("") == ["n/", "nn/", "o"]
        assert store.list("absent") == []

    def test_a_list_has_no_entries_of_a_file(self, store: Store):
        store.write("a", b"")
        assert store.list("a") == []

    def test_a_file_can_be_deleted(self, store: Store):
        store.write("n/a", b"")
        store.write("n/ab", b"")
        store.delete("n/a")
        assert store.read("n/a") is None
        assert store.list("n") == ["ab"]

    def test_a_folder_is_deleted_with_all_below(self, store: Store):
        for path in ("n/a", "n/b/c", "nn/f"):
            store.write(path, b"")
        store.delete("n")
        assert store.list("") == ["nn/"]

    def test_deleting_what_is_absent_is_fine(self, store: Store):
        store.delete("a")
        store.delete("a/b/c")

    def test_names_may_hold_spaces_quotes_and_any_letters(self, store: Store):
        path = "my data/“Gedichte” & 詩/it's $HOME/a;b"
        store.write(path, b"1")
        assert store.read(path) == b"1"
        assert store.list("my data/“Gedichte” & 詩") == ["it's $HOME/"]

    @pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../../b", "a/./b", "..", "a\0b"])
    def test_no_path_leads_out_of_the_store(self, store: Store, path: str):
        for attempt in (
            lambda: store.read(path),
            lambda: store.write(path, b""),
            lambda: store.compare_and_swap(path, None, b""),
            lambda: store.delete(path),
        ):
            with pytest.raises(InvalidNameError, match="is not a path in a store: write names joined by"):
                attempt()

    @pytest.mark.usefixtures("hasty_threads")
    def test_of_many_threads_exactly_one_wins_each_round(self, store: Store):
        threads, rounds = 8, 20
        barrier = threading.Barrier(threads)

        def compete(me: int) -> list[bool]:
            wins: list[bool] = []
            for number in range(rounds):
                expected = f"{number}".encode() if number else None
                barrier.wait(timeout=PATIENCE)
                wins.append(store.compare_and_swap(RECORD, expected, f"{number + 1}".encode()))
                barrier.wait(timeout=PATIENCE)
            return wins

        with ThreadPoolExecutor(threads) as pool:
            wins = list(pool.map(compete, range(threads)))
        assert [sum(column) for column in zip(*wins, strict=True)] == [1] * rounds

    @pytest.mark.usefixtures("hasty_threads")
    def test_threads_that_count_lose_no_update(self, store: Store):
        store.write("counter", b"0")

        def count(_: int) -> None:
            done = 0
            while done < 25:
                seen = store.read("counter")
                assert seen is not None
                done += store.compare_and_swap("counter", seen, b"%d" % (int(seen) + 1))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(count, range(8)))
        assert store.read("counter") == b"200"

    def test_any_sequence_acts_as_on_a_dictionary(self, store: Store):
        # Inside, because hypothesis objects to one test that several classes inherit.
        @settings(max_examples=50, deadline=None)
        @given(_OPERATIONS)
        def law(operations: list[tuple[str, str, bytes | None, bytes | None]]) -> None:
            for name in store.list(""):
                store.delete(name.rstrip("/"))
            model: dict[str, bytes] = {}
            for operation, path, expected, data in operations:
                if operation == "delete":
                    store.delete(path)
                    model = {k: v for k, v in model.items() if k != path and not k.startswith(f"{path}/")}
                    continue
                fits = operation == "write" or model.get(path) == expected
                assert data is not None
                if operation == "write":
                    store.write(path, data)
                else:
                    assert store.compare_and_swap(path, expected, data) == fits
                if fits:
                    model[path] = data
            assert {path: store.read(path) for path in _PATHS} == {path: model.get(path) for path in _PATHS}

        law()


class BuildStoreContract(StoreContract):
    """``at`` turns a path into a local one: the step functions of these tests write with ``pathlib``."""

    @pytest.fixture
    def store(self) -> BuildStore:
        raise NotImplementedError

    def at(self, store: BuildStore, path: str) -> Path:
        return Path(store.url(path))

    def build(self, store: BuildStore, path: str = BUILD, **files: str) -> None:
        """A build folder with ``files``, where ``a__b`` is ``b`` in the folder ``a``."""
        store.make_folder(path)
        for name, text in files.items():
            file = self.at(store, path) / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def test_a_location_leads_back_to_its_path(self, store: BuildStore):
        for path in ("", "a", "poems/dev/.build-b 1"):
            assert store.relative(store.url(path)) == path
        assert store.url("a").startswith("/")
        assert store.relative(store.url("") + "x/a") is None
        assert store.relative("/") is None
        assert store.relative(store.url("") + "/../a") is None
        assert store.relative(store.url("a/b") + "/../c/") == "a/c"
        assert store.relative("s3://bucket/a") is None

    def test_a_new_folder_is_there_and_empty(self, store: BuildStore):
        store.make_folder(BUILD)
        assert list(self.at(store, BUILD).iterdir()) == []
        assert store.list(ADDRESS) == [".build-b1/"]

    def test_a_folder_is_not_made_twice(self, store: BuildStore):
        store.make_folder(BUILD)
        with pytest.raises(AddressOccupiedError, match=r"b1 is a folder that is in the way: move it away"):
            store.make_folder(BUILD)

    def test_a_folder_moves_with_what_is_in_it(self, store: BuildStore):
        self.build(store, shards__a="1")
        store.move_folder(BUILD, "trash/2026/poems")
        assert store.read("trash/2026/poems/shards/a") == b"1"
        assert store.list(ADDRESS) == []

    def test_a_folder_moves_over_nothing(self, store: BuildStore):
        self.build(store, a="1")
        store.make_folder("trash/poems")
        with pytest.raises(AddressOccupiedError, match=r"trash/poems is a folder that is in the way"):
            store.move_folder(BUILD, "trash/poems")
        assert store.read(f"{BUILD}/a") == b"1"

    def test_moving_a_folder_that_is_gone_says_so(self, store: BuildStore):
        with pytest.raises(NotBuiltError, match=r"b1 is not there: .* look and try again"):
            store.move_folder(BUILD, "trash/poems")

    def test_sync_takes_any_tree(self, store: BuildStore):
        self.build(store, a="1", b__c__d="2")
        (self.at(store, BUILD) / "dangling").symlink_to("nowhere")
        store.sync(BUILD)
        assert store.read(f"{BUILD}/b/c/d") == b"2"

    def test_publishing_moves_the_data_and_writes_the_record(self, store: BuildStore):
        store.write(RECORD, b"building")
        self.build(store, **{"a": "1", "shards__b": "2", ".manifest.json": "{}"})
        store.sync(BUILD)
        assert store.publish(RECORD, b"building", b"built", BUILD)
        assert store.read(RECORD) == b"built"
        place = ADDRESS if store.publishes_by_moving else BUILD
        assert (store.read(f"{place}/a"), store.read(f"{place}/shards/b")) == (b"1", b"2")
        if store.publishes_by_moving:
            assert store.list(ADDRESS) == [".artifact.json", ".manifest.json", "a", "shards/"]

    @pytest.mark.parametrize("record", [b"somebody else is building", None])
    def test_who_lost_the_record_moves_nothing(self, store: BuildStore, record: bytes | None):
        self.build(store, a="1")
        if record is not None:
            store.write(RECORD, record)
        assert not store.publish(RECORD, b"building", b"built", BUILD)
        assert store.read(RECORD) == record
        assert store.read(f"{ADDRESS}/a") is None
        assert store.read(f"{BUILD}/a") == b"1"

    def test_strays_at_the_address_are_set_aside_not_mixed_in(self, store: BuildStore):
        store.write(RECORD, b"building")
        for stray in ("a", "stray", "shards/old", ".manifest.json", ".state/old"):
            store.write(f"{ADDRESS}/{stray}", b"of a killed publisher")
        for kept in (".logs/b0.log", ".nfs0012"):
            store.write(f"{ADDRESS}/{kept}", b"is no data, and stays")
        self.build(store, **{"a": "1", "shards__new": "2", ".manifest.json": "new"})
        assert store.publish(RECORD, b"building", b"built", BUILD)
        (aside,) = (name for name in store.list(ADDRESS) if name.startswith(".stray-"))
        assert store.list(ADDRESS) == [".artifact.json", ".logs/", ".manifest.json", ".nfs0012", aside, "a", "shards/"]
        assert store.list(f"{ADDRESS}/shards") == ["new"]
        assert store.list(f"{ADDRESS}/{aside}"[:-1]) == [".manifest.json", ".state/", "a", "shards/", "stray"]

    def test_what_other_attempts_left_goes_when_one_publishes(self, store: BuildStore):
        store.write(RECORD, b"building")
        self.build(store, a="1")
        for left in (".build-b0/a", ".build-held/a", ".job-b0/call", ".stray-1/a"):
            store.write(f"{ADDRESS}/{left}", b"left")
        with store.hold(f"{ADDRESS}/.build-held"):
            assert store.publish(RECORD, b"building", b"built", BUILD)
        assert store.list(ADDRESS) == [".artifact.json", ".build-held/", ".stray-1/", "a"]

    @pytest.mark.parametrize("name", [".artifact.json", ".build-b2__x", ".job-b1__x", ".stray-x", ".logs__x"])
    def test_a_step_can_not_forge_control_files(self, store: BuildStore, name: str):
        store.write(RECORD, b"building")
        self.build(store, **{"a": "1", name: "forged"})
        with pytest.raises(OutputError, match=r"b1/\.\w+.*: this name belongs to Marin itself.*use another name"):
            store.publish(RECORD, b"building", b"built", BUILD)
        assert store.read(RECORD) == b"building"
        assert store.read(f"{BUILD}/a") == b"1"

    def test_an_address_with_strays_can_start_anew(self, store: BuildStore):
        store.write(RECORD, b"building, but dead")
        for path in ("a", "shards/b", ".manifest.json", ".state/c", ".build-b0/c", ".logs/b0.log"):
            store.write(f"{ADDRESS}/{path}", path.encode())
        assert not store.unpublish(RECORD, b"another record", b"building", BUILD)
        assert store.list(ADDRESS) == [
            ".artifact.json",
            ".build-b0/",
            ".logs/",
            ".manifest.json",
            ".state/",
            "a",
            "shards/",
        ]
        assert store.unpublish(RECORD, b"building, but dead", b"building", BUILD)
        assert store.list(ADDRESS) == [".artifact.json", ".build-b0/", ".build-b1/", ".logs/"]
        assert store.list(BUILD) == [".manifest.json", ".state/", "a", "shards/"]
        assert store.read(RECORD) == b"building"
        assert (store.read(f"{BUILD}/a"), store.read(f"{BUILD}/shards/b")) == (b"a", b"shards/b")

    def test_starting_anew_overwrites_nothing(self, store: BuildStore):
        store.write(RECORD, b"dead")
        store.write(f"{ADDRESS}/a", b"at the address")
        self.build(store, a="in the build folder")
        assert store.unpublish(RECORD, b"dead", b"building", BUILD)
        assert store.read(f"{BUILD}/a") == b"in the build folder"
        (aside,) = (name for name in store.list(ADDRESS) if name.startswith(".stray-"))
        assert store.read(f"{ADDRESS}/{aside}a") == b"at the address"

    def test_starting_anew_without_strays_makes_no_folder(self, store: BuildStore):
        assert store.unpublish(RECORD, None, b"building", BUILD)
        assert store.list(ADDRESS) == [".artifact.json"]

    def test_a_held_folder_is_not_removed_until_the_last_lets_go(self, store: BuildStore):
        self.build(store, a__b="1")
        with store.hold(BUILD):
            with store.hold(BUILD):
                assert not store.remove_unheld(BUILD)
            assert not store.remove_unheld(BUILD)
            assert store.read(f"{BUILD}/a/b") == b"1"
        assert store.remove_unheld(BUILD)
        assert store.list(ADDRESS) == []

    def test_removing_what_is_gone_is_done(self, store: BuildStore):
        assert store.remove_unheld(BUILD)

    def test_what_is_gone_can_not_be_held(self, store: BuildStore):
        with pytest.raises(NotBuiltError, match=r"b1 is not there any more: .* run again"):
            with store.hold(BUILD):
                pytest.fail("held nothing")
