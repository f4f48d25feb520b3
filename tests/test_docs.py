"""What the documents show is true: python blocks run, their outputs are compared, commands and links exist.

A page is one script: its python blocks run in order, in a process of their own, in an empty folder with an empty store.
A ``text`` block that directly follows a python block is what that block prints; ``...`` in it stands for anything.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from sybil import Document, Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

from marin.cli import main as command
from marin.experiment.main import add_run_arguments

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
LANGUAGES = ("python", "sh", "text")
PAGE_SECONDS = 800
END_OF_BLOCK = "\x1e"

OTHER_COMMANDS = {"git", "source", "export"}
"""What shell blocks may show beside ``marin``, ``make`` and ``python``."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _parsed(page: Path) -> Document:
    return Sybil(parsers=[CodeBlockParser(language, evaluator=lambda example: None) for language in LANGUAGES]).parse(
        page
    )


def _blocks(page: Path) -> list[Example]:
    return list(_parsed(page).examples())


def _language(block: Example) -> str:
    return block.region.lexemes["arguments"]


def _pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(_language(block) == language for block in _blocks(page))]


# Python


def _script(page: Path) -> tuple[str, list[tuple[int, str | None]]]:
    """The blocks of a page as one script, each line where it is on the page; and of each block its line and output."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 2)
    shown: list[tuple[int, str | None]] = []
    blocks = _blocks(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if _language(block) != "python":
            continue
        code = block.parsed.splitlines()
        lines[block.line : block.line + len(code)] = code
        lines[block.line + len(code)] = f"print({END_OF_BLOCK!r})"  # where the fence is closed
        is_output = (
            following is not None
            and _language(following) == "text"
            and not text[block.region.end : following.region.start].strip("`\n")
        )
        shown.append((block.line, following.parsed if is_output and following is not None else None))
    return "\n".join(lines), shown


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "MARIN_PREFIX": str(folder / "store"), "PYTHONHASHSEED": "random", "COLUMNS": "120"}


@pytest.mark.parametrize("page", _pages_with("python"), ids=_name)
def test_the_python_blocks_of_a_page_run_and_print_what_it_says(page, tmp_path):
    source, shown = _script(page)
    script = tmp_path / f"{page.stem.replace('-', '_')}.py"
    script.write_text(source, encoding="utf-8")
    done = _run(script)
    assert done.returncode == 0, f"lines are those of {_name(page)}:\n{done.stdout}"
    outputs = done.stdout.split(END_OF_BLOCK + "\n")
    for (line, wanted), printed in zip(shown, outputs, strict=False):
        if wanted is not None:
            matches = doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS)
            assert matches, f"{_name(page)}, block at line {line} prints:\n{printed}"
    if page in _data_pages():
        again = _run(script)
        assert again.returncode == 0, f"{_name(page)} can't be followed twice in one folder:\n{again.stdout}"


def _run(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-u", script],
        cwd=script.parent,
        env=_environment(script.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PAGE_SECONDS,
        check=False,
    )


def _data_pages() -> list[Path]:
    """Pages that a newcomer may follow one after another in one folder: those that make data or models."""
    made_with = re.compile(r"^from marin\.(experiment|processing)\.", re.MULTILINE)
    return [page for page in _pages_with("python") if made_with.search(_script(page)[0])]


def _made_by(page: Path) -> set[str]:
    """Names that the page's code gives to artifacts, and to the files and folders that it writes into."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(_script(page)[0])):
        if isinstance(node, ast.JoinedStr):  # what a name begins with tells it apart
            node = node.values[0]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"^(?:tokenizers|tokenized|checkpoints|documents|raw|exported)/[\w-]+", node.value))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Path" and isinstance(node.args[0], ast.Constant):
            found.add(node.args[0].value.partition("/")[0])
    return found


def test_pages_of_one_folder_do_not_share_what_they_make():
    """Whoever follows two of them with one store is told of no drift, and overwrites no input."""
    makers: dict[str, list[str]] = {}
    for page in _data_pages():
        for name in _made_by(page):
            makers.setdefault(name, []).append(_name(page))
    assert {"tokenized/mix-", "tokenizers/flowers", "mix_text"} <= makers.keys()
    assert {name: pages for name, pages in makers.items() if len(pages) > 1} == {}


def test_pages_are_run_at_all():
    assert {_name(page) for page in _pages_with("python")} >= {"README.md", "docs/explanations/lazy-artifacts.md"}
    _, shown = _script(ROOT / "docs/explanations/identity-and-drift.md")
    assert sum(wanted is not None for _, wanted in shown) >= 2


