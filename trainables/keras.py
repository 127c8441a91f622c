"""Keras 3: callbacks that report the logs, with a checkpoint of the model and its optimizer.

Keras reads its backend from `KERAS_BACKEND` when it is imported. Where neither TensorFlow nor JAX is installed,
importing this module before it makes that torch.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from trainables import knobs, session
from trainables.checkpoint import Checkpoint
from trainables.reporting import Metrics, checked_metrics, chosen, events, library, report_saved, saved_file
from trainables.validation import invalid, whole_number

if find_spec("tensorflow") is None and find_spec("jax") is None:
    knobs.default("KERAS_BACKEND", "torch")  # Keras's own default is TensorFlow
_keras = library("keras", extra="keras")
_Callback: Any = _keras.callbacks.Callback

__all__ = ["KerasEventCallback", "ReportCheckpointCallback"]

EVENTS = frozenset(name[3:] for name in dir(_Callback) if name.startswith("on_"))
"""What a callback can be called at: Keras's hooks without `on_`."""
_SAME = {"batch_begin": "train_batch_begin", "batch_end": "train_batch_end"}
_EPOCHS = "epochs"
"""Key of the complete epochs in a checkpoint's metadata."""
_SEEDS = "seeds"
"""Key of the states of its layers' seed generators, which the model's file has not."""
_RANDOM = "random_states.pt"
_before_training: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""Model -> the random states that it was saved with."""


class KerasEventCallback(_Callback):  # type: ignore[misc] # its package may be absent
    """Reports the logs at some of Keras's hooks, and saves at some.

    A trial that was interrupted goes on from its model and its optimizer, at the epoch that was not complete:

        >>> checkpoint = train.get_checkpoint()
        >>> model = TuneReportCheckpointCallback.get_model(checkpoint) if checkpoint else build_model()
        >>> model.fit(
        ...     x, y, epochs=10, initial_epoch=TuneReportCheckpointCallback.get_epochs(checkpoint),
        ...     callbacks=[TuneReportCheckpointCallback({"loss": "val_loss"})],
        ... )

    What layers such as Dropout draw goes on as it would have. On the torch backend the states of the random generators
    are saved too, and restored when `fit` begins with a model of `get_model`: so does the order of the data.

    Args:
        metrics: Which of the logs to report; a dict of name to report -> Keras's name renames; None for all. One that
            is not in the logs yet is left out, with one warning.
        filename: The model's name in the checkpoint; one without an ending gets ".keras".
        report_on: Names of Keras's hooks, without `on_`.
        save_on: Hook -> how many of its calls, or epochs, lie between two checkpoints. What is saved is reported too.

    In a group only rank 0 saves. Raises InvalidSettingError for a hook that Keras has not.
    """

    CHECKPOINT_NAME: ClassVar[str] = "checkpoint"

    def __init__(
        self,
        metrics: Metrics = None,
        *,
        filename: str = CHECKPOINT_NAME,
        report_on: str | list[str] = "epoch_end",
        save_on: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self._metrics = checked_metrics(name, metrics)
        self._filename = _named(filename)
        every = {event: whole_number(f"{name}: frequency", times, least=1) for event, times in (save_on or {}).items()}
        self._save_on = {_SAME.get(event, event): every[event] for event in events(every, EVENTS, name)}
        self._on = {_SAME.get(event, event) for event in events(report_on, EVENTS, name)} | set(self._save_on)
        self._epochs = 0
        self._calls: dict[str, int] = {}
        # Only the hooks that are wanted: Keras fetches the logs of each batch for who asks for them.
        for event in self._on - {"train_begin", "epoch_begin", "epoch_end"}:
            setattr(self, f"on_{event}", functools.partial(self._called, event))

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME, **more: Any) -> Any:
        """The model in a checkpoint, compiled as it was, with its optimizer's state.

        Args:
            checkpoint: One that a callback reported under that `filename`.
            more: For `keras.saving.load_model`: `custom_objects`, ...

        Raises CheckpointNotFoundError when there is none in it.
        """
        with checkpoint.as_directory() as directory:
            model = _keras.saving.load_model(saved_file(checkpoint, directory, _named(filename)), **more)
            for seed, state in zip(_seeds(model), checkpoint.get_metadata().get(_SEEDS, ()), strict=False):
                seed.assign(state)
            random = Path(directory, _RANDOM)
            if random.exists() and _on_torch():
                _before_training[model] = importlib.import_module("torch").load(random)
            return model

    @staticmethod
    def get_epochs(checkpoint: Checkpoint | None) -> int:
        """Epochs that were complete when it was saved: `initial_epoch` of the next `fit`; 0 without a checkpoint."""
        return 0 if checkpoint is None else int(checkpoint.get_metadata().get(_EPOCHS, 0))

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the random states that a model of `get_model` came with."""
        state = _before_training.pop(self.model, None)
        if state is not None:
            from trainables.torch.train_state import set_random_state

            set_random_state(state)
        if "train_begin" in self._on:
            self._called("train_begin", logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epochs = epoch
        if "epoch_begin" in self._on:
            self._called("epoch_begin", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._epochs = epoch + 1
        if "epoch_end" in self._on:
            self._called("epoch_end", epoch, logs)

    def _called(self, event: str, *arguments: Any, logs: Any = None) -> None:
        logs = logs or (arguments[-1] if arguments and isinstance(arguments[-1], Mapping) else {})
        metrics = chosen(self._metrics, logs, "the logs", strict=False)
        self._calls[event] = self._epochs if event == "epoch_end" else self._calls.get(event, 0) + 1
        if event in self._save_on and self._calls[event] % self._save_on[event] == 0:
            seeds = [_keras.ops.convert_to_numpy(seed).tolist() for seed in _seeds(self.model)]
            report_saved(metrics, self._save, metadata={_EPOCHS: self._epochs, _SEEDS: seeds})
        else:
            session.report(metrics)

    def _save(self, directory: Path) -> None:
        self.model.save(directory / self._filename)
        if _on_torch():
            from trainables.torch.train_state import random_state

            importlib.import_module("torch").save(random_state(), directory / _RANDOM)


class ReportCheckpointCallback(KerasEventCallback):
    """Reports the logs at `report_metrics_on`, and with a checkpoint at `checkpoint_on`; see `KerasEventCallback`."""

    def __init__(
        self,
        checkpoint_on: str | list[str] = "epoch_end",
        report_metrics_on: str | list[str] = "epoch_end",
        metrics: Metrics = None,
    ) -> None:
        super().__init__(metrics, report_on=report_metrics_on, save_on=frequencies(checkpoint_on, 1))


def frequencies(on: str | list[str], frequency: int | list[int]) -> dict[str, int]:
    """Hook -> frequency. Raises InvalidSettingError for lists that do not match."""
    on = [on] if isinstance(on, str) else list(on)
    each = [frequency] * len(on) if isinstance(frequency, int) else list(frequency)
    if len(each) != len(on):
        raise invalid("frequency", frequency, f"one number, or one for each of {on}")
    return dict(zip(on, each, strict=True))


def _seeds(model: Any) -> list[Any]:
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def _on_torch() -> bool:
    return bool(_keras.backend.backend() == "torch")


def _named(filename: str) -> str:
    return filename if Path(filename).suffix else f"{filename}.keras"
