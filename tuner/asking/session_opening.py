"""`tune.open_session`: what is accepted, and what it means."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from os import PathLike
from typing import Any

from trainables.config import CheckpointConfig, FailureConfig, SyncConfig
from trainables.user_frames import from_the_call
from tuner.asking.ask_session import AskSession
from tuner.error import SettingError

MORE = (
    "callbacks",
    "checkpoint_budget",
    "max_concurrent_trials",
    "max_failures",
    "on_end",
    "on_failure",
    "overwrite",
    "restore",
    "seed",
    "stop",
    "takeover",
    "time_budget_s",
)
"""Arguments of `tune.run` that `open_session` takes as well."""
LIKE = 0.75
"""An argument that is not known is taken for a slip of one that is as much like it as that, from 0 to 1."""


@from_the_call
def open_session(
    name: str,
    *,
    config: Mapping[str, Any] | None = None,
    metric: str | Sequence[str] | None = None,
    mode: str | Sequence[str] | None = None,
    search_alg: Any = None,
    scheduler: Any = None,
    num_samples: int = 1,
    storage_path: str | PathLike[str] | None = None,
    sync_config: SyncConfig | None = None,
    checkpoint_config: CheckpointConfig | None = None,
    resume: bool | str = "AUTO",
    **more: Any,
) -> AskSession:
    """Open an experiment whose trials run in this process, and in any other that opens it.

    The first to open starts a process that drives the experiment, in the background, and ends when the last has closed;
    others on this host join it. Killed at any moment, callers or driver, the same call goes on.

    Args:
        name: of the experiment, and of its directory under `storage_path`; by it others join.
        config: the search space, as for `tune.run`. None: trials without parameters.
        metric, mode: what searcher, scheduler and "best" go by: the name of a reported value, and "min" or "max" (None:
            "max"). Lists of both for several objectives. metric=None: there is no best one.
        search_alg: what proposes configs: a `Searcher`, or its name ("optuna"); None: grid and random search.
        scheduler: what stops, pauses or changes trials by their results: a `TrialScheduler`, or its name ("asha");
            None: none does (FIFO).
        num_samples: how often the space is sampled, each time with every combination of its grids; -1: without end.
        storage_path: the directory that holds experiments, or a URI ("s3://bucket/runs"). None: TUNE_RESULT_DIR, else
            `~/tuner_results`.
        sync_config: a `SyncConfig`: where copies go, and how. None: there are none.
        checkpoint_config: a `CheckpointConfig`: which checkpoints stay. None: all.
        resume: "AUTO": continue the experiment of that name, or start it. False: start it, and join nobody. The other
            words of `tune.run` too; they count for the start of a driver.
        more: callbacks, checkpoint_budget, max_concurrent_trials, max_failures, on_end, on_failure, overwrite, restore,
            seed, stop, takeover and time_budget_s, as for `tune.run`. Callbacks run in the driver's process. What
            those say who join is not looked at, but for the search space.

    Raises:
        SettingError, ResumeError, ExperimentExistsError: as `tune.run` does, also of a caller that joins with another
            search space.
        OwnedElsewhereError: its driver lives on another host, which the message names, or is none of a session.

    Example:
        >>> space = {"x": tune.uniform(0, 1)}
        >>> with tune.open_session("mine", config=space, num_samples=4) as session:  # doctest: +SKIP
        ...     while (trial := session.ask(wait=True)) is not None:
        ...         trial.report({"loss": trial.config["x"] ** 2})
        ...         trial.finish()
    """
    if not isinstance(name, str):
        raise SettingError(f"name={name!r} is not accepted; a session has a name, by which others join it")
    known = inspect.signature(open_session).parameters
    if unknown := sorted(more.keys() - set(MORE)):
        accepted = [*(each for each in known if each != "more"), *MORE]
        near = get_close_matches(unknown[0], accepted, 1, LIKE)
        hint = f"did you mean {near[0]!r}? Accepted" if near else "accepted"
        raise SettingError(f"open_session has no argument {unknown[0]!r}; {hint} are {', '.join(accepted)}")
    if resume is None:
        raise SettingError('resume=None is not accepted; accepted are "AUTO", False and the other words of tune.run')
    if "max_failures" in more:
        more["failure_config"] = FailureConfig(max_failures=more.pop("max_failures"))
    values = {
        "name": name,
        "param_space": config,
        "metric": metric,
        "mode": mode,
        "search_alg": search_alg,
        "scheduler": scheduler,
        "num_samples": num_samples,
        "storage_path": storage_path,
        "sync_config": sync_config,
        "checkpoint_config": checkpoint_config,
        "resume": resume,
        "overwrite": False,
        **more,
    }
    return AskSession({key: value for key, value in values.items() if value is not None})
