"""The tokenize step: documents in, token cache out.

The input is cut into parts. Each is read, encoded and written on its own, by one of several worker processes, and its
record is written last, so that an attempt which goes on after a kill redoes only the parts without a record. The
manifest gathers the records and is what makes the folder a cache.

Over 300 lines, so that the order of a build, and what is told when it can't go on, are read in one go.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from marin.errors import ConfigurationError, DataError, MarinError
from marin.executors.machine import count_cpus
from marin.processing.bad_records import BadRecords, check_fraction, merge_counts
from marin.processing.documents import read_documents
from marin.processing.durable import write_whole
from marin.processing.heap import trim_heap
from marin.processing.inputs import check_not_local, open_inputs
from marin.processing.sources import HubSource
from marin.processing.tokenize import gate
from marin.processing.tokenize.cache import TokenCache, check_shard, token_type
from marin.processing.tokenize.crew import Crew, EngineChoice, Progress, chat_encoder, probe
from marin.processing.tokenize.encoder import ByteEncoder, Encoder, EncodingRules, HuggingFaceEncoder
from marin.processing.tokenize.engines import Engine
from marin.processing.tokenize.formats import ChatFormat, PrebuiltFormat, PreferenceFormat, format_name, is_framed
from marin.processing.tokenize.manifest import (
    CACHE_FORMAT,
    TOKENIZER_FILE,
    TRAIN,
    VALIDATION,
    Framing,
    Manifest,
    PartRecord,
    TokenizerIdentity,
    read_manifest,
    write_manifest,
)
from marin.processing.tokenize.parts import Part, plan_parts
from marin.processing.tokenize.start import CREW_BYTES
from marin.processing.tokenize.tokenize import TokenizeConfig, TokenizedCache
from marin.processing.tokenize.tokenizer_files import TEMPLATE_FILE, read_tokenizer_files
from marin.processing.tokenize.work import PART_RECORDS, Job, inputs_now, make_part

_FAST_BYTES = 4_000_000
"""Less input is encoded by the reference, before a fast engine would have been loaded."""


def tokenize(config: TokenizeConfig) -> TokenizedCache:
    """Make the token cache that ``config`` asks for, or finish one that an earlier attempt began.

    Raises ``DataError`` if a split has no documents and ``BadRecordError`` for one that can't be read.
    """
    check_not_local(config.source, config.validation)
    tokenizer = _Tokenizer(config)
    if isinstance(config.source, HubSource) or isinstance(config.validation, HubSource):
        tokenizer.facts()  # what is wrong with it is told before anything is downloaded
    os.makedirs(os.path.join(config.output_path, PART_RECORDS), exist_ok=True)
    with contextlib.ExitStack() as stack:
        train = stack.enter_context(open_inputs(config.source, scratch=config.output_path))
        sources, validation = [train.description], None
        if config.validation is not None:
            validation = stack.enter_context(open_inputs(config.validation, scratch=config.output_path))
            sources.append(validation.description)
        parts = plan_parts(train, validation, config.part_bytes)
        job, records = _Build(config, tokenizer, parts).run()
    if job.chat_template is not None:  # a model that is trained on it is exported with it
        write_whole(os.path.join(config.output_path, TEMPLATE_FILE), job.chat_template.encode())
    facts = tokenizer.facts()
    split_of = {part.number: part.split for part in parts}
    for split in (TRAIN, VALIDATION):
        ours = [record for record in records if split_of[record.part] == split]
        bad = [count for record in ours for count in record.bad_records]
        good = sum(shard.documents + shard.empty_documents for record in ours for shard in record.shards)
        check_fraction(bad, good, config.max_bad_fraction, sources[-1] if split == VALIDATION else sources[0])
    manifest = Manifest(
        format=CACHE_FORMAT,
        dtype=token_type(facts.identity.vocab_size),
        tokenizer=facts.identity,
        engine=job.engine,
        parts=tuple(records),
        framing=facts.framing if is_framed(config.format) else None,
        document_format=format_name(config.format),
    )
    _check_splits(manifest, config, sources)
    if manifest.framing == Framing(policy="template"):
        print(
            f"special_tokens='template': the post-processor of {facts.identity.location} adds nothing, so that nothing "
            "stands between documents; 'eos' would put an end-of-text token behind each",
            file=sys.stderr,
            flush=True,
        )
    return _commit(manifest, config, facts.identity, tuple(sources))


class _Tokenizer:
    """The tokenizer that ``config`` names: its files at once, and its encoder when that is wanted."""

    def __init__(self, config: TokenizeConfig) -> None:
        self._source = config.tokenizer
        self._rules = EncodingRules(
            special_tokens=config.special_tokens,
            eos_token=config.eos_token,
            bos_token=config.bos_token,
            parse_special=config.parse_special,
        )
        self.files = None if self._source.kind == "bytes" else read_tokenizer_files(self._source)
        self._encoder: Encoder | None = None
        self._facts: _Facts | None = None

    def encoder(self) -> Encoder:
        if self._encoder is None:
            if self.files is None:
                self._encoder = ByteEncoder(self._rules)
            else:
                self._encoder = HuggingFaceEncoder.of_files(self.files, source=self._source, rules=self._rules)
        return self._encoder

    def facts(self) -> _Facts:
        if self._facts is None:
            self._facts = _Facts.of(self.encoder())
        return self._facts

    def forget(self) -> None:
        """Let go of the encoder, which takes as much memory as a worker does; what is told of it stays."""
        self.facts()
        self._encoder = None
        gc.collect()
        trim_heap()


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What is recorded of an encoder, and what chats need of it."""

    identity: TokenizerIdentity
    framing: Framing
    bos_token: str | None = None
    chat_template: str | None = None

    @classmethod
    def of(cls, encoder: Encoder) -> _Facts:
        found = cls(identity=encoder.identity, framing=encoder.framing)
        if isinstance(encoder, HuggingFaceEncoder):
            return replace(found, bos_token=encoder.bos_token, chat_template=encoder.chat_template)
        return found


