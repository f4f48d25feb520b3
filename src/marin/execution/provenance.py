"""How an artifact came to be, as far as the machine can tell: code, people, machine, packages, command line.

Nothing in here may fail a run.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from marin.execution.redaction import redact_command, redact_text, secret_values

GIT_SECONDS = 2.0
"""How long all questions to git together may take. A slow network disk must not hold up a run."""

PACKAGES = (
    "marin",
    "jax",
    "jaxlib",
    "numpy",
    "optax",
    "tokenizers",
    "pyarrow",
    "safetensors",
    "huggingface_hub",
    "msgspec",
    "torch",
    "transformers",
    "datasets",
)
"""Packages whose version can change what a step makes."""

_GIT_ELSEWHERE = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"}
_MOST_CHANGES_BYTES = 64 << 20


def capture(environ: Mapping[str, str], argv: Sequence[str], cwd: Path) -> dict[str, Any]:
    """What can be told about this run as JSON values; what can't be told is left out. Never raises.

    ``git`` is that of the script's folder, else that of ``cwd``; ``git.tree`` identifies the tracked files with
    their changes, so that equal trees are equal code.
    """
    parts: dict[str, Any] = {}
    for key, ask in (
        ("command", lambda: redact_command(argv, secret_values(environ))),
        ("cwd", lambda: str(cwd)),
        ("git", lambda: _git(_code_folder(argv, cwd), environ)),
        ("user", getpass.getuser),
        ("host", lambda: os.uname().nodename),
        ("platform", _platform),
        ("python", lambda: sys.version.split()[0]),
        ("packages", lambda: _versions(PACKAGES)),
    ):
        with contextlib.suppress(Exception):
            parts[key] = ask()
    return {key: value for key, value in parts.items() if value}


def _platform() -> str:
    """Such as ``Linux-6.1.0-x86_64``. Not the platform module's, which starts a process to learn no more."""
    system = os.uname()
    return f"{system.sysname}-{system.release}-{system.machine}"


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _code_folder(argv: Sequence[str], cwd: Path) -> Path:
    scripts = (cwd / word for word in argv if word.endswith(".py"))
    return next((script.resolve().parent for script in scripts if script.is_file()), cwd)


def _git(folder: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """Commit, branch, remote and the state of the tree. Empty where there is no repository, or git is too slow."""
    deadline = time.monotonic() + GIT_SECONDS
    git = _Git(folder, environ, deadline)
    head, remote = git.ask("rev-parse", "HEAD", "HEAD^{tree}"), git.ask("config", "--get", "remote.origin.url")
    status = git.ask("status", "--porcelain=v2", "--branch", "--untracked-files=normal")
    facts: dict[str, Any] = {}
    commit_and_tree = (git.answer(head) or b"").decode(errors="replace").split()
    lines = (git.answer(status) or b"").decode(errors="replace").splitlines()
    origin = (git.answer(remote) or b"").decode(errors="replace").strip()
    if len(commit_and_tree) != 2:
        return {}
    facts["commit"], tree = commit_and_tree
    if lines:
        facts["branch"] = next((line.split()[2] for line in lines if line.startswith("# branch.head")), None)
        changed = [line for line in lines if not line.startswith("#")]
        facts["dirty"] = bool(changed)
        facts["untracked"] = sum(line.startswith("?") for line in changed)
        if any(not line.startswith("?") for line in changed):
            changes = git.answer(git.ask("diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv"))
            tree = None if changes is None else f"{tree}+{hashlib.sha256(changes).hexdigest()[:16]}"
        facts["tree"] = tree
    if origin:
        facts["remote"] = redact_text(origin)
    return {key: value for key, value in facts.items() if value is not None}


class _Git:
    """Asks several things of git at once, without locks, hooks, prompts or patience."""

    def __init__(self, folder: Path, environ: Mapping[str, str], deadline: float) -> None:
        self._folder = folder
        # GIT_DIR and the like, as git sets them for its hooks, would answer for another repository than the folder's.
        plain = {name: value for name, value in environ.items() if name not in _GIT_ELSEWHERE}
        self._environ = {**plain, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        self._deadline = deadline

    def ask(self, *words: str) -> subprocess.Popen[bytes] | None:
        with contextlib.suppress(OSError):
            return subprocess.Popen(
                ["git", "-c", "core.fsmonitor=false", "-C", str(self._folder), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environ,
                start_new_session=True,
            )
        return None

    def answer(self, process: subprocess.Popen[bytes] | None) -> bytes | None:
        if process is None:
            return None
        try:
            output, _ = process.communicate(timeout=max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None
        return output if process.returncode == 0 and len(output) <= _MOST_CHANGES_BYTES else None
