"""Trainings on several hosts: real processes on this machine, which meet and compute over the network.

What is asked of each is cheap, so that one test asks a lot of one training: to start its processes is what takes time.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import marin
from marin.errors import ConfigurationError
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.mesh_config import MeshConfig
from marin.training.trainer import train
from tests.executors.hosts import free_port
from tests.training.caches import cycle, make_cache
from tests.training.runs import read_until, start, train_config, wait_for_checkpoint

VOCAB = 32
STEPS = 16


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caches")
    return make_cache(folder / "text", cycle(VOCAB, 3000), cycle(VOCAB, 300, seed=1), vocab_size=VOCAB)


def config_of(output, cache, **changes):
    choices = {"eval_every": 8, "checkpoints": CheckpointPolicy(every=STEPS), **changes}
    return train_config(output, cache, num_train_steps=STEPS, batch_size=16, **choices)


def start_hosts(folder, *configs, hosts=2, devices=4, **variables):
    """One process for each host, with a config of its own if there are several."""
    address = f"127.0.0.1:{free_port()}"
    processes = []
    for host in range(hosts):
        place = {"MARIN_HOSTS": str(hosts), "MARIN_HOST": str(host), "MARIN_COORDINATOR": address}
        processes.append(start(folder, configs[host % len(configs)], devices=devices, variables={**place, **variables}))
    return processes


def held_after(step, folder):
    """Variables by which the first host waits after ``step``, so that something else can happen before the end."""
    return {"HOLD_AFTER": str(step), "HOLD_UNTIL": str(folder / "go-on")}


def go_on(folder):
    (folder / "go-on").touch()


def ended(processes):
    """How each ended, and what it said."""
    said = []
    for process in processes:
        with process:
            said.append(process.stdout.read())
    return [process.returncode for process in processes], said


def train_on_hosts(folder, config, **choices):
    codes, said = ended(start_hosts(folder, config, **choices))
    assert codes == [0] * len(codes), "\n----\n".join(said)
    return said


def told(output):
    lines = (Path(output) / "metrics.jsonl").read_text().splitlines()
    measured = {"tokens_per_second", "resident_bytes"}
    return [{key: value for key, value in json.loads(line).items() if key not in measured} for line in lines]


def last_state(output):
    """All that changes while training, as it was after the last step, by the files that hold it."""
    files = sorted(Path(output).glob(f"checkpoints/step-{STEPS:09}/state-*.safetensors"))
    return {file.name: load_file(file) for file in files}


def assert_equal_to_rounding(one, other):
    for mine, theirs in zip(told(one), told(other), strict=True):
        assert mine == pytest.approx(theirs, rel=0, abs=1e-6), mine["step"]
    mine, theirs = ({k: v for file in last_state(each).values() for k, v in file.items()} for each in (one, other))
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def alone(cache, tmp_path_factory):
    """The training in one process with eight devices."""
    folder = tmp_path_factory.mktemp("alone")
    with start(folder, config_of(folder / "out", cache, mesh=MeshConfig(fsdp=8)), devices=8) as process:
        said = process.stdout.read()
    assert process.returncode == 0, said
    return folder / "out"


MESHES = {
    "data": {"mesh": MeshConfig(data=8)},
    "fsdp in pieces": {"mesh": MeshConfig(fsdp=8), "grad_accumulation": 2},
    "all three": {"mesh": MeshConfig(data=2, fsdp=2, tensor=2)},
    "tensor over hosts": {"mesh": MeshConfig(fsdp=1, tensor=8)},
}


@pytest.mark.parametrize("name", MESHES)
def test_two_hosts_of_four_devices_train_as_one_of_eight(name, alone, cache, tmp_path):
    first, second = train_on_hosts(tmp_path, config_of(tmp_path / "out", cache, **MESHES[name]))
    assert_equal_to_rounding(tmp_path / "out", alone)
    sizes = [sum(array.nbytes for array in file.values()) for file in last_state(tmp_path / "out").values()]
    assert len(sizes) == 2
    assert max(sizes) < 1.5 * min(sizes)  # each writes its part
    assert f"{STEPS} loss" in first
    assert "host 1 of 2: host 0 tells how the training goes" in second
    assert "loss" not in second


def test_a_signal_to_one_host_saves_on_all_and_one_process_goes_on(alone, cache, tmp_path):
    output = tmp_path / "out"
    config = config_of(output, cache, mesh=MeshConfig(fsdp=8))
    first, second = start_hosts(tmp_path, config, **held_after(5, tmp_path))
    read_until(first, "5 loss")
    second.send_signal(signal.SIGTERM)
    go_on(tmp_path)
    codes, said = ended([first, second])
    assert codes == [128 + signal.SIGTERM] * 2, "\n----\n".join(said)
    [stopped] = {step for each in said for step in re.findall(r"SIGTERM after step (\d+) of 16; saved", each)}
    assert 5 <= int(stopped) < STEPS
    [saved] = (output / "resume").iterdir()
    assert sorted(path.name for path in saved.iterdir()) == [
        "complete.json",
        "state-00000-of-00002.safetensors",
        "state-00001-of-00002.safetensors",
    ]
    with start(tmp_path, config, devices=8) as process:
        assert f"resumed after step {stopped} of {STEPS}" in process.stdout.read()
    assert_equal_to_rounding(output, alone)


def test_a_killed_host_ends_the_other_and_two_go_on_from_what_one_has_saved(alone, cache, tmp_path):
    output = tmp_path / "out"
    config = config_of(output, cache, mesh=MeshConfig(fsdp=4, tensor=2))
    often = config_of(output, cache, mesh=MeshConfig(fsdp=8), checkpoints=CheckpointPolicy(seconds=0, every=STEPS))
    with start(tmp_path, often, devices=8, wait_after=5) as process:
        read_until(process, "5 loss")
        wait_for_checkpoint(output)
        process.send_signal(signal.SIGKILL)
    first, second = start_hosts(tmp_path, config, **held_after(9, tmp_path))
    read_until(first, "9 loss")
    second.send_signal(signal.SIGKILL)
    go_on(tmp_path)
    (code, _), (said, _) = ended([first, second])
    assert code == 1, said
    assert "the process of host 1 of 2 ended" in said
    # What JAX computes with the lost host may hang for longer than is waited.
    assert "HostLostError" in said or "this host did not end by itself" in said
    assert "start all hosts again, and they go on from what was saved" in said
    said, _ = train_on_hosts(tmp_path, config)
    assert re.search(r"resumed after step [1-6] of 16", said)
    assert_equal_to_rounding(output, alone)


def test_the_end_of_host_0_is_the_end_of_the_others(cache, tmp_path):
    held = held_after(2, tmp_path)
    first, second = start_hosts(tmp_path, config_of(tmp_path / "out", cache), devices=1, **held)
    read_until(first, "2 loss")
    first.send_signal(signal.SIGKILL)
    (_, code), (_, said) = ended([first, second])
    assert code != 0
    assert "the process of host 0 of 2 ended" in said


def test_hosts_with_other_settings_are_told_what_differs(cache, tmp_path):
    output = tmp_path / "out"
    codes, said = ended(start_hosts(tmp_path, config_of(output, cache), config_of(output, cache, seed=3), devices=1))
    assert codes == [1, 1]
    for each in said:
        assert "host 1 was started with other settings than host 0: seed: 3, not 0" in each


def test_a_host_with_another_marin_is_told_before_anything_is_computed(cache, tmp_path):
    shutil.copytree(Path(marin.__file__).parent, tmp_path / "old" / "marin")
    loop = tmp_path / "old" / "marin" / "training" / "loop.py"
    loop.write_text(loop.read_text() + "\n# an old checkout\n")
    place = {"MARIN_HOSTS": "2", "MARIN_COORDINATOR": f"127.0.0.1:{free_port()}"}
    config = config_of(tmp_path / "out", cache)
    old = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "old"), os.environ.get("PYTHONPATH", "")])}
    codes, said = ended(
        [
            start(tmp_path, config, variables={**place, "MARIN_HOST": "0"}),
            start(tmp_path, config, variables={**place, "MARIN_HOST": "1", **old}),
        ]
    )
    assert codes == [1, 1]
    for each in said:
        assert re.search(r"host 1 was started with other settings than host 0: code of marin: '\w+', not '\w+'", each)


@pytest.mark.parametrize("variable", ["MARIN_HOSTS", "MARIN_HOST", "MARIN_COORDINATOR"])
def test_a_half_described_host_is_told_before_anything_is_done(variable, cache, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, "2")
    config = config_of(tmp_path / "out", cache)
    with pytest.raises(ConfigurationError, match=rf"{variable} is set, but MARIN_.* are not"):
        train(config)
    assert list((tmp_path / "out").iterdir()) == []


def on_two_hosts(*arguments: str, **env: str) -> list[str]:
    """What Python with ``arguments`` prints on each of two hosts, which must end well."""
    place = {"MARIN_HOSTS": "2", "MARIN_COORDINATOR": f"127.0.0.1:{free_port()}"}
    processes = [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **env, **place, "MARIN_HOST": str(host)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in range(2)
    ]
    said = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    return [out for out, _ in said]


GATHERING = """
import os, sys
import numpy as np, jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from marin.executors.hosts import HostPlace
from marin.training import dealing
from marin.training.hosts import joined_hosts

