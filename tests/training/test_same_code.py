"""What two hosts compare before they compute together."""

import dataclasses
import sys
from typing import ClassVar

from marin.training.models.llama_config import LlamaConfig
from marin.training.same_code import code_on_this_host

SMALL = LlamaConfig(hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, max_seq_len=64)


@dataclasses.dataclass(frozen=True)
class OwnModel:
    implementation: ClassVar[str] = "my_model"


def test_the_code_of_marin_and_the_versions_of_what_it_computes_with_are_named():
    assert list(code_on_this_host(SMALL)) == ["jax", "jaxlib", "numpy", "optax", "code of marin"]
    assert code_on_this_host(SMALL) == code_on_this_host(None)


def test_the_code_of_a_model_of_ones_own_is_compared_too(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "my_model.py"
    file.write_text("WIDTH = 3")
    before = code_on_this_host(OwnModel())
    assert {"code of my_model", f"code of {__name__}"} < before.keys()
    file.write_text("WIDTH = 4")
    assert "my_model" not in sys.modules
    after = code_on_this_host(OwnModel())
    assert [name for name in before if before[name] != after[name]] == ["code of my_model"]
