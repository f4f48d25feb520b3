"""What the code of a step reaches by name, and which edits are told. Nothing of the projects here is imported."""

from __future__ import annotations

import sys
import warnings
import zipfile

import pytest

from marin.execution.code import code_of
from marin.execution.code_changes import code_changes
from tests.execution.projects import names

STEPS = """
from rhymes import helpers
from rhymes.helpers import clean

def train(config):
    return clean(config.text)
"""
HELPERS = """
LIMIT = 3

def clean(text):
    return shorten(text)

def shorten(text):
    return text[:LIMIT]

def unused(text):
    return text
"""


@pytest.fixture
def rhymes(project):
    project.write(rhymes__init="", rhymes__steps=STEPS, rhymes__helpers=HELPERS)
    return project


def test_a_step_reaches_what_its_helpers_reach(rhymes):
    assert names(rhymes.code()) == {
        "rhymes.steps.train",
        "rhymes.helpers.clean",
        "rhymes.helpers.shorten",
        "rhymes.helpers.LIMIT",
    }


def test_nothing_is_imported_to_find_that_out(rhymes):
    rhymes.code()
    assert not [name for name in sys.modules if name.startswith("rhymes")]


def test_each_changed_definition_is_named_and_its_users_are_not(rhymes):
    edited = HELPERS.replace("LIMIT = 3", "LIMIT = 4").replace("return shorten(text)", "return shorten(text.strip())")
    assert rhymes.told_after(rhymes__helpers=edited) == [
        "constant helpers.LIMIT (rhymes/helpers.py)",
        "helpers.clean (rhymes/helpers.py)",
    ]


@pytest.mark.parametrize(
    "edited",
    [
        HELPERS.replace("    return shorten(text)", "    # Short is sweet.\n    return shorten(text)  # at most LIMIT"),
        HELPERS.replace("shorten(text)\n", "shorten(\n        text,\n    )\n"),
        HELPERS.replace("def clean(text):", 'def clean(text):\n    """Makes it short."""'),
        "# a line\n\n\n" + HELPERS,
        HELPERS.replace("    return text\n", "    return text * 2\n"),
        HELPERS + "\nprint('loaded')\n",
        HELPERS + "\ndef more(text):\n    return text\n",
        HELPERS.replace("text[:LIMIT]", "(text[:LIMIT])"),
        "\n".join(reversed(HELPERS.split("\n\n"))),
        HELPERS.replace("\n", "\r\n"),
    ],
    ids=["comment", "formatting", "docstring", "moved lines", "unused", "effect", "new", "parens", "order", "windows"],
)
def test_an_edit_that_changes_nothing_is_not_told(rhymes, edited):
    assert rhymes.told_after(rhymes__helpers=edited) == []


def test_a_definition_reached_for_the_first_time_is_added_and_one_no_longer_reached_is_removed(rhymes):
    edited = HELPERS.replace("return shorten(text)", "return unused(text)")
    assert rhymes.told_after(rhymes__helpers=edited) == [
        "constant helpers.LIMIT removed (rhymes/helpers.py)",
        "helpers.clean (rhymes/helpers.py)",
        "helpers.shorten removed (rhymes/helpers.py)",
        "helpers.unused added (rhymes/helpers.py)",
    ]


