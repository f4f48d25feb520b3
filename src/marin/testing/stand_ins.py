"""Steps that stand in for real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from marin.errors import ConfigurationError
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep

T = TypeVar("T", bound=Artifact)

Files = Mapping[str, str | bytes]
"""Contents by relative path. Text is written as UTF-8."""

_NO_FIELDS: Any = Artifact()


def a_step(
    name: str = "raw/poems",
    version: str = "2026.07.01",
    *,
    artifact: T = _NO_FIELDS,
    files: Files | None = None,
    deps: Sequence[ArtifactStep[Any]] = (),
) -> ArtifactStep[T]:
    """A handle whose step writes ``files`` and returns ``artifact``: give it to what you test, in place of a real one.

    >>> a_step(files={"poems.txt": "Roses are red."})
    ArtifactStep[Artifact](raw/poems@2026.07.01)
    """
    check_files(files or {})
    given = dict(files or {})
    return ArtifactStep(
        name=name,
        version=version,
        run=_write_what_was_given,
        artifact_type=type(artifact),
        deps=deps,
        build_config=lambda ctx: {"output_path": ctx.output_path, "artifact": artifact, "files": given},
    )


def check_files(files: Any) -> None:
    """Raise ``ConfigurationError`` unless ``files`` are contents by path."""
    if not isinstance(files, Mapping):
        raise ConfigurationError(
            f"files={files!r} is {type(files).__name__}: give the contents by path, such as {{'poems.txt': 'Roses'}}"
        )
    for name, content in cast("Mapping[Any, Any]", files).items():
        if not isinstance(name, str) or not isinstance(content, str | bytes):
            raise ConfigurationError(
                f"files[{name!r}] is {type(content).__name__}: give text or bytes, by a path that is text"
            )


def write_files(folder: Path, files: Files) -> None:
    """Write ``files`` below ``folder``. Raises ``ConfigurationError`` for a path that leads out of it."""
    for name, content in files.items():
        target = Path(name)
        if target.is_absolute() or ".." in target.parts:
            raise ConfigurationError(f"files[{name!r}]: give a path below the artifact's folder, such as 'poems.txt'")
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_bytes(content if isinstance(content, bytes) else content.encode())


def _write_what_was_given(config: Mapping[str, Any]) -> Artifact:
    write_files(Path(config["output_path"]), config["files"])
    return config["artifact"]