class _Build:
    """Chooses the engine, and makes the parts: here, or with a crew of workers."""

    def __init__(self, config: TokenizeConfig, tokenizer: _Tokenizer, parts: Sequence[Part]) -> None:
        self._config, self._tokenizer, self._parts = config, tokenizer, parts
        self._size = sum(part.size for part in parts)
        # How much of a part a sample takes depends on all parts before it: one after the other, then.
        workers = 1 if config.sample_count is not None else config.workers or count_cpus()
        self._workers = min(workers, len(parts)) if self._size >= CREW_BYTES else 1

    def run(self) -> tuple[Job, list[PartRecord]]:
        """Raises what reading and encoding raise; what is finished then is kept for the next attempt."""
        if self._tokenizer.files is None:
            return self._with_engine(EngineChoice(tokenizer_file=None, is_fast=False, parse_special=False))
        path = os.path.join(self._config.output_path, TOKENIZER_FILE)
        write_whole(path, self._tokenizer.files.data)
        slow = self._why_slow()
        choice = EngineChoice(tokenizer_file=path, is_fast=slow is None, parse_special=self._config.parse_special)
        if isinstance(self._config.format, PrebuiltFormat):  # nothing is encoded
            return self._with_engine(replace(choice, is_fast=False))
        if slow is None:
            sample = self._sample()
            with contextlib.ExitStack() as stack:
                # The crew loads its engine while the reference is loaded here.
                crew = stack.enter_context(Crew(choice, self._workers)) if self._workers > 1 else None
                slow = self._compare(choice, crew, sample)
                if slow is None:
                    self._tokenizer.forget()
                    return self._with_engine(choice, crew)
        gate.tell(slow)
        return self._with_engine(replace(choice, is_fast=False))

    def _why_slow(self) -> str | None:
        """Why the fast engine is not even loaded."""
        if _template_is_needed(self._config):
            return "chats need to know where in the text a token lies, which only the reference tells"
        if self._size < _FAST_BYTES:
            return f"for {self._size / 1e6:.1f} MB of input another one would not have been loaded"
        return None

    def _compare(self, choice: EngineChoice, crew: Crew | None, sample: Sequence[str]) -> str | None:
        """Why the fast engine is not to be used: it is refused, or gives other ids. ``None``: it is exact."""
        encoder = self._tokenizer.encoder()
        assert isinstance(encoder, HuggingFaceEncoder)  # bytes are not compared
        special = [token.content for token in encoder.reference.tokenizer.get_added_tokens_decoder().values()][:32]
        # First ours: the crew is not ready to be asked before it has loaded its engine.
        expected = gate.encoded_probe(encoder.reference, sample, special)
        probed = probe(choice.load(), sample, special) if crew is None else crew.probe(sample, special).result()
        return probed.refusal or gate.difference(expected, probed.ids, gate.probe_set(sample, special))

    def _sample(self) -> list[str]:
        """The first documents. What can't be read is told by whoever reads it for good."""
        if self._config.format is not None:
            return []
        found = list[str]()
        with contextlib.suppress(MarinError):
            for piece in self._parts[0].pieces:
                for document in read_documents(piece, self._config.text_key, BadRecords("skip")):
                    found.append(document.text[: gate.SAMPLED_CHARACTERS])
                    if sum(map(len, found)) >= gate.SAMPLED_CHARACTERS or len(found) == gate.SAMPLED_DOCUMENTS:
                        return gate.first_characters(found)
        return gate.first_characters(found)

    def _with_engine(self, choice: EngineChoice, crew: Crew | None = None) -> tuple[Job, list[PartRecord]]:
        if self._workers == 1:
            # One that was compared is kept by ``preloaded``, and not loaded again.
            encoder = None if choice.is_fast else self._tokenizer.encoder()
            engine = encoder.reference if isinstance(encoder, HuggingFaceEncoder) else choice.load()
            job = self._job(engine.name)
            return job, self._make_here(job, engine)
        if crew is None:
            with Crew(choice, self._workers) as crew:
                return self._with_engine(choice, crew)
        job = self._job(crew.engine_name())
        return job, self._make_with(job, crew)

    def _job(self, engine: str) -> Job:
        config, facts = self._config, self._tokenizer.facts()
        template = _chat_template(config, facts)
        return Job(
            root=config.output_path,
            identity=facts.identity,
            framing=facts.framing,
            bos_token=facts.bos_token,
            engine=engine,
            text_key=config.text_key,
            format=config.format,
            chat_template=template,
            held_out=config.held_out,
            parse_special=config.parse_special,
            on_bad_record=config.on_bad_record,
            batch_bytes=config.batch_bytes,
            sample_count=config.sample_count,
        )

    def _make_here(self, job: Job, engine: Engine) -> list[PartRecord]:
        progress, earlier = Progress(self._size), self._earlier(job)
        reader = job.reader(engine, chat_encoder(job, engine))
        left, records = self._config.sample_count, list[PartRecord]()
        begun, made = time.perf_counter(), list[PartRecord]()
        for part in self._parts:
            # A sample is taken of what is trained on; what it is validated on is whole.
            limit = left if part.split == TRAIN else None
            if limit == 0:
                continue
            record = earlier.get(part.number) if limit is None else None
            if record is None:
                record = make_part(job, part, reader, progress.tell, limit=limit)
                made.append(record)
            if left is not None and limit is not None:
                left -= sum(shard.documents + shard.empty_documents for shard in record.shards) // reader.documents
            progress.end(part, record)
            records.append(record)
        _tell_rate(job, made, time.perf_counter() - begun, self._workers)
        return records

    def _make_with(self, job: Job, crew: Crew) -> list[PartRecord]:
        progress, earlier = Progress(self._size), self._earlier(job)
        for part in self._parts:
            if part.number in earlier:
                progress.end(part, earlier[part.number])
        begun = time.perf_counter()
        made = crew.make(job, [part for part in self._parts if part.number not in earlier], progress)
        _tell_rate(job, made, time.perf_counter() - begun, self._workers)
        found = earlier | {record.part: record for record in made}
        return [found[part.number] for part in self._parts]

    def _earlier(self, job: Job) -> dict[int, PartRecord]:
        """The parts that an earlier attempt has finished, by the same recipe and from the same input."""
        records = _earlier_records(self._config.output_path)
        return {
            part.number: record
            for part in self._parts
            if (record := records.get(part.number)) is not None
            and record.recipe == job.recipe(part.split)
            and record.inputs == inputs_now(part)
            and self._is_sound(record)
        }

    def _is_sound(self, record: PartRecord) -> bool:
        """Whether the files of a part still hold what was written: they may have been damaged on the disk."""
        try:
            for shard in record.shards:
                check_shard(self._config.output_path, shard, self._tokenizer.facts().identity.vocab_size)
        except DataError as fault:
            print(f"made anew: {fault}", file=sys.stderr, flush=True)
            return False
        return True