with joined_hosts(HostPlace.of(os.environ), about="x") as hosts:
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "fsdp"))
    def put(shape, *axes):
        whole = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        return jax.make_array_from_callback(shape, NamedSharding(mesh, P(*axes)), lambda index: whole[index])
    # Cut over both hosts; in each host whole; stacked, so that its rows travel one by one; on all devices.
    tree = {"cut": put((8, 2), "data"), "kept": put((8, 3), "fsdp"), "rows": put((6, 4), None, "data")}
    tree["all"] = put((5,))
    for dealing.PIECE_BYTES in (1 << 28, 0):
        copy = dealing.own_copy(tree, None, hosts)
        again = dealing.own_copy(tree, copy, hosts)
        for name, array in tree.items():
            if copy[name] is not None:
                assert again[name] is copy[name] or name == "all", name
                np.testing.assert_array_equal(copy[name], np.arange(array.size, dtype=np.float32).reshape(array.shape))
    first = dealing.whole_on_first(tree, hosts)
    assert all((array is not None) == (hosts.index == 0) for array in first.values())
    print(sorted(name for name in copy if copy[name] is not None), flush=True)
"""


def test_each_host_gets_whole_arrays_that_are_its_own_to_write():
    said = on_two_hosts("-c", GATHERING, XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    names = [out.strip().splitlines()[-1] for out in said]
    assert names == ["['cut', 'kept']", "['all', 'rows']"]


SCRIPT = """
import sys
from marin.execution import RunOptions
from marin.execution.runner import run
from marin.experiment.data import files, tokenized, train_lm
from marin.training.models.llama_config import LlamaConfig

