"""The fixture, as projects of users have it: in a pytest of its own."""

import re
import subprocess
import sys

TEST = """
from marin.execution import resolve
from marin.testing import a_step, assert_builds, assert_cached

def test_a_pipeline(marin_store, tmp_path):
    assert_builds(a_step())
    resolve(a_step(files={"poems.txt": "a rose"}))
    assert_cached(a_step(files={"poems.txt": "a rose"}))
    assert marin_store.made == ["raw/poems@2026.07.01"]
    assert (tmp_path / "marin_store/raw/poems/2026.07.01/poems.txt").read_text() == "a rose"

def test_another_one_finds_an_empty_store(marin_store):
    assert_builds(a_step())

def test_a_failure_points_here(marin_store):
    assert_cached(a_step())
"""


def test_a_project_gets_the_fixture_by_naming_the_plugin(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["marin.testing"]\n')
    (tmp_path / "test_pipeline.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_pipeline.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert re.search(r"^>       assert_cached\(a_step\(\)\)$", done.stdout, re.MULTILINE), done.stdout
    assert "src/marin/testing" not in done.stdout
    assert "raw/poems@2026.07.01: build: not built yet" in done.stdout


def test_without_pytest_there_is_a_temporary_store():
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from marin.testing import temporary_store, a_step\n"
        "from marin.execution import resolve\n"
        "with temporary_store() as store:\n"
        "    resolve(a_step())\n"
        "    print(store.made)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['raw/poems@2026.07.01']\n", "")