def _template_is_needed(config: TokenizeConfig) -> bool:
    return isinstance(config.format, ChatFormat | PreferenceFormat)


def _chat_template(config: TokenizeConfig, facts: _Facts) -> str | None:
    """The template that chats are written out with. Raises ``ConfigurationError`` where one is needed and missing."""
    if not isinstance(config.format, ChatFormat | PreferenceFormat):
        return None
    template = config.format.chat_template or facts.chat_template
    if facts.identity.kind == "bytes":
        if template is not None or isinstance(config.format, ChatFormat):
            raise ConfigurationError("the tokenizer 'bytes' has no special tokens, which chats are made of")
        return None
    if template is None and isinstance(config.format, ChatFormat):
        raise ConfigurationError(
            f"the tokenizer {facts.identity.location} comes without a chat template: "
            "give one as ChatFormat(chat_template=...)"
        )
    return template


def _earlier_records(root: str) -> dict[int, PartRecord]:
    """The parts that an earlier attempt finished and whose files are whole, by number."""
    folder, records = os.path.join(root, PART_RECORDS), list[PartRecord]()
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as stream, contextlib.suppress(msgspec.DecodeError):
            records.append(msgspec.json.decode(stream.read(), type=PartRecord))
    # An attempt that was killed at its very end has a manifest, and may have removed the records.
    with contextlib.suppress(ConfigurationError, DataError):
        records.extend(read_manifest(root).parts)
    return {record.part: record for record in records if _is_whole(root, record)}


