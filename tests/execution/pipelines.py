"""Small pipelines for the tests of the runner: real steps that write real files."""

from dataclasses import dataclass
from pathlib import Path

from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep

BUILDS: list[str] = []
"""The output path of each step that ran in this process, in order."""


@dataclass(frozen=True)
class Poems(Artifact):
    lines: int


@dataclass(frozen=True)
class Report(Artifact):
    words: int
    source: str


def write_poems(config):
    BUILDS.append(config["output_path"])
    lines = [f"{config['word']} {number}" for number in range(config["lines"])]
    Path(config["output_path"], "poems.txt").write_text("\n".join(lines))
    return Poems(lines=len(lines))


def count_words(config):
    BUILDS.append(config["output_path"])
    text = Path(config["poems"], "poems.txt").read_text()
    words = len(text.split())
    Path(config["output_path"], "report.txt").write_text(f"{words} words")
    return Report(words=words, source=config["poems"])


def fail(config):
    raise ValueError(f"no verse today: {config.get('word')}")


def poems(version="2026.07.01", *, name="raw/poems", word="rose", lines=3, run=write_poems, **more):
    return ArtifactStep(
        name=name,
        version=version,
        artifact_type=Poems,
        run=run,
        build_config=lambda ctx: {"output_path": ctx.output_path, "word": word, "lines": lines},
        **more,
    )


def report(source, version="2026.07.01", *, name="reports/words", run=count_words, **more):
    return ArtifactStep(
        name=name,
        version=version,
        artifact_type=Report,
        run=run,
        deps=(source,),
        build_config=lambda ctx: {"output_path": ctx.output_path, "poems": ctx.artifact_path(source)},
        **more,
    )