tokens = tokenized(
    "tokenized/zen", source=files(sys.argv[2], format="text"), held_out=0.2, tokenizer="bytes", version="2026.07.01"
)
small = LlamaConfig(hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, max_seq_len=64)
model = train_lm(
    name="checkpoints/zen", model=small, datasets={tokens: 1.0}, batch_size=8, seq_len=16, num_train_steps=5,
    mesh="fsdp=2", version="2026.07.01",
)
[checkpoint] = run(model, options=RunOptions(prefix=sys.argv[1]))
print(checkpoint.steps, checkpoint.hf_dir is not None, len(checkpoint.history()), flush=True)
"""


def test_one_script_on_two_hosts_trains_one_model(tmp_path):
    script, store = tmp_path / "script.py", tmp_path / "store"
    script.write_text(SCRIPT)
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text(f"{number} beautiful is better than ugly. " * 20)
    first, second = on_two_hosts(str(script), str(store), str(tmp_path / "*.txt"))
    assert first == second == "5 True 9\n"
    address = store / "checkpoints" / "zen" / "2026.07.01"
    logs = {path.name.partition(".")[2]: path.read_text() for path in (address / ".logs").iterdir()}
    assert sorted(logs) == ["host-1.log", "log"]
    assert "host 1 of 2: host 0 tells how the training goes" in logs["host-1.log"]
    assert "step 5" in logs["log"]
