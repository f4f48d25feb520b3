"""What a builder is given as its documents: parsed when the handle is made, located when the step runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeGuard, cast, get_args

from marin.errors import ConfigurationError
from marin.execution.context import StepContext
from marin.execution.lazy import ArtifactStep
from marin.processing.bad_records import OnBadRecord
from marin.processing.download import HubDownload
from marin.processing.scalars import finite_number
from marin.processing.sources import (
    FileFormat,
    FileSource,
    HubSource,
    PathText,
    Source,
    check_format,
    check_texts,
    parse_source,
)

Documents: TypeAlias = PathText | Source | Sequence[PathText] | ArtifactStep[Any]
"""A hub id, path, folder, glob, list of those, ``files(...)``, ``hf(...)``, or a handle whose files are read."""


@dataclass(frozen=True, kw_only=True)
class StepOutput:
    """Files that another step makes. ``split``: of a download from the hub, which are read where no glob says it."""

    step: ArtifactStep[Any]
    glob: str | None
    format: FileFormat | None
    split: str | None = None
    subset: str | None = None


ParsedSource: TypeAlias = Source | StepOutput
"""What documents mean, before it is known where another step has put them."""


def one_source(
    name: str,
    *,
    source: Documents | None,
    paths: PathText | Sequence[PathText] | None,
    raw: ArtifactStep[Any] | None,
) -> Documents:
    """The documents, however they were given. ``ConfigurationError`` in the name of ``name`` unless it was one way."""
    given = {"source": source, "paths": paths, "raw": raw}
    ways = [key for key, value in given.items() if value is not None]
    if len(ways) != 1:
        found = f"{', '.join(ways)} are given" if ways else "none is given"
        raise ConfigurationError(f"{name}: give the documents once, as source=, paths= or raw=; {found}")
    if paths is not None:
        # A bare text would be taken for a hub id, a list never is.
        found = parse_source([paths] if isinstance(paths, str | os.PathLike) else paths)
        if isinstance(found, HubSource):
            raise ConfigurationError(
                f"{name}: paths= are files, and {found} is a data set of the hub: give it as source="
            )
        return found
    if raw is not None and not isinstance(cast("object", raw), ArtifactStep):
        raise ConfigurationError(f"{name}: raw= is the handle of another step; paths are given as paths={raw!r}")
    return cast("Documents", source if raw is None else raw)


def check_bad_records(name: str, on_bad_record: object, max_bad_fraction: object) -> None:
    """Raise ``ConfigurationError`` for what is no policy, or no fraction."""
    if on_bad_record not in get_args(OnBadRecord):
        raise ConfigurationError(f"{name}: on_bad_record={on_bad_record!r} is neither 'error' nor 'skip'")
    fraction = finite_number(max_bad_fraction)
    if fraction is None or not 0 <= fraction <= 1:
        raise ConfigurationError(f"{name}: max_bad_fraction={max_bad_fraction!r} is not a fraction from 0 to 1")


def part_of_hub(name: str, parsed: ParsedSource, **parts: str | None) -> ParsedSource:
    """``parsed`` with the parts that are given chosen. ``ConfigurationError`` if it has no such parts."""
    check_texts(name, may_be_none=True, **parts)
    given = {key: value for key, value in parts.items() if value is not None}
    if isinstance(parsed, HubSource):
        return replace(parsed, **given)
    if not given:
        return parsed
    if not _is_download(parsed):
        raise ConfigurationError(
            f"{name}: {', '.join(given)} choose a part of a source from the hub, which this is not"
        )
    if "revision" in given:
        raise ConfigurationError(f"{name}: revision={given['revision']!r} is chosen by hf_download(revision=)")
    if parsed.glob is not None:
        raise ConfigurationError(f"{name}: glob={parsed.glob!r} chooses the files: leave out {', '.join(given)}")
    return replace(parsed, **given)


def _is_download(parsed: ParsedSource) -> TypeGuard[StepOutput]:
    return isinstance(parsed, StepOutput) and issubclass(cast("type", parsed.step.artifact_type), HubDownload)


def check_text_key(name: str, text_key: object) -> None:
    """Raise ``ConfigurationError`` for what can't be the name of a field."""
    if not isinstance(text_key, str) or not text_key:
        raise ConfigurationError(f"{name}: text_key={text_key!r} is not the name of a field, such as 'text'")


def parsed_source(
    name: str, documents: Documents, *, format: FileFormat | None = None, glob: str | None = None
) -> ParsedSource:
    """What ``documents`` mean; ``glob`` chooses files of another step, ``format`` overrules the suffix of files.

    Of a download from the hub without a glob, the training split is read, as of a source from there.
    """
    check_format(name, format)
    check_texts(name, may_be_none=True, glob=glob)
    if isinstance(documents, ArtifactStep):
        output = StepOutput(step=documents, glob=glob, format=format)
        return replace(output, split="train") if glob is None and _is_download(output) else output
    parsed = parse_source(documents)
    if glob is not None:
        raise ConfigurationError(f"{name}: glob={glob!r} chooses files of another step; write paths=['folder/{glob}']")
    if format is None:
        return parsed
    if isinstance(parsed, HubSource) or parsed.format not in (None, format):
        raise ConfigurationError(
            f"{name}: file_format={format!r} does not apply to {parsed}; say it in files(..., format=)"
        )
    return replace(parsed, format=format)


def located_source(ctx: StepContext, parsed: ParsedSource) -> Source:
    """The source with its path, where another step makes it."""
    if not isinstance(parsed, StepOutput):
        return parsed
    folder = ctx.artifact_path(parsed.step)
    path = f"{folder}" if parsed.glob is None else f"{folder}/{parsed.glob}"
    return FileSource(paths=(path,), format=parsed.format, split=parsed.split, subset=parsed.subset)


def handles(*given: object) -> tuple[ArtifactStep[Any], ...]:
    """The handles among what was given, each once: what the step depends on."""
    steps = [each.step if isinstance(each, StepOutput) else each for each in given]
    return tuple(dict.fromkeys(step for step in steps if isinstance(step, ArtifactStep)))
