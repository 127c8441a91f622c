"""The user's script of the campaign: `python campaign_script.py PLAN` with the plan as JSON in a file.

Each step of training makes a link of a chain: a hash over the link before it, the trial, the step and a number that
nobody can guess. What is reported, what is saved and what is told to the test (a file outside of the experiment) hold
it, so that afterwards everybody can be asked what was built on what.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tuner as tune
from tuner.error import TrialsFailedError

PLAN: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
STATE = "state.json"


def score(x: float, step: int) -> float:
    return round(random.Random(f"{x}:{step}").random(), PLAN["digits"])


def payload(chain: str, number: int) -> bytes:
    return random.Random(f"{chain}:{number}").randbytes(PLAN["size"])


def tell(**what: Any) -> None:
    fd = os.open(PLAN["told"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(fd, json.dumps({"life": int(os.environ["CAMPAIGN_LIFE"]), "pid": os.getpid(), **what}).encode() + b"\n")
    os.close(fd)


def advance(state: dict[str, Any], trial: str, x: float) -> dict[str, Any]:
    """One step of training, and the metrics of it."""
    time.sleep(PLAN["step_s"])
    prev, n, nonce = state["chain"], state["n"] + 1, os.urandom(8).hex()
    chain = hashlib.sha256(f"{prev}|{trial}|{n}|{nonce}".encode()).hexdigest()[:24]
    state.update(n=n, chain=chain)
    metrics = {"score": score(x, n), "n": n, "chain": chain, "prev": prev, "nonce": nonce, "x_used": x}
    return metrics


def save_to(directory: Path, state: dict[str, Any]) -> None:
    (directory / STATE).write_text(json.dumps(state))
    for number in range(PLAN["files"]):
        place = directory / f"part{number % 3}" / f"weights-{number}.bin"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(payload(state["chain"], number))


def load_from(directory: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((directory / STATE).read_text())
    for number in range(PLAN["files"]):
        held = (directory / f"part{number % 3}" / f"weights-{number}.bin").read_bytes()
        if held != payload(state["chain"], number):
            tell(kind="torn", chain=state["chain"], number=number)
            raise RuntimeError("a checkpoint that was given to a trial is not what was saved")
    return state


# --- the function ---------------------------------------------------------------------------------------------


def restored() -> dict[str, Any]:
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return {"n": 0, "chain": ""}
    if PLAN["how"] == "from_dict":
        held = checkpoint.to_dict()
        if held["parts"] != [payload(held["chain"], number) for number in range(PLAN["files"])]:
            tell(kind="torn", chain=held["chain"])
            raise RuntimeError("a checkpoint that was given to a trial is not what was saved")
        return {"n": held["n"], "chain": held["chain"]}
    with checkpoint.as_directory() as directory:
        return load_from(Path(directory))


def report(metrics: dict[str, Any], state: dict[str, Any]) -> None:
    how = PLAN["how"]
    if how == "from_dict":
        parts = [payload(state["chain"], number) for number in range(PLAN["files"])]
        tune.report(metrics, checkpoint=tune.Checkpoint.from_dict({**state, "parts": parts}))
    elif how == "checkpoint_dir":
        with tune.checkpoint_dir() as directory:
            save_to(Path(directory), state)
        tune.report(metrics)
    else:
        with tempfile.TemporaryDirectory() as directory:
            save_to(Path(directory), state)
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory, move=how == "moved"))


def function(config: dict[str, Any]) -> None:
    trial, state = tune.get_trial_id(), restored()
    tell(kind="start", trial=trial, n=state["n"], chain=state["chain"])
    while PLAN["ends"] == "stop" or state["n"] < PLAN["iterations"]:
        metrics = advance(state, trial, config["x"])
        tell(kind="step", trial=trial, n=metrics["n"], prev=metrics["prev"], chain=metrics["chain"])
        if metrics["n"] % PLAN["save_every"] == 0:
            report(metrics, state)
        else:
            tune.report(metrics)
        if tune.get_context().should_stop():
            return


# --- the class ------------------------------------------------------------------------------------------------


class Class(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.state: dict[str, Any] = {"n": 0, "chain": ""}
        self.told = False

    def step(self) -> dict[str, Any]:
        if not self.told:
            tell(kind="start", trial=self.trial_id, n=self.state["n"], chain=self.state["chain"])
            self.told = True
        metrics = advance(self.state, self.trial_id, self.config["x"])
        tell(kind="step", trial=self.trial_id, n=metrics["n"], prev=metrics["prev"], chain=metrics["chain"])
        if PLAN["ends"] == "self" and metrics["n"] >= PLAN["iterations"]:
            metrics["done"] = True
        return metrics

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        save_to(Path(checkpoint_dir), self.state)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.state = load_from(Path(checkpoint_dir))


# --- the run --------------------------------------------------------------------------------------------------


def scheduler() -> Any:
    kind, last = PLAN["scheduler"], PLAN["iterations"]
    by = {"time_attr": "training_iteration"}
    if kind.startswith("asha"):
        how = "promotion" if kind.endswith("promotion") else "stopping"
        return tune.schedulers.ASHAScheduler(**by, max_t=last, grace_period=1, reduction_factor=2, type=how)
    if kind == "hyperband":
        return tune.schedulers.HyperBandScheduler(**by, max_t=max(last, 3), reduction_factor=3)
    if kind == "median":
        return tune.schedulers.MedianStoppingRule(**by, grace_period=1, min_samples_required=2, hard_stop=last % 2 == 0)
    if kind.startswith("pbt"):
        mutations = {"x": tune.uniform(0, 1)}
        return tune.schedulers.PopulationBasedTraining(
            **by, perturbation_interval=3, hyperparam_mutations=mutations, synch=kind == "pbt_synch", seed=1
        )
    if kind == "pb2":
        return tune.schedulers.PB2(**by, perturbation_interval=3, hyperparam_bounds={"x": [0.0, 1.0]}, seed=1)
    if kind == "resources":
        return tune.schedulers.ResourceChangingScheduler(tune.schedulers.FIFOScheduler())
    if kind == "pruner":
        import optuna

        return tune.schedulers.OptunaPruner(optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=1))
    return None


def searcher() -> Any:
    if PLAN["searcher"] != "optuna":
        return None
    from tuner.search.optuna import OptunaSearch

    return OptunaSearch()


def sync() -> Any:
    if PLAN["upload_dir"] is None:
        return None
    more: dict[str, Any] = {}
    if PLAN["replica"] == "command":
        more = {"syncer": "cp -rT {source} {target}", "delete_template": "rm -rf {target}"}
    return tune.SyncConfig(upload_dir=PLAN["upload_dir"], sync_timeout=60, keep_local=PLAN["keep_local"], **more)


def main() -> None:
    x = tune.uniform(0, 1)
    count = PLAN["trials"]
    if PLAN["searcher"] == "grid":
        x, count = tune.grid_search([math.sqrt(number + 1) / 4 for number in range(count)]), 1
    is_class = PLAN["api"] == "class"
    analysis = tune.run(
        Class if is_class else function,
        name="e",
        config={"x": x},
        num_samples=count,
        metric="score",
        mode="max",
        scheduler=scheduler(),
        search_alg=searcher(),
        stop={"training_iteration": PLAN["iterations"]} if PLAN["ends"] == "stop" else None,
        keep_checkpoints_num=PLAN["keep"],
        checkpoint_score_attr=PLAN["attr"],
        checkpoint_freq=PLAN["save_every"] if is_class else 0,
        checkpoint_at_end=PLAN["at_end"],
        checkpoint_budget="10GB" if PLAN["budget"] else None,
        resources_per_trial={"cpu": PLAN["per_trial"]},
        max_failures=PLAN["max_failures"],
        resume="AUTO+ERRORED" if PLAN["max_failures"] == 0 else "AUTO",
        seed=PLAN["seed"],
        storage_path=PLAN["storage"],
        sync_config=sync(),
        verbose=0,
    )
    found = {
        trial.trial_id: {"status": trial.status, "rows": trial.iteration, "x": trial.config["x"]}
        for trial in analysis.trials
    }
    Path(PLAN["found"]).write_text(json.dumps(found))


if __name__ == "__main__":
    try:
        main()
    except TrialsFailedError:
        sys.exit(1)
