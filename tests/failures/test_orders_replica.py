"""Orders to a run whose replica is gone for a while: they are done here, and the replica hears of them later."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import run
from replicas import Store

import tuner as tune
from tests.servers.proxy import FaultyProxy

PATIENCE_S = 60


class Grows(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.total = 0.0

    def step(self) -> dict[str, Any]:
        time.sleep(0.02)
        self.total += self.config["rate"]
        return {"score": self.total}

    def save_checkpoint(self, directory: str) -> None:
        Path(directory, "total").write_text(repr(self.total))

    def load_checkpoint(self, directory: str) -> None:
        self.total = float(Path(directory, "total").read_text())


class Orders(tune.Callback):
    """Once a trial has come that far, the way to the replica is cut, and somebody gives orders."""

    changes_results = False

    def __init__(self, place: Path, line: FaultyProxy) -> None:
        self.place, self.line = place, line
        self.said: dict[str, tuple[str, str]] = {}
        self.thread = threading.Thread(target=self._give)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        if result["training_iteration"] == 5 and not self.thread.ident:
            self.line.outage = True
            self.line.cut()
            self.thread.start()

    def _give(self) -> None:
        experiment = tune.open_experiment(self.place)
        try:
            saved = self._done("save", experiment.save(0, pin=True)).split("_")[-1]
            self._done("tag", experiment.tag(f"0@{int(saved)}", "good"))
            self._done("note", experiment.note(0, "without a copy"))
            self._done("pause", experiment.pause(0))
            self._done("fork", experiment.fork("good", {"rate": 2.0}))
            self._done("go", experiment.go(0))
        finally:
            self._done("stop", experiment.stop("all"))
            self.line.outage = False

    def _done(self, word: str, order: Any) -> str:
        self.said[word] = order.wait(PATIENCE_S), order.why
        return order.why


def test_orders_are_done_while_the_replica_is_gone_and_it_has_them_in_the_end(
    tmp_path: Path, store: Store, line: FaultyProxy
) -> None:
    orders = Orders(tmp_path / "e", line)
    analysis = run(
        Grows,
        tmp_path,
        config={"rate": tune.grid_search([1.0, 0.5])},
        sync_config=tune.SyncConfig(upload_dir=store.uri),
        callbacks=[orders],
        checkpoint_freq=5,
        keep_checkpoints_num=1,
    )
    orders.thread.join()
    assert {word: state for word, (state, _) in orders.said.items()} == dict.fromkeys(orders.said, "done")
    assert len(orders.said) == 7
    trunk, _, fork = analysis.trials  # one trains while the other one is paused: else the run would end
    (good,) = [record for record in trunk.checkpoints if record.tags == ["good"]]
    assert fork.fork is not None and fork.fork.donor == good.ref
    there = tune.open_experiment(f"{store.uri}/e")
    assert {order["state"] for order in there.orders.values()} == {"done"}
    assert list(there.tags) == ["good"]
    assert [trial.iteration for trial in there.trials] == [trial.iteration for trial in analysis.trials]
    assert tune.Checkpoint(f"{store.uri}/e@good").metrics["score"] == good.iteration
