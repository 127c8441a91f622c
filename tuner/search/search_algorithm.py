"""`SearchAlgorithm`: Ray's older interface of what gives trials their configs, and the searcher around one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.error import SettingError
from tuner.search.arguments import fitting
from tuner.search.experiment_spec import ExperimentSpec
from tuner.search.pickled_state import SavedToDirectory
from tuner.search.planned_trial import PlannedTrial
from tuner.search.searcher import Metric, Searcher, Suggestion


class SearchAlgorithm(SavedToDirectory):
    """Makes trials, one after another, until it is finished; a `Searcher` is simpler to write.

    Of the trials that it makes the config counts: `Trial(name, config={...})`, or what `super().next_trial()` gives.
    Its state at a resume is that of `get_state` and `set_state`, or all of its attributes that can be pickled.
    """

    CKPT_FILE_TMPL = "search_gen_state-{}.json"
    _finished = False
    _metric: Metric = None

    @property
    def metric(self) -> Metric:
        """What is optimised; None: nothing, or what the run says."""
        return self._metric

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
        """Take what the run was given. Returns False if it cannot."""
        if self._metric and metric:
            return False
        if metric:
            self._metric = metric
        return True

    @property
    def total_samples(self) -> int:
        """How many trials there will be in all; 0: that is not known."""
        return 0

    def set_num_samples(self, num_samples: int) -> bool:
        """A user has changed how many trials there are to be. False: it cannot change that any more."""
        return False

    def add_configurations(self, experiments: Any) -> None:
        """Take the experiment: one with a `spec`, in a list; or {name: {"run": ..., "config": ...}}."""
        raise NotImplementedError(f"{type(self).__name__} does not define add_configurations(experiments)")

    def next_trial(self) -> Any:
        """The next trial, or None: none now."""
        raise NotImplementedError(f"{type(self).__name__} does not define next_trial()")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial reported."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial ended."""

    def is_finished(self) -> bool:
        """There is no further trial."""
        return self._finished

    def set_finished(self) -> None:
        """There is no further trial from now on."""
        self._finished = True


class AlgorithmSearcher(Searcher):
    """Proposes the configs of the trials that a `SearchAlgorithm` makes, and tells it of them under its own ids.

    Args:
        algorithm: a `SearchAlgorithm`.
        trainable_name: of the trials.
    """

    counts_samples = True

    def __init__(self, algorithm: SearchAlgorithm, trainable_name: str = "") -> None:
        self.algorithm, self._trainable_name = algorithm, trainable_name
        self._theirs: dict[str, str] = {}

    @property
    def unwrapped(self) -> SearchAlgorithm:
        """What really proposes, for messages."""
        return self.algorithm

    @property
    def metric(self) -> Metric:
        return self.algorithm.metric

    @property
    def mode(self) -> Metric:
        found: Metric = getattr(self.algorithm, "mode", None)
        return found

    @property
    def total(self) -> int | None:  # type: ignore[override]
        return self.algorithm.total_samples or None

    def set_search_properties(self, metric: Metric, mode: Metric, config: Mapping[str, Any], **spec: Any) -> bool:
        take = self.algorithm.set_search_properties
        taken = bool(take(metric, mode, config, **fitting(take, spec)))
        number = spec.get("num_samples", 1)
        told = ExperimentSpec(self._trainable_name, self._trainable_name, config=config, num_samples=number)
        self.algorithm.add_configurations([told])
        return taken

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        return False

    def set_num_samples(self, num_samples: int) -> bool:
        return self.algorithm.set_num_samples(num_samples)

    def suggest(self, trial_id: str) -> Suggestion:
        if self.algorithm.is_finished():
            return Searcher.FINISHED
        vars(self.algorithm)["_next_trial_id"] = trial_id  # for one that names its trials as the run does
        trial = self.algorithm.next_trial()
        if trial is None:
            return Searcher.FINISHED if self.algorithm.is_finished() else None
        if not isinstance(trial, PlannedTrial):
            raise SettingError(
                f"{type(self.algorithm).__name__}.next_trial() returned {trial!r:.100}, which is not accepted; "
                "accepted are Trial(trainable_name, config={...}), and None (none now)"
            )
        self._theirs[trial_id] = trial.trial_id
        return trial.config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.algorithm.on_trial_result(self._theirs.get(trial_id, trial_id), result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.algorithm.on_trial_complete(self._theirs.get(trial_id, trial_id), result=result, error=error)

    def get_state(self) -> dict[str, Any]:
        return {"theirs": dict(self._theirs), "algorithm": self.algorithm.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._theirs = dict(state["theirs"])
        self.algorithm.set_state(state["algorithm"])
