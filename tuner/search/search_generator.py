"""`SearchGenerator`: a `SearchAlgorithm` that makes trials of what a searcher suggests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.error import SettingError, require
from tuner.search.experiment_spec import ExperimentSpec
from tuner.search.limiter import tell_properties
from tuner.search.planned_trial import PlannedTrial, generate_id
from tuner.search.search_algorithm import SearchAlgorithm
from tuner.search.searcher import Metric, Searcher
from tuner.search.space import evaluated_params, merge_constants


class SearchGenerator(SearchAlgorithm):
    """Makes a trial of each suggestion of a searcher; `search_alg=searcher` does the same without it.

    Args:
        searcher: proposes.
    """

    def __init__(self, searcher: Searcher) -> None:
        require(isinstance(searcher, Searcher), "SearchGenerator: searcher", searcher, "it is a Searcher")
        self.searcher = searcher
        self._experiment: ExperimentSpec | None = None
        self._counter, self._total_samples, self._finished = 0, 0, False

    @property
    def metric(self) -> Metric:
        return self.searcher.metric

    @property
    def mode(self) -> Metric:
        """ "min" or "max", one per metric."""
        return self.searcher.mode

    def set_search_properties(self, metric: Metric, mode: Metric, config: Any, **spec: Any) -> bool:
        return tell_properties(self.searcher, metric, mode, config, **spec)

    @property
    def total_samples(self) -> int:
        return max(self._total_samples, 0)

    def add_configurations(self, experiments: Any) -> None:
        made = ExperimentSpec.several(experiments)
        if len(made) != 1:
            raise SettingError(f"SearchGenerator makes the trials of one experiment, not of {len(made)}")
        self._experiment = made[0]
        self._total_samples = self._experiment.spec["num_samples"]

    def set_num_samples(self, num_samples: int) -> bool:
        if not self.searcher.set_num_samples(num_samples):
            return False
        self._total_samples, self._finished = num_samples, False
        return True

    def next_trial(self) -> PlannedTrial | None:
        if self.is_finished():
            return None
        if self._experiment is None:
            raise SettingError("SearchGenerator has no experiment yet: add_configurations gives it one")
        return self.create_trial_if_possible(self._experiment.spec)

    def create_trial_if_possible(self, experiment_spec: Mapping[str, Any]) -> PlannedTrial | None:
        """A trial of the searcher's next suggestion, or None: it has none, or none now."""
        trial_id: str = vars(self).pop("_next_trial_id", None) or generate_id()
        suggestion = self.searcher.suggest(trial_id)
        if suggestion is None:
            return None
        if isinstance(suggestion, str):
            self._finished = True
            return None
        from tuner.search.variants import format_tag

        self._counter += 1
        space = experiment_spec["config"]
        config = merge_constants(space, suggestion)
        evaluated = evaluated_params(space, config)
        tag = format_tag(self._counter, evaluated)
        return PlannedTrial(str(experiment_spec["run"]), config, trial_id, evaluated, tag)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.searcher.on_trial_complete(trial_id=trial_id, result=result, error=error)

    def is_finished(self) -> bool:
        return self._finished or 0 <= self._total_samples <= self._counter

    def get_state(self) -> dict[str, Any]:
        return {"counter": self._counter, "finished": self._finished, "searcher": self.searcher.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._counter, self._finished = state["counter"], state["finished"]
        self.searcher.set_state(state["searcher"])
