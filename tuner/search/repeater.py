"""`Repeater`: runs each suggestion of a searcher several times."""

from __future__ import annotations

import math
from typing import Any

from trainables.metrics import score_of
from trainables.validation import checked_names
from tuner.error import require
from tuner.search.arguments import whole_number
from tuner.search.limiter import Wrapper
from tuner.search.searcher import Searcher, Suggestion

TRIAL_INDEX = "__trial_index__"
"""The key of a config that says which repeat a trial is, from 0."""


@checked_names
class Repeater(Wrapper):
    """Runs each suggestion of a searcher `repeat` times and tells it the mean of the last results.

    `num_samples` counts the repeats: 15 with `repeat=5` are three suggestions. A scheduler that stops early would make
    the means incomparable.

    Args:
        searcher: sees one trial per suggestion.
        repeat: how often each one runs, from 1.
        set_index: put the number of the repeat into the config, as `"__trial_index__"`.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        super().__init__(searcher)
        one = isinstance(searcher.metric, str | None)
        require(one, "Repeater: metric", searcher.metric, "the mean is of one metric")
        self.repeat, self.set_index = whole_number("repeat", repeat, least=1), bool(set_index)
        self._groups: dict[str, list[str]] = {}
        self._leader: dict[str, str] = {}
        self._scores: dict[str, dict[str, float | None]] = {}
        self._config: dict[str, Any] | None = None
        self._current: str | None = None

    def suggest(self, trial_id: str) -> Suggestion:
        if self._current is None:
            suggestion = self.searcher.suggest(trial_id)
            if not isinstance(suggestion, dict):
                return suggestion
            self._config = suggestion
        assert self._config is not None
        number = self._join(trial_id)
        config = dict(self._config)
        if self.set_index:
            config[TRIAL_INDEX] = number
        return config

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        same = True
        if self._current is None:
            self._config = {key: value for key, value in config.items() if key != TRIAL_INDEX}
            same = self.searcher.replay_suggest(trial_id, self._config)
        self._join(trial_id)
        return same

    def _join(self, trial_id: str) -> int:
        leader = self._current or trial_id
        group = self._groups.setdefault(leader, [])
        group.append(trial_id)
        self._leader[trial_id] = leader
        self._current = leader if len(group) < self.repeat else None
        return len(group) - 1

    def prepare(self, trial_id: str) -> None:
        if self._current is None:  # the next one is a new suggestion
            self.searcher.prepare(trial_id)

    def on_pause(self, trial_id: str) -> None:
        """Not passed on."""

    def on_unpause(self, trial_id: str) -> None:
        """Not passed on."""

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Not passed on: the searcher knows means of last results only."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        leader = self._leader.pop(trial_id, None)
        metric = self.searcher.metric
        if leader is None:
            return
        scores = self._scores.setdefault(leader, {})
        scores[trial_id] = score_of(result, metric) if result and isinstance(metric, str) else None
        if len(scores) < self.repeat:
            return
        del self._scores[leader], self._groups[leader]
        numbers = [score for score in scores.values() if score is not None and not math.isnan(score)]
        if numbers and isinstance(metric, str):
            mean = {
                metric: sum(numbers) / len(numbers),
                "training_iteration": (result or {}).get("training_iteration", 1),
            }
            self.searcher.on_trial_complete(leader, result=mean)
        else:
            self.searcher.on_trial_complete(leader, result=None, error=True)

    def get_state(self) -> dict[str, Any]:
        own = {name: value for name, value in vars(self).items() if name != "searcher"}
        return {"own": own, "searcher": self.searcher.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["own"])
        self.searcher.set_state(state["searcher"])
