"""Mixed English, code and multilingual text out of Debian packages.

``python -m benchmarks.corpus FOLDER --megabytes 100`` assembles it.

Nothing is downloaded but packages, by ``apt-get download``, and they are not installed. Where there is no apt, or no
network, what this machine has in ``/usr/share`` and beside its Python is taken instead. The same packages give the same
bytes; ``corpus.json`` says what is in them, and their digest.

The same documents lie there in four layouts: ``even`` (four files of one size), ``skewed`` (one file of 60 % and
twenty of 2 %), ``single`` (one file) and ``small`` (a quarter of them, in four files).
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus_text import texts_of
from benchmarks.harness.command import BenchmarkError

RECIPE = 2
"""Changes with the documents that the same packages give."""

SUMMARY_FILE = "corpus.json"
PARTS = 4
SMALL_PARTS_OF = 4
"""``small`` holds one of so many parts of the text."""

LARGE_SHARE, SMALL_FILES = 0.6, 20
"""Of ``skewed``: what the large file holds, and how many files hold the rest."""

_LEAST_SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of text: its share of the corpus, the packages that ship it, and folders to take in their place."""

    share: float
    packages: tuple[str, ...]
    folders: tuple[str, ...]


_LANGUAGES = ("de", "fr", "ja", "ru", "zh", "es", "pl", "uk", "cs", "it", "nl", "pt-br")

