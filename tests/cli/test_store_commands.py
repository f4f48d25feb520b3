import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from marin.execution.code_changes import CODE_SCHEME, RecordedCode, RecordedModule
from marin.execution.identity import parse_artifact_id
from marin.execution.record import record_path
from marin.storage.local import LocalStore
from tests.cli.commands import MARIN, Terminal, environment, marin, script, start, until
from tests.execution.records import STRANGER, attempt, build, put
from tests.executors.processes import PATIENCE


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "marin_store", durable=False)


# ls


def test_ls_of_a_store_that_is_not_there_says_where_it_looked_and_makes_nothing(tmp_path: Path):
    done = marin(tmp_path, "ls")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"nothing is in {tmp_path}/marin_store (default ./marin_store): there is no such store yet" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_ls_tells_state_size_and_time_or_why_not(tmp_path: Path, store: LocalStore):
    put(store, "tokenized/poems@2026.07.01", build())
    put(store, "model@dev", build(), attempt(owner=STRANGER))
    put(store, "bad@dev", attempt=attempt(error="ValueError: no verse\nat all"))
    put(store, "data@2026.07.01", build(data="/data", source="/data", manifest=None))
    lines = [re.split(r"  +", line) for line in marin(tmp_path, "ls").stdout.splitlines()]
    assert lines == [
        ["bad@dev", "failed", "2026-07-02T10:00:00Z", "ValueError: no verse"],
        ["data@2026.07.01", "built", "2026-07-01T10:01:15Z", "adopted from /data"],
        ["model@dev", "rebuilding", "1.5 MB", "2026-07-01T10:01:15Z", "by pid 4 of anna on node7"],
        ["tokenized/poems@2026.07.01", "built", "1.5 MB", "2026-07-01T10:01:15Z"],
    ]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("poems", ["raw/poems", "tokenized/poems"]),
        ("tokenized/*", ["tokenized/poems"]),
        ("*@dev", ["model"]),
        ("x", []),
    ],
)
def test_ls_takes_a_part_of_a_name_or_a_glob(tmp_path: Path, store: LocalStore, pattern: str, names: list[str]):
    for id_ in ("raw/poems@2026.07.01", "tokenized/poems@2026.07.01", "model@dev"):
        put(store, id_, build())
    assert [entry["name"] for entry in json.loads(marin(tmp_path, "ls", pattern, "--json").stdout)] == names


@pytest.mark.parametrize("columns", [40, 200])
def test_ls_on_a_narrow_terminal_keeps_name_and_state(tmp_path: Path, store: LocalStore, columns: int):
    put(store, "tokenized/poems@2026.07.01", build())
    _, text = Terminal(tmp_path, "ls", columns=columns).end()
    assert re.match(r"tokenized/poems@2026\.07\.01  built", text)
    assert ("1.5 MB" in text) == (columns == 200)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_ls_on_a_terminal_cuts_a_long_error_to_the_width(tmp_path: Path, store: LocalStore, columns: int):
    put(store, "bad@dev", attempt=attempt(error="ValueError: " + "no verse " * 40))
    put(store, "good@dev", build())
    _, text = Terminal(tmp_path, "ls", columns=columns).end()
    lines = text.splitlines()
    assert all(len(line) <= columns for line in lines)
    assert re.match(r"bad@dev +failed .*ValueError: no.*…$" if columns > 60 else r"bad@dev +failed", lines[0])
    assert "…" not in marin(tmp_path, "ls").stdout  # a program gets all of it


@pytest.mark.parametrize(
    "words", [("ls",), ("ls", "--json"), ("show", "a"), ("path", "a"), ("log", "a"), ("rm", "a@dev")]
)
def test_a_store_that_is_named_but_not_there_is_an_error(tmp_path: Path, words: tuple[str, ...]):
    done = marin(tmp_path, *words, "--prefix", tmp_path / "stor")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"error: there is no store at {tmp_path}/stor \(--prefix\).*\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_store_is_no_error(tmp_path: Path):
    (tmp_path / "store").mkdir()
    done = marin(tmp_path, "ls", "--prefix", "store")
    assert (done.returncode, done.stderr) == (0, f"nothing is in {tmp_path}/store (--prefix)\n")