REACHED = {
    "an alias": ("from rhymes.helpers import clean as tidy\ndef train(c): return tidy(c)", "clean"),
    "a module": ("import rhymes.helpers\ndef train(c): return rhymes.helpers.clean(c)", "clean"),
    "a module alias": ("import rhymes.helpers as h\ndef train(c): return h.clean(c)", "clean"),
    "a relative import": ("from . import helpers\ndef train(c): return helpers.clean(c)", "clean"),
    "a relative name": ("from .helpers import clean\ndef train(c): return clean(c)", "clean"),
    "an import in the function": ("def train(c):\n    from .helpers import clean\n    return clean(c)", "clean"),
    "a module in the function": ("def train(c):\n    import rhymes.helpers as h\n    return h.clean(c)", "clean"),
    "a star import": ("from .helpers import *\ndef train(c): return clean(c)", "clean"),
    "a re-export": ("from rhymes import tidy\ndef train(c): return tidy(c)", "clean"),
    "a re-export by a star": ("from rhymes.stars import clean\ndef train(c): return clean(c)", "clean"),
    "a default": ("from .helpers import clean\ndef train(c, f=clean): return f(c)", "clean"),
    "a decorator": ("from .helpers import clean\n@clean\ndef train(c): return c", "clean"),
    "a base class": ("from .helpers import Base\nclass Mine(Base): pass\ndef train(c): return Mine(c)", "Base"),
    "a class attribute": ("from .helpers import Base\ndef train(c): return Base.size", "Base"),
    "an annotation": ("from .helpers import Base\ndef train(c: Base): return c", "Base"),
    "an annotation as text": ("from .helpers import Base\ndef train(c: 'Base | None'): return c", "Base"),
    "a part of an annotation as text": (
        "from .helpers import Base\ndef train(c: dict[str, list['Base']]): return c",
        "Base",
    ),
    "a field annotated with a part as text": (
        "from .helpers import Base\nclass Mine:\n    x: 'list[\"Base\"]'\ndef train(c: Mine): return c",
        "Base",
    ),
    "a guarded import": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .helpers import Base\ndef train(c: 'Base'): ...",
        "Base",
    ),
    "a fallback": (
        "try:\n    from fast_rhymes import clean\nexcept ImportError:\n    from .helpers import clean\n"
        "def train(c): return clean(c)",
        "clean",
    ),
    "a comprehension": ("from .helpers import clean\ndef train(c): return [clean(x) for x in c]", "clean"),
    "an inner function": (
        "from .helpers import clean\ndef train(c):\n    def inner(x): return clean(x)\n    return inner(c)",
        "clean",
    ),
    "a lambda": ("from .helpers import clean\ntidy = lambda c: clean(c)\ndef train(c): return tidy(c)", "clean"),
    "a constant's value": ("from .helpers import clean\nWAYS = {'a': clean}\ndef train(c): return WAYS[c](c)", "clean"),
    "getattr of a module": ("from . import helpers\ndef train(c): return getattr(helpers, c)(c)", "clean"),
    "a global that a function sets": (
        "from .helpers import clean\nWAY = None\ndef choose():\n    global WAY\n    WAY = clean\n"
        "def train(c): return WAY(c)",
        "clean",
    ),
    "a name that is rebound": (
        "from .helpers import clean\ndef train(c): return tidy(c)\ndef tidy(c): return c\ntidy = clean(tidy)",
        "clean",
    ),
    "a table that is filled later": (
        "from .helpers import clean\nWAYS = {}\nWAYS['a'] = clean\ndef train(c): return WAYS[c](c)",
        "clean",
    ),
    "a table that is updated in a loop": (
        "from .helpers import clean\nWAYS = {}\nfor key in 'ab':\n    WAYS.update({key: clean})\n"
        "def train(c): return WAYS[c](c)",
        "clean",
    ),
    "a match": (
        "from .helpers import clean\ndef train(c):\n    match c:\n        case [x]: return clean(x)",
        "clean",
    ),
    "a name that only another scope hides": (
        "from .helpers import clean\ndef train(c):\n    def other(clean): return clean\n    return clean(other(c))",
        "clean",
    ),
    "a class whose body hides the name from nobody": (
        "from .helpers import clean\nclass Mine:\n    clean = 3\n    def run(self, c): return clean(c)\n"
        "def train(c): return Mine().run(c)",
        "clean",
    ),
    "a class that binds the name to what it holds outside": (
        "from .helpers import clean\nclass Mine:\n    clean = staticmethod(clean)\ndef train(c): return Mine.clean(c)",
        "clean",
    ),
    "a field of the same name": (
        "from .helpers import clean\nclass Mine:\n    clean: object = clean\ndef train(c): return Mine.clean(c)",
        "clean",
    ),
    "a default of a method of the same name": (
        "from .helpers import clean\nclass Mine:\n    def clean(self, f=clean): return f(self)\n"
        "def train(c): return Mine().clean()",
        "clean",
    ),
    "a decorator of a method of the same name": (
        "from .helpers import clean\nclass Mine:\n    @clean\n    def clean(self): return 1\n"
        "def train(c): return Mine().clean()",
        "clean",
    ),
    "a class that binds the name later": (
        "from .helpers import clean\nclass Mine:\n    tidy = clean\n    clean = 3\ndef train(c): return Mine.tidy(c)",
        "clean",
    ),
    "a class that binds the name perhaps": (
        "from .helpers import clean\nclass Mine:\n    if c:\n        clean = 3\n    tidy = clean\n"
        "def train(c): return Mine.tidy(c)",
        "clean",
    ),
    "an import in a class": (
        "class Mine:\n    from .helpers import clean\ndef train(c): return Mine.clean(c)",
        "clean",
    ),
    "a class in a function which has the name too": (
        "from .helpers import clean\ndef train(c):\n    def make():\n        class Mine:\n            clean = clean\n"
        "        return Mine\n    return make()",
        "clean",
    ),
}


