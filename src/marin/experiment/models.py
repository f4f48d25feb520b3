"""Models by name. Each is a frozen config: derive your own with ``dataclasses.replace``.

Counts are for a vocabulary of 32,000 where none is named, embeddings included; ``model.num_params(vocab)`` gives the
exact number.
"""

from __future__ import annotations

import os

from marin.errors import ConfigurationError
from marin.execution.context import StepContext
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import remote
from marin.execution.version_codex import AMBIENT_VERSION
from marin.processing.sources import PathText, is_hub_id
from marin.processing.tokenize.tokenizers import TokenizerSource, parse_tokenizer
from marin.training.checkpoint import Checkpoint
from marin.training.hf.hf_model import HfModelConfig
from marin.training.models.gpt2_config import Gpt2Config
from marin.training.models.llama_config import LlamaConfig
from marin.training.models.rope_scaling import llama3_scaling

__all__ = [
    "Gpt2Config",
    "LlamaConfig",
    "gpt2_1_5b",
    "gpt2_124m",
    "gpt2_355m",
    "gpt2_774m",
    "hf_model",
    "llama_1_4b",
    "llama_1b",
    "llama_1m",
    "llama_3b",
    "llama_8b",
    "llama_30m",
    "llama_60m",
    "llama_150m",
    "llama_300m",
    "llama_600m",
    "llama_nano",
]

llama_nano = LlamaConfig(hidden_dim=32, intermediate_dim=128, num_layers=2, num_heads=2, max_seq_len=2048)
"""2 million parameters, almost all of them embeddings. For tests and first tries: learns little, runs anywhere."""

llama_1m = LlamaConfig(hidden_dim=128, intermediate_dim=384, num_layers=2, num_heads=2, max_seq_len=2048)
"""1.5 million parameters with a vocabulary of 4,096. Learns the shape of a language in a minute on two cores."""

llama_30m = LlamaConfig(
    hidden_dim=384, intermediate_dim=1024, num_layers=6, num_heads=6, num_kv_heads=3, max_seq_len=2048
)
"""34 million parameters. A first real model: an afternoon on a workstation."""

llama_60m = LlamaConfig(
    hidden_dim=512, intermediate_dim=1536, num_layers=8, num_heads=8, num_kv_heads=4, max_seq_len=2048
)
"""58 million parameters. A day on a workstation, an hour on an accelerator."""

llama_150m = LlamaConfig(hidden_dim=768, intermediate_dim=2048, num_layers=12, num_heads=12, max_seq_len=4096)
"""134 million parameters. One accelerator, hours."""

llama_300m = LlamaConfig(
    hidden_dim=1024, intermediate_dim=2816, num_layers=20, num_heads=16, num_kv_heads=8, max_seq_len=4096
)
"""302 million parameters. One accelerator, a day or two."""

llama_600m = LlamaConfig(
    hidden_dim=1280, intermediate_dim=3584, num_layers=28, num_heads=20, num_kv_heads=10, max_seq_len=4096
)
"""605 million parameters. A few accelerators, days."""

llama_1b = LlamaConfig(
    hidden_dim=2048,
    intermediate_dim=8192,
    num_layers=16,
    num_heads=32,
    num_kv_heads=8,
    max_seq_len=131_072,
    tie_embeddings=True,
    rope_theta=500_000.0,
    rope_scaling=llama3_scaling(factor=32.0),
)
"""1.24 billion parameters with its vocabulary of 128,256: Llama 3.2 1B."""

llama_1_4b = LlamaConfig(
    hidden_dim=2048, intermediate_dim=6656, num_layers=24, num_heads=16, num_kv_heads=8, max_seq_len=4096
)
"""1.41 billion parameters. Eight accelerators, days."""

llama_3b = LlamaConfig(
    hidden_dim=3072,
    intermediate_dim=8192,
    num_layers=28,
    num_heads=24,
    num_kv_heads=8,
    max_seq_len=131_072,
    tie_embeddings=True,
    rope_theta=500_000.0,
    rope_scaling=llama3_scaling(factor=32.0),
)
"""3.21 billion parameters with its vocabulary of 128,256: Llama 3.2 3B."""

