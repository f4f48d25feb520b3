"""Compiled programs, kept between processes: a training that is resumed or repeated starts in half of the time."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import jax

VARIABLE = "MARIN_COMPILATION_CACHE"
"""A folder to use in place of the one in the user's cache folder, or ``off``."""

MAX_BYTES = 5_000_000_000
"""What was used longest ago is removed beyond that."""

MIN_COMPILE_SECONDS = 0.5
"""Smaller programs are compiled as quickly as they are read."""


def use_compilation_cache() -> None:
    """Make JAX keep what it compiles. Where the user has told JAX or ``VARIABLE`` otherwise, that holds."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen == "off" or "JAX_COMPILATION_CACHE_DIR" in os.environ or jax.config.values["jax_compilation_cache_dir"]:
        return
    # A folder that cannot be written to costs time and nothing else: JAX then warns, and compiles.
    jax.config.update("jax_compilation_cache_dir", chosen or str(_default_folder()))
    jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_SECONDS)


def _default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base, "marin", "xla", _processor())


def _processor() -> str:
    """Tells processors apart that share a home folder: a program for one may crash another."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        told = []
    names = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    kept = [line for line in told if line.startswith(names)]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]
