"""Step functions as they are given: closures, partials, lambdas, methods, wrappers, functions without source."""

from __future__ import annotations

import functools
import math
import sys

import pytest

from marin.execution import apply, remote
from marin.execution.code import CodeReader, code_of
from marin.execution.code_changes import CodeChange, code_changes
from tests.execution.projects import names

FACTORY = """
import functools
import verse.helpers as helpers

def clean(c): return c

def make(way, size):
    def step(config):
        return way(config), size
    return step

def twice(way):
    return [make(way, 1), make(way, 2)]

def logged(function):
    @functools.wraps(function)
    def wrapper(config):
        return function(config)
    return wrapper

@logged
def train(config): return clean(config)

@functools.lru_cache
def cached(config): return clean(config)

class Trainer:
    way = staticmethod(clean)
    def __init__(self, way): self.way = way
    def __call__(self, config): return self.way(config)
    def train(self, config): return config
    @classmethod
    def made(cls, config): return cls(config)

class Better(Trainer):
    def train(self, config): return super().train(config)

one, other = (lambda c: helpers.clean(c)), (lambda c: c)
nested = [lambda c: (lambda d: helpers.clean(d))]
"""
HELPERS = "def clean(c): return c\ndef other(c): return c\n"


@pytest.fixture
def factory(project):
    project.write(verse__init="", verse__factory=FACTORY, verse__helpers=HELPERS)
    return project.load("verse.factory")


def told(project, function, **files):
    before = code_of(function)
    project.write(**files)
    return [str(change) for change in code_changes(before, code_of(function))]


def test_a_closure_counts_with_the_functions_that_it_holds(factory):
    assert names(code_of(factory.make(factory.helpers.clean, 3))) == {"verse.factory.make.step", "verse.helpers.clean"}


def test_the_values_that_a_closure_holds_are_no_code(factory):
    assert code_of(factory.make(factory.clean, 3)) == code_of(factory.make(factory.clean, 4))


def test_the_function_around_a_closure_does_not_count(factory, project):
    edited = FACTORY.replace("    return step\n", "    print('made')\n    return step\n")
    assert told(project, factory.make(factory.clean, 3), verse__factory=edited) == []


def test_a_partial_counts_by_its_function_and_the_functions_among_its_arguments(factory):
    step = functools.partial(functools.partial(factory.cached, 1), way=[factory.helpers.other])
    assert {"verse.factory.cached", "verse.factory.clean", "verse.helpers.other"} <= names(code_of(step))


def test_a_decorated_function_counts_with_its_decorator(factory):
    found = names(code_of(factory.train))
    assert {"verse.factory.train", "verse.factory.logged", "verse.factory.clean"} <= found


def test_a_change_of_the_wrapped_function_or_of_the_wrapper_is_told(factory, project):
    edited = FACTORY.replace("def train(config): return clean(config)", "def train(config): return clean(config + 1)")
    assert told(project, factory.train, verse__factory=edited) == ["factory.train (verse/factory.py)"]
    edited = edited.replace("return function(config)", "return function(config) + 1")
    assert "factory.logged (verse/factory.py)" in told(project, factory.train, verse__factory=edited)


def test_a_cached_function_counts_as_itself(factory):
    assert names(code_of(factory.cached)) == {"verse.factory.cached", "verse.factory.clean"}


@pytest.mark.parametrize("way", ["bound", "of the class", "called", "class method", "class"])
def test_of_a_method_the_whole_class_counts_and_its_bases(factory, way):
    better = factory.Better(factory.helpers.clean)
    step = {
        "bound": better.train,
        "of the class": factory.Better.train,
        "called": better,
        "class method": factory.Better.made,
        "class": factory.Better,
    }[way]
    found = names(code_of(step))
    assert {"verse.factory.Better", "verse.factory.Trainer", "verse.factory.clean"} <= found
    assert ("verse.helpers.clean" in found) is (way in ("bound", "called"))


def test_two_lambdas_on_one_line_stay_apart(factory):
    assert code_of(factory.one) != code_of(factory.other)
    assert names(code_of(factory.one)) == {"verse.factory.<lambda>", "verse.helpers.clean"}
    assert names(code_of(factory.other)) == {"verse.factory.<lambda>"}


def test_a_lambda_in_a_lambda_is_found(factory):
    inner = factory.nested[0](1)
    assert names(code_of(inner)) == {"verse.factory.<lambda>.<lambda>", "verse.helpers.clean"}
    assert code_of(inner) != code_of(factory.nested[0])


def test_a_lambda_that_moved_beside_another_is_unknown_rather_than_mistaken(factory, project):
    before = code_of(factory.one)
    project.write(verse__factory="\n\n" + FACTORY)
    after = code_of(factory.one)
    assert after.modules == {}
    assert "edited since it was imported" in after.unknown["verse.factory.<lambda>"]
    assert code_changes(before, after) == ()


def test_several_functions_of_one_name_all_count(factory):
    step = functools.partial(print, *factory.twice(factory.clean), factory.one, factory.other)
    assert names(code_of(step)) == {
        "verse.factory.make.step",
        "verse.factory.clean",
        "verse.factory.<lambda>",
        "verse.factory.<lambda> 2",
        "verse.helpers.clean",
    }


