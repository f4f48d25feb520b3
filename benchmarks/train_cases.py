"""What is trained, and the command of each tool that does it."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from benchmarks import upstream
from benchmarks.harness.benchmark import PROGRAMS, is_here
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Figure, Measured

Precision: TypeAlias = Literal["float32", "bfloat16"]

MARIN = "marin"
LEVANTER, TRANSFORMERS, LITGPT = "Levanter", "HF Trainer", "litgpt"
LEVANTER_KEEPING = "Levanter, nothing computed twice"

PEERS = (LEVANTER, TRANSFORMERS, LITGPT, LEVANTER_KEEPING)
"""Beside whom we are measured. By default Levanter computes the inner values of layers twice, which saves memory and
takes time; ours keeps them on CPUs, as the others do."""

SKIPPED = 3
"""So many steps are no part of the rate: what is compiled, allocated and read for the first time is not the rule."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A Llama model with a head of its own, and a batch."""

    name: str
    vocab_size: int
    hidden_dim: int
    intermediate_dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    seq_len: int = 512
    batch_size: int = 8

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.seq_len


NANO = Shape(
    name="NANO",
    vocab_size=32_000,
    hidden_dim=128,
    intermediate_dim=448,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
)
SMALL = Shape(
    name="SMALL",
    vocab_size=32_000,
    hidden_dim=384,
    intermediate_dim=1_024,
    num_layers=6,
    num_heads=6,
    num_kv_heads=3,
)
TINY = Shape(
    name="TINY",
    vocab_size=512,
    hidden_dim=32,
    intermediate_dim=64,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    seq_len=64,
    batch_size=2,
)
"""For warming up, and for the tests: it runs the same code."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training. ``save_every``: after so many steps there is a checkpoint; 0: none."""

    shape: Shape
    precision: Precision
    steps: int
    skipped: int = SKIPPED
    save_every: int = 0

    @property
    def title(self) -> str:
        """Such as ``NANO fp32``."""
        return f"{self.shape.name} {'fp32' if self.precision == 'float32' else 'bf16'}"

    @property
    def measured_tokens(self) -> int:
        """Those of the steps that the rate is of."""
        return (self.steps - self.skipped) * self.shape.tokens_per_step

    def saving_once(self) -> Case:
        """With one checkpoint, amid the steps that are measured."""
        return replace(self, save_every=(self.steps + self.skipped) // 2 + 1)


MARIN_FOLDER = Path(f"{sys.prefix}-marin")


def marin_python() -> str:
    """That of our own environment: it may be newer than the one that the peers on torch need."""
    own = MARIN_FOLDER / "bin/python"
    return str(own) if own.exists() else sys.executable


_PROGRAMS = {
    MARIN: "train_marin.py",
    LEVANTER: "train_levanter.py",
    LEVANTER_KEEPING: "train_levanter.py",
    TRANSFORMERS: "train_transformers.py",
    LITGPT: "train_litgpt.py",
}


def why_not(tool: str) -> str | None:
    """Why ``tool`` can't be measured. ``None``: it can."""
    if tool in (LEVANTER, LEVANTER_KEEPING):
        return upstream.why_not()
    module = {TRANSFORMERS: "transformers", LITGPT: "litgpt"}.get(tool)
    if module is not None and not is_here(module):
        return "it is not installed"
    compiles = any(map(shutil.which, ("c++", "g++", "clang++")))
    return "it needs a C++ compiler" if tool == LITGPT and not compiles else None


def command(tool: str, case: Case, *, label: str | None = None, action: str | None = None) -> Command:
    """``tool`` trains ``case`` on ids that it has prepared before, in its own way."""
    chosen = action or ("keeping" if tool == LEVANTER_KEEPING else "train")
    warming = Case(shape=TINY, precision=case.precision, steps=2, skipped=1)
    return Command(
        label=label or tool,
        size=case.steps,
        argv=_argv(tool, case, chosen),
        env=_env(tool),
        warmed_by=Command(
            label=tool,
            size=2,
            argv=_argv(tool, warming, chosen),
            env=_env(tool),
            filled_by=_preparing(tool, warming),
        ),
        filled_by=_preparing(tool, case),
    )


def _preparing(tool: str, case: Case) -> Command:
    return Command(label=tool, size=0, argv=_argv(tool, case, "prepare"), env=_env(tool))


def _argv(tool: str, case: Case, action: str) -> tuple[str, ...]:
    interpreter = {
        MARIN: marin_python(),
        LEVANTER: str(upstream.FOLDER / "bin/python"),
        LEVANTER_KEEPING: str(upstream.FOLDER / "bin/python"),
    }.get(tool, sys.executable)
    return (interpreter, str(PROGRAMS / _PROGRAMS[tool]), told(case, action), "{ids}", "{store}", action)


def told(case: Case, action: str) -> str:
    """The case as programs are told it. What is prepared does not depend on the steps."""
    sizes = asdict(case.shape)
    del sizes["name"]
    if action == "prepare":
        return json.dumps(sizes)
    rest = {"precision": case.precision, "steps": case.steps, "skipped": case.skipped, "save_every": case.save_every}
    return json.dumps(sizes | rest)


def _env(tool: str) -> dict[str, str]:
    # The process that trains finds the clock by its name.
    env = {"PYTHONPATH": str(PROGRAMS), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return env | {"JAX_PLATFORMS": "cpu"} if tool in (MARIN, LEVANTER, LEVANTER_KEEPING) else env


def rate(measured: Measured, tool: str, case: Case) -> Figure:
    """Tokens per second of the steps that count, a checkpoint among them if there is one."""
    seconds = measured.said(tool, case.steps, "window")
    return seconds.rate(case.measured_tokens, "tokens/s")


def first_step(measured: Measured, label: str, case: Case) -> Figure:
    """From the start of the process to the end of the first step."""
    return measured.said(label, case.steps, "first_step")


def resident(measured: Measured, tool: str, case: Case) -> Figure:
    """The largest process, at worst."""
    return measured.worst(tool, case.steps, lambda sample: sample.max_rss_mb, "MB")