def test_ls_survives_a_torn_record(tmp_path: Path, store: LocalStore):
    put(store, "good@dev", build())
    store.write("torn/dev/.artifact.json", b"{")
    done = marin(tmp_path, "ls")
    assert done.returncode == 0
    assert re.search(r"^torn@dev +unreadable .*torn/dev/\.artifact\.json is not a record", done.stdout, re.MULTILINE)


# show


def test_show_tells_all_and_no_secrets(tmp_path: Path, store: LocalStore):
    config = {
        "language": "fr",
        "api_key": "hunter2222",
        "note": "s3cr3t-value here",
        "deep": {"sizes": list(range(50))},
    }
    log = "model/2026.07.01/.logs/b1.log"
    store.write(log, b"")
    put(
        store,
        "model@2026.07.01",
        build(config=config, deps=("tokens@2026.07.01",), log=log, provenance={"user": "anna"}),
    )
    put(store, "report@2026.07.01", build(deps=("model@2026.07.01",)))
    done = marin(tmp_path, "show", "model@2026.07.01", MY_TOKEN="s3cr3t-value")
    assert done.returncode == 0
    for part in (
        "  state         built\n",
        f"  data          {store.root}/model/2026.07.01\n",
        "  built         2026-07-01T10:01:15Z in 1 min 15 s\n",
        "  size          1.5 MB in 2 files, sha256 0000000000000000\n",
        "  fingerprint   1:abcdef0123456789\n",
        "    tokens@2026.07.01 (build b1)\n",
        "    language: fr\n",
        "    api_key: ***\n",
        "    note: *** here\n",
        "  result\n    lines: 7\n",
        "    user: anna\n",
        "  used by\n    report@2026.07.01\n",
        f"  log           {store.root}/{log}\n",
    ):
        assert part in done.stdout
    assert done.stderr == ""
    as_json = marin(tmp_path, "show", "model", "--json", MY_TOKEN="s3cr3t-value")
    assert json.loads(as_json.stdout)["fingerprint"] == "1:abcdef0123456789"
    for secret in ("hunter2222", "s3cr3t-value"):
        assert secret not in done.stdout + as_json.stdout


def test_show_names_the_code_that_an_artifact_was_built_with(tmp_path: Path, store: LocalStore):
    definitions = {"clean": "function:00112233aabbccdd", "LIMIT": "constant:0123456789abcdef"}
    code = RecordedCode(
        scheme=CODE_SCHEME,
        modules={"poems.helpers": RecordedModule(file="poems/helpers.py", definitions=definitions)},
        distributions={"numpy": "2.1.0"},
        unknown={"poems.fast": "fast.so has no source"},
    )
    put(store, "model@2026.07.01", build(code=code))
    shown = marin(tmp_path, "show", "model@2026.07.01").stdout
    assert "  code\n    poems.helpers: clean, LIMIT\n" in shown
    assert "  packages\n    numpy: 2.1.0\n" in shown
    assert "  no source\n    poems.fast: fast.so has no source\n" in shown


