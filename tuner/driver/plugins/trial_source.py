"""New trials: the searcher proposes a config, and a fact is made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from trainables import tagged
from trainables.errors import MetricError
from tuner.driver.plugins.calling import blame, call, label
from tuner.error import SerializationError, SettingError
from tuner.experiment import events as ev
from tuner.experiment.blobs import Blobs
from tuner.experiment.naming import TrialNames, default_dirname
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.schedulers import TrialScheduler
from tuner.search import Searcher
from tuner.search.space import evaluated_params, merge_constants
from tuner.search.variants import BasicVariantGenerator, format_tag

AHEAD = 16
"""As many trials wait in Ray."""


class TrialSource:
    """Makes trials of what a searcher suggests.

    Args:
        space: the search space, whose constants go into every config.
        num_samples: how many trials there are to be; -1: as many as the searcher has.
        prefix: what the ids of trials begin with.
        names: gives trials their names and directories.
        resources_for: what a trial asks for by its config; None: what all ask for.
        blobs: hold what JSON has not.
    """

    def __init__(
        self,
        searcher: Searcher,
        scheduler: TrialScheduler,
        *,
        space: dict[str, Any],
        num_samples: int,
        prefix: str,
        trainable_name: str,
        names: TrialNames,
        blobs: Blobs | None,
        resources_for: Callable[[Mapping[str, Any]], dict[str, float] | None] = lambda config: None,
    ) -> None:
        self.num_samples = num_samples
        self.stopped = False
        """A stopper has stopped everything: no trial is created any more."""
        self._searcher, self._scheduler = searcher, scheduler
        self._space, self._prefix, self._trainable_name, self._names = space, prefix, trainable_name, names
        self._blobs, self._resources_for = blobs, resources_for

    def create(self, state: ExperimentState) -> ev.TrialCreated | ev.SearchEnded | None:
        """The next trial, or that there is none any more, or None: not now."""
        if not self.more_to_come(state):
            return None
        index = len(state.trials)
        trial_id = f"{self._prefix}_{index:05d}"
        try:
            suggestion = self._searcher.suggest(trial_id)
        except Exception as error:
            blame(error, self._searcher, f"suggest({trial_id!r})")
            raise
        if suggestion is None:
            return None
        if isinstance(suggestion, str) and suggestion == Searcher.FINISHED:
            return ev.SearchEnded(self.num_samples)
        if not isinstance(suggestion, dict):
            raise SettingError(
                f"{label(self._searcher)}.suggest({trial_id!r}) returned {suggestion!r}, which is not accepted; "
                "accepted are a config (a dict), None (none now) and Searcher.FINISHED (never again)"
            )
        self._searcher.prepare(f"{self._prefix}_{index + 1:05d}")
        return self._created(trial_id, index, merge_constants(self._space, suggestion))

    def more_to_come(self, state: ExperimentState) -> bool:
        """False once the searcher has said that there are no more trials, or a stopper has stopped everything."""
        return not self.stopped and (state.search_ended is None or not 0 <= self.num_samples <= state.search_ended)

    def all_created(self, state: ExperimentState) -> bool:
        """The searcher's next word is that there are no more trials, as far as is known."""
        return 0 <= self.total_samples <= len(state.trials)

    @property
    def total_samples(self) -> int:
        """How many trials there will be in all, grids included, as far as the searcher knows; -1: no end is known."""
        total = getattr(self._searcher, "total", None)
        return total if isinstance(total, int) else -1

    @property
    def ahead(self) -> int:
        """How many trials may wait before there is room for them; one, where results say what is suggested next."""
        return AHEAD if isinstance(self._searcher, BasicVariantGenerator) else 1

    def wants_population(self, state: ExperimentState) -> bool:
        """All trials are to be created before one goes on; not of a search without end."""
        return self._scheduler.population and self.num_samples > 0 and self.more_to_come(state)

    def _created(self, trial_id: str, index: int, suggested: dict[str, Any]) -> ev.TrialCreated:
        config = call(self._scheduler, "first_config", suggested)
        evaluated = evaluated_params(self._space, config)
        evaluated.update({key: value for key, value in config.items() if key not in suggested})
        trial = Trial(
            trial_id=trial_id,
            index=index,
            trainable_name=self._trainable_name,
            name=f"{self._trainable_name}_{trial_id}",
            dirname=default_dirname(self._trainable_name, trial_id),
            raw_config=self.tagged(config),
            raw_evaluated=self.tagged(evaluated),
            experiment_tag=format_tag(index, evaluated),
        )
        trial.__dict__["config"] = config
        name, dirname = self._names.of(trial)
        return ev.TrialCreated(
            trial=trial_id,
            index=index,
            config=trial.raw_config,
            evaluated=trial.raw_evaluated,
            tag=trial.experiment_tag,
            trainable=self._trainable_name,
            name=name,
            dirname=dirname,
            resources=self._resources_for(config),
        )

    def tagged(self, config: dict[str, Any]) -> msgspec.Raw:
        """A config as it stands in a fact."""
        try:
            data = tagged.dumps(config, blobs=self._blobs)
            if b'"$":"blob"' in data:
                tagged.loads(data, blobs=self._blobs)  # what can be pickled and not unpickled: before a trial has it
            return msgspec.Raw(data)
        except MetricError as error:  # of the same text for all that is written down; it begins with the key
            raise SerializationError(
                f"config value {error}. Create it inside the trainable, or give what it is made from"
            ) from error.__cause__
