"""Caches that were written are still read, and the same text still becomes the same cache.

Changing the golden files means that caches in use can't be read any more, or are made differently: say so in
CHANGELOG.md, and raise ``CACHE_FORMAT`` if old ones need another reader.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from marin.processing.tokenize.build import tokenize
from marin.processing.tokenize.cache import TokenCache, check_cache
from marin.processing.tokenize.encoder import ByteEncoder
from marin.processing.tokenize.manifest import Manifest, read_manifest
from marin.processing.tokenize.tokenize import TokenizedCache
from tests.processing.tokenize.small import POEMS, config, write_poems

GOLDEN = str(Path(__file__).parent / "golden" / "cache")


def test_the_golden_cache_is_whole_and_gives_back_its_poems():
    check_cache(GOLDEN)
    poems = [
        ByteEncoder().decode(cache.document(index))
        for cache in (TokenCache.open(GOLDEN, split) for split in ("train", "validation"))
        for index in range(cache.num_documents)
    ]
    assert sorted(poems) == sorted(POEMS)
    assert TokenizedCache.from_source(GOLDEN, {}).tokenizer == ByteEncoder().identity


def test_the_same_poems_still_become_that_cache(tmp_path: Path):
    poems = write_poems(tmp_path / "poems.jsonl")
    tokenize(config(tmp_path / "out", poems, held_out=0.4))
    assert comparable(read_manifest(str(tmp_path / "out"))) == comparable(read_manifest(GOLDEN))


def comparable(manifest: Manifest) -> Manifest:
    """Without what depends on where the input lies and on how a version of pyarrow lays out a file."""
    parts = [
        replace(
            part,
            recipe="",
            inputs=tuple(replace(each, name=Path(each.name).name) for each in part.inputs),
            shards=tuple(replace(shard, bytes=0, token_ranges=(), offset_ranges=()) for shard in part.shards),
        )
        for part in manifest.parts
    ]
    return replace(manifest, parts=tuple(parts), framing=None)
