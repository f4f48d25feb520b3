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

import pytest

from marin.errors import ConfigurationError
from marin.processing.inputs import choose_files
from marin.processing.sources import HubSource, hf
from tests.processing.hub import Hub
from tests.processing.tokenize.small import vocabulary

FILES = {
    "README.md": b"# Poems",
    "data/train-00001.jsonl": b'{"text": "second"}\n',
    "data/train-00000.jsonl": b'{"text": "first"}\n',
    "data/validation.jsonl": b'{"text": "held out"}\n',
    "tokenizer.json": vocabulary().encode(),
    "tokenizer_config.json": b'{"eos_token": "<s>"}',
}

CHILD = """
import json, sys
from marin.errors import DataError
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
        validation=hf(repository, split="validation"),
        tokenizer=parse_tokenizer(tokenizer),
    ))
except DataError as fault:
    print(json.dumps({"fault": str(fault)}))
else:
    texts = [ByteEncoder().decode(TokenCache.open(output_path, split).tokens(0, made.splits[split].tokens))
             for split in ("train", "validation")] if tokenizer == "bytes" else None
    print(json.dumps({"texts": texts, "sources": made.sources, "revision": made.tokenizer.revision,
                      "eos": made.tokenizer.eos_token, "location": made.tokenizer.location}))
"""


def tokenize(hub: Hub, folder: Path, *, repository: str = "org/poems", tokenizer: str = "bytes") -> dict[str, object]:
    environ = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1"}
    environ.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-c", CHILD, repository, tokenizer, str(folder / "out")]
    child = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
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
    broken = rf"hf://datasets/org/poems@{'a' * 40}/data/validation\.jsonl, line 1, byte 0: not JSON"
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
    assert "dataset 'org/songs' can't be read from the hub" in str(source["fault"])
    assert "'hf auth login'; a path is written './org/songs'" in str(source["fault"])
    assert "tokenizer 'org/songs' can't be downloaded from the hub" in str(tokenizer["fault"])


def test_a_hub_that_can_not_be_reached_is_a_clear_error(tmp_path: Path):
    hub = Hub(FILES, endpoint="http://127.0.0.1:1")
    assert "can't be read from the hub" in str(tokenize(hub, tmp_path)["fault"])


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
