"""The digest of syntax: what makes a difference, what does not, and that every Python agrees."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.execution.code_digest import syntax_digest
from marin.execution.code_module import ModuleSyntax

GOLDEN = Path(__file__).parent / "golden"
SAMPLE = GOLDEN / "code_sample.txt"
SOURCE = Path(__file__).parents[2] / "src"


def digest(text):
    return syntax_digest([ast.parse(text)])


EQUAL = {
    "comments": ("x = 1", "# one\nx = 1  # two"),
    "quotes": ("x = 'a'", 'x = """a"""'),
    "a text in parts": ("x = 'ab'", "x = 'a' \\\n 'b'"),
    "escapes": ("x = '\\n\\u00e9'", "x = '''\né'''"),
    "an old prefix": ("x = 'a'", "x = u'a'"),
    "numbers": ("x = 1000", "x = 1_000"),
    "parentheses": ("return_ = a + b", "return_ = (a + b)"),
    "a trailing comma": ("f(a, b)", "f(\n    a,\n    b,\n)"),
    "a docstring": ("def f():\n    return 1", "def f():\n    'says'\n    return 1"),
    "a docstring for pass": ("class A:\n    pass", "class A:\n    '''says'''"),
    "a documented field": ("class A:\n    x: int", "class A:\n    x: int\n    '''says'''"),
    "dots for pass": ("def f(): ...", "def f():\n    pass"),
    "semicolons": ("x = 1; y = 2", "x = 1\ny = 2"),
    "parts of an f-string": ("x = f'a{b}cd'", "x = f'a{b}c' 'd'"),
    "line ends": ("x = 1\ny = 2\n", "x = 1\r\ny = 2\r\n"),
}
DIFFERENT = """
x = 1 ;; x = 1.0 ;; x = True ;; x = '1' ;; x = b'1' ;; x = 1j ;; x = -1 ;; x = None ;; x = ... ;; y = 1
x == 1 ;; x: int = 1 ;; x += 1 ;; x ;; x() ;; x.y ;; x[1] ;; del x ;; x = y = 1 ;; x, = 1 ;; x = [1]
x = (1,) ;; x = {1} ;; x = {1: 1} ;; x = {**a} ;; x = [*a] ;; x = f'{a}' ;; x = f'{a!r}' ;; x = f'{a:r}'
x = '{a}' ;; x = f'{a=}' ;; x = 'a', 'b' ;; x = 'a, b' ;; x = '(Name' ;; def x(): return 1 ;; def x(): return
def x(): yield ;; async def x(): return 1 ;; def x(a): return 1 ;; def x(a, /): return 1
def x(*a): return 1 ;; def x(*, a): return 1 ;; def x(*, a=1): return 1 ;; def x(**a): return 1
def x(a=1): return 1 ;; def x(a: int): return 1 ;; def x() -> int: return 1 ;; @a⏎def x(): return 1
class x: pass ;; class x(a): pass ;; class x(a=b): pass ;; import x ;; import x as y ;; from x import y
from . import x ;; from .. import x ;; from x import y as x ;; if a: x ;; if a: y ;; if a: x⏎else: x
while a: x ;; for a in x: x ;; with a: x ;; with a as x: x ;; try: x⏎finally: y ;; try: x⏎except: y
try: x⏎except a: y ;; try: x⏎except a as b: y ;; try: x⏎except* a: y ;; lambda: x ;; lambda a: x
[x for x in a] ;; {x for x in a} ;; (x for x in a) ;; [x for x in a if x] ;; await_(x) ;; a < x < b
a < x and x < b ;; a or x ;; not x ;; x if a else b ;; x[1:] ;; x[:1] ;; x[::1] ;; x[1, 2] ;; x[(1, 2), 3]
match x:⏎ case 1: x ;; match x:⏎ case a: x ;; match x:⏎ case _: x ;; match x:⏎ case [a]: x
match x:⏎ case {}: x ;; raise x ;; raise x from a ;; assert x ;; assert x, a ;; global x ;; return_(x, *a)
return_(x, **a) ;; return_(x, a=a)
"""
"""Statements between ``;;`` and at line ends; ``⏎`` is a line end within one."""


@pytest.mark.parametrize("what", EQUAL)
def test_how_code_is_written_makes_no_difference(what):
    one, other = EQUAL[what]
    assert digest(one) == digest(other)


def test_what_code_does_makes_a_difference():
    texts = [text.replace("⏎", "\n") for line in DIFFERENT.splitlines() for text in line.split(" ;; ")]
    digests = [digest(text) for text in texts]
    assert [text for text, said in zip(texts, digests, strict=True) if digests.count(said) > 1] == []


def test_where_a_python_cuts_the_text_of_an_f_string_makes_no_difference():
    cut = ast.JoinedStr([ast.Constant("a"), ast.Constant("b"), ast.FormattedValue(ast.Name("x"), -1), ast.Constant("")])
    whole = ast.JoinedStr([ast.Constant("ab"), ast.FormattedValue(ast.Name("x"), -1, ast.JoinedStr([]))])
    assert syntax_digest([cut]) == syntax_digest([whole])


def test_a_huge_number_and_a_huge_sum_have_digests():
    assert digest(f"x = 0x1{'0' * 20_000}") != digest(f"x = 0x2{'0' * 20_000}")
    assert digest("x = " + " + ".join(["a"] * 2000)) != digest("x = " + " + ".join(["a"] * 2001))


CONSTANTS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, min_value=0), st.text(), st.binary()
)


@given(CONSTANTS, CONSTANTS)
def test_two_constants_share_a_digest_exactly_if_they_are_written_alike(one, other):
    alike = (type(one), repr(one)) == (type(other), repr(other))
    assert (digest(f"x = {one!r}") == digest(f"x = {other!r}")) is alike


def digests_of_sample():
    syntax = ModuleSyntax(ast.parse(SAMPLE.read_bytes()))
    found = {name: syntax.definition(name) for name in syntax.names}
    return {
        name: [str(found[name]), sorted({str(reference.base) for reference in found[name].references})]
        for name in sorted(found)
        if found[name] is not None
    }


def test_recorded_digests_still_hold():
    """Changing this file means that every recorded step is told to have changed code: raise CODE_SCHEME instead."""
    assert json.loads((GOLDEN / "code_digests.json").read_text()) == digests_of_sample()


def other_pythons():
    found = {shutil.which(f"python3.{minor}") for minor in range(11, 16)}
    found |= {str(python) for python in Path.home().glob(".pyenv/versions/3.1[1-9]*/bin/python3")}
    return sorted(found - {None})


# These modules need the standard library alone: so does a Python in which nothing is installed.
CHILD = """
import ast, json, sys, types
for name, folder in (("marin", "marin"), ("marin.execution", "marin/execution")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1] + "/" + folder]
from marin.execution.code_module import ModuleSyntax
syntax = ModuleSyntax(ast.parse(open(sys.argv[2], "rb").read()))
found = {name: syntax.definition(name) for name in syntax.names}
print(json.dumps({name: str(found[name]) for name in sorted(found) if found[name] is not None}))
"""


def test_every_python_on_this_machine_makes_the_same_digests(tmp_path):
    here = {name: said for name, (said, _) in digests_of_sample().items()}
    asked = set()
    for python in other_pythons():
        ask = [python, "-I", "-c", "import sys; print(*sys.version_info[:2])"]
        words = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
        version = tuple(map(int, words))
        if version < (3, 11) or version in asked:
            continue
        asked.add(version)
        done = subprocess.run(
            [python, "-I", "-c", CHILD, str(SOURCE), str(SAMPLE)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == here, f"Python {version}"
    if asked <= {sys.version_info[:2]}:
        pytest.skip("no other Python 3.11 or newer was found")
