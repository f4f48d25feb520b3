"""The ``config.json`` of Hugging Face's models, read as one of our configs, and written from one.

What a model needs and ours have not is refused by its key and value, rather than left out: the numbers would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from marin.errors import ConfigurationError, DataError, MarinError
from marin.training.checkpoint import ExportDtype
from marin.training.models.gpt2_config import Gpt2Config
from marin.training.models.llama_config import LlamaConfig
from marin.training.models.model import ModelConfig
from marin.training.models.rope_scaling import RopeScaling, linear_scaling, llama3_scaling

Json: TypeAlias = dict[str, Any]

_MISSING: Any = object()

_LLAMA_NEEDS: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1, 1.0),
    "use_sliding_window": (False,),
    "quantization_config": (None,),
}
"""Values that our equations stand for. A key that is absent has the first."""

_GPT2_NEEDS: Mapping[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
    "quantization_config": (None,),
}


@dataclass(frozen=True, kw_only=True)
class Described:
    """A model and its vocabulary, as a ``config.json`` tells them."""

    config: ModelConfig
    vocab_size: int


def read_config(entries: Mapping[str, Any], *, origin: str) -> Described:
    """The model that the entries of a ``config.json`` describe; ``origin`` is what messages call the file.

    Raises ``ConfigurationError`` for what ours can't compute, ``DataError`` for entries that are missing.
    """
    known = {"llama": _read_llama, "qwen2": _read_llama, "qwen3": _read_llama, "gpt2": _read_gpt2}
    kind = entries.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        raise ConfigurationError(
            f"{origin}: model_type={kind!r} can't be imported: only {', '.join(map(repr, known))} can"
        )
    try:
        described = known[kind](_Entries(entries, origin), kind)
    except MarinError:
        raise
    except (TypeError, ValueError, AttributeError) as fault:
        raise DataError(f"{origin} holds what it can't in a model of this type: {fault}") from fault
    if type(described.vocab_size) is not int or described.vocab_size < 1:
        raise DataError(f"{origin}: vocab_size={described.vocab_size!r} is no number of tokens")
    return described


class _Entries:
    """A ``config.json`` whose faults are told with its name."""

    def __init__(self, entries: Mapping[str, Any], origin: str) -> None:
        self._entries = entries
        self.origin = origin

    def get(self, key: str, default: Any = _MISSING) -> Any:
        value = self._entries.get(key)
        if value is None and default is _MISSING:
            raise DataError(f"{self.origin} has no {key}: it is not whole; take it from where the model comes from")
        return default if value is None else value

    def check(self, needs: Mapping[str, tuple[Any, ...]]) -> None:
        for key, allowed in needs.items():
            if (value := self.get(key, allowed[0])) not in allowed:
                self.refuse(key, value)
        if other := [kind for kind in self.get("layer_types", []) if kind != "full_attention"]:
            self.refuse("layer_types", other[0])

    def refuse(self, key: str, value: Any) -> None:
        raise ConfigurationError(f"{self.origin}: {key}={value!r} is not supported: the model would compute otherwise")


def _read_llama(entries: _Entries, kind: str) -> Described:
    entries.check(_LLAMA_NEEDS)
    heads = entries.get("num_attention_heads")
    # Where their classes fill in a number that does not follow from the others, it has to be written.
    kv_heads = entries.get("num_key_value_heads", heads if kind == "llama" else _MISSING)
    head_size = entries.get("head_dim", _MISSING if kind == "qwen3" else None)
    hidden = entries.get("hidden_size")
    theta, scaling = _read_rope(entries)
    config = LlamaConfig(
        hidden_dim=hidden,
        intermediate_dim=entries.get("intermediate_size"),
        num_layers=entries.get("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=None if kv_heads == heads else kv_heads,
        max_seq_len=entries.get("max_position_embeddings"),
        tie_embeddings=entries.get("tie_word_embeddings", False),
        rope_theta=float(theta),
        norm_eps=float(entries.get("rms_norm_eps", 1e-6)),
        head_size=None if head_size is not None and head_size * heads == hidden else head_size,
        rope_scaling=scaling,
        qkv_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
    )
    return Described(config=config, vocab_size=entries.get("vocab_size"))


def _read_rope(entries: _Entries) -> tuple[float, RopeScaling | None]:
    """Base and scaling, by the newer ``rope_parameters`` or the older ``rope_theta`` and ``rope_scaling``."""
    newer: Json = entries.get("rope_parameters", {})
    older: Json = entries.get("rope_scaling", {})
    theta = newer.get("rope_theta", entries.get("rope_theta", older.get("rope_theta", 10_000.0)))
    if "rope_theta" in newer and entries.get("rope_theta", theta) != theta:
        raise DataError(
            f"{entries.origin} says rope_theta={entries.get('rope_theta')} and, in rope_parameters, {theta}: "
            "which one the model was trained with can't be told; remove the wrong one"
        )
    found = _read_scaling(entries, "rope_parameters", newer) if newer else _read_scaling(entries, "rope_scaling", older)
    if newer and older and _read_scaling(entries, "rope_scaling", older) != found:
        raise DataError(
            f"{entries.origin}: rope_scaling={older} and rope_parameters={newer} say different things; "
            "remove the wrong one"
        )
    return theta, found


def _read_scaling(entries: _Entries, key: str, given: Json) -> RopeScaling | None:
    kind = given.get("rope_type", given.get("type", "default"))
    if given.get("partial_rotary_factor", 1) != 1:
        entries.refuse(f"{key}.partial_rotary_factor", given["partial_rotary_factor"])
    if kind == "default":
        return None
    if kind not in ("linear", "llama3"):
        entries.refuse(f"{key}.rope_type", kind)
    try:
        if kind == "linear":
            return linear_scaling(float(given["factor"]))
        return llama3_scaling(
            factor=float(given["factor"]),
            low_freq_factor=float(given["low_freq_factor"]),
            high_freq_factor=float(given["high_freq_factor"]),
            original_max_seq_len=given["original_max_position_embeddings"],
        )
    except KeyError as lacking:
        raise DataError(f"{entries.origin}: {key}={given} has no {lacking}") from lacking


def _read_gpt2(entries: _Entries, kind: str) -> Described:
    entries.check(_GPT2_NEEDS)
    config = Gpt2Config(
        hidden_dim=entries.get("n_embd"),
        num_layers=entries.get("n_layer"),
        num_heads=entries.get("n_head"),
        max_seq_len=entries.get("n_positions"),
        intermediate_dim=entries.get("n_inner", None),
        norm_eps=float(entries.get("layer_norm_epsilon", 1e-5)),
    )
    return Described(config=config, vocab_size=entries.get("vocab_size"))


def written_config(config: ModelConfig, *, vocab_size: int, dtype: ExportDtype) -> Json:
    """The entries of the ``config.json`` of a model. Raises ``ConfigurationError`` for one that has no such form."""
    if isinstance(config, LlamaConfig):
        entries = _written_llama(config)
    elif isinstance(config, Gpt2Config):
        entries = _written_gpt2(config)
    else:
        raise ConfigurationError(
            f"{type(config).__name__} has no form in Hugging Face's files: only LlamaConfig and Gpt2Config have. "
            "Its parameters are in params.safetensors, which any tool reads"
        )
    # Both names of the type: readers of before and since transformers 5.
    return {**entries, "vocab_size": vocab_size, "dtype": dtype, "torch_dtype": dtype, "use_cache": True}


def has_hf_form(config: ModelConfig) -> bool:
    """Whether a model can be written as Hugging Face's files."""
    return (isinstance(config, LlamaConfig) and not (config.qkv_bias and config.qk_norm)) or isinstance(
        config, Gpt2Config
    )


