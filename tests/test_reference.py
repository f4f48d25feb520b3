"""The reference pages are complete: every error, field, encoding and variable of the code, and nothing else.

That what they show is true is tested with all other documents, in ``test_docs.py``.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import msgspec
import pytest

import marin.errors
from marin.execution import Artifact, ArtifactStep, apply, encoding
from marin.execution.catalog import Condition
from marin.execution.fingerprint import SCHEME
from marin.execution.planning import Decision
from marin.execution.provenance import capture
from marin.execution.record import SCHEMA, Record, State
from marin.processing.mixture.budget import ComponentBudget
from marin.processing.tokenize.formats import DocumentFormat
from marin.storage.format import FORMAT
from marin.training.checkpoint import Checkpoint, Evaluation
from marin.training.checkpoint_files import FORMAT as CHECKPOINT_FORMAT
from marin.training.checkpoint_files import Marker, StateFile
from marin.training.models import llama
from marin.training.models.llama_config import LlamaConfig
from tests.execution.golden_values import recipes

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference"
SOURCES = ROOT / "src/marin"


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no heading {heading!r}"
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of tables whose first cell is code: the other cells by it."""
    cells = [re.split(r" \| ", line.strip("| ")) for line in text.splitlines() if line.startswith("| `")]
    names = [row[0].strip("`") for row in cells]
    assert len(set(names)) == len(names), "a row is there twice"
    return {name: row[1:] for name, row in zip(names, cells, strict=True)}


# Errors


def error_classes() -> list[str]:
    return [
        name
        for name, value in vars(marin.errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == "marin.errors"
    ]


def test_every_error_has_a_cause_and_a_remedy():
    told = rows(page("errors.md"))
    assert sorted(told) == sorted(error_classes())
    assert [name for name, cells in told.items() if len(cells) != 2 or not all(cells)] == []


def test_errors_stand_below_their_base():
    """A reader who catches a class finds below it what that catches."""
    order = list(rows(page("errors.md")))
    for name in order:
        base = getattr(marin.errors, name).__mro__[1].__name__
        assert base not in order or order.index(base) < order.index(name), f"{name} stands before {base}"


def test_the_tree_of_errors_has_all_of_them():
    tree = re.findall(r"── (\w+Error)\b", marin.errors.__doc__ or "")
    assert sorted([*tree, "MarinError", "RunInterrupted"]) == sorted(error_classes())


# The record


def types_of_record() -> list[type]:
    """The record, and every struct that lies in it."""
    found: list[type] = []
    waiting: list[type] = [Record]
    while waiting:
        cls = waiting.pop(0)
        if cls not in found:
            found.append(cls)
            for annotation in typing.get_type_hints(cls).values():
                waiting += [inner for inner in leaves(annotation) if is_struct(inner)]
    return found


def leaves(annotation: Any) -> Iterator[Any]:
    arguments = typing.get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from leaves(argument)


def is_struct(cls: Any) -> bool:
    return isinstance(cls, type) and (issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls))


def described(annotation: Any) -> str:
    """A type as people who read JSON say it."""
    if isinstance(annotation, types.UnionType):
        return " or ".join(described(part) for part in typing.get_args(annotation))
    origin = typing.get_origin(annotation) or annotation
    if origin is typing.Literal:
        return "text"
    if origin in (tuple, list):
        return f"list of {described(typing.get_args(annotation)[0])}"
    if origin is dict:
        values = typing.get_args(annotation)[1]
        return "object" if values is Any else f"object of {described(values)}"
    words = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any", type(None): "null"}
    return words.get(origin) or ("text" if issubclass(origin, str) else origin.__name__)


def absent(cls: type, name: str) -> str:
    if not issubclass(cls, msgspec.Struct):
        (default,) = (spec.default for spec in dataclasses.fields(cls) if spec.name == name)
        return "required" if default is dataclasses.MISSING else f"`{msgspec.json.encode(default).decode()}`"
    info = next(spec for spec in msgspec.structs.fields(cls) if spec.name == name)
    default = info.default_factory() if info.default_factory is not msgspec.NODEFAULT else info.default
    return "required" if info.required else f"`{msgspec.json.encode(default).decode()}`"


