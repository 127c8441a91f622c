"""A checkpoint of a torch model: files that are loaded without running code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trainables.errors import CheckpointError
from trainables.torch import (
    TorchCheckpoint,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_a_model_is_saved_without_code_and_loaded_without_running_any(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    saved = TorchCheckpoint.from_model(model)

    again = TorchCheckpoint(saved.to_directory(tmp_path / "model"))

    assert (tmp_path / "model" / "model.safetensors").exists()
    assert again.get_state_dict().keys() == {"weight", "bias"}
    assert again.get_model(torch.nn.Linear(2, 1)).weight.equal(model.weight)


class Code:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def test_a_state_of_other_things_needs_a_word_of_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tied = torch.ones(2)
    saved = TorchCheckpoint.from_state_dict({"module.a": tied, "module.b": tied})
    mixed = TorchCheckpoint.from_state_dict({"step": 3, "a": tied})
    evil = TorchCheckpoint(TorchCheckpoint.from_state_dict({"step": Code()}).to_directory(tmp_path / "evil"))

    assert TorchCheckpoint(saved.to_directory(tmp_path / "tied")).get_state_dict().keys() == {"a", "b"}
    assert TorchCheckpoint(mixed.to_directory(tmp_path / "mixed")).get_state_dict()["step"] == 3
    with pytest.raises(CheckpointError, match="weights_only=False"):
        evil.get_state_dict()
    assert not (tmp_path / "ran").exists()