def _written_llama(config: LlamaConfig) -> Json:
    if config.qkv_bias and config.qk_norm:
        raise ConfigurationError(
            "LlamaConfig: qkv_bias=True together with qk_norm=True has no form in Hugging Face's files: none of their "
            "models has both; the parameters are in params.safetensors, which any tool reads"
        )
    kind, name = ("qwen2", "Qwen2") if config.qkv_bias else ("qwen3", "Qwen3") if config.qk_norm else ("llama", "Llama")
    scaling = _written_scaling(config.rope_scaling)
    entries: Json = {
        "architectures": [f"{name}ForCausalLM"],
        "model_type": kind,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_seq_len,
        "tie_word_embeddings": config.tie_embeddings,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        # Readers know one of the two: without it they would take their own base.
        "rope_parameters": {"rope_type": "default", **(scaling or {}), "rope_theta": config.rope_theta},
        "rope_theta": config.rope_theta,
        "rope_scaling": scaling,
    }
    if kind != "qwen2":
        entries["attention_bias"] = False
    if kind == "llama":
        entries["mlp_bias"] = False
    else:
        entries |= {"use_sliding_window": False, "sliding_window": None}
    return entries


def _written_scaling(scaling: RopeScaling | None) -> Json | None:
    if scaling is None:
        return None
    if scaling.kind == "linear":
        return {"rope_type": "linear", "type": "linear", "factor": scaling.factor}
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_seq_len,
    }


def _written_gpt2(config: Gpt2Config) -> Json:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": config.hidden_dim,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_positions": config.max_seq_len,
        "n_ctx": config.max_seq_len,
        "n_inner": config.intermediate_dim,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
        # As it was trained here. Theirs has 0.1, which would begin to act when it is trained on.
        **cast("Json", dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)),
    }
