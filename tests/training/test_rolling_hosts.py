"""Checkpoints that several hosts write together; the hosts are threads of this process."""

import numpy as np
import pytest

from marin.errors import CheckpointError, NonFiniteLossError, StoreError
from marin.training.checkpoint_files import read_checkpoint, read_marker
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.rolling import RollingCheckpoints
from tests.executors.hosts import on_hosts


def part(host, step=0):
    return {f"params.{host}": np.full(3 + host, step + host, np.float32)}


def checkpoints(output, hosts=None, **policy):
    return RollingCheckpoints(str(output), {"lr": 0.1}, CheckpointPolicy(**policy), hosts=hosts)


def saved(output, count, *steps, **policy):
    def work(hosts):
        kept = checkpoints(output, hosts, **policy)
        kept.newest()
        paths = [kept.save(step, part(hosts.index, step), permanent=bool(policy)) for step in steps]
        return paths, kept.newest_step, [kept.has_permanent(step) for step in steps]

    return on_hosts(count, work)


def test_each_writes_its_part_and_all_know_of_it(tmp_path):
    first, second, third = saved(tmp_path, 3, 5, every=5)
    path = str(tmp_path / "checkpoints" / "step-000000005")
    assert first == second == third == ([path], 5, [True])
    assert [each.name for each in read_marker(path).files] == [
        f"state-0000{host}-of-00003.safetensors" for host in range(3)
    ]
    for host in range(3):
        [(name, array)] = part(host, 5).items()
        np.testing.assert_array_equal(read_checkpoint(path)[name], array)


@pytest.mark.parametrize("count", [1, 2])
def test_another_number_of_hosts_goes_on_from_it(count, tmp_path):
    saved(tmp_path, 3, 5, 6)

    def work(hosts):
        step, arrays = checkpoints(tmp_path, hosts).newest()
        return step, sorted(arrays)

    assert on_hosts(count, work) == [(6, ["params.0", "params.1", "params.2"])] * count


def test_only_the_newest_few_stay(tmp_path):
    saved(tmp_path, 2, 1, 2, 3)
    assert sorted(path.name for path in (tmp_path / "resume").iterdir()) == ["step-000000002", "step-000000003"]


def test_what_one_of_them_cannot_write_none_has_saved(tmp_path):
    def work(hosts):
        kept = checkpoints(tmp_path, hosts)
        kept.save(1, part(hosts.index))
        array = np.array([np.nan if hosts.index == 1 else 1.0], np.float32)
        with pytest.raises(NonFiniteLossError) as caught:
            kept.save(2, {f"params.{hosts.index}": array})
        return str(caught.value), kept.newest_step

    (first, step), (second, same_step) = on_hosts(2, work)
    assert step == same_step == 1
    assert first.startswith("the state after step 2 was not saved: host 1: params.1 holds infinite or NaN numbers")
    assert second.startswith("the state after step 2 was not saved: params.1 holds infinite or NaN numbers")
    assert [path.name for path in (tmp_path / "resume").iterdir()] == ["step-000000001"]


def test_a_disk_that_is_read_only_for_the_first_host_is_told_on_all(tmp_path):
    (tmp_path / "resume").write_text("no folder")

    def work(hosts):
        with pytest.raises(StoreError) as caught:
            checkpoints(tmp_path, hosts).save(2, part(hosts.index))
        return str(caught.value)

    first, second = on_hosts(2, work)
    assert "the state after step 2 was not saved" in first
    assert "the state after step 2 was not saved: host 0: " in second


def test_hosts_that_do_not_share_the_folder_are_told(tmp_path):
    def work(hosts):
        output = tmp_path / str(hosts.index)
        (output / "resume" / "step-000000002.unfinished").mkdir(parents=True)
        with pytest.raises(CheckpointError) as caught:
            checkpoints(output, hosts).save(2, part(hosts.index))
        return str(caught.value)

    first, second = on_hosts(2, work)
    assert "do not share this folder" in first
    assert "do not share this folder" in second
