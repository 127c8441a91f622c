"""The surrogate of LCBench: the curve of 52 epochs that a config of a neural network has on one of 34 data sets.

It is YAHPO Gym's (Pfisterer et al. 2022), fitted to LCBench (Zimmer et al. 2021); Apache-2.0. The files are at
https://github.com/slds-lmu/yahpo_data, folder `lcbench`. They are believed when their SHA-256 is the one below.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SOURCE = "https://github.com/slds-lmu/yahpo_data (folder lcbench)"
EPOCHS = 52
METRIC = "accuracy"
"""On the validation data, in percent."""
DIGESTS = {
    "config_space.json": "4d1c78a91429b4a37628e13f286cf1abe15f778a09722a4c01714f2d72a8200d",
    "encoding.json": "d8af928f412bbeb07e58ecd69877fcab35fbc595333d1c1c3f76120d2f2508da",
    "model.onnx": "b45c0d85ae39abf8820c8bea5ac82f415763afcbaf3b725e36af452b09cb6dcd",
}
COLUMNS = ("batch_size", "learning_rate", "momentum", "weight_decay", "num_layers", "max_units", "max_dropout")
"""The order of the model's input behind the epoch."""
SECONDS, ACCURACY = 0, 1
"""Columns of the model's output; the seconds are those since the start of the training."""
LEAST_EPOCH_S = 0.01


class Missing(Exception):
    """The files are not there, or are others; the message says where they come from."""


class Curve(NamedTuple):
    """What one config does: both have one entry for each epoch."""

    seconds: list[float]
    """Since the start of the training, ascending."""
    accuracy: list[float]


class Bounds(NamedTuple):
    """The values of one hyperparameter."""

    lower: float
    upper: float
    log: bool
    whole: bool


class Surrogate:
    """The model and what belongs to it.

    Args:
        folder: where `model.onnx`, `encoding.json` and `config_space.json` are.

    Raises:
        Missing: they are not there, are not the ones that are expected, or onnxruntime is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        for name, expected in DIGESTS.items():
            try:
                content = (self._folder / name).read_bytes()
            except OSError as error:
                raise Missing(f"no {name} in {folder}; the surrogate of LCBench comes from {SOURCE}") from error
            if hashlib.sha256(content).hexdigest() != expected:
                raise Missing(f"{self._folder / name} is not the file that is expected; it comes from {SOURCE}")
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise Missing("onnxruntime is not installed: pip install onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._model = onnxruntime.InferenceSession(
            str(self._folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._codes: dict[str, int] = json.loads((self._folder / "encoding.json").read_text())["OpenML_task_id"]
        self._curves: dict[tuple[str, tuple[float, ...]], Curve] = {}

    @cached_property
    def space(self) -> dict[str, Bounds]:
        """Hyperparameters in the model's order."""
        listed = json.loads((self._folder / "config_space.json").read_text())["hyperparameters"]
        found = {entry["name"]: entry for entry in listed}
        return {
            name: Bounds(
                found[name]["lower"], found[name]["upper"], found[name]["log"], found[name]["type"] == "uniform_int"
            )
            for name in COLUMNS
        }

    @cached_property
    def datasets(self) -> list[str]:
        """The 34 data sets (OpenML's numbers of tasks), in the order of their codes."""
        listed = json.loads((self._folder / "config_space.json").read_text())["hyperparameters"]
        choices = next(entry["choices"] for entry in listed if entry["name"] == "OpenML_task_id")
        return sorted(choices, key=self._codes.__getitem__)

    @property
    def tuned_on(self) -> list[str]:
        """Those on which a choice between methods may be made: an even code. The others judge it."""
        return [dataset for dataset in self.datasets if self._codes[dataset] % 2 == 0]

    def curves(self, dataset: str, configs: Sequence[Mapping[str, Any]]) -> list[Curve]:
        """The curves of many configs by one call of the model, which takes a third of a millisecond for each."""
        keys = [(dataset, tuple(float(config[name]) for name in COLUMNS)) for config in configs]
        new = list(dict.fromkeys(key for key in keys if key not in self._curves))
        if new:
            seconds, accuracy = self.arrays(dataset, np.array([values for _, values in new]))
            for key, taken, reached in zip(new, seconds.tolist(), accuracy.tolist(), strict=True):
                self._curves[key] = Curve(taken, reached)
        return [self._curves[key] for key in keys]

    def arrays(self, dataset: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Seconds and accuracy, both (configs, 52), of values in the order of COLUMNS, (configs, 7)."""
        output = self._output(dataset, values, np.arange(1, EPOCHS + 1))
        steps = np.maximum(np.diff(output[:, :, SECONDS], axis=1, prepend=0), LEAST_EPOCH_S)
        return np.cumsum(steps, axis=1), output[:, :, ACCURACY]

    def _output(self, dataset: str, values: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """(configs, epochs, the model's columns)."""
        rows = np.empty((len(values), len(epochs), 1 + len(COLUMNS)), np.float32)
        rows[:, :, 0] = epochs
        rows[:, :, 1:] = values[:, None, :]
        code = np.full((len(values) * len(epochs), 1), self._codes[dataset], np.int32)
        output = self._model.run(None, {"x_cat": code, "x_cont": rows.reshape(len(code), -1)})[0]
        return output.reshape(len(values), len(epochs), -1).astype(float)

    def best_accuracy(self, dataset: str, values: np.ndarray, epochs: Sequence[int]) -> np.ndarray:
        """The best accuracy at some epochs, (configs,), of values as `arrays` takes them."""
        return self._output(dataset, values, np.asarray(epochs))[:, :, ACCURACY].max(axis=1)

    def clear(self) -> None:
        """Forget the curves that were asked for."""
        self._curves.clear()

    def random_values(self, count: int, seed: int) -> np.ndarray:
        """So many configs, (count, 7), from the space's own distributions."""
        generator = np.random.default_rng(seed)
        return self.from_unit(generator.random((count, len(COLUMNS))))

    def from_unit(self, unit: np.ndarray) -> np.ndarray:
        """Values from places in the unit cube, each hyperparameter on its own scale."""
        columns = []
        for column, bounds in zip(unit.T, self.space.values(), strict=True):
            low, high = bounds.lower - bounds.whole * 0.5, bounds.upper + bounds.whole * 0.5
            if bounds.log:
                column = np.exp(math.log(low) + column * (math.log(high) - math.log(low)))
            else:
                column = low + column * (high - low)
            columns.append(np.clip(np.rint(column) if bounds.whole else column, bounds.lower, bounds.upper))
        return np.stack(columns, axis=1)
