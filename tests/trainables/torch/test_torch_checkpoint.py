"""A checkpoint of a torch model: files that are loaded without running code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from trainables.errors import CheckpointError, CheckpointNotFoundError, InvalidSettingError
from trainables.torch import (
    TorchCheckpoint,
)
from trainables.torch.torch_checkpoint import SAFE_FILE, TORCH_FILE

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


def back(checkpoint: TorchCheckpoint, directory: Path) -> TorchCheckpoint:
    """As it is read again."""
    return TorchCheckpoint(checkpoint.to_directory(directory))


VALUES = {
    "float": lambda: torch.arange(6.0).reshape(2, 3),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "slice": lambda: torch.arange(10)[::3],
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "bool": lambda: torch.tensor([True, False]),
    "empty": lambda: torch.zeros(0, 3),
    "scalar": lambda: torch.tensor(2.5),
    "grad": lambda: torch.ones(2, requires_grad=True),
    "complex": lambda: torch.tensor([1 + 2j]),
    "conjugate": lambda: torch.tensor([1 + 2j]).conj(),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_tensor_of_every_kind_comes_back_as_its_numbers(name: str, tmp_path: Path) -> None:
    value = VALUES[name]()

    found = back(TorchCheckpoint.from_state_dict({"a": value}), tmp_path / "x").get_state_dict()["a"]

    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    assert torch.equal(found.to_dense(), value.detach().to_dense())


def test_tied_tensors_are_written_whole_each(tmp_path: Path) -> None:
    whole = torch.arange(4.0)
    state = {"whole": whole, "again": whole, "part": whole[1:3]}

    found = back(TorchCheckpoint.from_state_dict(state), tmp_path / "x").get_state_dict()

    assert all(torch.equal(found[name], state[name]) for name in state)
    assert (tmp_path / "x" / SAFE_FILE).exists()


@pytest.mark.parametrize("state", [{}, {"a": 1}, {1: None}, {"a": {"b": [1]}}, {1: 2, "a": 3}])
def test_a_state_of_plain_values_is_torchs_file(state: dict[Any, Any], tmp_path: Path) -> None:
    assert back(TorchCheckpoint.from_state_dict(state), tmp_path / "x").get_state_dict() == state
    assert (tmp_path / "x" / TORCH_FILE).exists() and not (tmp_path / "x" / SAFE_FILE).exists()


def test_the_prefix_of_ddp_goes_where_all_names_have_it() -> None:
    one = torch.ones(1)

    assert TorchCheckpoint.from_state_dict({"module.a": one, "module.b": one}).get_state_dict().keys() == {"a", "b"}
    assert TorchCheckpoint.from_state_dict({"module.a": one, "b": one}).get_state_dict().keys() == {"module.a", "b"}
    assert TorchCheckpoint.from_state_dict({}).get_state_dict() == {}


def test_what_is_no_state_and_a_directory_without_a_model_are_named(tmp_path: Path) -> None:
    for wrong in (None, [1], torch.ones(1), torch.nn.Linear(1, 1)):
        with pytest.raises(InvalidSettingError, match="TorchCheckpoint: state_dict=.*model.state_dict"):
            TorchCheckpoint.from_state_dict(wrong)
    (tmp_path / "other").touch()
    with pytest.raises(CheckpointNotFoundError, match="holds neither model.safetensors nor model.pt"):
        TorchCheckpoint(tmp_path).get_state_dict()


def test_a_file_that_is_cut_short_is_an_error_of_the_checkpoint(tmp_path: Path) -> None:
    back(TorchCheckpoint.from_state_dict({"a": 1, "b": torch.ones(100)}), tmp_path / "x")
    os.truncate(tmp_path / "x" / TORCH_FILE, 200)

    with pytest.raises(CheckpointError, match="model.pt is not loaded"):
        TorchCheckpoint(tmp_path / "x").get_state_dict()


def test_without_safetensors_torch_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)

    found = back(TorchCheckpoint.from_state_dict({"a": torch.ones(2)}), tmp_path / "x")

    assert torch.equal(found.get_state_dict()["a"], torch.ones(2))
    assert not (tmp_path / "x" / SAFE_FILE).exists()


def test_a_state_that_does_not_fit_the_model_is_torchs_own_error(tmp_path: Path) -> None:
    saved = TorchCheckpoint.from_model(torch.nn.Linear(2, 1))

    with pytest.raises(RuntimeError, match="size mismatch"):
        saved.get_model(torch.nn.Linear(3, 1))


def test_names_are_shown_and_the_class_is_kept(tmp_path: Path) -> None:
    saved = TorchCheckpoint.from_state_dict({"b": torch.ones(1), "a": torch.ones(1)})
    assert repr(saved) == "TorchCheckpoint(names=['a', 'b'])"

    assert type(back(saved, tmp_path / "x")) is TorchCheckpoint