def test_show_of_what_is_being_built_or_failed_says_by_whom_and_why(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", attempt=attempt(owner=STRANGER))
    put(store, "bad@dev", attempt=attempt(error="ValueError: no", frame="poems.py:12 in write"))
    assert "  builder       pid 4 of anna on node7\n" in marin(tmp_path, "show", "model@dev").stdout
    bad = marin(tmp_path, "show", "bad@dev").stdout
    assert "  error         ValueError: no\n  at            poems.py:12 in write\n" in bad


def test_the_fingerprint_that_show_prints_can_be_expected(tmp_path: Path):
    path = script(tmp_path, "model = poems(version='2026.07.01')\n")
    marin(tmp_path, "run", path)
    fingerprint = json.loads(marin(tmp_path, "show", "raw/poems", "--json").stdout)["fingerprint"]
    path.write_text(path.read_text().replace("'2026.07.01')", f"'2026.07.01', expected_fingerprint='{fingerprint}')"))
    assert marin(tmp_path, "run", path).returncode == 0
    path.write_text(path.read_text().replace(fingerprint[:10], "1:00000000"))
    done = marin(tmp_path, "run", path)
    assert done.returncode == 1
    assert "error: raw/poems@2026.07.01: the recipe has fingerprint" in done.stderr


def test_a_name_without_version_is_the_newest_fixed_one_and_says_so(tmp_path: Path, store: LocalStore):
    for version in ("2026.07.01.2", "2026.07.01.10", "dev"):
        put(store, f"model@{version}", build())
    done = marin(tmp_path, "path", "model")
    assert done.stdout == f"{store.root}/model/2026.07.01.10\n"
    said, gone = done.stderr.splitlines()
    assert said == "model: the newest fixed version is 2026.07.01.10"
    assert gone.startswith("note: model@2026.07.01.10: the record says that it was built")  # and nothing lies there


# path


def test_path_prints_the_path_of_the_data_and_nothing_else(tmp_path: Path):
    path = script(tmp_path, "model = poems()\n")
    marin(tmp_path, "run", path)
    done = marin(tmp_path, "path", "raw/poems@dev")
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
    assert (Path(done.stdout.strip()) / "poems.txt").read_text() == "vers\n" * 3


def test_path_of_what_is_not_built_is_an_error_with_nothing_on_stdout(tmp_path: Path, store: LocalStore):
    put(store, "bad@dev", attempt=attempt(error="no"))
    for artifact in ("bad@dev", "nothing"):
        done = marin(tmp_path, "path", artifact)
        assert (done.returncode, done.stdout) == (1, "")
        assert "error: " in done.stderr


def test_path_of_what_has_failed_says_why_and_where_the_log_is(tmp_path: Path, store: LocalStore):
    put(
        store,
        "bad@dev",
        attempt=attempt(error="ValueError: no\nverse", frame="poems.py:12 in write", log="bad/dev/.logs/a1.log"),
    )
    store.write("bad/dev/.logs/a1.log", b"Traceback\n")
    assert marin(tmp_path, "path", "bad@dev").stderr.splitlines() == [
        "error: bad@dev has no complete build: it is failed",
        "  ValueError: no",
        "  at poems.py:12 in write",
        f"  log {store.root}/bad/dev/.logs/a1.log",
    ]


# log


def test_log_prints_what_the_step_wrote(tmp_path: Path):
    text = "def chatty(config):\n    print('vers un', flush=True)\n    return write(config)\n"
    marin(tmp_path, "run", script(tmp_path, f"{text}model = poems(run=remote(chatty))\n"))
    done = marin(tmp_path, "log", "raw/poems@dev")
    assert done.stdout == "vers un\n"
    assert "log of raw/poems@dev: " in done.stderr


@pytest.mark.parametrize("written", [b"", None])
def test_log_that_is_empty_says_so(tmp_path: Path, store: LocalStore, written: bytes | None):
    put(store, "model@dev", build(log="model/dev/.logs/b1.log"))
    if written is not None:
        store.write("model/dev/.logs/b1.log", written)
    done = marin(tmp_path, "log", "model@dev")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[1:] == ["the log is empty"]


def test_log_of_a_step_without_one_says_why(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", build())
    done = marin(tmp_path, "log", "model@dev")
    assert done.returncode == 1
    assert "error: model@dev has no log: its step ran inside the process of the run" in done.stderr


def test_log_follows_until_the_attempt_ends(tmp_path: Path):
    go = tmp_path / "go"
    text = (
        "def chatty(config):\n    print('first', flush=True)\n"
        f"    while not Path({str(go)!r}).exists():\n        time.sleep(0.02)\n"
        "    print('last', flush=True)\n    return write(config)\n"
    )
    runner = start(tmp_path, "run", script(tmp_path, f"{text}model = poems(run=remote(chatty))\n"))
    record = tmp_path / "marin_store/raw/poems/dev/.artifact.json"
    until(record.exists, "the step is being built")
    with (tmp_path / "followed").open("wb") as output:
        log = [*MARIN, "log", "-f", "raw/poems@dev"]
        follower = subprocess.Popen(log, cwd=tmp_path, env=environment(), stdout=output, stderr=subprocess.DEVNULL)
    until(lambda: (tmp_path / "followed").read_text() == "first\n", "the first line is followed")
    assert follower.poll() is None
    go.touch()
    assert follower.wait(PATIENCE) == 0
    assert (tmp_path / "followed").read_text() == "first\nlast\n"
    runner.communicate()
    assert runner.returncode == 0


def test_log_stops_following_a_builder_that_was_killed(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", attempt=attempt(log="model/dev/.logs/a1.log"))
    store.write("model/dev/.logs/a1.log", b"first\n")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = attempt().lease.owner
    living = type(owner)(**{**vars(owner), "pid": child.pid, "started": 0})
    put(store, "model@dev", attempt=attempt(owner=living, log="model/dev/.logs/a1.log"))
    follower = start(tmp_path, "log", "-f", "model@dev")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "first\n"
    assert follower.poll() is None
    child.kill()
    child.communicate()
    follower.communicate(timeout=PATIENCE)
    assert follower.returncode == 0


# rm


def test_rm_moves_to_the_trash_and_says_where(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", build())
    done = marin(tmp_path, "rm", "model@dev", "--yes")
    assert done.returncode == 0
    place = re.fullmatch(r"model@dev is now in (\S+); to bring it back, move that folder to (\S+)\n", done.stdout)
    assert place is not None
    os.rename(*place.groups())
    assert marin(tmp_path, "path", "model").returncode == 0


def test_rm_without_a_terminal_needs_yes(tmp_path: Path, store: LocalStore):
    id_ = put(store, "model@dev", build())
    done = marin(tmp_path, "rm", "model@dev")
    assert done.returncode == 2
    assert "Remove model@dev (built, 1.5 MB)? There is no terminal to ask on: say --yes" in done.stderr
    assert store.read(record_path(id_.address)) is not None


@pytest.mark.parametrize(("answer", "removed"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_rm_asks_on_a_terminal(tmp_path: Path, store: LocalStore, answer: str, removed: bool):
    id_ = put(store, "model@dev", build())
    terminal = Terminal(tmp_path, "rm", "model@dev")
    terminal.read_until("Remove model@dev (built, 1.5 MB)? [y/N]")
    terminal.type(answer)
    code, _ = terminal.end()
    assert code == (0 if removed else 1)
    assert (store.read(record_path(id_.address)) is None) == removed


def test_rm_names_the_dependents_and_refuses_without_force(tmp_path: Path, store: LocalStore):
    put(store, "tokens@2026.07.01", build())
    put(store, "model@2026.07.01", build(deps=("tokens@2026.07.01",)))
    for words in (["--yes"], []):
        done = marin(tmp_path, "rm", "tokens@2026.07.01", *words)
        assert done.returncode in (1, 2)
        assert "model@2026.07.01 was made from" in done.stderr
    terminal = Terminal(tmp_path, "rm", "tokens@2026.07.01", "--force", columns=200)
    terminal.read_until("model@2026.07.01 was made from it. [y/N]")
    terminal.type("y\n")
    assert terminal.end()[0] == 0
    assert store.read(record_path(parse_artifact_id("tokens@2026.07.01").address)) is None


def test_rm_of_what_is_being_built_is_refused(tmp_path: Path, store: LocalStore):
    put(store, "model@dev", build(), attempt(owner=STRANGER))
    done = marin(tmp_path, "rm", "model@dev", "--yes", "--force")
    assert done.returncode == 1
    assert "error: model@dev is being built by pid 4 of anna on node7" in done.stderr
