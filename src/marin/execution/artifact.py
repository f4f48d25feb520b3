"""The typed result of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar

from marin.errors import ArtifactTypeError

A = TypeVar("A", bound="Artifact")


@dataclass(frozen=True, repr=False)
class Artifact:
    """What a step made. Subclass it as a frozen dataclass; the fields are kept as JSON in the record.

    ``path`` is where the data lies. It is set when the artifact is loaded, and is not part of the record.
    """

    # Its name in fingerprints, so that this module can move.
    fingerprint_name: ClassVar[str] = "marin.Artifact"

    path: str = field(init=False, default="", compare=False)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # @dataclass would print whole lists, and secrets; it keeps what it finds.
        if "__repr__" not in vars(cls):
            cls.__repr__ = Artifact.__repr__

    def __repr__(self) -> str:
        # Here and below: what only people at a screen need costs others no import.
        from marin.execution.abbreviation import abbreviated_fields  # noqa: PLC0415

        return abbreviated_fields(self, [spec.name for spec in dataclasses.fields(self) if spec.repr])

    def _repr_html_(self) -> str | None:
        from marin.execution.html import artifact_html  # noqa: PLC0415

        return artifact_html(self)

    def __fspath__(self) -> str:
        """``path``, so that an artifact is accepted wherever a path is: ``Path(poems, "0.txt")``."""
        return self.path

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = ""
            if type(self) is Artifact and not name.startswith("_"):
                hint = ": its handle declares no type, so give it artifact_type=, the class that the step returns"
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def verify(self) -> None:
        """Raise if the data at ``path`` can't be read by those who will use it.

        Called once on the finished build before it is published. The default finds no fault.
        """

    def check_adopted(self) -> None:
        """Look through data that was made elsewhere; ``path`` is where it lies. Called once, when it is adopted.

        What it raises refuses the adoption. The default does nothing.
        """

    @classmethod
    def from_source(cls, path: str, config: Mapping[str, Any]) -> Self:
        """The artifact that describes adopted data at ``path``, with what ``adopt(config=...)`` said about it.

        The default takes the fields from ``config``; a type that can read its own data overrides this.
        """
        # What a step's process without results never needs, and takes longer to import than all the rest.
        from marin.execution.results import decode_result, left_out  # noqa: PLC0415

        del path
        known = {spec.name for spec in dataclasses.fields(cls)} - {"path"}
        if unknown := sorted(config.keys() - known):
            raise ArtifactTypeError(
                f"config of the adopted source: {cls.__name__} has no {unknown[0]!r}; "
                f"its fields are {', '.join(sorted(known)) or 'none'}"
            )
        described = decode_result(cls, config, what="config of the adopted source")
        if (lost := left_out(described, config)) is not None:
            raise ArtifactTypeError(f"config of the adopted source: has {lost[0].lstrip('.')}, which {lost[1]} has not")
        return described


def at_path(artifact: A, path: str) -> A:
    """A copy of ``artifact`` whose data lies at ``path``."""
    copy = dataclasses.replace(artifact)
    object.__setattr__(copy, "path", path)
    return copy
