"""Train a language model: the step function behind ``train_lm``.

Read in this order: ``prepare`` (what can be wrong, before step 0), ``placement`` (where arrays lie), ``loop`` (the
steps), ``rolling`` (going on after an interruption), ``validation``, then ``update``, ``loss`` and ``evaluate``.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import shutil
from typing import Any

import jax
import msgspec

from marin.errors import ConfigurationError
from marin.execution.artifact import at_path
from marin.execution.fingerprint import ABSENT_MEANS
from marin.execution.results import decode_result, encode_result, to_json
from marin.executors.hosts import HostPlace
from marin.processing.durable import write_whole
from marin.training.arrays import save_arrays
from marin.training.checkpoint import HF_FOLDER, PARAMS_FILE, SUMMARY_FILE, Checkpoint
from marin.training.compilation_cache import use_compilation_cache
from marin.training.devices import find_devices
from marin.training.hf.config_json import has_hf_form
from marin.training.hosts import Hosts, joined_hosts
from marin.training.interrupts import Interrupts
from marin.training.loop import TrainingLoop
from marin.training.metrics import Notes
from marin.training.models.model import ModelConfig, model_class
from marin.training.placement import Placement, make_placement
from marin.training.prepare import Prepared, prepare
from marin.training.rolling import RollingCheckpoints
from marin.training.same_code import code_on_this_host
from marin.training.train_config import TrainLmConfig
from marin.training.validation import last_validation

_FREE = (
    "output_path",
    "device",
    "mesh",
    "grad_accumulation",
    "remat",
    "checkpoints",
    "hf_export",
    "validation",
    "validation_names",
    "eval_every",
    "evals_per_run",
    "evals",
    "on_nonfinite",
    "max_skipped_steps",
    "trackers",
    "name",
)
"""Fields that may differ between the checkpoint and the training that goes on from it."""

_OF_ONE_HOST = ("output_path", "device", "name", "trackers", "init_from", "validation", "datasets")
"""Fields that may be written in another way on each host, such as paths. What they mean is in the recipe."""

_RECIPE = "recipe"
"""In the summary, beside the fields of the checkpoint."""


def train(config: TrainLmConfig) -> Checkpoint:
    """Train as ``config`` says; go on from the newest complete checkpoint in ``config.output_path``, if any.

    Raises before step 0 ``DeviceNotFoundError``, ``DataError``, ``TokenizerMismatchError``, ``ConfigurationError`` and
    ``CheckpointError``; later ``NonFiniteLossError``. SIGTERM and Ctrl-C save the state and raise ``RunInterrupted``.
    """
    output = config.output_path
    with joined_hosts(HostPlace.of(os.environ), about=f"into {os.path.basename(output)}") as hosts:
        if hosts.count > 1:
            _check_alike(config, hosts)
        recipe = _recipe(config)
        checkpoints = RollingCheckpoints(
            output, recipe, config.checkpoints, told=_recipe(config, told=True), hosts=hosts
        )
        # It is there if a process was killed after the last step, before the artifact was published.
        [is_trained, *_] = hosts.exchange("is trained", os.path.exists(os.path.join(output, SUMMARY_FILE)))
        checkpoint = None if is_trained else _trained(config, checkpoints, hosts)
        if hosts.index == 0:
            checkpoint = checkpoint or _read_summary(os.path.join(output, SUMMARY_FILE), checkpoints)
        [described, *_] = hosts.exchange("trained", encode_result(checkpoint) if checkpoint else None)
    if checkpoint is None:
        return at_path(decode_result(Checkpoint, described, what=output), output)
    _finish(config, checkpoint, checkpoints)
    return at_path(checkpoint, output)


def _trained(config: TrainLmConfig, checkpoints: RollingCheckpoints, hosts: Hosts) -> Checkpoint | None:
    """The training itself; its parameters lie in the output then. ``None`` on hosts that do not write them."""
    use_compilation_cache()
    placement = _placement(config)
    with jax.default_device(placement.device), Interrupts() as interrupts:
        prepared = prepare(config)
        if hosts.index == 0:
            print(prepared.budget, flush=True)
        loop = TrainingLoop(config, prepared, placement, checkpoints=checkpoints, interrupts=interrupts, hosts=hosts)
        params, notes = loop.run()
    if hosts.index:
        return None
    digest = save_arrays(os.path.join(config.output_path, PARAMS_FILE), params)
    return _describe(config, prepared, notes, digest)


def _finish(config: TrainLmConfig, checkpoint: Checkpoint, checkpoints: RollingCheckpoints) -> None:
    """What is left to write beside the parameters; it may be there already."""
    summary = os.path.join(config.output_path, SUMMARY_FILE)
    _export(config, at_path(checkpoint, config.output_path))
    if not os.path.exists(summary):
        write_whole(summary, msgspec.json.encode({**encode_result(checkpoint), _RECIPE: _recipe(config)}))
    checkpoints.clear()


def _check_alike(config: TrainLmConfig, hosts: Hosts) -> None:
    """Raise ``ConfigurationError`` unless all hosts are to do the same, and share the folder of the output."""
    if hosts.index:
        print(f"host {hosts.index} of {hosts.count}: host 0 tells how the training goes", flush=True)
    mine = {name: value for name, value in to_json(config).items() if name not in _OF_ONE_HOST}
    mine |= {**_recipe(config), **code_on_this_host(_model(config))}
    [first, *others] = hosts.exchange("settings", mine)
    for number, other in enumerate(others, start=1):
        if names := [name for name in first if first[name] != other.get(name)]:
            raise ConfigurationError(
                f"host {number} was started with other settings than host 0: "
                f"{'; '.join(f'{name}: {other.get(name)!r}, not {first[name]!r}' for name in names)}. "
                "Start the same script on all hosts"
            )
    probe = os.path.join(config.output_path, ".hosts")
    if hosts.index == 0:
        write_whole(probe, b"")
    hosts.exchange("probe is there")
    seen = hosts.exchange("probe is seen", os.path.exists(probe))
    if hosts.index == 0:
        os.unlink(probe)
    if not all(seen):
        raise ConfigurationError(
            f"host {seen.index(False)} does not see what host 0 writes into {config.output_path}: all hosts need a "
            "store on one shared disk"
        )


def _read_summary(path: str, checkpoints: RollingCheckpoints) -> Checkpoint:
    with open(path, "rb") as file:
        content = msgspec.json.decode(file.read())
    if _RECIPE in content:  # older ones have none
        checkpoints.check_recipe(path, content[_RECIPE])
    return decode_result(Checkpoint, content, what=path)


def _export(config: TrainLmConfig, checkpoint: Checkpoint) -> None:
    folder = os.path.join(checkpoint.path, HF_FOLDER)
    for left in [folder, *glob.glob(f"{glob.escape(folder)}.partial-*")]:  # of an attempt that was killed
        shutil.rmtree(left, ignore_errors=True)
    model = _model(config)
    if config.hf_export is None or model is None or not has_hf_form(model):
        return
    from marin.training.hf.export import export_checkpoint  # noqa: PLC0415  # a third of a second before the first step

    export_checkpoint(checkpoint, folder, dtype=config.hf_export, tokenizer_dir=config.datasets[0].cache.path)


def _model(config: TrainLmConfig) -> ModelConfig | None:
    """The model that is trained. Not by its name, as which a class of the pipeline's script can't be found here."""
    return config.init_from.config if config.model is None and config.init_from is not None else config.model


def _placement(config: TrainLmConfig) -> Placement:
    devices = find_devices(config.device, config.mesh)
    placement = make_placement(devices, config.mesh, precision=config.precision, remat=config.remat)
    if config.batch_size % (parts := placement.batch_parts * config.grad_accumulation):
        raise ConfigurationError(
            f"batch_size={config.batch_size} can't be cut evenly: {placement.batch_parts} parts of the mesh, "
            f"grad_accumulation={config.grad_accumulation}: choose a multiple of {parts}"
        )
    return placement


def _recipe(config: TrainLmConfig, *, told: bool = False) -> dict[str, Any]:
    """What must not change between the two halves of a training: everything but where it runs and lies.

    ``told``: without fields that are at the value which they are read as where a checkpoint does not know them.
    """
    recipe = {name: value for name, value in (_told if told else to_json)(config).items() if name not in _FREE}
    if config.model is not None:
        recipe["model_class"] = model_class(config.model)
    if not told:  # older checkpoints do not know it
        recipe["optimizer"]["transformation"] = config.optimizer.transformation
    if config.init_from is not None:
        recipe["init_from"] = config.init_from.params_sha256 or config.init_from.path
    recipe["datasets"] = [
        {"content": d.cache.content_sha256, "weight": d.weight, "max_train_batches": d.max_train_batches}
        for d in config.datasets
    ]
    return recipe


def _told(value: Any) -> Any:
    """``value`` as JSON, without fields that have the value which they are read as where they are absent."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            spec.name: _told(getattr(value, spec.name))
            for spec in dataclasses.fields(value)
            if spec.metadata.get(ABSENT_MEANS, dataclasses.MISSING) != getattr(value, spec.name)
        }
    if isinstance(value, list | tuple):
        return [_told(each) for each in value]
    return to_json(value)


def _describe(config: TrainLmConfig, prepared: Prepared, notes: Notes, params_sha256: str) -> Checkpoint:
    steps, sequences = prepared.num_steps, prepared.num_steps * config.batch_size
    return Checkpoint(
        model=to_json(prepared.model),
        model_class=model_class(prepared.model),
        vocab_size=prepared.vocab_size,
        num_params=prepared.model.num_params(prepared.vocab_size),
        tokenizer=config.datasets[0].cache.tokenizer,
        seq_len=config.seq_len,
        batch_size=config.batch_size,
        precision=config.precision,
        packing=config.packing,
        steps=steps,
        tokens_seen=sequences * config.seq_len,
        epochs=sequences / prepared.data.num_windows,
        params_sha256=params_sha256,
        mixture_formula=config.mixture_formula,
        budget=prepared.data.budget(steps),
        train_loss=notes.last_step_row["loss"] if notes.last_step_row else None,
        initial_validation=last_validation(notes, at_step=0),
        validation=last_validation(notes, at_step=steps),
    )