def fields_of(cls: type) -> dict[str, list[str]]:
    hints = typing.get_type_hints(cls)
    names = cls.__struct_fields__ if issubclass(cls, msgspec.Struct) else [f.name for f in dataclasses.fields(cls)]
    return {name: [described(hints[name]), absent(cls, name)] for name in names}


@pytest.mark.parametrize("cls", types_of_record(), ids=lambda cls: cls.__name__)
def test_every_field_of_a_record_is_described(cls):
    told = rows(section(page("record-format.md"), f"`{cls.__name__}`"))
    assert {name: cells[:2] for name, cells in told.items()} == fields_of(cls)
    assert list(told) == list(fields_of(cls)), "the order is that of the file"
    assert all(len(cells) == 3 and cells[2] for cells in told.values())


def test_the_page_describes_no_other_struct():
    headings = re.findall(r"^### `(\w+)`$", page("record-format.md"), re.MULTILINE)
    assert sorted(headings) == sorted(cls.__name__ for cls in types_of_record())


def test_the_structs_that_are_looked_at_are_those_of_the_file():
    assert {cls.__name__ for cls in types_of_record()} >= {"Record", "Build", "Attempt", "Lease", "Owner", "Input"}


def test_states_provenance_and_manifest_are_described(tmp_path):
    text = page("record-format.md")
    assert list(rows(section(text, "States"))) == [state.value for state in State]
    told = rows(section(text, "Provenance"))
    assert capture({}, ["python", "x.py"], tmp_path).keys() <= told.keys()
    written = set(re.findall(r'"(\w+)", (?:lambda|\w+[.)])', (SOURCES / "execution/provenance.py").read_text()))
    assert told.keys() == written | {"adopted_from"}


def test_the_numbers_of_the_formats_are_said():
    assert f"Schema: {SCHEMA}." in page("record-format.md")
    assert f'`{{"format": {FORMAT}}}`' in page("record-format.md")
    assert f"Scheme: {SCHEME}." in page("fingerprint-format.md")


# Fingerprints


def tags() -> set[str]:
    """Every key that an encoding can have, read from the code that makes them."""
    found = {"datetime", "time"}  # the names of their classes
    for name in ("encoding", "array_encoding"):
        for node in ast.walk(ast.parse((SOURCES / f"execution/{name}.py").read_text())):
            keys: list[Any] = []
            if isinstance(node, ast.Dict):
                keys = node.keys
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                keys = [node.targets[0].slice]
            found |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


def test_every_encoding_is_shown():
    shown = set(re.findall(r'"(\w+)":', page("fingerprint-format.md")))
    assert tags() - shown == set()
    assert len(tags()) > 40
    assert "set" in tags()
    assert encoding.encode({1}, "x") == {"set": [1]}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Training(ArtifactStep[Artifact]):
    lr: float


def test_every_part_of_a_recipe_is_described():
    steps = [
        *recipes().values(),
        Training(name="checkpoints/poet", run="my_project:train", lr=0.1),
        apply("raw/x", "my_project:x"),
    ]
    parts = {part for step in steps for part in step.fingerprint().payload}
    assert set(rows(section(page("fingerprint-format.md"), "The recipe"))) == parts


# Environment


def variables_read() -> set[str]:
    """Names of environment variables in the code: those of Marin, and those that it asks ``environ`` for."""
    code = "\n".join(file.read_text() for file in SOURCES.rglob("*.py"))
    ours = re.findall(r'"(MARIN_[A-Z_]+)"', code)
    asked = re.findall(r'environ(?:\.get\(|\.pop\(|\[)"([A-Z_]+)"', code)
    named = re.findall(r'_VARIABLE(?:: \w+)? = "([A-Z_]+)"', code)
    return {*ours, *asked, *named}


