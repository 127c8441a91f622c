"""New trials: the searcher proposes a config, and a fact is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from trainables import tagged
from trainables.errors import MetricError
from trainables.result_history import flatten
from tuner.driver.plugins.calling import blame, call, label, name_of
from tuner.error import SerializationError, SettingError
from tuner.experiment import events as ev
from tuner.experiment.blobs import Blobs
from tuner.experiment.forks import config_at
from tuner.experiment.naming import TrialNames, default_dirname
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord, Clone
from tuner.schedulers import TrialScheduler
from tuner.search import Searcher
from tuner.search.domains import Domain
from tuner.search.given_config import completed, edited
from tuner.search.repeater import TRIAL_INDEX
from tuner.search.space import evaluated_params, merge_constants
from tuner.search.space_tree import flat
from tuner.search.variants import BasicVariantGenerator, format_tag
from tuner.slow_calls import timed

AHEAD = 16
"""As many trials wait in Ray."""


_PLACE = object()
"""Where a config has a value that the space of the run says nothing of: the searcher has a space of its own."""


def _places(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _places(value) if isinstance(value, dict) and value else _PLACE for key, value in config.items()}


def _without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    filled = {key: value for key, value in config.items() if value is not _PLACE}
    return {key: _without_places(value) if isinstance(value, dict) else value for key, value in filled.items()}


def _is_of(key: str, names: Iterable[str]) -> bool:
    """Whether a flat key of a config is one of these, or within one."""
    return any(key == name or key.startswith(f"{name}/") for name in names)


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
        self._space, self.prefix, self._trainable_name, self._names = space, prefix, trainable_name, names
        self._blobs, self._resources_for = blobs, resources_for

    def set_num_samples(self, num_samples: int) -> bool:
        """There are to be so many trials from now on. False: the searcher counts by itself, and cannot change it."""
        taken = self._searcher.set_num_samples(num_samples)
        self.num_samples = num_samples if taken else self.num_samples
        return bool(taken)

    def create(self, state: ExperimentState) -> ev.TrialCreated | ev.SearchEnded | None:
        """The next trial, or that there is none any more, or None: not now."""
        if not self.more_to_come(state):
            return None
        number = state.searched  # an order in between changes no id that the searcher was asked ahead for
        trial_id = f"{self.prefix}_{number:05d}"
        try:
            with timed(lambda: name_of(self._searcher, "suggest")):
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
        for path, value in flat(suggestion).items():
            if isinstance(value, Domain):
                raise SettingError(
                    f"{label(self._searcher)}.suggest({trial_id!r}) returned {path}={value}, a domain instead of a "
                    "value; a define-by-run function calls trial.suggest_...() there"
                )
        self._searcher.prepare(f"{self.prefix}_{number + 1:05d}")
        suggested = merge_constants(self._space, suggestion)
        config = call(self._scheduler, "first_config", suggested)
        evaluated = evaluated_params(self._space, config)
        evaluated.update({key: value for key, value in config.items() if key not in suggested})
        return self._created(trial_id, len(state.trials), config, evaluated)

    # --- what users order -----------------------------------------------------------------------------------

    def added(self, state: ExperimentState, order_id: str, given: Mapping[str, Any], seed: int) -> ev.TrialCreated:
        """The trial of a config that a user gives in whole or in part: what it lacks is drawn, alike for one order.

        Raises SettingError for what does not fit the space.
        """
        known = next((trial.config for trial in state.trials), given)
        if TRIAL_INDEX in known:
            given = {TRIAL_INDEX: 0, **given}  # it is repeated once
        space = self._space if isinstance(self._space, dict) else {}
        drawn = completed({**_places(known), **space}, given, f"{seed} {order_id}")
        config = call(self._scheduler, "first_config", _without_places(drawn))
        there = flat(config)
        if lacks := [path for path, value in flat(drawn).items() if value is _PLACE and path not in there]:
            raise SettingError(f"it has no {', '.join(lacks)}, which only {label(self._searcher)} could draw")
        return self._ordered(state, order_id, config, evaluated_params(self._space, config))

    def forked(
        self, state: ExperimentState, order_id: str, trunk: Trial, record: CheckpointRecord, given: Mapping[str, Any]
    ) -> ev.TrialCreated:
        """The trial that goes on from a checkpoint of another one, with that one's config as it was then, edited.

        Raises SettingError for a key that it has not.
        """
        before = config_at(trunk, record.iteration)
        config = edited(before, given)
        old, new = (flatten(msgspec.json.decode(self.tagged(each))) for each in (before, config))
        changed = {key: (old.get(key), new.get(key)) for key in sorted({*old, *new}) if old.get(key) != new.get(key)}
        now = flatten(config)
        searched = {key: now[key] for key in (*trunk.evaluated_params, *changed) if key in now}
        return self._ordered(state, order_id, config, searched, Clone(record.iteration, record.ref, changed))

    def _ordered(
        self,
        state: ExperimentState,
        order_id: str,
        config: dict[str, Any],
        evaluated: dict[str, Any],
        fork: Clone | None = None,
    ) -> ev.TrialCreated:
        trial_id = f"{self.prefix}_o{len(state.made_for):04d}"
        made = self._created(trial_id, len(state.trials), config, evaluated)
        return msgspec.structs.replace(made, order=order_id, fork=fork)

    # --- how many -------------------------------------------------------------------------------------------

    def more_to_come(self, state: ExperimentState) -> bool:
        """False once the searcher has said that there are no more trials, or a stopper has stopped everything."""
        return not self.stopped and (state.search_ended is None or not 0 <= self.num_samples <= state.search_ended)

    def all_created(self, state: ExperimentState) -> bool:
        """The searcher's next word is that there are no more trials, as far as is known."""
        return 0 <= self.total_samples <= state.searched

    @property
    def total_samples(self) -> int:
        """How many trials there will be in all, grids included, as far as the searcher knows; -1: no end is known."""
        total = getattr(self._searcher, "total", None)
        return total if isinstance(total, int) else -1

    def planned(self, state: ExperimentState) -> int:
        """How many trials there will be in all, those of orders among them; -1: no end is known."""
        if state.search_ended is not None and not self.more_to_come(state):
            return len(state.trials)
        total = self.total_samples
        return total if total < 0 else total + len(state.made_for)

    @property
    def ahead(self) -> int:
        """How many trials may wait before there is room for them; one, where results say what is suggested next."""
        return AHEAD if isinstance(self._searcher, BasicVariantGenerator) else 1

    def wants_population(self, state: ExperimentState) -> bool:
        """All trials are to be created before one goes on; not of a search without end."""
        return self._scheduler.population and self.num_samples > 0 and self.more_to_come(state)

    def _created(self, trial_id: str, index: int, config: dict[str, Any], evaluated: dict[str, Any]) -> ev.TrialCreated:
        if changed := self._scheduler.changed_params:
            named = {key: value for key, value in flat(config).items() if _is_of(key, changed)}
            evaluated = {**evaluated, **named}
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
