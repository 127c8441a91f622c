"""A user's own plug-ins, of the stored samples.

The samples hold these by reference, as a user's own experiments hold theirs: what is here keeps its name and its
meaning for good. New samples get new names.
"""

from __future__ import annotations

from typing import Any

import trainables as train
import tuner as tune
from trainables.store import retention
from tuner.schedulers import Decision, FIFOScheduler, Reason, Reasoned, ReasonKind
from tuner.search import Searcher
from tuner.stopper import Stopper


class Ladder(Searcher):
    """Counts upwards; what went well is repeated once."""

    def __init__(self) -> None:
        super().__init__(metric="score", mode="max")
        self.next, self.best = 0.0, -1.0

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        self.next += 0.25
        return {"x": self.next + max(0.0, self.best), "nested": {"y": [self.next]}}

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
        return True

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if result:
            self.best = max(self.best, result["score"])


class Every(FIFOScheduler):
    """Stops every third trial at its second result."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def on_trial_add(self, trial: Any) -> None:
        self.seen.append(trial.trial_id)

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        third = self.seen.index(trial.trial_id) % 3 == 2
        return (
            tune.schedulers.Decision.STOP
            if third and result["training_iteration"] == 2
            else super().on_trial_result(trial, result)
        )

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "seen": self.seen}

    def set_state(self, state: dict[str, Any]) -> None:
        self.seen = list(state["seen"])
        super().set_state({key: value for key, value in state.items() if key != "seen"})


class Enough(Stopper):
    """Stops a trial at its third result, and everything after twelve."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.count += 1
        return bool(result["training_iteration"] >= 3)

    def stop_all(self) -> bool:
        return self.count >= 12

    def get_state(self) -> dict[str, Any]:
        return {"count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Hears(tune.Callback):
    """Remembers what it heard, as a part of its state."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self.heard.append((trial.trial_id, result["training_iteration"]))

    def get_state(self) -> dict[str, Any]:
        return {"heard": self.heard}

    def set_state(self, state: dict[str, Any]) -> None:
        self.heard = [tuple(pair) for pair in state["heard"]]


class Explains(FIFOScheduler):
    """Stops every second trial at its second result, and says why."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[str] = []

    def on_trial_add(self, trial: Any) -> None:
        self.added.append(trial.trial_id)

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        rank = self.added.index(trial.trial_id) % 2 + 1
        if rank == 1 or result["training_iteration"] < 2:
            return super().on_trial_result(trial, result)
        value = float(result["score"])
        reason = Reason(ReasonKind.WORSE, metric="score", value=value, rank=rank, of=2, cut=value + 1)
        return Reasoned(Decision.STOP, reason)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "added": self.added}

    def set_state(self, state: dict[str, Any]) -> None:
        self.added = list(state["added"])


class Limits(Stopper):
    """Stops a trial at its third result, and says why."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> Any:
        iteration = result["training_iteration"]
        return iteration >= 3 and Reason(ReasonKind.CRITERION, metric="training_iteration", value=iteration, cut=3.0)

    def stop_all(self) -> bool:
        return False


class Names(tune.Callback):
    """Holds classes of the package, as settings of a user's own may."""

    def __init__(self) -> None:
        places = (tune.schedulers, tune.search, tune.stopper, tune.logger)
        named = [getattr(place, name) for place in places for name in place.__all__]
        named += [getattr(tune, name) for name in _PUBLIC] + [train.CheckpointStrategy, train.ScalingConfig]
        named += [getattr(retention, name) for name in _POLICIES]
        self.classes = [found for found in named if isinstance(found, type)]


_PUBLIC = [
    "Budget", "CLIReporter", "Callback", "Checkpoint", "CheckpointConfig", "FailureConfig", "JupyterNotebookReporter",
    "PlacementGroupFactory", "ProgressReporter", "ResumeConfig", "RunConfig", "SyncConfig", "Trainable", "TuneConfig",
]  # fmt: skip
_POLICIES = ["All", "AnyOf", "Best", "Earliest", "EveryN", "EveryT", "Latest", "Pareto", "Pinned", "RetentionPolicy"]
