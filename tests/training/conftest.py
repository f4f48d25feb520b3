"""Compiled programs are kept between tests and handed to child processes: most of these tests' time is compiling."""

import os
import tempfile

import jax

_CACHE = os.path.join(tempfile.gettempdir(), f"marin-test-xla-{os.getuid()}")

os.environ["JAX_COMPILATION_CACHE_DIR"] = _CACHE
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
jax.config.update("jax_compilation_cache_dir", _CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
