import json
import os
import subprocess
import sys
import time
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.execution import provenance
from marin.execution.abbreviation import abbreviated
from marin.execution.drift import compare
from marin.execution.encoding import encode
from marin.execution.provenance import capture
from marin.execution.redaction import (
    redact_command,
    redact_text,
    redact_values,
    redacted_payload,
    redacted_record,
    secret_values,
)
from marin.execution.showing import plain, show
from tests.executors.processes import PATIENCE, eventually

GIT = ["git", "-c", "user.name=Anna", "-c", "user.email=anna@example.org", "-c", "init.defaultBranch=trunk"]


def git(folder: Path, *words: str) -> str:
    return subprocess.run([*GIT, "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run does without what git says too late; here it may take as long as it does on a busy machine."""
    monkeypatch.setattr(provenance, "GIT_SECONDS", PATIENCE)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    (folder / "train.py").write_text("lr = 1\n")
    git(folder, "add", "train.py")
    git(folder, "commit", "-m", "first")
    return folder


def captured(folder: Path, argv: tuple[str, ...] = ("train",), **environ: str) -> dict:
    return capture({"PATH": os.environ["PATH"], **environ}, argv, folder)


def test_a_clean_repository_is_told_by_commit_tree_and_branch(repository: Path):
    told = captured(repository)["git"]
    assert told == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "tree": git(repository, "rev-parse", "HEAD^{tree}"),
        "branch": "trunk",
        "dirty": False,
        "untracked": 0,
    }


def test_a_change_makes_the_tree_another_one_and_undoing_it_brings_it_back(repository: Path):
    clean = captured(repository)["git"]
    (repository / "train.py").write_text("lr = 2\n")
    two = captured(repository)["git"]
    (repository / "train.py").write_text("lr = 3\n")
    three = captured(repository)["git"]
    (repository / "train.py").write_text("lr = 1\n")
    assert (clean["dirty"], two["dirty"], three["dirty"]) == (False, True, True)
    assert len({clean["tree"], two["tree"], three["tree"]}) == 3
    assert captured(repository)["git"] == clean


def test_an_untracked_file_makes_the_repository_dirty_but_not_another_tree(repository: Path):
    clean = captured(repository)["git"]
    (repository / "new.py").write_text("")
    told = captured(repository)["git"]
    assert (told["dirty"], told["untracked"], told["tree"]) == (True, 1, clean["tree"])


def test_the_remote_is_told_without_credentials(repository: Path):
    git(repository, "remote", "add", "origin", "https://anna:hunter22@git.example.org/lab/poems.git")
    assert captured(repository)["git"]["remote"] == "https://***@git.example.org/lab/poems.git"


def test_asking_changes_nothing_in_the_repository(repository: Path):
    (repository / "train.py").write_text("lr = 2\n")
    before = {path: path.stat().st_mtime_ns for path in (repository / ".git").rglob("*") if path.is_file()}
    captured(repository)
    after = {path: path.stat().st_mtime_ns for path in (repository / ".git").rglob("*") if path.is_file()}
    assert before == after


def test_the_repository_of_the_script_counts_and_not_that_of_the_working_folder(repository: Path, tmp_path: Path):
    told = capture({"PATH": os.environ["PATH"]}, [str(repository / "train.py")], tmp_path)
    assert told["git"]["commit"] == git(repository, "rev-parse", "HEAD")


def test_a_repository_named_by_the_environment_of_a_hook_is_not_taken_for_it(repository: Path, tmp_path: Path):
    told = captured(tmp_path, GIT_DIR=str(repository / ".git"))
    assert "git" not in told


@pytest.mark.parametrize("path", ["", "/nonexistent"])
def test_without_git_the_rest_is_told(repository: Path, path: str):
    told = capture({"PATH": path}, ["train"], repository)
    assert "git" not in told
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_repository_without_a_commit_is_told_as_none(tmp_path: Path):
    git(tmp_path, "init")
    assert "git" not in captured(tmp_path)


def test_git_that_hangs_is_given_up_with_all_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(provenance, "GIT_SECONDS", 1.0)
    stub = tmp_path / "bin" / "git"
    stub.parent.mkdir()
    stub.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nsleep 1000 & echo $! >> {tmp_path}/pids\nwait\n")
    stub.chmod(0o755)
    told = capture({"PATH": f"{stub.parent}:{os.environ['PATH']}"}, ["train"], tmp_path)
    assert "git" not in told
    assert told["host"]
    # On a busy machine it may be given up before it has told who it is.
    pids = (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []
    eventually(lambda: not any(map(lives, pids)))


def lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_working_folder_that_is_gone_fails_nothing(tmp_path: Path):
    told = captured(tmp_path / "gone")
    assert told["command"] == ["train"]


def test_versions_of_packages_that_matter_and_are_installed_are_told(tmp_path: Path):
    packages = captured(tmp_path)["packages"]
    assert "marin" in packages
    assert all(packages.values())


def test_all_of_it_is_json(repository: Path):
    told = captured(repository)
    assert json.loads(json.dumps(told)) == told


def test_secrets_of_the_command_line_are_left_out_by_name_and_by_value(tmp_path: Path):
    argv = ("train.py", "--wandb-token", "abc", "--lr=3", "--note", "use hunter2222 here", "--apiKey=xyz")
    told = captured(tmp_path, argv, MY_SECRET="hunter2222")
    assert told["command"] == ["train.py", "--wandb-token", "***", "--lr=3", "--note", "use *** here", "--apiKey=***"]


def test_everyday_words_of_language_models_are_no_secrets():
    argv = ["--tokenizer", "bytes", "--max-tokens", "8", "--eos-tokens=3", "--monkey", "banana"]
    assert redact_command(argv) == argv
    config = {"eos_token": "</s>", "text_key": "text", "tokenizer": "bytes", "add_bos_token": True, "num_tokens": 4}
    assert redact_values(config) == config


def test_a_flag_that_is_followed_by_an_option_hides_nothing():
    assert redact_command(["--use-token", "--lr", "3"]) == ["--use-token", "--lr", "3"]


def test_values_of_config_keys_that_name_a_secret_are_left_out():
    config = {
        "hf_token": "abc",
        "wandb": {"apiKey": "abc", "entity": "lab"},
        "logins": [{"Password": "abc"}],
        "token": "",
    }
    told = redact_values(config)
    assert told == {
        "hf_token": "***",
        "wandb": {"apiKey": "***", "entity": "lab"},
        "logins": [{"Password": "***"}],
        "token": "",
    }


def test_tokens_of_well_known_make_and_signatures_are_left_out():
    assert redact_text("hf_" + "a" * 30) == "***"
    assert redact_text("https://b.s3.amazonaws.com/x?X-Amz-Signature=abc&y=1") == (
        "https://b.s3.amazonaws.com/x?X-Amz-Signature=***&y=1"
    )
    assert redact_text("git@github.com:lab/poems.git") == "git@github.com:lab/poems.git"


def test_short_values_and_working_folders_of_the_environment_are_no_secrets():
    assert (
        secret_values(
            {"DEBUG_KEY": "1", "PWD": "/home/anna", "OLDPWD": "/home/anna", "TOKENIZERS_PARALLELISM": "false"}
        )
        == ()
    )


@given(st.text(min_size=6), st.text(), st.text())
def test_a_secret_of_the_environment_is_never_in_the_command(secret: str, before: str, after: str):
    shown = redact_command([before + secret + after], secret_values({"API_TOKEN": secret}))
    assert all(secret not in word.replace("***", "\0") for word in shown)


@pytest.mark.parametrize("text", ["x", "?", "&", "a://", "hf_", "?token", ":", "A1+.-"])
def test_redacting_takes_time_in_proportion_to_the_text(text):
    def seconds(length):
        long = text * (length // len(text))
        times = []
        for _ in range(3):
            begin = time.thread_time()
            redact_text(long)
            times.append(time.thread_time() - begin)
        return min(times)

    # Linear would be 8 times; a pattern that is quadratic, 64 times. The pause is against noise on short times.
    assert seconds(100_000) < 32 * (seconds(12_500) + 0.002)


@dataclass(frozen=True)
class Login:
    password: object = None


class Named(NamedTuple):
    api_key: object


class Keys(StrEnum):
    PASSWORD = "password"


SECRET = "hunter22-secret"
VALUES = [
    SECRET,
    [SECRET],
    (SECRET, 1),
    {SECRET},
    SECRET.encode(),
    Path(SECRET),
    {"inner": {"deep": SECRET}},
    Login(Named(SECRET)),
    partial(len, SECRET),
    8675309,
    86753.09,
]
HOLDERS = [
    lambda secret: {"password": secret},
    lambda secret: {"api_keys": secret, "lr": 0.1},
    lambda secret: OrderedDict(hf_token=secret),
    lambda secret: defaultdict(str, {"password": secret, 3: 1}),
    lambda secret: MappingProxyType({"password": secret, 3: 1}),
    lambda secret: SimpleNamespace(password=secret),
    lambda secret: {"password": secret, 3: "mixed"},
    lambda secret: {b"password": secret},
    lambda secret: {Keys.PASSWORD: secret, 3: 1},
    lambda secret: [("password", secret)],
    lambda secret: [["Authorization", secret]],
    lambda secret: Login(password=secret),
    lambda secret: Named(api_key=secret),
    lambda secret: partial(print, password=secret),
    lambda secret: {"nested": (OrderedDict(inner=Login(secret)),)},
]


@given(st.sampled_from(VALUES), st.sampled_from(HOLDERS))
def test_no_value_under_the_key_of_a_secret_is_seen_whatever_its_type_and_its_holder(value, holder):
    encoded: Any = encode(holder(value), "config")
    kept = redact_values(encoded)
    shown = [json.dumps(kept), repr(plain(kept)), show(kept), abbreviated(holder(value))]
    for text in shown:
        assert not [trace for trace in (SECRET, SECRET.encode().hex(), "8675309", "86753.09") if trace in text], text
    assert redact_values(kept) == kept
    assert compare({"config": kept}, {"config": redact_values(encode(holder("other"), "config"))}) == ()

    # The quick look at the whole finds all that the look at each part does.
    assert redacted_payload({"config": encoded}, ()) == {"config": kept}


TRICKY = [
    "password", "pass_word", "apiKey", "API-KEY", "\u212aey", "hf_token", "secret", "cookies", "token",
    "Authorization", "https://anna:pw@host/x", "s3:/anna:pw@b/x", "x?sig=abc", "a=b", "hf_" + "a" * 20,
    "sk-" + "b" * 20, "ghp_" + "c" * 20, "glpat-" + "d" * 20, "github_pat_" + "e" * 20, "hunter22", 'hunter"22',
    "hunter\\22", "hünter22", "lr", "poems", "1",
]  # fmt: skip
TEXTS = (
    st.sampled_from(TRICKY) | st.text(max_size=8) | st.tuples(st.sampled_from(TRICKY), st.text(max_size=3)).map("".join)
)
TREES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=500)
@given(st.dictionaries(TEXTS, TREES, max_size=3))
def test_a_payload_is_redacted_part_by_part_or_has_nothing_to_redact(payload: dict[str, Any]):
    secrets = ("hunter22", 'hunter"22', "hunter\\22", "hünter22")
    assert redacted_payload(payload, secrets) == redact_values(payload, secrets)


def test_words_in_a_list_and_switches_and_what_is_not_set_are_no_secrets():
    config = {"columns": ["key", "value"], "use_auth_token": True, "password": None, "dict": [["lr", 1], "odd", []]}
    assert redact_values(config) == config


def test_code_in_a_record_is_shown_as_it_is():
    record = {"build": {"code": {"modules": {"lab.credentials": {"definitions": {"f": "0a"}}}}, "config": {"token": 1}}}
    shown = redacted_record(record, ())
    assert shown["build"] == {"code": record["build"]["code"], "config": {"token": "***"}}


@pytest.mark.parametrize(
    "config",
    [
        SECRET.encode(),
        bytearray(b"x" + SECRET.encode()),
        {SECRET: 1},
        {SECRET: 1, 3: 2},
        {f"a{SECRET}": {SECRET: b"1"}},
    ],
)
def test_a_secret_value_is_found_in_bytes_and_in_keys(config):
    payload = redacted_payload({"config": encode({"v": config}, "config")}, (SECRET,))
    for text in (json.dumps(payload), repr(plain(payload["config"])), show(payload["config"])):
        assert not [trace for trace in (SECRET, SECRET.encode().hex()) if trace in text], text
