"""Describe the import of a model in Hugging Face's files. The work is in ``import_model``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marin.processing.tokenize.tokenizers import TokenizerSource


@dataclass(frozen=True, kw_only=True)
class HfModelConfig:
    """What the step is asked to import: ``hf_id`` at ``revision``, or the folder ``path``.

    ``tokenizer=None``: the one whose files lie beside the model.
    """

    fingerprint_name: ClassVar[str] = "marin.HfModelConfig"

    output_path: str
    hf_id: str | None
    revision: str | None
    path: str | None
    tokenizer: TokenizerSource | None
