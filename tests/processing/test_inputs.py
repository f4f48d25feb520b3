"""Sources from the hub, read from a server on this machine that speaks its protocol.

The child processes are there because the hub's client reads its address when it is imported.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin.errors import ConfigurationError
from marin.processing.inputs import choose_files
from marin.processing.sources import HubSource, hf
from tests.executors.processes import PATIENCE
from tests.processing.hub import Hub
from tests.processing.tokenize.small import vocabulary, vocabulary_file

FILES = {
    "README.md": b"# Poems",
    "data/train-00001.jsonl": b'{"text": "second"}\n',
    "data/train-00000.jsonl": b'{"text": "first"}\n',
    "data/validation.jsonl": b'{"text": "held out"}\n',
    "tokenizer.json": vocabulary().encode(),
    "tokenizer_config.json": b'{"eos_token": "<s>"}',
}

CHILD = """
import json, sys, time
from marin.processing import retrying
slept = []
time.sleep = slept.append  # of the client, and of ours:
retrying.Retries.__init__.__kwdefaults__["wait"] = lambda stop, seconds: slept.append(seconds)
from marin.errors import MarinError
from marin.processing.sources import hf, parse_source
from marin.processing.tokenize.build import tokenize
from marin.processing.tokenize.cache import TokenCache
from marin.processing.tokenize.encoder import ByteEncoder
from marin.processing.tokenize.tokenize import TokenizeConfig
from marin.processing.tokenize.tokenizers import parse_tokenizer

repository, tokenizer, output_path = sys.argv[1:]
try:
    made = tokenize(TokenizeConfig(
        output_path=output_path,
        source=parse_source(repository),
        validation=hf(repository.removeprefix("hf://datasets/"), split="validation"),
        tokenizer=parse_tokenizer(tokenizer),
    ))
except MarinError as fault:
    print(json.dumps({"fault": str(fault), "kind": type(fault).__name__, "slept": sum(slept)}))
else:
    texts = [ByteEncoder().decode(TokenCache.open(output_path, split).tokens(0, made.splits[split].tokens))
             for split in ("train", "validation")] if tokenizer == "bytes" else None
    print(json.dumps({"texts": texts, "sources": made.sources, "revision": made.tokenizer.revision,
                      "eos": made.tokenizer.eos_token, "location": made.tokenizer.location}))