@pytest.mark.parametrize("way", REACHED)
def test_a_change_behind_it_is_told(project, way):
    text, name = REACHED[way]
    helpers = "class Base:\n    size = 1\n\ndef clean(c):\n    return c\n"
    project.write(
        rhymes__init="from rhymes.helpers import clean as tidy",
        rhymes__steps=text,
        rhymes__helpers=helpers,
        rhymes__stars="from .helpers import *",
    )
    edited = helpers.replace("size = 1", "size = 2") if name == "Base" else helpers.replace("return c", "return c * 2")
    what = "class " if name == "Base" else ""
    assert project.told_after(rhymes__helpers=edited) == [f"{what}helpers.{name} (rhymes/helpers.py)"]


HIDDEN = {
    "a parameter": "def train(clean): return clean",
    "a local variable": "def train(c):\n    clean = c\n    return clean",
    "a loop variable": "def train(c):\n    for clean in c:\n        yield clean",
    "a comprehension": "def train(c): return [clean for clean in c]",
    "a caught error": "def train(c):\n    try: pass\n    except Exception as clean: return clean",
    "a context": "def train(c):\n    with c as clean: return clean",
    "an import": "def train(c):\n    from json import loads as clean\n    return clean(c)",
    "a pattern": "def train(c):\n    match c:\n        case {'a': clean, **LIMIT}: return clean, LIMIT",
    "an enclosing variable": "def train(c):\n    clean = c\n    def inner(): return clean\n    return inner",
    "an attribute": "def train(c): return c.clean",
    "a keyword": "def train(c): return dict(clean=c)",
    "a text": "def train(c): return 'clean'",
    "a text among values": "from typing import Literal\ndef train(c: Literal['clean', 'LIMIT']): return c",
    "a name that the class around it has bound": (
        "def train(c):\n    class Mine:\n        def clean(self): return 1\n        tidy = clean\n    return Mine"
    ),
    "an attribute of something installed": "import pytest\ndef train(c): return pytest.clean",
}


@pytest.mark.parametrize("way", HIDDEN)
def test_a_name_that_is_something_else_reaches_nothing(project, way):
    helpers = "def clean(c): return c\nLIMIT = 1"
    project.write(rhymes__init="", rhymes__steps=f"{helpers}\n{HIDDEN[way]}")
    assert names(project.code()) == {"rhymes.steps.train"}


