"""What with_parameters has bound: small in pickles, whole in a run, and named when it is gone."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import tuner as tune
from trainables.bound_objects import BoundObjects
from trainables.errors import InvalidSettingError

DATA = np.arange(2 * 2**20, dtype=np.float64)  # 16 MiB


class Summing(tune.Trainable):
    """Reports what it was given."""

    def setup(self, config: dict[str, Any], data: Any = None) -> None:
        self.data = data

    def step(self) -> dict[str, Any]:
        return {"sum": float(self.data.sum()), "done": True}


def train(config: dict[str, Any], data: Any) -> dict[str, Any]:
    return {"sum": float(data.sum())}


@pytest.mark.parametrize(
    "dumps", [cloudpickle.dumps, lambda bound: cloudpickle.dumps({"in": [bound]})], ids=["bare", "in a dict"]
)
@pytest.mark.parametrize("trainable", [Summing, train], ids=["class", "function"])
def test_16_mb_pickle_to_less_than_100_kb_and_come_back_as_the_same_object(
    trainable: Any, dumps: Callable[[Any], bytes]
) -> None:
    bound = tune.with_parameters(trainable, data=DATA)
    data = dumps(bound)
    assert len(data) < 100_000
    again = cloudpickle.loads(data)
    again = again["in"][0] if isinstance(again, dict) else again
    result = again({}).train() if trainable is Summing else again({})
    assert result["sum"] == float(DATA.sum())
    objects = BoundObjects({"data": DATA})
    assert pickle.loads(pickle.dumps(objects)) is objects


def test_the_pickle_outlives_the_trainable_and_not_its_process(tmp_path: Path) -> None:
    data = cloudpickle.dumps(tune.with_parameters(train, data=DATA))
    assert cloudpickle.loads(data)({})["sum"] == float(DATA.sum())
    script = """
import sys, cloudpickle, numpy, tuner as tune
def train(config, data):
    return {"sum": float(data.sum())}
size = int(sys.argv[2])
open(sys.argv[1], "wb").write(cloudpickle.dumps(tune.with_parameters(train, data=numpy.ones(size))))
"""
    for size in (1000, 2**20):
        path = tmp_path / f"{size}.pickle"
        subprocess.run([sys.executable, "-c", script, str(path), str(size)], check=True, timeout=60)
    assert cloudpickle.loads((tmp_path / "1000.pickle").read_bytes())({})["sum"] == 1000
    with pytest.raises(InvalidSettingError, match=r"the process that pickled the trainable has ended"):
        cloudpickle.loads((tmp_path / f"{2**20}.pickle").read_bytes())


def test_the_objects_are_written_once_per_run_and_are_there_after_a_kill(tmp_path: Path) -> None:
    script = """
import os, signal, sys, numpy, tuner as tune
class Summing(tune.Trainable):
    def setup(self, config, data=None):
        self.data = data
    def step(self):
        if self.iteration == 2 and not os.path.exists(os.environ["RESULTS"] + "/killed"):
            open(os.environ["RESULTS"] + "/killed", "w").close()
            os.kill(int(os.environ["DRIVER"]), signal.SIGKILL)
        return {"sum": float(self.data.sum()), "done": self.iteration == 3}
    def save_checkpoint(self, directory):
        return {"i": self.iteration}
    def load_checkpoint(self, checkpoint):
        assert checkpoint["i"] == self.iteration
os.environ["DRIVER"] = str(os.getpid())
bound = tune.with_parameters(Summing, data=numpy.ones(2**21))
a = tune.run(bound, name="e", config={"i": tune.grid_search([1, 2, 3])}, resume="AUTO",
    storage_path=os.environ["RESULTS"], checkpoint_freq=1, verbose=0)
print("SUMS", {t.last_result["sum"] for t in a.trials}, {t.last_result["training_iteration"] for t in a.trials})
"""
    file = tmp_path / "script.py"
    file.write_text(script)
    command, given = [sys.executable, str(file)], {**os.environ, "RESULTS": str(tmp_path)}
    assert subprocess.run(command, env=given, timeout=60, check=False).returncode == -signal.SIGKILL
    assert len([path for path in tmp_path.rglob("*.pickle") if path.stat().st_size > 2**24]) <= 1
    done = subprocess.run(command, env=given, timeout=60, check=True, capture_output=True, text=True)
    assert "SUMS {2097152.0} {4}" in done.stdout
