"""The step that imports a model in Hugging Face's files: the step function behind ``hf_model``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import msgspec
import numpy as np
from numpy.typing import NDArray

from marin.errors import ConfigurationError, DataError, NonFiniteLossError
from marin.execution.artifact import at_path
from marin.execution.progress import report
from marin.execution.results import decode_result, encode_result, to_json
from marin.processing.download_hub import fetch_all
from marin.processing.durable import write_whole
from marin.processing.hub import PARTIALS, HubClient, Repository, list_files, open_repository
from marin.processing.tokenize.manifest import TOKENIZER_FILE, TokenizerIdentity
from marin.processing.tokenize.tokenizers import TokenizerSource
from marin.processing.transfer import alone_in
from marin.training import defaults
from marin.training.arrays import array_shapes
from marin.training.checkpoint import PARAMS_FILE, SUMMARY_FILE, TOKENIZER_FOLDER, Checkpoint
from marin.training.hf.array_files import (
    INDEX_FILE,
    MODEL_FILE,
    Shape,
    Tensors,
    indexed_files,
    no_weights,
    write_tensors,
)
from marin.training.hf.config_json import Described, read_config
from marin.training.hf.hf_model import HfModelConfig
from marin.training.hf.names import HEAD, Place, is_left_out, places_of
from marin.training.hf.tokenizer import FILES, keep_tokenizer, no_tokenizer
from marin.training.models.implementation import implementation_of
from marin.training.models.model import ModelConfig, model_class

CONFIG_FILE = "config.json"


def import_model(config: HfModelConfig, *, client: HubClient | None = None) -> Checkpoint:
    """Download the model, unless it lies in a folder here, and convert it, one tensor at a time.

    Raises ``ConfigurationError`` for models whose equations ours are not, ``DataError`` for files that are not whole,
    and what a download raises.
    """
    output, summary = config.output_path, os.path.join(config.output_path, SUMMARY_FILE)
    scratch = os.path.join(output, PARTIALS)
    if os.path.exists(summary):  # killed after the last tensor, before the artifact was published
        shutil.rmtree(scratch, ignore_errors=True)
        with open(summary, "rb") as file:
            return at_path(decode_result(Checkpoint, msgspec.json.decode(file.read()), what=summary), output)
    if config.path is not None:
        folder = os.path.abspath(os.path.expanduser(config.path))
        own = TokenizerSource(kind="file", location=folder)
        checkpoint = _converted(config, folder, origin=folder, own=own)
    else:
        with alone_in(scratch):
            repository, folder = _downloaded(config, scratch, client or HubClient())
            own = TokenizerSource(kind="hub", location=repository.name, revision=repository.commit)
            checkpoint = _converted(config, folder, origin=repository.url, own=own)
    write_whole(summary, msgspec.json.encode(encode_result(checkpoint)))
    shutil.rmtree(scratch, ignore_errors=True)
    return at_path(checkpoint, output)


def _downloaded(config: HfModelConfig, scratch: str, client: HubClient) -> tuple[Repository, str]:
    """The files that are needed of one commit, and the folder that they are in."""
    assert config.hf_id is not None
    assert config.revision is not None  # hf_model has seen to both
    repository = open_repository(
        config.hf_id, "model", config.revision, memory=os.path.join(scratch, "commit.json"), client=client
    )
    folder = os.path.join(scratch, "model")
    os.makedirs(folder, exist_ok=True)
    there = {file.name: file for file in list_files(repository, client=client)}
    if CONFIG_FILE not in there:
        raise DataError(f"{repository.url} has no {CONFIG_FILE}: it is no model of transformers; check hf_id=")
    small = [there[name] for name in (CONFIG_FILE, INDEX_FILE, *FILES) if name in there]
    fetch_all(repository, small, folder, scratch, client=client)
    # What can't be computed is told before it is downloaded.
    _described(folder, repository.url)
    if MODEL_FILE in there:  # as in weight_files
        wanted = [MODEL_FILE]
    elif INDEX_FILE in there:
        with open(os.path.join(folder, INDEX_FILE), "rb") as index:
            wanted = indexed_files(index.read(), origin=f"{repository.url}/{INDEX_FILE}")
    else:
        raise no_weights(repository.url, list(there))
    if lacking := [name for name in wanted if name not in there]:
        raise DataError(f"{repository.url} has no {lacking[0]}, which its {INDEX_FILE} names: tell its owner")
    fetch_all(repository, [there[name] for name in wanted], folder, scratch, client=client)
    return repository, folder


def _described(folder: str, origin: str) -> Described:
    path = os.path.join(folder, CONFIG_FILE)
    try:
        with open(path, "rb") as stream:
            entries = msgspec.json.decode(stream.read(), type=dict[str, Any])
    except (FileNotFoundError, NotADirectoryError) as fault:
        raise DataError(f"{path} is not there: give the folder of a model as transformers saves it") from fault
    except msgspec.DecodeError as fault:
        raise DataError(f"{origin}/{CONFIG_FILE} is not JSON: {fault}") from fault
    return read_config(entries, origin=f"{origin}/{CONFIG_FILE}")


def _converted(config: HfModelConfig, folder: str, *, origin: str, own: TokenizerSource) -> Checkpoint:
    described = _described(folder, origin)
    tokenizer = _tokenizer(config, folder, origin=origin, own=own)
    model, vocab_size = described.config, described.vocab_size
    if tokenizer.vocab_size > vocab_size:
        raise DataError(
            f"{origin}: the tokenizer {tokenizer.location} has {tokenizer.vocab_size} ids, the model {vocab_size}: "
            "they do not belong together"
        )
    params_file = os.path.join(config.output_path, PARAMS_FILE)
    with Tensors(folder) as tensors:
        digest = convert(tensors, model, vocab_size, params_file, origin=origin)
    return Checkpoint(
        model=to_json(model),
        model_class=model_class(model),
        vocab_size=vocab_size,
        num_params=model.num_params(vocab_size),
        tokenizer=tokenizer,
        seq_len=min(model.max_seq_len, defaults.SEQ_LEN),
        batch_size=defaults.BATCH_SIZE,
        precision=defaults.PRECISION,
        steps=0,
        tokens_seen=0,
        epochs=0.0,
        train_loss=None,
        initial_validation=None,
        validation=None,
        params_sha256=digest,
        source=origin,
    )


def _tokenizer(config: HfModelConfig, folder: str, *, origin: str, own: TokenizerSource) -> TokenizerIdentity:
    kept = os.path.join(config.output_path, TOKENIZER_FOLDER)
    if config.tokenizer is not None:
        return keep_tokenizer(config.tokenizer, kept)
    if not os.path.isfile(os.path.join(folder, TOKENIZER_FILE)):
        raise ConfigurationError(
            f"{origin} has no {TOKENIZER_FILE}: say which tokenizer is the model's with hf_model(..., tokenizer=...)"
        )
    try:
        return keep_tokenizer(own, kept, beside=folder)
    except (ConfigurationError, DataError) as fault:
        raise no_tokenizer(origin, fault) from fault


def convert(tensors: Tensors, model: ModelConfig, vocab_size: int, path: str, *, origin: str) -> str:
    """Write our ``params.safetensors`` from the tensors of a model; float32. Its sha256.

    Raises ``DataError`` if they don't fit.
    """
    places, shapes = places_of(model), param_shapes(model, vocab_size)
    assert places.keys() == shapes.keys()
    found = _found(tensors, places, model, origin=origin)
    order = {name: number for number, name in enumerate(shapes, start=1)}

    def read(name: str) -> NDArray[Any]:
        report(order[name], len(order), "arrays")
        array = taken(tensors.read(found[places[name].tensor]), places[name], origin=origin).astype(np.float32)
        if array.shape != shapes[name]:
            raise DataError(
                f"{origin}: the tensor {places[name].tensor} gives {list(array.shape)}, but {CONFIG_FILE} means "
                f"{list(shapes[name])}"
            )
        if not np.isfinite(array).all():
            raise NonFiniteLossError(f"{origin}: the tensor {places[name].tensor} holds infinite or NaN numbers")
        return array

    return write_tensors(path, shapes, read, kind="F32")


def param_shapes(model: ModelConfig, vocab_size: int) -> dict[str, Shape]:
    """The shape of each of our arrays, by its dotted name."""
    init = implementation_of(model).init
    return array_shapes(jax.eval_shape(lambda key: init(key, model, vocab_size), jax.random.key(0)))


def taken(tensor: NDArray[Any], place: Place, *, origin: str) -> NDArray[Any]:
    """Our array out of their tensor."""
    if place.part is not None:
        part, parts = place.part
        if tensor.shape[-1] % parts:
            raise DataError(f"{origin}: the tensor {place.tensor} of {list(tensor.shape)} is not {parts} equal parts")
        tensor = np.split(tensor, parts, axis=-1)[part]
    return tensor.T if place.turned else tensor


def _found(tensors: Tensors, places: Mapping[str, Place], model: ModelConfig, *, origin: str) -> dict[str, str]:
    """The name in the files of each tensor that is needed. A model saved without its head has a shorter one."""
    names, found = set(tensors.names), dict[str, str]()
    for place in places.values():
        candidates = (place.tensor, place.tensor.partition(".")[2])
        known = next((name for name in candidates if name in names), None)
        if known is None:
            raise DataError(
                f"{origin} has no tensor {place.tensor}: its files are not whole, or {CONFIG_FILE} is not its"
            )
        found[place.tensor] = known
    if more := sorted(name for name in names - set(found.values()) if not is_left_out(name, model)):
        raise ConfigurationError(
            f"{origin} has the tensor {more[0]}, for which our model has no place: the model would compute otherwise"
        )
    # A head that the config says is the embedding: transformers computes with it nonetheless if it is another one.
    embedding = found[next(iter(places.values())).tensor]  # the first of all models
    if HEAD in names - set(found.values()) and not np.array_equal(tensors.read(HEAD), tensors.read(embedding)):
        raise ConfigurationError(
            f"{origin} has a {HEAD} other than its embedding, and {CONFIG_FILE} says that they are one: if it belongs "
            "to the model, write tie_word_embeddings=false there (gpt2 can't have it); if not, remove it"
        )
    return found
