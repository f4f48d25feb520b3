from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import ConfigurationError, OutputError, StorageFullError
from marin.execution import manifest as manifest_module
from marin.execution.artifact import Artifact
from marin.execution.manifest import (
    MAX_LISTED,
    FileEntry,
    ManifestSummary,
    first_missing,
    list_files,
    renewed_manifest,
    summarize,
    write_manifest,
)
from marin.execution.step_body import Completed, execute
from marin.execution.step_function import load_function

GOLDEN = "65767492ae89379b6c14493b0f37fcd9b56d3c087a0f409497e73514f2fb91bd"


@dataclass(frozen=True)
class Poems(Artifact):
    count: int
    titles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked(Artifact):
    def verify(self) -> None:
        if not (Path(self.path) / "poems.txt").exists():
            raise FileNotFoundError("poems.txt is not there")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "output"
    folder.mkdir()
    return folder


def run(output: Path, body: Any, artifact_type: type[Artifact] = Artifact) -> Completed:
    return execute(lambda _: body(), None, artifact_type=artifact_type, output_path=str(output))


def test_the_function_gets_the_config_and_its_artifact_is_kept_as_json(output: Path):
    completed = execute(lambda n: Poems(count=n, titles=("a",)), 3, artifact_type=Poems, output_path=str(output))
    assert completed.result == {"count": 3, "titles": ["a"]}  # as it is read again
    assert completed.manifest.files == 0


def test_none_stands_for_an_artifact_without_fields(output: Path):
    assert run(output, lambda: None).result == {}


def test_none_will_not_do_where_fields_are_to_be_filled(output: Path):
    with pytest.raises(
        OutputError, match=r"returned None, but its artifact_type Poems needs count: return Poems\(\.\.\.\)"
    ):
        run(output, lambda: None, Poems)


def test_another_type_is_refused_and_both_are_named(output: Path):
    with pytest.raises(OutputError, match="returned dict, but its artifact_type is Poems"):
        run(output, lambda: {"count": 1}, Poems)
    with pytest.raises(OutputError, match="returned Artifact, but its artifact_type is Poems"):
        run(output, lambda: Artifact(), Poems)


def test_a_build_that_its_reader_refuses_is_refused(output: Path):
    with pytest.raises(
        OutputError, match=r"finished build was refused: Checked.verify says FileNotFoundError: poems"
    ) as refusal:
        run(output, lambda: None, Checked)
    assert isinstance(refusal.value.__cause__, FileNotFoundError)
    run(output, lambda: (output / "poems.txt").write_text("x") and None, Checked)


def test_what_the_function_raises_passes_through(output: Path):
    with pytest.raises(ZeroDivisionError):
        run(output, lambda: 1 / 0)