llama_8b = LlamaConfig(
    hidden_dim=4096,
    intermediate_dim=14_336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    max_seq_len=131_072,
    rope_theta=500_000.0,
    rope_scaling=llama3_scaling(factor=8.0),
)
"""8.03 billion parameters with its vocabulary of 128,256: Llama 3.1 8B."""

gpt2_124m = Gpt2Config(hidden_dim=768, num_layers=12, num_heads=12, max_seq_len=1024)
"""124 million parameters with its vocabulary of 50,257: GPT-2 small."""

gpt2_355m = Gpt2Config(hidden_dim=1024, num_layers=24, num_heads=16, max_seq_len=1024)
"""355 million parameters with its vocabulary of 50,257: GPT-2 medium."""

gpt2_774m = Gpt2Config(hidden_dim=1280, num_layers=36, num_heads=20, max_seq_len=1024)
"""774 million parameters with its vocabulary of 50,257: GPT-2 large."""

gpt2_1_5b = Gpt2Config(hidden_dim=1600, num_layers=48, num_heads=25, max_seq_len=1024)
"""1.56 billion parameters with its vocabulary of 50,257: GPT-2 XL."""


def hf_model(
    name: str,
    hf_id: str | None = None,
    revision: str | None = None,
    *,
    path: PathText | None = None,
    tokenizer: PathText | TokenizerSource | None = None,
    version: str = AMBIENT_VERSION,
) -> ArtifactStep[Checkpoint]:
    """A handle for a model in Hugging Face's files: Llama, Qwen 2, Qwen 3 or GPT-2, as a checkpoint of ours.

    It is ``hf_id`` at ``revision`` (a commit, tag or branch; the commit that it is when the step runs is recorded), or
    lies in the folder ``path``. Its tensors, safetensors of one file or several, become float32. What our models do not
    compute, such as other activations or sliding windows, is refused. ``tokenizer`` is for models whose own files have
    no ``tokenizer.json``; it is given as to ``tokenized``.

    >>> hf_model("models/smol", "HuggingFaceTB/SmolLM2-135M", "main", version="2026.07.01")
    ArtifactStep[Checkpoint](models/smol@2026.07.01)
    """
    folder = None if path is None else os.fspath(path)
    _check_origin(name, hf_id=hf_id, revision=revision, folder=folder)
    spec = None if tokenizer is None else parse_tokenizer(tokenizer)

    def build_config(ctx: StepContext) -> HfModelConfig:
        return HfModelConfig(output_path=ctx.output_path, hf_id=hf_id, revision=revision, path=folder, tokenizer=spec)

    return ArtifactStep(
        name=name,
        version=version,
        run=remote("marin.training.hf.import_model:import_model", resumable=True),
        artifact_type=Checkpoint,
        build_config=build_config,
    )


def _check_origin(name: str, *, hf_id: object, revision: object, folder: object) -> None:
    if (hf_id is None) == (folder is None):
        raise ConfigurationError(
            f"hf_model({name!r}): give the model once, as hf_id and revision, or as path=; "
            f"{'none is' if hf_id is None else 'both are'} given"
        )
    if folder is not None:
        if revision is not None:
            raise ConfigurationError(f"hf_model({name!r}): revision={revision!r} is of the hub; a path has none")
        return
    if not isinstance(hf_id, str) or not (is_hub_id(hf_id) or (hf_id and "/" not in hf_id)):
        raise ConfigurationError(
            f"hf_model({name!r}): hf_id={hf_id!r} is no id of the hub, such as 'openai-community/gpt2'; "
            "a folder is given as path="
        )
    if not isinstance(revision, str) or not revision:
        raise ConfigurationError(
            f"hf_model({name!r}): revision={revision!r} is no commit, tag or branch; for the newest say 'main'"
        )