def test_a_wrong_output_of_a_page_is_found(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("Two:\n\n```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (folder := tmp_path / "run").mkdir()
    with pytest.raises(AssertionError, match="block at line 3 prints"):
        test_the_python_blocks_of_a_page_run_and_print_what_it_says(page, folder)


def _lines_that_a_script_lacks(page: str, script: str, *, until: str | None = None) -> list[str]:
    """What python blocks of ``page``, above the heading ``until``, show beside assertions that ``script`` does not."""
    lines = {line.strip() for line in (ROOT / script).read_text(encoding="utf-8").splitlines()}
    text = (ROOT / page).read_text(encoding="utf-8")
    end = len(text) if until is None else text.index(f"\n## {until}\n")
    blocks = [block for block in _blocks(ROOT / page) if _language(block) == "python" and block.region.start < end]
    assert blocks
    shown = [line.strip() for block in blocks for line in block.parsed.splitlines()]
    return [line for line in shown if line not in lines and not line.startswith("assert")]


def test_the_tutorial_shows_the_script_as_it_is():
    assert _lines_that_a_script_lacks("docs/tutorials/first-pipeline.md", "examples/01_first_pipeline.py") == []


def test_the_model_of_ones_own_is_that_of_the_example():
    page, script = "docs/how-to/bring-your-own-model.md", "examples/04_own_model.py"
    lacking = _lines_that_a_script_lacks(page, script, until="Over several devices")
    assert [line for line in lacking if not line.startswith(("from ", "import "))] == []


def _modules_with_doctests() -> list[str]:
    files = [file for file in sorted(SOURCES.rglob("*.py")) if ">>> " in file.read_text(encoding="utf-8")]
    return [".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__") for file in files]


@pytest.mark.parametrize("module", _modules_with_doctests())
def test_the_examples_of_docstrings_hold(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path / "store"))
    failed, attempted = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert attempted > 0
    assert failed == 0, "see what doctest has printed above"


# Commands


def _commands(page: Path) -> list[str]:
    """The command lines of a page's shell blocks, comments left out."""
    lines: list[str] = []
    for block in _blocks(page):
        if _language(block) == "sh":
            joined = block.parsed.replace("\\\n", " ")
            lines += [line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return lines


def _words(line: str) -> list[str]:
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    return words


def _parses(parser: argparse.ArgumentParser, words: list[str]) -> None:
    code: object = 0
    try:
        parser.parse_args(words)
    except SystemExit as ended:
        code = ended.code
    assert code == 0, f"{words} is wrong usage, see what was printed"


def _check_marin(words: list[str]) -> None:
    own = words[: words.index("--")] if "--" in words else words  # the rest is the script's
    _parses(command.parser_of(own[0]), own)


def _check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    chosen = {word for word in words if "=" not in word}
    assert chosen
    assert chosen <= set(targets)


def _check_python(words: list[str]) -> None:
    if words[0] == "-m":
        if words[1].startswith("benchmarks"):
            helped = subprocess.run([sys.executable, *words, "--help"], cwd=ROOT, capture_output=True, check=False)
            assert helped.returncode == 0, f"{words} is wrong usage: {helped.stderr.decode()}"
            return
        assert words[1] in ("pytest", "venv")
        for word in words[2:]:
            assert "/" not in word or (ROOT / word.partition("::")[0]).exists(), word
        return
    assert (ROOT / words[0]).is_file()
    parser = argparse.ArgumentParser()
    add_run_arguments(parser)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--json", action="store_true")
    _parses(parser, words[1:])


def _check_pip(words: list[str]) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extras in re.findall(r"(?:\.|marin)\[(.*?)\]", " ".join(words)):
        assert set(extras.split(",")) <= set(known)


CHECKS = {
    "marin": _check_marin,
    "make": _check_make,
    "python": _check_python,
    "python3": _check_python,
    "pip": _check_pip,
}


def _check_command(line: str) -> None:
    for inner in re.findall(r"\$\(([^)]*)\)", line):
        _check_command(inner)
    program, *rest = _words(line)
    if program in CHECKS:
        CHECKS[program](rest)
    else:
        assert program in OTHER_COMMANDS, f"{program} is no command that this project has or knows"


@pytest.mark.parametrize("page", _pages_with("sh"), ids=_name)
def test_commands_that_a_page_shows_exist_with_their_options(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = _commands(page)
    assert lines
    for line in lines:
        _check_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "marin explain tokenized/stdlib",
        "marin ls --colour",
        "make everything",
        "python examples/99_absent.py",
        "python examples/01_first_pipeline.py --fast",
        "python -m pytest tests/execution/test_absent.py",
        "pip install -e '.[everything]'",
        'du -sh "$(marin path)"',
        "frobnicate",
    ],
)
def test_a_command_that_does_not_exist_is_found(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(AssertionError):
        _check_command(line)


# Links


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ +(.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _links(page: Path) -> list[tuple[Path, str]]:
    """File and anchor of each relative link."""
    targets = re.findall(r"\]\(([^)\s]+)\)", _prose(page))
    local = [target.partition("#") for target in targets if not re.match(r"[a-z]+:", target)]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in local]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_of_a_page_lead_somewhere(page):
    for target, anchor in _links(page):
        assert target.exists(), target
        assert not anchor or anchor in _anchors(target), f"{target} has no heading #{anchor}"


def test_every_page_is_reached_from_the_readme():
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [target for target, _ in _links(page) if target.suffix == ".md"]
    assert reached >= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_files_that_a_page_names_are_there(page):
    for path in re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]*)`", _prose(page)):
        assert (ROOT / path).exists(), path


def test_the_readme_shows_every_folder_of_the_source():
    tree = (ROOT / "README.md").read_text(encoding="utf-8")
    folders = {file.parent.name for file in SOURCES.rglob("*.py") if file.parent.parent == SOURCES / "marin"}
    assert folders
    assert {folder for folder in folders if f"{folder}/" not in tree} == set()