def test_a_function_is_found_in_a_file_that_was_edited_since(factory, project):
    assert told(project, factory.clean, verse__factory="# a line\n\n" + FACTORY) == []
    edited = FACTORY.replace("def clean(c): return c", "def clean(c): return c + 1")
    assert told(project, factory.clean, verse__factory=edited) == ["factory.clean (verse/factory.py)"]


def test_where_a_step_runs_is_no_code(factory):
    assert code_of(remote(factory.clean, resources="cuda:0")) == code_of(factory.clean)
    assert code_of("verse.factory:clean") == code_of(factory.clean)


def test_a_function_that_is_applied_to_inputs_counts_as_itself(factory):
    for function in (factory.clean, "verse.factory:clean", remote(factory.clean)):
        assert code_of(apply("raw/poem", function, c=1).run) == code_of(factory.clean)


def test_a_class_without_methods_counts_and_one_made_in_a_function_counts_with_that(project):
    inner = "    class Inner:\n        def run(self, c): return c\n    return Inner\n"
    project.write(verse__init="", verse__steps=f"class Words:\n    size = 1\ndef make():\n{inner}")
    module = project.load("verse.steps")
    assert names(code_of(module.Words)) == {"verse.steps.Words"}
    assert names(code_of(module.make())) == {"verse.steps.make"}


def made_by_exec():
    namespace = {"__name__": __name__}
    exec("def train(config): return config", namespace)
    return namespace["train"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (made_by_exec(), "its source was not kept"),
        (eval("lambda config: 1"), "made by exec or eval"),
        ("no.such:train", "not found"),
        ("no.such", "not found"),
        (3, None),
        (None, None),
    ],
)
def test_what_has_no_source_is_unknown_and_never_an_error(function, reason):
    code = code_of(function)
    assert code.modules == {}
    assert reason is None or reason in next(iter(code.unknown.values()))


def test_what_answers_in_its_own_way_is_no_error(factory):
    class Odd:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __call__(self, config):
            return config

    odd = Odd()
    assert code_of(odd).unknown == {}
    assert names(code_of(factory.make(odd, Odd))) >= {"verse.factory.make.step"}


def test_a_function_of_the_standard_library_has_nothing_to_tell():
    assert code_of(math.sqrt) == code_of(len)
    assert (code_of(len).modules, code_of(len).unknown, code_of(len).distributions) == ({}, {}, {})


def test_many_steps_of_one_function_read_its_file_once(factory, monkeypatch):
    opened = []
    monkeypatch.setattr("builtins.open", lambda file, *more, open=open: opened.append(file) or open(file, *more))
    reader = CodeReader()
    codes = {id(reader.code_of(factory.make(factory.clean, number))) for number in range(100)}
    assert (len(codes), len(opened)) == (1, 1)


def test_a_reader_says_the_same_each_time_and_tells_functions_apart(factory):
    reader = CodeReader()
    for function in (pytest.raises, factory.clean, factory.cached, "no such", pytest.raises):
        assert reader.code_of(function) == reader.code_of(function) == code_of(function)


def test_a_module_that_is_not_python_code_in_memory_is_no_error(project, monkeypatch):
    project.write(verse__init="", verse__steps="import strange\ndef train(c): return strange.x(c)")
    monkeypatch.setitem(sys.modules, "strange", object())
    assert names(code_of("verse.steps:train")) == {"verse.steps.train"}


def test_a_handle_that_a_name_now_holds_does_not_hide_the_function_before_it(project):
    project.write(
        verse__init="",
        verse__steps="""
        from marin.execution import ArtifactStep
        def made(name, run): return ArtifactStep(name=name, version="2026.07.01", run=run)
        def train(config): return config, tokens, more
        step = train
        train = made("checkpoints/poet", step)
        tokens = made("tokenized/poems", step)
        more = {"a": tokens}
        """,
    )
    module = project.load("verse.steps")
    assert names(code_of(module.step)) == {"verse.steps.train"}
    before = code_of(module.step)
    file = project.folder / "verse" / "steps.py"
    file.write_text(file.read_text().replace("2026.07.01", "2026.07.02").replace("poems", "verses"))
    assert code_of(module.step) == before


def test_a_change_prints_as_people_call_it():
    nested = CodeChange(module="verse.factory", name="make.step", what="function", file="verse/factory.py")
    assert str(nested) == "factory.make.step (verse/factory.py)"


def test_the_code_of_apply_is_that_of_its_function():
    for function in (names, remote(names), "tests.execution.projects:names"):
        applied = apply("x", function) if isinstance(function, str) else apply("x", function, code=None)
        assert code_of(applied.run) == code_of(function)
        assert code_of(applied.run).modules


@pytest.mark.parametrize("wraps", ["", "    @functools.wraps(function)\n"], ids=["bare", "wraps"])
def test_a_decorated_function_has_the_same_code_by_its_name(project, wraps):
    project.write(
        rhymes__init="",
        rhymes__ways=(
            f"import functools\ndef timed(function):\n{wraps}    def timer(c): return function(c)\n    return timer\n"
        ),
        rhymes__steps="from .ways import timed\n@timed\ndef train(c): return c\n",
    )
    assert code_of(project.load("rhymes.steps").train) == code_of("rhymes.steps:train")