def test_the_manifest_lists_every_file_with_size_and_digest(output: Path):
    def write() -> None:
        (output / "b" / "c").mkdir(parents=True)
        (output / "b" / "c" / "ü.txt").write_bytes(b"roses")
        (output / "b" / "empty").touch()
        (output / "a.txt").write_bytes(b"violets")
        (output / "no files").mkdir()

    manifest = run(output, write).manifest
    assert msgspec.to_builtins(manifest.listed) == (
        {"path": "a.txt", "bytes": 7, "sha256": hashlib.sha256(b"violets").hexdigest()},
        {"path": "b/c/ü.txt", "bytes": 5, "sha256": hashlib.sha256(b"roses").hexdigest()},
        {"path": "b/empty", "bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()},
    )
    assert (manifest.files, manifest.bytes) == (3, 12)
    assert not (output / ".manifest.json").exists()


@pytest.mark.parametrize("count", [MAX_LISTED, MAX_LISTED + 1, 100])
def test_a_long_list_lies_beside_the_data_and_a_short_one_in_the_record(output: Path, count: int):
    def write() -> None:
        for number in range(count):
            (output / f"{number}.txt").write_text(str(number))

    manifest = run(output, write).manifest
    place = output / ".manifest.json"
    assert place.exists() == (manifest.listed is None) == (count > MAX_LISTED)
    listed = msgspec.json.decode(place.read_bytes(), type=list[FileEntry]) if place.exists() else manifest.listed
    assert listed is not None
    assert [entry.path for entry in listed] == sorted(f"{number}.txt" for number in range(count))
    assert manifest == summarize(listed, listed=count <= MAX_LISTED)


def test_what_is_missing_is_named(output: Path):
    none = run(output, lambda: None).manifest
    few = run(output, lambda: [(output / name).touch() for name in ("a", "b")] and None).manifest
    many = run(output, lambda: [(output / f"{number}").touch() for number in range(20)] and None).manifest
    for manifest in (none, few, many, None):
        assert first_missing(str(output), manifest) is None
    (output / "b").unlink()
    (output / ".manifest.json").unlink()
    found = [first_missing(str(output), manifest) for manifest in (none, few, many, None)]
    assert found == [None, "b", ".manifest.json", ".manifest.json"]
    shutil.rmtree(output)
    assert first_missing(str(output), none) == ""


def test_a_list_that_has_become_short_moves_into_the_record(output: Path):
    for number in range(MAX_LISTED + 1):
        (output / f"{number}.txt").write_text(str(number))
    before = write_manifest(str(output))
    (output / "0.txt").unlink()
    after = renewed_manifest(str(output), before, 0)
    assert after == summarize(list_files(str(output)), listed=True)
    assert not (output / ".manifest.json").exists()
    assert renewed_manifest(str(output), after, 0) is after


@pytest.mark.parametrize("size", [0, 1, 2**18 - 1, 2**18, 2**18 + 1, 2**19 + 5])
def test_a_file_of_any_size_is_read_whole(output: Path, size: int):
    data = os.urandom(size)
    (output / "data").write_bytes(data)
    (entry,) = list_files(str(output))
    assert (entry.bytes, entry.sha256) == (size, hashlib.sha256(data).hexdigest())


def test_the_digest_is_the_same_for_ever():
    """Changing it makes every recorded manifest look damaged."""
    entries = [FileEntry(path="a.txt", bytes=7, sha256="ab" * 32), FileEntry(path="ü", bytes=2**40, sha256="cd" * 32)]
    assert summarize(entries) == ManifestSummary(files=2, bytes=7 + 2**40, digest=GOLDEN)


files = st.dictionaries(st.text(min_size=1), st.integers(0, 2**60), max_size=4)


@given(files, files, st.randoms())
def test_digests_agree_exactly_if_the_files_do(one: dict[str, int], other: dict[str, int], random: Any):
    def entries(sizes: dict[str, int]) -> list[FileEntry]:
        found = [
            FileEntry(path=path, bytes=size, sha256="00" * 32) for path, size in sizes.items() if path.isprintable()
        ]
        random.shuffle(found)
        return found

    def kept(sizes: dict[str, int]) -> dict[str, int]:
        return {path: size for path, size in sizes.items() if path.isprintable()}

    assert (summarize(entries(one)).digest == summarize(entries(other)).digest) == (kept(one) == kept(other))
    assert summarize(entries(one)) == summarize(entries(one))


def test_a_name_cannot_pose_as_two_files():
    two = [FileEntry(path="a", bytes=1, sha256="00" * 32), FileEntry(path="b", bytes=1, sha256="00" * 32)]
    one = [FileEntry(path="a\nb", bytes=1, sha256="00" * 32), FileEntry(path="", bytes=1, sha256="00" * 32)]
    assert summarize(two).digest != summarize(one).digest


def test_the_manifest_of_an_earlier_attempt_is_replaced(output: Path):
    (output / ".manifest.json").write_text("[old]")
    done = execute(lambda _: None, None, artifact_type=Artifact, output_path=str(output), resumes=True)
    assert done.manifest.files == 0
    assert not (output / ".manifest.json").exists()


@pytest.mark.parametrize("name", [".artifact.json", ".build-x", ".job-x", ".stray-x", ".logs", ".manifest.json"])
def test_names_that_are_ours_are_refused(output: Path, name: str):
    with pytest.raises(OutputError, match=f"wrote '{name}', a name that is kept for Marin"):
        run(output, lambda: (output / name).write_text("x") and None)


def test_names_that_are_ours_may_lie_deeper(output: Path):
    def write() -> None:
        (output / "copy").mkdir()
        (output / "copy" / ".manifest.json").write_text("[]")
        (output / "copy" / ".artifact.json").write_text("{}")

    assert run(output, write).manifest.files == 2


def test_links_inside_are_followed(output: Path):
    def write() -> None:
        (output / "step-2").mkdir()
        (output / "step-2" / "weights").write_bytes(b"1234")
        (output / "latest").symlink_to("step-2")
        (output / "step-2" / "same").symlink_to("../latest/weights")

    manifest = run(output, write).manifest
    listed = [entry.path for entry in manifest.listed or ()]
    assert listed == ["latest/same", "latest/weights", "step-2/same", "step-2/weights"]
    assert manifest.bytes == 16


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("nothing", "which is not there"),
        ("link", "which is not there"),
        ("../secret", "outside of the output folder"),
        ("../output/inside", "outside of the output folder"),
        ("/etc/hostname", "holds only on this machine"),
        (".", "a link to a folder that contains it"),
        ("sub/..", "a link to a folder that contains it"),
    ],
)
def test_links_that_would_break_elsewhere_are_refused(output: Path, target: str, reason: str):
    (output.parent / "secret").write_text("x")

    def write() -> None:
        (output / "inside").write_text("x")
        (output / "sub").mkdir()
        (output / "link").symlink_to(target)

    with pytest.raises(OutputError, match=f"'link' .*{reason}"):
        run(output, write)


def test_a_link_by_way_of_another_link_cannot_lead_outside(output: Path):
    (output.parent / "elsewhere" / "deep").mkdir(parents=True)
    (output.parent / "secret").write_text("x")

    def write() -> None:
        (output / "a" / "b" / "c").mkdir(parents=True)
        (output / "top").mkdir()
        (output / "a" / "b" / "c" / "up").symlink_to("../../../top")
        # As text this is a/b/secret; followed, it leaves by way of top.
        (output / "a" / "b" / "c" / "out").symlink_to("up/../../secret")

    with pytest.raises(OutputError, match="outside"):
        run(output, write)


