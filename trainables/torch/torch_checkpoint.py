"""`TorchCheckpoint`: a model's state as a file that is loaded without running code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables import pickling
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointError, CheckpointNotFoundError
from trainables.store import fs
from trainables.validation import invalid

SAFE_FILE = "model.safetensors"
TORCH_FILE = "model.pt"
_PREFIX = "module."


class TorchCheckpoint(Checkpoint):
    """A checkpoint of a torch model.

    A state of tensors only is written with safetensors, where that is installed, and else by `torch.save`; it is read
    with `weights_only=True`, which builds tensors and containers and runs no code of the file's.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> checkpoint = TorchCheckpoint.from_model(model)
        >>> checkpoint.get_model(torch.nn.Linear(2, 1)).weight.equal(model.weight)
        True
    """

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Any], *, preprocessor: None = None) -> TorchCheckpoint:
        """A checkpoint of what `model.state_dict()` returned; the names lose DDP's `module.`.

        The tensors are not copied before it is reported. Raises InvalidSettingError for what is no state dict.
        """
        if not isinstance(state_dict, Mapping):
            raise invalid("TorchCheckpoint: state_dict", state_dict, "what model.state_dict() returns")
        if state_dict and all(isinstance(name, str) and name.startswith(_PREFIX) for name in state_dict):
            state_dict = {name.removeprefix(_PREFIX): value for name, value in state_dict.items()}
        made = cls._in_memory()
        assert isinstance(made, TorchCheckpoint)
        made._state = dict(state_dict)
        return made

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: None = None) -> TorchCheckpoint:
        """A checkpoint of a module's state; of a model that DDP wraps, of the model itself."""
        import torch

        if not isinstance(model, torch.nn.Module):
            raise invalid("TorchCheckpoint: model", model, "a torch.nn.Module")
        inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
        return cls.from_state_dict(inner.state_dict())

    def get_state_dict(self, *, weights_only: bool = True) -> dict[str, Any]:
        """The state, on the CPU.

        Args:
            weights_only: False also loads a file with objects of any class, which runs the file's code: only for
                files whose origin you trust.

        Raises CheckpointNotFoundError when there is no model in it, CheckpointError for one that needs
        `weights_only=False`.
        """
        if self._state is not None:
            return dict(self._state)
        import torch

        with self.as_directory() as directory:
            if (Path(directory) / SAFE_FILE).exists():
                from safetensors.torch import load_file

                return dict(load_file(Path(directory) / SAFE_FILE))
            path = Path(directory) / TORCH_FILE
            if not path.exists():
                raise CheckpointNotFoundError(f"{self!r} holds neither {SAFE_FILE} nor {TORCH_FILE}")
            try:
                return dict(torch.load(path, map_location="cpu", weights_only=weights_only))
            except Exception as error:
                if not weights_only:
                    raise
                raise CheckpointError(
                    f"{path} is not loaded: {error}. If you trust where it is from: get_state_dict(weights_only=False)"
                ) from error

    def get_model(self, model: Any, *, weights_only: bool = True) -> Any:
        """`model`, with the state loaded into it. Raises as `get_state_dict` does."""
        model.load_state_dict(self.get_state_dict(weights_only=weights_only))
        return model

    _state: dict[str, Any] | None = None

    def _materialize(self, directory: Path) -> None:
        if self._state is None:
            super()._materialize(directory)
            return
        import torch

        whole = self._state
        if whole and all(isinstance(value, torch.Tensor) for value in whole.values()) and _write_safe(whole, directory):
            pass
        else:
            pickling.write(whole, directory / TORCH_FILE, torch.save)
        if self._metadata:
            fs.write_file(directory / ".metadata.json", json.dumps(self._metadata).encode(), fsync=False)

    def __repr__(self) -> str:
        return super().__repr__() if self._state is None else f"{type(self).__name__}(names={sorted(self._state)})"


def _write_safe(state: dict[str, Any], directory: Path) -> bool:
    """Write with safetensors; False where it is not installed, or cannot hold such tensors or their names."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import save_file
    except ImportError:
        return False
    if not all(isinstance(name, str) and _is_plain(tensor) for name, tensor in state.items()):
        return False
    # Tensors that share memory (tied weights) are written once each: the format knows no sharing.
    seen: set[int] = set()
    own = {}
    for name, tensor in state.items():
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()  # the file holds the numbers
        own[name] = tensor.clone() if tensor.untyped_storage().data_ptr() in seen else tensor
        seen.add(tensor.untyped_storage().data_ptr())
    try:
        save_file(own, directory / SAFE_FILE)
    except KeyError:
        return False  # a dtype that the format has not
    except SafetensorError as error:
        refused = re.search(r"os error (\d+)", str(error))
        if refused is None:
            raise
        raise OSError(int(refused[1]), os.strerror(int(refused[1])), str(directory / SAFE_FILE)) from error
    return True


def _is_plain(tensor: Any) -> bool:
    """Whether it is its numbers and no more: not sparse, quantized, of the meta device, nested, or a subclass."""
    import torch

    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_meta or tensor.is_nested)
    )
