"""Who gets the lease, and what becomes of what is found at an address."""

import shutil
from pathlib import Path

import pytest

from marin.errors import NotBuiltError
from marin.execution.runner import load, resolve
from tests.execution.pipelines import Poems, poems


def test_a_copied_artifact_is_not_served_as_another_one(options, told):
    one, other = poems(), poems("2026.07.02", word="lily", lines=1)
    made = resolve(one, options=options)
    shutil.copytree(made.path, Path(options.prefix, other.id.address))
    with pytest.raises(NotBuiltError):
        load(other, options=options)
    built = resolve(other, options=options, reporter=told)
    assert built == Poems(lines=1)
    assert Path(built.path, "poems.txt").read_text() == "lily 0"
    assert "record of raw/poems@2026.07.01" in told.notes[0][1]
    kept = list(Path(built.path, ".builds").rglob("poems.txt"))
    assert [path.read_text().splitlines()[0] for path in kept] == ["rose 0"]