"""


def tokenize(
    hub: Hub, folder: Path, *, repository: str = "org/poems", tokenizer: str = "bytes", offline: bool = False
) -> dict[str, Any]:
    environ = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1"}
    environ.pop("HF_HUB_OFFLINE", None)
    environ |= {"HF_HUB_OFFLINE": "1"} if offline else {}
    command = [sys.executable, "-c", CHILD, repository, tokenizer, str(folder / "out")]
    child = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def test_a_hub_source_is_read_at_one_commit_which_is_recorded_and_its_files_are_not_kept(tmp_path: Path):
    hub = Hub(FILES)
    with hub.serve():
        made = tokenize(hub, tmp_path)
    assert made["texts"] == ["firstsecond", "held out"]
    assert made["sources"] == [f"hf://datasets/org/poems@{'a' * 40}"] * 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["manifest.json", "train", "validation"]
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    names = [each["name"] for part in manifest["parts"] for each in part["inputs"]]
    assert names[0] == f"hf://datasets/org/poems@{'a' * 40}/data/train-00000.jsonl"


def test_an_attempt_that_goes_on_keeps_the_commit_and_the_files_of_the_first(tmp_path: Path):
    hub = Hub({**FILES, "data/validation.jsonl": b"broken\n"})
    broken = rf"hf://datasets/org/poems@{'a' * 40}/data/validation\.jsonl, line 1, byte 0: broken JSON"
    with hub.serve():
        assert re.match(broken, str(tokenize(hub, tmp_path)["fault"]))
        assert (tmp_path / "out/downloads").is_dir()
        hub.commit = "b" * 40
        hub.requests.clear()
        assert re.match(broken, str(tokenize(hub, tmp_path)["fault"]))
    assert not [path for path in hub.requests if "resolve" in path]


def test_a_tokenizer_from_the_hub_brings_its_commit_and_its_end_of_text(tmp_path: Path):
    hub = Hub(FILES)
    with hub.serve():
        made = tokenize(hub, tmp_path, tokenizer="org/poems")
    assert (made["location"], made["revision"], made["eos"]) == ("org/poems", "a" * 40, "<s>")
    assert (tmp_path / "out/tokenizer.json").read_text() == vocabulary()


def test_a_tokenizer_from_the_hub_may_have_no_config(tmp_path: Path):
    hub = Hub({name: data for name, data in FILES.items() if name != "tokenizer_config.json"})
    with hub.serve():
        assert tokenize(hub, tmp_path, tokenizer="org/poems")["eos"] == "<|endoftext|>"


def test_a_repository_that_is_not_there_is_named_with_the_ways_out(tmp_path: Path):
    hub = Hub(FILES)
    with hub.serve():
        source = tokenize(hub, tmp_path, repository="org/songs")
        tokenizer = tokenize(hub, tmp_path, tokenizer="org/songs")
    missing = (
        "can't be read from the hub: there is no such repository: check the id; a private one needs 'hf auth login'"
    )
    assert source["fault"] == (
        "source 'org/songs': a path is written './org/songs' or files('org/songs'); "
        f"as a hub id, dataset 'org/songs' {missing}"
    )
    assert tokenizer["fault"] == (f"tokenizer 'org/songs': a path is written './org/songs'; as a hub id, it {missing}")


def test_a_folder_of_the_same_name_is_told_before_the_hub_is_asked(tmp_path: Path):
    hub = Hub(FILES)
    (tmp_path / "org/poems").mkdir(parents=True)
    with hub.serve():
        source = tokenize(hub, tmp_path, tokenizer="org/poems")
        assert hub.requests == []
        # Written outright it is the hub's.
        assert tokenize(hub, tmp_path, repository="hf://datasets/org/poems")["texts"] == ["firstsecond", "held out"]
    assert source["kind"] == "ConfigurationError"
    assert source["fault"] == (
        f"source 'org/poems' has the form of a hub id, but a folder of that name lies at {tmp_path}/org/poems: "
        "write './org/poems' or files('org/poems'); for the data set of the hub write hf('org/poems')"
    )


def test_a_tokenizer_of_the_same_name_is_told_before_the_hub_is_asked(tmp_path: Path):
    hub = Hub(FILES)
    vocabulary_file(tmp_path / "org/poems")
    with hub.serve():
        made = tokenize(hub, tmp_path, repository="hf://datasets/org/poems", tokenizer="org/poems")
    assert hub.requests == []
    assert f"but there is one at {tmp_path}/org/poems: write './org/poems'" in made["fault"]


def test_a_near_name_here_is_told_of_what_the_hub_does_not_have(tmp_path: Path):
    hub = Hub(FILES)
    (tmp_path / "data/poems").mkdir(parents=True)
    with hub.serve():
        made = tokenize(hub, tmp_path, repository="data/poems2")
    assert f"files('data/poems2') ({tmp_path}/data has 'poems'); as a hub id" in made["fault"]


NOWHERE = Hub(FILES, endpoint="http://127.0.0.1:1")


@pytest.mark.parametrize("asked", [{"repository": "data/poems"}, {"tokenizer": "gpt2"}])
def test_a_hub_that_can_not_be_reached_is_one_clear_line_within_seconds(tmp_path: Path, asked: dict[str, str]):
    made = tokenize(NOWHERE, tmp_path, **asked)
    assert made["slept"] < 10  # seconds; the client alone tries again for 23
    [name] = asked.values()
    reason = "can't be read from the hub: the hub can't be reached ([Errno 111] Connection refused): check the network"
    assert made["kind"] == "HubUnreachableError"
    assert name in made["fault"]
    assert made["fault"].index(f"a path is written './{name}'") < made["fault"].index(reason)
    assert "\n" not in made["fault"]
    assert ".." not in made["fault"]


def test_a_tokenizer_that_can_not_be_fetched_says_what_can_be_used_instead(tmp_path: Path):
    made = tokenize(NOWHERE, tmp_path, tokenizer="gpt2")
    ways_out = "It is not in this machine's cache either: give the path of a tokenizer.json, or 'bytes'"
    assert made["fault"].endswith(ways_out)


@pytest.mark.parametrize("asked", [{"repository": "data/poems"}, {"tokenizer": "gpt2"}])
def test_offline_the_hub_is_not_asked(tmp_path: Path, asked: dict[str, str]):
    hub = Hub(FILES)
    with hub.serve():
        made = tokenize(hub, tmp_path, offline=True, **asked)
    assert hub.requests == []
    assert "HF_HUB_OFFLINE is set, which forbids to ask it: unset it, or use files of this machine" in made["fault"]


CACHED = """
import json, sys
from marin.errors import MarinError
from marin.processing.tokenize.encoder import load_encoder
from marin.processing.tokenize.tokenizers import parse_tokenizer

