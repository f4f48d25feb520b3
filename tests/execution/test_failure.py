from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from marin.execution.failure import MAX_MESSAGE, MAX_TRACEBACK, Failure, is_user_code


def failure_of(code: str, file: str = "train.py") -> Failure:
    """The failure of running ``code`` as the user's ``file``."""
    try:
        exec(compile(code, file, "exec"), {})
    except BaseException as fault:  # noqa: BLE001
        trace = fault.__traceback__
        # Without the frame of this function, which is not the library's either.
        return Failure.from_exception(fault.with_traceback(trace and trace.tb_next))
    raise AssertionError("it did not fail")


def test_a_failure_has_class_text_frame_and_traceback():
    failure = failure_of("def train():\n    raise ValueError('no tokens')\ntrain()")
    assert (failure.error, failure.message, failure.frame) == ("ValueError", "no tokens", "train.py:2 in train")
    assert "Traceback" in failure.traceback
    assert "ValueError: no tokens" in failure.traceback


def test_the_frame_is_the_users_and_not_that_of_a_library():
    failure = failure_of("import json\ndef load():\n    json.loads('{')\nload()")
    assert failure.error == "JSONDecodeError"
    assert failure.frame == "train.py:3 in load"


def test_the_frame_is_not_ours():
    failure = failure_of(
        "from marin.execution.identity import artifact_id\ndef make():\n    artifact_id('a', 'x')\nmake()"
    )
    assert failure.frame == "train.py:3 in make"


def test_the_users_frame_is_found_in_the_cause():
    library = str(Path(json.__file__).parent / "fake.py")
    code = "def user():\n    1 / 0\ntry:\n    user()\nexcept ZeroDivisionError as cause:\n    fault = cause\n"
    code += f"exec(compile('raise RuntimeError() from fault', {library!r}, 'exec'), {{'fault': fault}})"
    failure = failure_of(code, file=library.replace("fake", "fake2"))
    assert failure.frame.startswith(library)
    code = code.replace("def user", "exec(compile('def user():\\n    1 / 0', 'mine.py', 'exec'))\ndef other")
    assert failure_of(code, file=library.replace("fake", "fake2")).frame == "mine.py:2 in user"


def test_without_a_frame_of_the_users_the_innermost_is_told():
    library = str(Path(json.__file__).parent / "fake.py")
    assert failure_of("def f():\n    1 / 0\nf()", file=library).frame == f"{library}:2 in f"


def test_a_file_of_the_working_folder_is_called_as_from_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert failure_of("1 / 0", file=str(tmp_path / "src" / "a.py")).frame == "src/a.py:1 in <module>"
    assert failure_of("1 / 0", file=str(tmp_path.parent / "a.py")).frame == f"{tmp_path.parent}/a.py:1 in <module>"


def test_a_working_folder_that_is_gone_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert failure_of("1 / 0").frame == "train.py:1 in <module>"


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (
            "class E(Exception):\n    def __str__(self): 1 / 0\nraise E()",
            "E",
            "(its message can't be shown: ZeroDivisionError)",
        ),
        (
            "class E(Exception):\n    def __str__(self): return 5\nraise E()",
            "E",
            "(its message can't be shown: TypeError)",
        ),
        (
            "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E()",
            "E",
            "(its message can't be shown: SystemExit)",
        ),
        ("raise ValueError('\\ud800')", "ValueError", "\\ud800"),
        ("raise ValueError", "ValueError", ""),
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("raise KeyError('x')", "KeyError", "'x'"),
        ("raise ExceptionGroup('two', [ValueError(1), TypeError(2)])", "ExceptionGroup", "two (2 sub-exceptions)"),
        ("def f(): f()\nf()", "RecursionError", "maximum recursion depth exceeded"),
        ("a = ValueError('loop'); a.__cause__ = a; raise a", "ValueError", "loop"),
        ("a = ValueError('odd'); a.__notes__ = 5; raise a", "ValueError", "odd"),
    ],
)
def test_any_exception_can_be_told(code: str, error: str, message: str):
    failure = failure_of(code)
    assert (failure.error, failure.message) == (error, message)
    assert failure.frame.startswith("train.py:")
    assert error in failure.traceback
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure


def test_a_long_chain_of_causes_can_be_told():
    fault = ValueError("first")
    for number in range(sys.getrecursionlimit() * 3):
        following = ValueError(f"number {number}")
        following.__cause__ = fault
        fault = following
    assert "number 2999" in Failure.from_exception(fault).traceback


def test_an_exception_that_was_never_raised_has_no_frame():
    assert Failure.from_exception(ValueError("x")).frame == ""


def test_a_huge_message_keeps_its_beginning_and_its_end():
    failure = failure_of("raise ValueError('begin' + 'x' * 10_000_000 + 'end')")
    assert len(failure.message) < MAX_MESSAGE + 100
    assert len(failure.traceback) < MAX_TRACEBACK + 100
    assert failure.message.startswith("begin")
    assert failure.message.endswith("end")
    assert "characters left out" in failure.message


def test_notes_and_causes_are_in_the_traceback():
    failure = failure_of(
        "try:\n    1 / 0\nexcept Exception as c:\n    e = ValueError(); e.add_note('a note'); raise e from c"
    )
    assert "a note" in failure.traceback
    assert "ZeroDivisionError" in failure.traceback


def test_an_exception_keeps_the_failure_that_it_carries():
    failure = Failure(error="ValueError", message="there", frame="there.py:1 in f", traceback="…")
    assert Failure.from_exception(failure.carried_by(ValueError("here"))) is failure


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/anna/train.py", True),
        ("<stdin>", True),
        ("<frozen importlib._bootstrap>", False),
        (json.__file__, False),
        (pytest.__file__, False),
        (sys.modules["marin.errors"].__file__, False),
        (__file__, True),
        ("/home/anna/.venv/lib/python3.12/site-packages/numpy/core.py", False),
    ],
)
def test_user_code_is_told_from_libraries(file: str, expected: bool):
    assert is_user_code(file) is expected
