"""In processes of their own, as JAX is told once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import jax
from marin.training.compilation_cache import use_compilation_cache
use_compilation_cache()
print(jax.config.jax_compilation_cache_dir)
"""


def folder(home: Path, **environment: str) -> str:
    unset = ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME", "MARIN_COMPILATION_CACHE")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**kept, "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def test_programs_are_kept_in_the_cache_folder_of_the_user(tmp_path: Path):
    assert Path(folder(tmp_path)).parent == tmp_path / ".cache" / "marin" / "xla"
    assert Path(folder(tmp_path, XDG_CACHE_HOME=str(tmp_path / "c"))).parent == tmp_path / "c" / "marin" / "xla"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("MARIN_COMPILATION_CACHE", "/elsewhere", "/elsewhere"),
        ("MARIN_COMPILATION_CACHE", "off", "None"),
        ("JAX_COMPILATION_CACHE_DIR", "/theirs", "/theirs"),
    ],
)
def test_what_the_user_says_holds(tmp_path: Path, name: str, value: str, expected: str):
    assert folder(tmp_path, **{name: value}) == expected
