"""Experiments of 1,000 to 100,000 trials for the measurements of the page, and the same trials as a study of Optuna.

They are simulated runs of ASHA with three parameters, two metrics and up to ten results a trial, made once per size and
kept below $BENCH_PAGES (default: a directory of this user's in the temporary directory), which may be removed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = (1_000, 10_000, 100_000)
FORM = 1
"""Goes up when what is made changes: what lies there from before is another thing then."""
NAME = "run"
RUN = """
import math, sys
import tuner as tune
from tuner.executors import SimulatedExecutor
from tuner.schedulers import ASHAScheduler

def train(config):
    pass

def model(config):
    height = abs(math.log10(config["rate"]) + 2.5) + config["width"] / 100 + (config["kind"] == "plain")
    good = 1 / (1 + height)
    return [(1.0, {"loss": height / step, "accuracy": good - 0.1 / step}) for step in range(1, 11)]

tune.run(train, name="run", metric="loss", mode="min", num_samples=int(sys.argv[2]), seed=1, verbose=0,
         config={"rate": tune.loguniform(1e-5, 1), "width": tune.randint(8, 512),
                 "kind": tune.choice(["plain", "deep"])},
         scheduler=ASHAScheduler(max_t=10, reduction_factor=4), storage_path=sys.argv[1],
         executor=SimulatedExecutor(model, slots=4, directories=False))
"""


def kept() -> Path:
    """Where they lie."""
    named = os.environ.get("BENCH_PAGES") or Path(tempfile.gettempdir(), f"tuner-bench-pages-{os.getuid()}")
    path = Path(named)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise SystemExit(f"{path} is another user's; set BENCH_PAGES to a directory of your own")
    return path


def experiment(count: int) -> Path:
    """The directory of an experiment with that many trials."""
    return _once(f"{count}-{FORM}", lambda place: _run(place, count)) / NAME


def study(count: int) -> str:
    """The address of a study with the same trials: parameters, results, last values and times."""
    return f"sqlite:///{_once(f'{count}-{FORM}-optuna', lambda place: _studied(place, count))}/study.db"


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """Made beside and renamed, so that none is ever used half made."""
    place = kept() / name
    if not place.is_dir():
        print(f"making {place}", file=sys.stderr)
        made = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=kept()))
        try:
            make(made)
            made.rename(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return place


def _run(place: Path, count: int) -> None:
    script = place / "run.py"
    script.write_text(RUN)
    subprocess.run([sys.executable, script, place, str(count)], check=True)


def _studied(place: Path, count: int) -> None:
    """Optuna writes one trial of each kind; the others are rows like its own, for it takes milliseconds for each."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.storages import RDBStorage

    import tuner as tune

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = RDBStorage(f"sqlite:///{place}/study.db")
    made = optuna.create_study(storage=storage, study_name=NAME, direction="minimize")
    kinds = CategoricalDistribution(["plain", "deep"])
    spaces = {"rate": FloatDistribution(1e-5, 1, log=True), "width": IntDistribution(8, 511), "kind": kinds}
    first = optuna.trial.create_trial(
        params={"rate": 0.1, "width": 8, "kind": "plain"}, distributions=spaces, value=1.0, intermediate_values={1: 1.0}
    )
    made.add_trial(first)
    storage.remove_session()
    with sqlite3.connect(place / "study.db") as database:
        spelled = dict(database.execute("SELECT param_name, distribution_json FROM trial_params"))
        for table in ("trials", "trial_params", "trial_values", "trial_intermediate_values"):
            database.execute(f"DELETE FROM {table}")
        for number, trial in enumerate(tune.open_experiment(experiment(count)).trials):
            _insert(database, spelled, number, trial)


def _insert(database: sqlite3.Connection, spelled: dict[str, str], number: int, trial: Any) -> None:
    key, last, count = number + 1, trial.last_result["loss"], trial.iteration
    times = "2026-01-01 00:00:00.000000", "2026-01-01 00:00:10.000000"
    database.execute(
        "INSERT INTO trials (trial_id, number, study_id, state, datetime_start, datetime_complete) "
        "VALUES (?,?,1,?,?,?)",
        (key, number, "COMPLETE" if count == 10 else "PRUNED", *times),
    )
    database.executemany(
        "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES (?,?,?,?)",
        [
            (key, name, ["plain", "deep"].index(value) if name == "kind" else value, spelled[name])
            for name, value in trial.config.items()
        ],
    )
    value = "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?,0,?,'FINITE')"
    database.execute(value, (key, last))
    database.executemany(
        "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type) "
        "VALUES (?,?,?,'FINITE')",
        [(key, step, last * count / step) for step in range(1, count + 1)],  # as the model of RUN has it
    )
