"""`prove`: a test that a trainable continues after a kill as if there had been none."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainables.config import CheckpointConfig
from tuner.run import run
from tuner.tools.prove import run_records
from tuner.tools.prove.run_records import KillPoint
from tuner.tools.prove.run_watch import Watch, decided_by_timing
from tuner.tools.prove.verdict import before_kills, judge


def prove(
    trainable: Any,
    *,
    config: Mapping[str, Any] | None = None,
    kills: int = 3,
    seed: int = 0,
    ignore: Sequence[str] = (),
    **arguments: Any,
) -> None:
    """Run a trainable without a kill and killed with SIGKILL at random reports, and compare.

    Compared are, for each trial, the metrics of all iterations and the files of the last checkpoint. Trials run one at
    a time, in processes of their own, and store in a temporary directory.

    Args:
        trainable, config: as for `tune.run`.
        kills: how often a trial's process is killed; each time after a checkpoint of its own.
        seed: of the experiment, and of where it is killed.
        ignore: names of metrics, and of values in checkpoints, that may differ; patterns as in a shell.
        **arguments: more for `tune.run`: stop, num_samples, checkpoint_freq, ...

    Raises:
        AssertionError: the first metric and the first tensor that differ, and likely causes; or why nothing could be
            proven: nothing was saved, a trial failed, the trainable does not repeat itself.

    Example:
        >>> def test_my_training_continues():
        ...     prove(train, config={"lr": 0.1}, kills=3)
    """
    given = arguments.pop("checkpoint_config", None) or CheckpointConfig()
    settings = {"verbose": 0, **arguments, "max_failures": arguments.get("max_failures", 0) + kills}
    by_time: dict[str, Any] = {key: settings.get(key) for key in ("scheduler", "search_alg", "stop", "time_budget_s")}
    with tempfile.TemporaryDirectory(prefix="prove-") as directory:

        def experiment(name: str, points: Sequence[KillPoint] = ()) -> Path:
            place = Path(directory, name)
            place.mkdir()
            run_records.write_timing(place, 0, decided_by_timing(**by_time))
            watch = Watch(place / f"0{run_records.SUFFIX}", points, victim="trial")
            # What keeps a state is copied: each run begins with it as it was given.
            stateful = [name for name in ("search_alg", "scheduler", "stop") if name in settings]
            fresh: dict[str, Any] = {name: copy.deepcopy(settings[name]) for name in stateful}
            run(
                trainable,
                config=config,
                seed=seed,
                name="proof",
                storage_path=place / "0",
                max_concurrent_trials=1,
                checkpoint_config=replace(given, publish="blocking") if isinstance(given, CheckpointConfig) else given,
                raise_on_failed_trial=False,
                **{**settings, **fresh, "callbacks": [*settings.get("callbacks", ()), watch]},
            )
            return place

        whole = experiment("whole")
        verdict = before_kills(whole)
        if verdict is None:
            points = run_records.points(run_records.of_place(whole), kills=kills, seed=seed)
            killed = experiment("killed", points)
            verdict = judge(whole, killed, ignore=ignore, control=lambda: experiment("again"))
    if not verdict.proven:
        raise AssertionError(verdict.text)