def test_modules_that_import_each_other_are_walked_once(project):
    project.write(
        rhymes__init="from rhymes.steps import train\nfrom rhymes import helpers, steps",
        rhymes__steps="from rhymes import helpers\nimport rhymes\ndef train(c): return helpers.clean(rhymes.steps)",
        rhymes__helpers="from rhymes.steps import *\nfrom rhymes import *\ndef clean(c): return train(c), missing",
    )
    assert names(project.code()) == {"rhymes.steps.train", "rhymes.helpers.clean"}


def test_which_branch_defines_a_function_counts(project):
    text = "import sys\nif sys.platform == 'linux':\n    def train(c): return 1\nelse:\n    def train(c): return 2\n"
    project.write(rhymes__init="", rhymes__steps=text)
    assert project.told_after(rhymes__steps=text.replace("'linux'", "'darwin'")) == ["steps.train (rhymes/steps.py)"]
    assert project.told_after(rhymes__steps=text.replace("return 2", "return 3")) == ["steps.train (rhymes/steps.py)"]
    assert project.told_after(rhymes__steps=text.replace("else", "elif 1")) == ["steps.train (rhymes/steps.py)"]


def test_the_whole_class_of_a_method_counts(project):
    text = (
        "class Trainer:\n    rate = 1\n    def train(self, c): return self.other(c)\n    def other(self, c): return c\n"
    )
    project.write(rhymes__init="", rhymes__steps=text)
    function = "rhymes.steps:Trainer.train"
    assert project.told_after(function, rhymes__steps=text.replace("return c", "return c + 1")) == [
        "class steps.Trainer (rhymes/steps.py)"
    ]


def test_build_calls_of_a_pipeline_and_their_literals_do_not_count(project):
    text = """
    from marin.execution import ArtifactStep, remote
    from marin.experiment.data import tokenized

    tokens = tokenized("tokenized/poems", source="poems.txt", tokenizer="bytes", version="2026.07.01")
    trained: ArtifactStep = ArtifactStep(name="checkpoints/poet", version="2026.07.01", run="rhymes.steps:train")

    def train(config):
        return tokens.id, trained.id
    """
    project.write(rhymes__init="", rhymes__steps=text)
    assert names(project.code()) == {"rhymes.steps.train"}
    assert project.told_after(rhymes__steps=text.replace("2026.07.01", "2026.07.02")) == []


def test_handles_in_containers_of_a_sweep_do_not_count(project):
    text = """
    from marin.execution import ArtifactStep
    rates = {rate: [(ArtifactStep(name="a/b", version="2026.07.01", run="x:y"), 3e-4)] for rate in (1, 2)}
    def train(config): return rates
    """
    project.write(rhymes__init="", rhymes__steps=text)
    assert project.told_after(rhymes__steps=text.replace("x:y", "x:z")) == []  # not loaded
    project.load("rhymes.steps")
    assert project.told_after(rhymes__steps=text) == []
    assert project.told_after(rhymes__steps=text.replace("3e-4", "1e-4")) == ["constant steps.rates (rhymes/steps.py)"]


def test_an_installed_package_counts_by_its_version_and_not_by_what_is_used_of_it(project):
    project.write(rhymes__init="", rhymes__steps="import json, pytest\ndef train(c): return pytest.raises, json.loads")
    code = project.code()
    assert names(code) == {"rhymes.steps.train"}
    assert code.distributions == {"pytest": pytest.__version__}


def test_a_package_whose_distribution_has_another_name_is_found(project):
    project.write(rhymes__init="", rhymes__steps="import _pytest\ndef train(c): return _pytest")
    assert project.code().distributions == {"pytest": pytest.__version__}


def test_marin_itself_counts_by_its_version(project):
    project.write(
        rhymes__init="",
        rhymes__steps="from marin.processing.tokenize.tokenize import tokenize\ndef train(c): return tokenize(c)",
    )
    code = project.code()
    assert names(code) == {"rhymes.steps.train"}
    assert list(code.distributions) == ["marin"]
    ours = project.code("marin.training.train:train")
    assert (ours.modules, list(ours.distributions), ours.unknown) == ({}, ["marin"], {})


