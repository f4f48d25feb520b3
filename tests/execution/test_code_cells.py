"""Functions that were typed into a notebook or at a prompt: their source is where IPython and Python keep it."""

from __future__ import annotations

import linecache
import sys
import types

import pytest

from marin.execution.code import code_of
from marin.execution.code_changes import code_changes
from tests.execution.projects import names


class Notebook:
    """Runs cells as IPython does: one namespace, the source of each cell in linecache under a name of its own."""

    def __init__(self, pattern):
        self.pattern = pattern
        self.module = types.ModuleType("__main__")
        self.history = None
        self.count = 0

    def run(self, text):
        self.count += 1
        name = self.pattern.format(key=f"{hash(text) % 10**9}", count=self.count)
        linecache.cache[name] = (len(text), None, [f"{line}\n" for line in text.splitlines()], name)
        if self.history is not None:
            self.history.append(text)
        exec(compile(text, name, "exec"), self.module.__dict__)

    def __getattr__(self, name):
        return self.module.__dict__[name]


@pytest.fixture(params=["/tmp/ipykernel_77/{key}.py", "<ipython-input-{count}-{key}>", "<python-input-{count}>"])
def notebook(request, monkeypatch):
    before = set(linecache.cache)
    notebook = Notebook(request.param)
    monkeypatch.setitem(sys.modules, "__main__", notebook.module)
    yield notebook
    for name in set(linecache.cache) - before:
        del linecache.cache[name]


def told(old, new):
    return [str(change) for change in code_changes(old, new)]


def test_a_step_reaches_definitions_of_other_cells(notebook):
    notebook.run("LIMIT = 3\nclass Words:\n    size: int = 1")
    notebook.run("def clean(text): return text[:LIMIT]")
    notebook.run("def train(config: Words): return clean(config)")
    code = code_of(notebook.train)
    assert names(code) == {"__main__.LIMIT", "__main__.Words", "__main__.clean", "__main__.train"}
    assert code.unknown == {}


def test_running_an_unchanged_cell_again_changes_nothing(notebook):
    cell = "def clean(text): return text"
    notebook.run(cell)
    notebook.run("def train(config): return clean(config)")
    before = code_of(notebook.train)
    notebook.run(cell)
    notebook.run("print('other')")
    assert code_of(notebook.train) == before


def test_an_edited_cell_is_told_by_the_name_of_what_changed(notebook):
    notebook.run("LIMIT = 3\ndef clean(text): return text[:LIMIT]")
    notebook.run("def train(config): return clean(config)")
    before = code_of(notebook.train)
    notebook.run("# shorter\nLIMIT = 2\ndef clean(text): return text[:LIMIT]")
    assert told(before, code_of(notebook.train)) == ["constant __main__.LIMIT (a cell)"]


def test_of_two_cells_the_one_that_its_function_comes_from_counts(notebook):
    one, other = "def clean(text): return 1", "def clean(text): return 2"
    notebook.run("def train(config): return clean(config)")
    notebook.run(one)
    first = code_of(notebook.train)
    notebook.run(other)
    assert told(first, code_of(notebook.train)) == ["__main__.clean (a cell)"]
    notebook.run(one)  # is where it was in linecache
    assert code_of(notebook.train) == first


def test_of_two_cells_with_a_constant_the_one_that_ran_last_counts(notebook):
    notebook.history = notebook.module.__dict__["In"] = [""]
    notebook.run("def train(config): return LIMIT")
    notebook.run("LIMIT = 1")
    first = code_of(notebook.train)
    notebook.run("LIMIT = 2")
    assert told(first, code_of(notebook.train)) == ["constant __main__.LIMIT (a cell)"]
    notebook.run("LIMIT = 1")
    assert code_of(notebook.train) == first


def test_a_cell_reaches_the_modules_of_the_project(notebook, project):
    project.write(verse__init="", verse__helpers="def clean(c): return c")
    notebook.run("import verse.helpers as h\nfrom verse import helpers")
    notebook.run("def train(config):\n    return h.clean(config)")
    before = code_of(notebook.train)
    project.write(verse__helpers="def clean(c): return c + 1")
    assert told(before, code_of(notebook.train)) == ["helpers.clean (verse/helpers.py)"]


def test_a_class_of_a_cell_is_found_by_its_methods(notebook):
    notebook.run("class Trainer:\n    def __call__(self, config): return config")
    assert names(code_of(notebook.Trainer())) == {"__main__.Trainer"}
    assert names(code_of(notebook.Trainer)) == {"__main__.Trainer"}


def test_what_else_linecache_holds_is_no_matter(notebook):
    linecache.cache[notebook] = (1, None, ["x"], "x")
    linecache.getlines(__file__)
    notebook.run("def train(config): return 1")
    assert names(code_of(notebook.train)) == {"__main__.train"}


def test_a_broken_cell_is_no_matter(notebook):
    notebook.run("def train(config): return 1")
    before = code_of(notebook.train)
    with pytest.raises(SyntaxError):
        notebook.run("def train(config) return 2")
    assert code_of(notebook.train) == before


def test_handles_in_cells_do_not_count(notebook):
    notebook.run("from marin.execution import ArtifactStep\ndef train(config): return tokens")
    for version in ("2026.07.01", "2026.07.02"):
        notebook.run(f"tokens = ArtifactStep(name='tokenized/poems', version='{version}', run=train)")
        assert names(code_of(notebook.train)) == {"__main__.train"}


def test_a_cell_whose_source_is_gone_is_unknown(notebook):
    notebook.run("def train(config): return 1")
    linecache.cache.pop(notebook.train.__code__.co_filename)
    code = code_of(notebook.train)
    assert (code.modules, list(code.unknown)) == ({}, ["__main__.train"])


def run_timed(notebook, body):
    """As IPython runs a cell under ``%%time``: the body is compiled under a name for which there is no source."""

    class Shell:
        def run_cell_magic(self, magic, line, cell):
            exec(compile(cell, "<timed exec>", "exec"), notebook.module.__dict__)

    notebook.module.get_ipython = Shell
    notebook.run(f"get_ipython().run_cell_magic('time', '', {body!r})\n")


@pytest.mark.parametrize("name", ["clean", "Words"])
def test_what_a_cell_without_source_has_defined_again_is_unknown(notebook, name):
    text = "def clean(c): return {0}\nclass Words:\n    def clean(self): return {0}"
    notebook.run(text.format(1))
    notebook.run(f"def train(config): return {name}")
    assert names(code_of(notebook.train)) == {f"__main__.{name}", "__main__.train"}
    run_timed(notebook, text.format(2))
    code = code_of(notebook.train)
    assert (names(code), list(code.unknown)) == ({"__main__.train"}, [f"__main__.{name}"])


def test_a_constant_of_a_timed_cell_is_told(notebook):
    notebook.history = notebook.module.__dict__["In"] = [""]
    notebook.run("LIMIT = 1")
    notebook.run("def train(config): return LIMIT")
    before = code_of(notebook.train)
    run_timed(notebook, "LIMIT = 2\nprint(LIMIT)\n")
    assert told(before, code_of(notebook.train)) == ["constant __main__.LIMIT (a cell)"]