try:
    identity = load_encoder(parse_tokenizer(sys.argv[1])).identity
    print(json.dumps({"revision": identity.revision, "eos": identity.eos_token}))
except MarinError as fault:
    print(json.dumps({"fault": str(fault)}))
"""


def load(hub: Hub, folder: Path, **environ: str) -> dict[str, Any]:
    environ = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), **environ}
    command = [sys.executable, "-c", CACHED, "org/poems"]
    child = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return json.loads(child.stdout)


@pytest.mark.parametrize(("without", "eos"), [("README.md", "<s>"), ("tokenizer_config.json", "<|endoftext|>")])
def test_a_tokenizer_of_the_clients_cache_serves_when_the_hub_does_not(tmp_path: Path, without: str, eos: str):
    hub = Hub({name: data for name, data in FILES.items() if name != without})
    with hub.serve():
        first = load(hub, tmp_path)
    assert first == {"revision": "a" * 40, "eos": eos}
    assert load(NOWHERE, tmp_path) == load(hub, tmp_path, HF_HUB_OFFLINE="1") == first


def test_a_cache_that_may_lack_the_config_is_not_enough(tmp_path: Path):
    hub = Hub(FILES)
    with hub.serve():
        load(hub, tmp_path)
    for config in (tmp_path / "home").rglob("tokenizer_config.json"):
        config.unlink()
    assert "has its tokenizer.json, not its tokenizer_config.json: give '/" in load(NOWHERE, tmp_path)["fault"]


STORIES = [
    ".gitattributes",
    "README.md",
    "TinyStories-train.txt",
    "data/train-00000-of-00002-ab.parquet",
    "data/train-00001-of-00002-cd.parquet",
    "data/validation-00000-of-00001-ef.parquet",
]


@pytest.mark.parametrize(
    ("names", "source", "expected"),
    [
        (STORIES, hf("a/b"), STORIES[3:5]),
        (STORIES, hf("a/b", split="validation"), STORIES[5:]),
        (["a.jsonl.gz", "b.jsonl"], hf("a/b"), ["a.jsonl.gz", "b.jsonl"]),
        (["a.csv", "b.arrow", "c.txt"], hf("a/b"), ["b.arrow"]),
        (["en/train.jsonl", "de/train.jsonl"], hf("a/b", subset="de"), ["de/train.jsonl"]),
        (["poems.jsonl", "dev.jsonl", "test.jsonl"], hf("a/b"), ["poems.jsonl"]),
        (["constrained.jsonl", "latest.jsonl"], hf("a/b"), ["constrained.jsonl", "latest.jsonl"]),
    ],
)
def test_the_files_of_a_split_are_told_by_their_names(names: list[str], source: HubSource, expected: list[str]):
    assert choose_files(names, source) == expected


def test_a_split_without_files_lists_what_there_is():
    with pytest.raises(ConfigurationError, match=r"a/b has no data file of split 'test'; .* TinyStories-train\.txt"):
        choose_files(STORIES, hf("a/b", split="test"))
