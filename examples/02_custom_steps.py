"""Steps of one's own: plain functions, typed results, a sweep in a loop, steps in processes of their own. A second.

How long are the words that Python's standard library is written in, from one sample size to the next?
"""

import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from marin.execution import OUT, Artifact, apply, remote
from marin.execution.progress import report
from marin.executors.resources import ResourceConfig
from marin.experiment.main import experiment_main


@dataclass(frozen=True)
class Sample(Artifact):
    """Some modules, as files."""

    modules: int


@dataclass(frozen=True)
class Lengths(Artifact):
    """How often there is a word of each length, in a file; here their number and mean."""

    words: int
    mean: float


def take_sample(stdlib, modules, out):
    paths = sorted(Path(stdlib).glob("*.py"))[:modules]
    for done, path in enumerate(paths, start=1):
        Path(out, path.name).write_bytes(path.read_bytes())
        report(done, len(paths), "modules")
    return Sample(modules=len(paths))


def measure(sample, out):
    lengths = Counter(
        len(word) for path in Path(sample).glob("*.py") for word in re.findall(r"[a-z]+", path.read_text("utf-8"))
    )
    words = sum(lengths.values())
    Path(out).write_text("".join(f"{length} {count}\n" for length, count in sorted(lengths.items())))
    return Lengths(words=words, mean=sum(length * count for length, count in lengths.items()) / words)


def write_table(measured, out):
    rows = [f"{name:>4} modules  {each.words:>7,} words  {each.mean:.2f} letters\n" for name, each in measured.items()]
    Path(out).write_text("".join(rows))


def build():
    measured = {}
    for modules in (10, 40, 160):
        sample = apply(
            f"raw/stdlib-{modules}",
            take_sample,
            artifact_type=Sample,
            stdlib=sysconfig.get_path("stdlib"),
            modules=modules,
            out=OUT,
        )
        # In a process of its own: what it leaks or crashes is its own, and it is tried twice more if it dies.
        counted = remote(measure, resources=ResourceConfig(cpus=1, memory="1 GB"), retries=2)
        measured[modules] = apply(
            f"lengths/stdlib-{modules}", counted, artifact_type=Lengths, sample=sample, out=OUT / "lengths.txt"
        )
    return apply("reports/lengths", write_table, measured=measured, out=OUT / "table.txt")


if __name__ == "__main__":
    table = experiment_main(build, version="2026.11.30")
    print(Path(table, "table.txt").read_text(), end="")
    print("next: marin why reports/lengths examples/02_custom_steps.py; change measure, and run again with --plan")