def _is_whole(root: str, record: PartRecord) -> bool:
    files = [(os.path.join(root, shard.file), shard.bytes) for shard in record.shards]
    return all(os.path.isfile(file) and os.path.getsize(file) == size for file, size in files)


def _check_splits(manifest: Manifest, config: TokenizeConfig, sources: Sequence[str]) -> None:
    wanted = [TRAIN, VALIDATION] if config.held_out or config.validation is not None else [TRAIN]
    for split in wanted:
        if split not in manifest.splits:
            raise DataError(f"split {split!r} has no documents: {_why_empty(split, manifest, config, sources)}")


def _why_empty(split: str, manifest: Manifest, config: TokenizeConfig, sources: Sequence[str]) -> str:
    source = sources[-1] if split == VALIDATION else sources[0]
    other = VALIDATION if split == TRAIN else TRAIN
    documents = sum(shard.documents for shard in manifest.shards(other))
    if bad := merge_counts(part.bad_records for part in manifest.parts):
        listed = "; ".join(f"{each.count:,} {each.reason} (such as {each.example})" for each in bad)
        return f"what there is in {source} can't be read: {listed}"
    if not config.held_out or not documents:
        # With held_out an empty text may have gone to either split.
        shards = [*manifest.shards(split), *(manifest.shards(other) if config.held_out else ())]
        empty = sum(shard.empty_documents for shard in shards)
        left_out = f" but {empty} empty ones" if empty else ""
        return f"there are none{left_out} in {source}; check the source"
    chosen = (
        f"of {documents:,} document{'' if documents == 1 else 's'} in {source}, held_out={config.held_out} holds out"
    )
    if split == TRAIN:
        return f"{chosen} all for validation; make held_out smaller, such as 0.01"
    return f"{chosen} none; make held_out larger, or give validation= files"


def _tell_rate(job: Job, made: Sequence[PartRecord], seconds: float, workers: int) -> None:
    """Say how long it took to read, encode and write ``made``: one line of the step's log."""
    if not made:
        return
    shards = [shard for record in made for shard in record.shards]
    text, tokens = sum(shard.text_bytes for shard in shards) / 1e6, sum(shard.tokens for shard in shards) / 1e6
    by = f"{job.engine}, {workers} worker{'' if workers == 1 else 's'}"
    print(f"{tokens:,.1f}M tokens of {text:,.1f} MB of text in {seconds:.3f} s by {by}", file=sys.stderr, flush=True)


def _commit(
    manifest: Manifest, config: TokenizeConfig, identity: TokenizerIdentity, sources: tuple[str, ...]
) -> TokenizedCache:
    """Tidy up, write the manifest, and read everything back as the trainer will."""
    root = config.output_path
    kept = {shard.file for part in manifest.parts for shard in part.shards}
    for split in (TRAIN, VALIDATION):
        for name in os.listdir(os.path.join(root, split)) if os.path.isdir(os.path.join(root, split)) else ():
            if f"{split}/{name}" not in kept:
                os.unlink(os.path.join(root, split, name))
    write_manifest(root, manifest)
    for split in manifest.splits:
        TokenCache.open(root, split)
    shutil.rmtree(os.path.join(root, PART_RECORDS))
    return TokenizedCache.from_manifest(manifest, identity, sources=sources)
