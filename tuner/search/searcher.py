"""`Searcher`: the interface of what proposes configs, and its obligations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any, Final, Literal

from trainables.metrics import score_of
from tuner.error import SettingError, require
from tuner.search.added_attributes import added_attributes
from tuner.search.arguments import check_mode
from tuner.search.domains import same
from tuner.search.pickled_state import SavedToDirectory

Metric = str | Sequence[str] | None
Suggestion = dict[str, Any] | Literal["FINISHED"] | None
_ADDED = "attributes of a subclass"
DEFAULT_METRIC = "_metric"
"""The name under which `report(0.3)` reports, and what is searched by when only a mode is given."""


class Searcher(SavedToDirectory):
    """Proposes configs, and learns from the results of those it proposed.

    Obligations of a subclass:

    - One method is called at a time, in the order in which things were journaled; all from one thread, but `suggest`
      where `ask_ahead` is True. A searcher does no I/O, reads no clock and keeps no trial or loop.
    - `suggest` is called once per trial. What it returns is the caller's: the searcher does not change it afterwards.
    - With the same seed and the same calls before it, `suggest` returns the same config, also in another process.
    - `get_state` / `set_state` carry everything that later suggestions depend on, but not the arguments of the
      constructor. They are called between any two other calls; the state is pickled. As they stand, what a subclass of
      a searcher of this package keeps in attributes of its own is in the state too.
    - A class with a `suggest` of its own and no `replay_suggest` is asked `suggest` again where a resume replays a
      trial; calls that gave no config are not repeated.
    - `on_trial_result` comes at most once per (trial, training_iteration). After `on_trial_complete` a trial may come
      back, if it failed and is continued; its results and another `on_trial_complete` follow then.

    Args:
        metric: what is optimised, "eval/auc" for a nested one; several for a multi-objective searcher.
        mode: "min" or "max"; one per metric where there are several.
    """

    FINISHED: Final = "FINISHED"
    """Returned by `suggest` when there will never be another config."""
    needs_metric: bool = False
    """True: it cannot work without metric and mode."""
    counts_samples: bool = False
    """True: it takes `num_samples` itself and ends with FINISHED; else its suggestions are counted outside."""

    total: int | None = None
    """How many trials there are in all, where that is known: then no room is asked for one more."""
    warm_start: Any = None
    """Earlier experiments that the run tells it of before its first suggestion, by `learn_from`: a path or URI, an
    analysis, or a list of them."""
    ask_ahead: bool = False
    """True: it is asked for the next suggestion in a thread, right after the one before was taken, and is told of
    results that come meanwhile when it has answered. Never two of its methods run at once. It must not return None."""

    _metric: Metric = None
    _mode: Metric = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if _first_with("suggest", cls) < _first_with("replay_suggest", cls):
            cls.replay_suggest = Searcher.replay_suggest  # type: ignore[method-assign] # the other passes it by

    def __init__(self, metric: Metric = None, mode: Metric = None, **_: Any) -> None:
        check_metric_and_mode(type(self).__name__, metric, mode)
        self._metric, self._mode = metric, mode

    @property
    def metric(self) -> Metric:
        """What is optimised; None: nothing, any result will do."""
        return self._metric

    @property
    def mode(self) -> Metric:
        """ "min" or "max", one per metric."""
        return self._mode

    def set_search_properties(self, metric: Metric, mode: Metric, config: Mapping[str, Any], **spec: Any) -> bool:
        """Take what `tune.run` was given, before the first `suggest`.

        Args:
            metric, mode: fill in what the constructor was not given.
            config: the search space, domains and constants.
            spec: `num_samples`, `seed` and `stop` of the experiment, `scheduled` (it was given a scheduler), and what
                is added later; ignore what you do not know.

        Returns:
            True if the domains of `config` are searched from now on; False: the searcher has a space of its own.
        """
        self._fill_in(metric, mode)
        return False

    def _fill_in(self, metric: Metric, mode: Metric) -> None:
        if self._metric is None:
            self._metric = metric
        if self._mode is None:
            self._mode = mode
        if self._metric is None and isinstance(self._mode, str) and self.needs_metric:
            self._metric = DEFAULT_METRIC
        check_metric_and_mode(type(self).__name__, self._metric, self._mode)

    def early_stopping_depth(self, stop: Any) -> float | None:
        """Up to how many iterations trials train, of which a run without a scheduler ends the worse ones early; None:
        it ends none. `stop` is the run's.
        """
        return None

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Ask the searcher to keep at most so many trials unfinished. False: it cannot, do it outside."""
        return False

    def set_num_samples(self, num_samples: int) -> bool:
        """A user has changed how many trials there are to be, -1: without end. False: it counts by itself, and cannot.

        One that does not count them has nothing to do.
        """
        return not self.counts_samples

    def suggest(self, trial_id: str) -> Suggestion:
        """The config of a new trial; None: none now, ask again after a trial ended; `FINISHED`: never again."""
        raise NotImplementedError(f"{type(self).__name__} does not define suggest(trial_id)")

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        """At a resume: this trial was given this config (with the constants of the space).

        After it the searcher is as if `suggest` had returned it. Returns False if `suggest` would have said something
        else; the config stands all the same.
        """
        suggestion = self.suggest(trial_id)
        return isinstance(suggestion, dict) and contains(config, suggestion)

    def prepare(self, trial_id: str) -> None:
        """The next `suggest` will be for this trial: it may be computed until then, as `AskAhead` does."""

    def on_search_end(self) -> None:
        """There are no more suggestions to give, unless a resume has a larger `num_samples`."""

    def on_pause(self, trial_id: str) -> None:
        """A trial was paused; its results so far stand."""

    def on_unpause(self, trial_id: str) -> None:
        """A paused trial goes on."""

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial reported; `result` has "training_iteration". Not to be changed."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial ended: with its last result, or None if it had none; `error` says that it failed."""

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        added = added_attributes(self) if self._remembered is not None else {}
        return state | {_ADDED: added} if added else state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state({name: value for name, value in state.items() if name != _ADDED})
        self.__dict__.update(state.get(_ADDED, {}))

    @property
    def learns(self) -> bool:
        """Whether it can learn from trials that it has not proposed."""
        kind = type(self)
        own = kind.learn_from is not Searcher.learn_from
        return own or kind.add_evaluated_point is not Searcher.add_evaluated_point

    def learn_from(self, trial: Any) -> str | None:
        """Learn from a finished trial that it has not proposed. Returns why it could not, or None.

        As it stands it goes to `add_evaluated_point`.

        Args:
            trial: has `trial_id`, `config`, `last_result` and `status`.
        """
        values = values_of(self.metric, trial.last_result)
        if not values or any(value is None or value != value for value in values):
            return f"{trial.trial_id} has no {' and '.join(names_of(self.metric)) or 'metric'}"
        self.add_evaluated_point(trial.config, values[0] if isinstance(self.metric, str) else values)
        return None

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Learn from a config that was evaluated elsewhere.

        Args:
            parameters: the config, at least its searched values.
            value: what it gave; a list for several objectives.
            error, pruned: that it failed, or was stopped early.
            intermediate_values: its results on the way, from step 0.
        """
        raise SettingError(f"{type(self).__name__} does not define add_evaluated_point: it learns from its trials only")

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Learn from the finished trials of an earlier experiment, before the first suggestion.

        A script that calls it does so again when it is run again: the trials are to be the same then. For the searchers
        that have it, `warm_start=` keeps them with the experiment.

        Args:
            trials_or_analysis: a trial, several, or an `ExperimentAnalysis`.
            metric: the name of the result that is learned from.

        Raises:
            SettingError: none of them has that metric.
        """
        trials = getattr(trials_or_analysis, "trials", trials_or_analysis)
        learned = 0
        for trial in [trials] if hasattr(trials, "config") else trials:
            value = score_of(trial.last_result, metric)
            if trial.status != "TERMINATED" or value is None or value != value:
                continue
            self.add_evaluated_point(trial.config, value)
            learned += 1
        if not learned:
            raise SettingError(f"add_evaluated_trials: no finished trial has the metric {metric!r}")


