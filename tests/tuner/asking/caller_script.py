"""A caller that does what it is told on its standard input, in lines of JSON, or works until there is no more."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from typing import Any

import tuner as tune
from tuner.asking import AskedTrial, AskSession


def opened(settings: dict[str, Any]) -> AskSession:
    scheduler = settings.pop("scheduler", None)
    if scheduler is not None:
        name, given = scheduler
        if "hyperparam_mutations" in given:
            given["hyperparam_mutations"] = {"x": [1, 2, 3, 4, 5, 6, 7, 8]}
        settings["scheduler"] = tune.create_scheduler(name, **given)
    if "upload_dir" in settings:
        settings["sync_config"] = tune.SyncConfig(upload_dir=settings.pop("upload_dir"))
    if "keep" in settings:
        settings["checkpoint_config"] = tune.CheckpointConfig(num_to_keep=settings.pop("keep"))
    space = settings.pop("space", {"x": tune.uniform(0, 1)})
    return tune.open_session(settings.pop("name", "s"), config=space, **settings)


class Told:
    """The words that a test may say."""

    def __init__(self, session: AskSession) -> None:
        self.session = session
        self.trial: AskedTrial | None = None

    def ask(self, wait: bool = False) -> Any:
        self.trial = trial = self.session.ask(wait)
        if trial is None:
            return None
        start = None if trial.checkpoint is None else trial.checkpoint.to_dict()["state"]
        return {"trial": trial.trial_id, "config": trial.config, "iteration": trial.iteration, "from": start}

    def report(self, state: Any = None, **metrics: Any) -> str:
        assert self.trial is not None
        checkpoint = None if state is None else tune.Checkpoint.from_dict({"state": state})
        return self.trial.report(metrics, checkpoint)

    def finish(self) -> None:
        assert self.trial is not None
        self.trial.finish()

    def fail(self, text: str) -> None:
        assert self.trial is not None
        self.trial.fail(ValueError(text))

    def should_save(self) -> bool:
        assert self.trial is not None
        return self.trial.should_save

    def close(self) -> None:
        self.session.close()

    def fork(self) -> int:
        """A child that lives on with whatever it has of this process."""
        pid = os.fork()
        if pid == 0:
            while True:
                time.sleep(60)
        return pid


def obey(session: AskSession) -> None:
    told = Told(session)
    print(json.dumps("open"), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(told, order.pop("do"))(**order)
        except Exception as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(answer), flush=True)


def work(session: AskSession, iterations: int, step_s: float, threads: int) -> None:
    """Train whatever there is: `total` is the sum of all iterations so far, which only who continues right has."""

    def train() -> None:
        while (trial := session.ask(wait=True)) is not None:
            done = [] if trial.checkpoint is None else trial.checkpoint.to_dict()["done"]
            assert len(done) == trial.iteration, (done, trial.iteration)
            for iteration in range(trial.iteration + 1, iterations + 1):
                time.sleep(step_s * random.random())
                done.append(iteration)
                checkpoint = tune.Checkpoint.from_dict({"done": done}) if random.random() < 0.7 else None
                if trial.report({"total": sum(done), "x": trial.config["x"]}, checkpoint) != "continue":
                    break
            else:
                trial.finish()

    everybody = [threading.Thread(target=train) for _ in range(threads)]
    for thread in everybody:
        thread.start()
    for thread in everybody:
        thread.join()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    task = given.pop("work", None)
    with opened(given) as mine:
        if task is None:
            obey(mine)
        else:
            work(mine, **task)