def test_a_package_that_lies_among_installed_ones_is_not_read(project):
    project.write(
        **{"site-packages__tidy": "def clean(c): return c"},
        rhymes__init="",
        rhymes__steps="import tidy\ndef train(c): return tidy.clean(c)",
    )
    sys.path.insert(0, str(project.folder / "site-packages"))
    code = project.code()
    assert names(code) == {"rhymes.steps.train"}
    assert code.distributions == {"tidy": ""}


def test_a_folder_without_init_is_a_package_too(project):
    project.write(
        verse__deep__helpers="def clean(c): return c",
        rhymes__init="",
        rhymes__steps="from verse.deep import helpers\ndef train(c): return helpers.clean(c)",
    )
    assert names(project.code()) == {"rhymes.steps.train", "verse.deep.helpers.clean"}


BROKEN = {
    "not Python": b"def clean(c): return c +",
    "null bytes": b"def clean(c): return c\0",
    "nested too deeply": b"x = " + b"(" * 5000 + b")" * 5000,
    "another coding": "# coding: no-such-coding\ndef clean(c): return 'é'".encode(),
    "not UTF-8": "def clean(c): return 'é'".encode("latin-1"),
    "very large": b"def clean(c): return c\n" + b"#" * (1 << 20),
}


@pytest.mark.parametrize("way", BROKEN)
def test_a_file_that_cannot_be_read_makes_its_part_unknown_and_nothing_else(rhymes, way):
    before = rhymes.code()
    assert rhymes.told_after(rhymes__helpers=BROKEN[way]) == []
    after = rhymes.code()
    assert list(after.unknown) == ["rhymes.helpers"]
    assert "helpers.py" in after.unknown["rhymes.helpers"]
    assert after.modules["rhymes.steps"] == before.modules["rhymes.steps"]
    edited = STEPS.replace("clean(config.text)", "clean(config.words)")
    assert rhymes.told_after(rhymes__steps=edited) == ["steps.train (rhymes/steps.py)"]