def _first_with(name: str, cls: type) -> int:
    """The place of the class that defines a method, in the order in which they are asked."""
    return next(place for place, each in enumerate(cls.__mro__) if name in vars(each))


def names_of(metric: Metric) -> list[str]:
    """The metrics, one or several."""
    return [metric] if isinstance(metric, str) else list(metric or ())


def values_of(metric: Metric, result: Mapping[str, Any]) -> list[float | None]:
    """What a result has of each of them."""
    return [score_of(result, name) for name in names_of(metric)]


def check_metric_and_mode(who: str, metric: Any, mode: Any) -> None:
    """Raise SettingError unless they fit together."""
    for value in mode if isinstance(mode, Sequence) and not isinstance(mode, str) else [mode]:
        if value is not None:
            check_mode(value, f"{who}: mode")
    if metric is None or isinstance(metric, str):
        if metric is not None and mode is not None and not isinstance(mode, str):
            raise SettingError(f"{who}: metric={metric!r} is one metric, but mode={mode!r} are several")
        return
    names = list(metric) if isinstance(metric, Sequence) else [metric]
    named = names and all(isinstance(name, str) for name in names)
    require(named, f"{who}: metric", metric, "it is a name or a list of names")
    require(len(set(names)) == len(names), f"{who}: metric", metric, "each name once")
    if mode is not None and (isinstance(mode, str) or len(mode) != len(names)):
        raise SettingError(f"{who}: metric={metric!r} needs one mode each, not mode={mode!r}")


def contains(config: Any, suggestion: Any) -> bool:
    """True if every value of `suggestion` stands in `config` at the same place."""
    if isinstance(suggestion, Mapping) and isinstance(config, Mapping):
        return all(key in config and contains(config[key], value) for key, value in suggestion.items())
    if isinstance(suggestion, (list, tuple)) and isinstance(config, (list, tuple)):
        return len(suggestion) == len(config) and all(map(contains, config, suggestion))
    return same(config, suggestion) or (_is_nan(config) and _is_nan(suggestion))


def _is_nan(value: Any) -> bool:
    return isinstance(value, Number) and value != value  # an array is unlike itself too, element by element