def test_sockets_and_pipes_are_refused_and_do_not_hang(output: Path):
    with pytest.raises(OutputError, match="'pipe' is neither a file nor a folder"):
        run(output, lambda: os.mkfifo(output / "pipe"))
    (output / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        with pytest.raises(OutputError, match="'s' is neither a file nor a folder"):
            run(output, lambda: server.bind(os.path.relpath(output / "s")))


def test_a_name_that_is_not_utf8_is_refused(output: Path):
    with pytest.raises(OutputError, match=r"b'\\xff' is not UTF-8"):
        run(output, lambda: open(os.fsencode(output) + b"/\xff", "w").close())


def test_a_step_that_removes_its_folder_is_told_so(output: Path):
    with pytest.raises(OutputError, match="removed its own output folder"):
        run(output, lambda: output.rmdir())


def test_a_file_of_many_links_is_read_once(output: Path, monkeypatch: pytest.MonkeyPatch):
    reads: list[bytes] = []
    original = os.read
    monkeypatch.setattr(os, "read", lambda *args: reads.append(original(*args)) or reads[-1])
    (output / "a").write_bytes(b"x")
    os.link(output / "a", output / "b")
    (output / "c").symlink_to("a")
    assert len({entry.sha256 for entry in list_files(str(output))}) == 1
    assert reads == [b"x"]


def test_a_function_is_loaded_by_name():
    assert load_function("os.path:join") is os.path.join
    assert load_function("tests.execution.test_step_body:Poems.verify").__name__ == "verify"
    assert load_function(len) is len


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "poet").mkdir()
    (tmp_path / "poet" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "poet"
    for name in [name for name in sys.modules if name.partition(".")[0] == "poet"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (None, "no_such_poet:write", "there is no module 'no_such_poet'"),
        (None, "no_such_poet.verse:write", "there is no module 'no_such_poet'"),
        (None, "poet.absent:write", "there is no module 'poet.absent'"),
        ("def write(c): ...", "poet.m1:wrote", "poet.m1 has no 'wrote': did you mean 'write'"),
        ("x = 5", "poet.m2:x", "is int, which can't be called: 5"),
        (
            "import jax_does_not_exist",
            "poet.m3:f",
            "importing poet.m3 failed: .*jax_does_not_exist.*Install the package",
        ),
        ("raise ModuleNotFoundError('no', name='jax.numpy')", "poet.m4:f", r"pip install 'marin\[train\]'"),
        ("raise ModuleNotFoundError('no', name='pyarrow')", "poet.m5:f", r"pip install 'marin\[data\]'"),
        ("def (", "poet.m6:f", "importing poet.m6 failed: SyntaxError"),
        ("1 / 0", "poet.m7:f", "importing poet.m7 failed: ZeroDivisionError"),
    ],
)
def test_a_function_that_cannot_be_loaded_says_why(package: Path, source: str | None, name: str, message: str):
    if source is not None:
        module = name.partition(":")[0].rpartition(".")[2]
        (package / f"{module}.py").write_text(source)
    with pytest.raises(ConfigurationError, match=message):
        load_function(name)


def test_a_folder_that_was_put_in_place_of_the_output_folder_keeps_what_is_in_it(output: Path):
    mine = output.parent / "mine"
    mine.mkdir()
    (mine / "poem.txt").write_text("rose")

    def link_instead_of_copying():
        output.rmdir()
        output.symlink_to(mine)

    with pytest.raises(OutputError, match="put a link in place of its output folder"):
        run(output, link_instead_of_copying)
    assert os.listdir(mine) == ["poem.txt"]


def test_a_file_in_place_of_the_output_folder_is_told(output: Path):
    def write_a_file():
        output.rmdir()
        output.write_text("rose")

    with pytest.raises(OutputError, match="put a file in place of its output folder"):
        run(output, write_a_file)


def test_a_field_that_no_record_can_hold_is_refused_and_named(output: Path):
    with pytest.raises(OutputError, match=r"Poems\.titles can't be kept in the record.*surrogates"):
        run(output, lambda: Poems(count=1, titles=("\udcff",)), Poems)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(OutputError, match=r"Poems\.titles can't be kept in the record"):
        run(output, lambda: Poems(count=1, titles=(endless,)), Poems)  # type: ignore[arg-type]


def test_a_child_that_a_step_has_forked_does_not_go_on_as_the_step(output: Path):
    def fork_and_return():
        pid = os.fork()
        if pid == 0:
            return Artifact()
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 1
        assert os.listdir(output) == []
        (output / "a").write_text("parent")
        return Artifact()

    assert run(output, fork_and_return).manifest.files == 1


def test_a_disk_that_is_full_at_the_manifest_is_told_with_the_path(output: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*args: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(manifest_module, "open", full, raising=False)
    with pytest.raises(StorageFullError, match=rf"{output}/\.manifest\.json: no room to write"):
        run(output, lambda: [(output / f"{number}").touch() for number in range(20)] and None)