def test_what_python_warns_of_at_import_is_not_told_again(rhymes):
    rhymes.write(rhymes__helpers=HELPERS + r"PATTERN = '\d'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rhymes.code().unknown == {}


def test_a_broken_file_that_is_not_reached_is_no_matter(rhymes):
    assert rhymes.told_after(rhymes__other=b"def (") == []
    assert rhymes.code().unknown == {}


def test_a_file_in_another_coding_is_read_as_python_reads_it(project):
    text = "# -*- coding: latin-1 -*-\ndef train(c): return 'é'"
    project.write(rhymes__init="", rhymes__steps=text.encode("latin-1"))
    plain = "def train(c): return 'é'".encode()
    assert project.told_after(rhymes__steps=plain) == []
    assert project.told_after(rhymes__steps=b"\xef\xbb\xbf" + plain) == []


def test_a_file_that_may_not_be_read_makes_its_part_unknown(rhymes):
    file = rhymes.folder / "rhymes" / "helpers.py"
    file.unlink()
    file.symlink_to("helpers.py")  # not even root can read a link to itself
    code = rhymes.code()
    assert list(code.unknown) == ["rhymes.helpers"]
    assert code.unknown["rhymes.helpers"].startswith("helpers.py can't be read: ")


def test_a_module_of_the_own_package_that_is_not_there_is_unknown(rhymes):
    before = rhymes.code()
    (rhymes.folder / "rhymes" / "helpers.py").unlink()
    after = rhymes.code()
    assert after.unknown == {"rhymes.helpers": "not found"}
    assert code_changes(before, after) == ()


def test_a_compiled_module_is_unknown(rhymes):
    (rhymes.folder / "rhymes" / "fast.abi3.so").write_bytes(b"\x7fELF")
    rhymes.write(rhymes__steps="from rhymes import fast\ndef train(c): return fast.clean(c)")
    assert rhymes.code().unknown == {"rhymes.fast": "fast.abi3.so has no source"}


def test_a_zip_file_is_unknown(project, tmp_path):
    with zipfile.ZipFile(tmp_path / "rhymes.zip", "w") as packed:
        packed.writestr("zipped.py", "def train(c): return c")
    sys.path.insert(0, str(tmp_path / "rhymes.zip"))
    assert list(project.code("zipped:train").unknown) == ["zipped"]


@pytest.mark.parametrize(
    "function", ["no_such_module:train", "rhymes.missing:train", "rhymes.steps:missing", "rhymes:x.y"]
)
def test_what_is_not_there_is_unknown_and_no_error(rhymes, function):
    code = rhymes.code(function)
    assert code.modules == {}
    assert len(code.unknown) == 1


def test_the_same_project_elsewhere_has_the_same_code(rhymes, tmp_path):
    here = rhymes.code()
    sys.path.remove(str(rhymes.folder))
    moved = tmp_path / "élsewhere and spaced"
    rhymes.folder.rename(moved)
    sys.path.insert(0, str(moved))
    assert rhymes.code() == here
    (tmp_path / "link").symlink_to(moved)
    sys.path[0] = str(tmp_path / "link")
    assert rhymes.code() == here


def test_a_long_sum_and_a_long_chain_of_functions_are_read(project):
    chain = "".join(f"def f{number}(c): return f{number + 1}(c)\n" for number in range(3000))
    total = " + ".join(["c"] * 2000)
    project.write(rhymes__init="", rhymes__steps=f"{chain}def f3000(c): return {total}\ndef train(c): return f0(c)")
    assert len(names(project.code())) == 3002


MIXED = """
from dataclasses import dataclass
from marin.execution import apply

def write(n): ...

@dataclass(frozen=True)
class Settings:
    tokens: object
    limit: int

def words(n):
    return apply("raw/words", write, version="2026.07.01", n=n)

{0}

def train(c): return SET
"""


@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "named"])
@pytest.mark.parametrize(
    "value",
    [
        "{'tokens': apply('raw/poem', write, version='2026.07.01', n=1), 'limit': 7}",
        "[apply('raw/poem', write, version='2026.07.01', n=1), 7]",
        "Settings(apply('raw/poem', write, version='2026.07.01', n=1), 7)",
        "Settings(limit=7, tokens=apply('raw/poem', write, version='2026.07.01', n=1))",
        "{'all': [apply('raw/poem', write, version='2026.07.01', n=1)], 'limit': Settings(None, 7)}",
    ],
)
def test_beside_a_handle_the_rest_counts_and_the_build_call_does_not(project, value, loaded):
    def code(value):
        project.write(rhymes__init="", rhymes__steps=MIXED.format(f"SET = {value}"))
        return code_of(project.load("rhymes.steps").train) if loaded else project.code()

    before = code(value)
    assert code_changes(before, code(value.replace("n=1", "n=2"))) == ()
    told = [
        str(change)
        for change in code_changes(before, code(value.replace("7)", "8)").replace(" 7", " 8").replace("=7", "=8")))
    ]
    assert told == ["constant steps.SET (rhymes/steps.py)"]


def test_the_call_of_an_own_function_that_made_a_handle_does_not_count(project):
    def code(value):
        project.write(rhymes__init="", rhymes__steps=MIXED.format(f"SET = {value}"))
        return code_of(project.load("rhymes.steps").train)

    before = code("{'tokens': words(n=1), 'limit': 7}")
    assert code_changes(before, code("{'tokens': words(n=2), 'limit': 7}")) == ()
    assert code_changes(before, code("{'tokens': words(n=1), 'limit': 8}")) != ()