def test_every_environment_variable_is_described():
    text = page("environment.md")
    yours, marins = rows(section(text, "For you to set")), rows(section(text, "Set by Marin"))
    assert variables_read() - yours.keys() - marins.keys() == set()
    others = {"PYTHONUNBUFFERED", "GLIBC_TUNABLES"}  # given to steps
    assert (yours.keys() | marins.keys()) - variables_read() == others
    assert all(all(cells) for cells in [*yours.values(), *marins.values()])


# Document formats


@pytest.mark.parametrize("kind", typing.get_args(DocumentFormat), ids=lambda kind: kind.__name__)
def test_every_field_of_a_document_format_is_described(kind):
    told = rows(section(page("document-formats.md"), kind.__name__))
    assert [(name, cells[0]) for name, cells in told.items()] == [
        (field.name, f"`{field.default!r}`".replace("'", '"')) for field in dataclasses.fields(kind)
    ]
    assert all(len(cells) == 2 and cells[1] for cells in told.values())


def test_every_reason_for_which_a_record_is_refused_is_named():
    """What ``Unfit`` counts records under in the modules that look at chats, pairs and ids."""
    text = page("document-formats.md")
    code = "\n".join(file.read_text() for file in sorted((SOURCES / "processing/tokenize").glob("*.py")))
    reasons = set(re.findall(r'Unfit\(\s*"([^"]+)"', code))
    assert len(reasons) > 10
    assert {reason for reason in reasons if f"`{reason}`" not in text} == set()


# Checkpoints


@pytest.mark.parametrize(
    "cls", [Marker, StateFile, Checkpoint, Evaluation, ComponentBudget], ids=lambda cls: cls.__name__
)
def test_every_field_of_a_checkpoint_is_described(cls):
    told = rows(section(page("checkpoint-format.md"), f"`{cls.__name__}`"))
    fields = {name: cells for name, cells in fields_of(cls).items() if name != "path"}  # where it lies is not in it
    assert {name: cells[:2] for name, cells in told.items()} == fields
    assert list(told) == list(fields), "the order is that of the file"
    assert all(len(cells) == 3 and cells[2] for cells in told.values())


def test_the_number_of_the_checkpoint_format_is_said():
    assert f"Format: {CHECKPOINT_FORMAT}." in page("checkpoint-format.md")


@pytest.mark.parametrize("variant", [{}, {"qkv_bias": True}, {"qk_norm": True}, {"tie_embeddings": True}], ids=str)
def test_every_array_of_a_llama_is_named(variant):
    small = LlamaConfig(hidden_dim=8, intermediate_dim=16, num_layers=1, num_heads=2, max_seq_len=8, **variant)
    shapes = jax.eval_shape(lambda key: llama.init(key, small, 16), jax.random.key(0))
    paths, _ = jax.tree_util.tree_flatten_with_path(shapes)
    names = {".".join("N" if hasattr(key, "idx") else key.key for key in path) for path, _ in paths}
    told = re.findall(r"^\| (`.*?) \| ", section(page("checkpoint-format.md"), "Names of arrays"), re.MULTILINE)
    known = {name for cell in told for name in re.findall(r"`([\w.]+)`", cell)}
    assert {name for name in names if name not in known and name.rpartition(".")[2] not in known} == set()


# Glossary


def terms() -> list[str]:
    return re.findall(r"^\*\*(.+?)\*\*: ", page("glossary.md"), re.MULTILINE)


def test_the_terms_of_the_glossary_are_in_order_and_explained_once():
    assert terms() == sorted(set(terms()), key=str.casefold)


@pytest.mark.parametrize("word", [word.value for kind in (Decision, State, Condition) for word in kind])
def test_words_that_commands_print_are_in_the_glossary(word):
    assert re.search(rf"^\*\*{word}\*\*|`{word}`", page("glossary.md"), re.MULTILINE), word