KINDS: Mapping[str, Kind] = {
    "documentation": Kind(
        share=0.45,
        packages=(
            *("bash-doc", "debian-policy", "debian-reference-en", "developers-reference", "git-doc", "manpages"),
            *("manpages-dev", "perl-doc", "postgresql-doc-15", "python3.11-doc", "sqlite3-doc", "vim-runtime"),
        ),
        folders=("/usr/share/doc", *(f"/usr/share/man/man{section}" for section in range(1, 10))),
    ),
    "multilingual": Kind(
        share=0.25,
        packages=(
            *(f"manpages-{language}" for language in _LANGUAGES),
            *(f"debian-reference-{language}" for language in ("de", "fr", "ja", "zh-cn", "es")),
            *(f"developers-reference-{language}" for language in ("de", "fr", "ja", "ru")),
            *(f"fortunes-{language}" for language in ("de", "es", "it", "ru", "zh")),
        ),
        folders=tuple(f"/usr/share/man/{language.replace('-br', '_BR')}" for language in _LANGUAGES),
    ),
    "code": Kind(
        share=0.22,
        packages=("golang-1.19-src", "libpython3.11-testsuite", "python3-django", "python3-sympy"),
        folders=("/usr/lib/python3", sysconfig.get_path("stdlib")),
    ),
    "prose": Kind(
        share=0.08,
        packages=("dict-gcide", "fortunes"),
        folders=("/usr/share/dict", "/usr/share/games", "/usr/share/common-licenses"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Document:
    """A text, and the package and path that it came from."""

    source: str
    path: str
    text: str

    @property
    def id(self) -> str:
        """Decides its place: documents of one package do not lie side by side."""
        return hashlib.sha256(f"{self.source}\0{self.path}".encode()).hexdigest()[:16]

    @property
    def size(self) -> int:
        return len(self.text.encode())

    @property
    def line(self) -> str:
        fields = {"id": self.id, "source": self.source, "path": self.path, "text": self.text}
        return json.dumps(fields, ensure_ascii=False) + "\n"


def assemble(folder: Path, megabytes: float, *, download: bool = True) -> Path:
    """``corpus.json`` of a corpus of ``megabytes`` (10^6 bytes of text), made unless ``folder`` has just that.

    Raises ``BenchmarkError`` if what is found falls short of it by more than a tenth.
    """
    summary = folder / SUMMARY_FILE
    if summary.exists():
        found = json.loads(summary.read_text(encoding="utf-8"))
        if (found["recipe"], found["asked_megabytes"]) == (RECIPE, megabytes):
            return summary
    folder.mkdir(parents=True, exist_ok=True)
    packages = _downloaded(folder / "packages") if download else {}
    supply = {name: _documents(name, kind, packages) for name, kind in KINDS.items()}
    chosen = mixed(supply, {name: kind.share for name, kind in KINDS.items()}, round(megabytes * 1e6))
    size = sum(document.size for _, document in chosen)
    if size < _LEAST_SHARE * megabytes * 1e6:
        raise BenchmarkError(
            f"the corpus has {size / 1e6:.1f} MB of text where {megabytes:g} were asked for: run apt-get update so "
            "that more packages are found, or ask for less with --megabytes"
        )
    digest = write_layouts(folder, [document for _, document in chosen])
    summary.write_text(
        json.dumps(_summary(chosen, megabytes, sorted(packages.values()), digest), indent=1) + "\n", encoding="utf-8"
    )
    return summary


def mixed(
    supply: Mapping[str, Iterable[Document]], shares: Mapping[str, float], size: int
) -> list[tuple[str, Document]]:
    """Documents of all kinds, at any point as near to ``shares`` as can be, until they hold ``size`` bytes.

    A kind that runs out leaves its share to the others.
    """
    taken = dict.fromkeys(supply, 0)
    waiting = {kind: iter(documents) for kind, documents in supply.items()}
    chosen: list[tuple[str, Document]] = []
    while waiting and sum(taken.values()) < size:
        kind = min(waiting, key=lambda kind: taken[kind] / shares[kind])
        document = next(waiting[kind], None)
        if document is None:
            del waiting[kind]
            continue
        taken[kind] += document.size
        chosen.append((kind, document))
    return chosen


def write_layouts(folder: Path, documents: Sequence[Document]) -> str:
    """Write the documents in each layout; the digest of them all, in order."""
    total = sum(document.size for document in documents)
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document.line.encode())
    _write(folder / "single", [documents])
    _write(folder / "even", evenly(documents, [1] * PARTS))
    skewed = [LARGE_SHARE, *[(1 - LARGE_SHARE) / SMALL_FILES] * SMALL_FILES]
    _write(folder / "skewed", evenly(documents, skewed))
    sizes = itertools.accumulate(document.size for document in documents)
    count = sum(size <= total / SMALL_PARTS_OF for size in sizes)
    _write(folder / "small", evenly(documents[: max(1, count)], [1] * PARTS))
    return digest.hexdigest()


def evenly(documents: Sequence[Document], shares: Sequence[float]) -> list[list[Document]]:
    """The documents dealt out to files that hold ``shares`` of them, by size; each keeps their order."""
    files: list[list[Document]] = [[] for _ in shares]
    sizes = [0] * len(shares)
    for document in documents:
        emptiest = min(range(len(shares)), key=lambda index: sizes[index] / shares[index])
        files[emptiest].append(document)
        sizes[emptiest] += document.size
    return files


def _write(folder: Path, files: Sequence[Sequence[Document]]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for index, documents in enumerate(files):
        with open(folder / f"part-{index:02d}.jsonl", "w", encoding="utf-8") as lines:
            lines.writelines(document.line for document in documents)


def _downloaded(folder: Path) -> dict[str, str]:
    """The file name of each package that could be had. None: there is no apt here."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return {}
    folder.mkdir(exist_ok=True)
    found: dict[str, str] = {}
    for package in sorted(itertools.chain.from_iterable(kind.packages for kind in KINDS.values())):
        if not list(folder.glob(f"{package}_*.deb")):
            # One at a time: apt downloads none if it does not know one of them.
            subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True, check=False)
        if files := sorted(folder.glob(f"{package}_*.deb")):
            found[package] = files[-1].name
        else:
            print(f"corpus: apt has no {package}, it is left out", file=sys.stderr)
    return {package: str(folder / name) for package, name in found.items()}


def _documents(name: str, kind: Kind, packages: Mapping[str, str]) -> list[Document]:
    """All documents of a kind that could be had, each text once, in the order of their ids."""
    members = [
        (package, path, data)
        for package in kind.packages
        if package in packages
        for path, data in _packed(packages[package])
    ]
    if not members:
        members = [(folder, path, data) for folder in kind.folders for path, data in _lying(Path(folder))]
    unique: dict[str, Document] = {}
    for source, path, data in members:
        for number, text in enumerate(texts_of(path, data, code=name == "code")):
            document = Document(source=source, path=path if number == 0 else f"{path}#{number}", text=text)
            unique.setdefault(text, document)
    return sorted(unique.values(), key=lambda document: document.id)


def _packed(package: str) -> Iterator[tuple[str, bytes]]:
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacking:
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as members:
            for member in members:
                if member.isreg() and (stream := members.extractfile(member)) is not None:
                    yield member.name.removeprefix("."), stream.read()


def _lying(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and "site-packages" not in path.parts:
            yield str(path), path.read_bytes()


def _summary(
    chosen: Sequence[tuple[str, Document]], asked: float, packages: Sequence[str], digest: str
) -> dict[str, object]:
    sizes = dict.fromkeys(KINDS, 0)
    for kind, document in chosen:
        sizes[kind] += document.size
    each = sorted(document.size for _, document in chosen)
    return {
        "recipe": RECIPE,
        "asked_megabytes": asked,
        "documents": len(chosen),
        "text_bytes": sum(each),
        "median_bytes": each[len(each) // 2],
        "largest_bytes": each[-1],
        "text_bytes_of_kind": sizes,
        "packages": [Path(package).name for package in packages],
        "sha256": digest,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Assemble, and print the composition."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description="Assemble the benchmark's text.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=100.0, help="text, in 10^6 bytes; default: 100")
    parser.add_argument("--no-download", action="store_true", help="take what this machine has")
    given = parser.parse_args(arguments)
    try:
        summary = assemble(given.folder, given.megabytes, download=not given.no_download)
    except BenchmarkError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    print(summary.read_text(encoding="utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
