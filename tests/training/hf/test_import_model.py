"""Models of the hub, from a server on this machine that speaks its protocol."""

import json
import os
import subprocess
import sys

import pytest

from marin.errors import ConfigurationError
from marin.execution.fingerprint import encode
from marin.execution.materialize import materialized_config
from marin.experiment.models import hf_model
from marin.processing.tokenize.encoder import load_encoder
from marin.processing.tokenize.tokenizers import parse_tokenizer
from marin.training.hf.export import export_hf
from tests.processing.hub import Hub
from tests.training.hf.models import MODELS, lively_params

CHILD = """
import json, sys
from dataclasses import asdict
from marin.errors import MarinError
from marin.training.hf.hf_model import HfModelConfig
from marin.training.hf.import_model import import_model

try:
    where = {"output_path": sys.argv[1], "hf_id": "org/poems", "revision": "main", "path": None}
    made = import_model(HfModelConfig(**where, tokenizer=None))
except MarinError as fault:
    print(json.dumps({"fault": str(fault)}))
else:
    made.verify()
    print(json.dumps(asdict(made)))
"""

CONFIG = MODELS["grouped-query"]


def imported(hub, folder):
    """In a process of its own: the hub's client reads its address when it is imported."""
    environ = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1"}
    (folder / "out").mkdir(exist_ok=True)
    command = [sys.executable, "-c", CHILD, str(folder / "out")]
    child = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A repository in shards, with a tokenizer, a pickle, and tensors of another form."""
    folder = tmp_path_factory.mktemp("theirs") / "model"
    identity = load_encoder(parse_tokenizer("bytes")).identity
    export_hf(lively_params(CONFIG), CONFIG, str(folder), tokenizer=identity, max_shard_bytes=60_000)
    beside = {"pytorch_model.bin": b"pickle", "original/consolidated.safetensors": b"others", "README.md": b"# Poems"}
    return {**{path.name: path.read_bytes() for path in folder.iterdir()}, **beside}


def test_one_commit_is_imported_with_its_tokenizer_and_only_what_is_needed_is_fetched(files, tmp_path):
    hub = Hub(files)
    with hub.serve():
        made = imported(hub, tmp_path)
    assert made["source"] == f"hf://org/poems@{'a' * 40}"
    assert made["tokenizer"]["kind"] == "hub"
    assert (made["tokenizer"]["location"], made["tokenizer"]["revision"]) == ("org/poems", "a" * 40)
    assert made["tokenizer"]["eos_id"] == 256
    assert made["num_params"] == CONFIG.num_params(300)
    fetched = {path.split("/resolve/")[1].split("/", 1)[1] for path in hub.requests if "/resolve/" in path}
    assert fetched == files.keys() - {"pytorch_model.bin", "original/consolidated.safetensors", "README.md"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "params.safetensors",
        "checkpoint.json",
        "tokenizer",
    }


def test_what_can_not_be_computed_is_told_before_a_tensor_is_fetched(files, tmp_path):
    config = {**json.loads(files["config.json"]), "hidden_act": "relu2"}
    hub = Hub({**files, "config.json": json.dumps(config).encode()})
    with hub.serve():
        fault = imported(hub, tmp_path)["fault"]
    assert f"hf://org/poems@{'a' * 40}/config.json: hidden_act='relu2' is not supported" in fault
    assert not any("safetensors" in path for path in hub.requests if "/resolve/" in path and "index" not in path)


def test_an_interrupted_import_goes_on_with_the_same_commit_and_what_has_arrived(files, tmp_path):
    last = sorted(name for name in files if name.startswith("model-"))[-1]
    hub = Hub(files)
    hub.damaged = {last: files[last].swapcase()}
    with hub.serve():
        assert f"{last} arrived damaged" in imported(hub, tmp_path)["fault"]
        hub.damaged, hub.commit, hub.requests = {}, "b" * 40, []
        made = imported(hub, tmp_path)
    assert made["source"].endswith("a" * 40)
    assert [path.rsplit("/", 1)[1] for path in hub.requests if "/resolve/" in path] == [last]


def test_the_handle_says_where_the_model_is_from():
    config = materialized_config(hf_model("models/gpt2", "openai-community/gpt2", "main", version="2026.07.01"))
    assert (config.hf_id, config.revision, config.path) == ("openai-community/gpt2", "main", None)
    other = materialized_config(hf_model("models/gpt2", "openai-community/gpt2", "v2", version="2026.07.01"))
    assert encode(config, "config") != encode(other, "config")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"give the model once, .* none is given"),
        ({"hf_id": "a/b", "revision": "main", "path": "x"}, r"both are given"),
        ({"hf_id": "a/b"}, r"revision=None is no commit, tag or branch; for the newest say 'main'"),
        ({"hf_id": "./a/b", "revision": "main"}, r"hf_id='./a/b' is no id of the hub"),
        ({"path": "x", "revision": "main"}, r"revision='main' is of the hub; a path has none"),
    ],
)
def test_a_model_that_is_not_said_is_told_at_construction(given, message):
    with pytest.raises(ConfigurationError, match=message):
        hf_model("models/it", version="2026.07.01", **given)
