"""Population based bandits: PBT whose new configs a Gaussian process proposes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from trainables.metrics import as_score
from trainables.validation import checked_names
from tuner.error import refused
from tuner.schedulers.explore import chance, clipped
from tuner.schedulers.pbt import PopulationBasedTraining
from tuner.schedulers.population import Member
from tuner.search.domains import is_number

OBSERVED = 200
"""So many of the newest observations are kept: the time to fit a Gaussian process grows with the cube of it."""

Observation = tuple[float, float, list[float], float]
"""At which time, from which score, with which values, by how much the score then rose per unit of time."""


@checked_names
class PB2(PopulationBasedTraining):
    """Population based training for few trials: what a clone's numbers become is proposed by a model, not drawn.

    A Gaussian process that varies in time is fitted to how much each interval raised the score, given the time, the
    score at its start and the values. The clone gets the values with the highest upper confidence bound within the
    bounds; clones that still train count as observed, so that two of them do not get the same. Before there is an
    interval to learn from, values are drawn uniformly.

    Args:
        time_attr, metric, mode, perturbation_interval, quantile_fraction, log_config, require_attrs, synch, seed: as
            for `PopulationBasedTraining`.
        hyperparam_bounds: name -> [least, greatest], or a dict of these. What a trial's config lacks of them at its
            creation is drawn uniformly. What is an int in the config stays one, rounded, within the bounds.
        custom_explore_fn: gets the proposed config and returns the one that is used.

    Raises:
        SettingError: an argument out of its range; the message has its name and value.
        MissingExtraError: scikit-learn is not installed.

    Example:
        >>> PB2("training_iteration", "loss", "min", 5, hyperparam_bounds={"lr": [1e-4, 1e-1]}).debug_string()
        'PB2: 0 checkpoints, 0 perturbs'

    Source: Parker-Holder et al. 2020, "Provably Efficient Online Hyperparameter Optimization with Population-Based
    Bandits", section 4.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        seed: int | None = None,
    ) -> None:
        if find_spec("sklearn") is None:
            raise MissingExtraError(f"PB2 needs scikit-learn: {how_to_install('sklearn')}")
        self._bounds = _flat_bounds(hyperparam_bounds)
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            perturbation_interval=perturbation_interval,
            hyperparam_mutations=hyperparam_bounds,
            quantile_fraction=quantile_fraction,
            resample_probability=0.0,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
            seed=seed,
        )
        self._observed: list[Observation] = []
        self._since: dict[str, tuple[float, float, list[float]]] = {}
        """Trial -> time, score and values at the start of its interval."""
        self._training: dict[str, list[float]] = {}
        """Clone -> the values that it got and that nothing is known of yet."""

    def first_config(self, config: dict[str, Any]) -> dict[str, Any]:
        made = dict(config)
        for path, (low, high) in self._bounds.items():
            if _value(made, path) is None:
                u = chance(f"pb2 {self._seed} first {self._added}", "/".join(path))
                made = _with(made, path, low + (high - low) * u)
        return made

    def _recorded(self, trial_id: str, member: Member) -> None:
        assert member.score is not None
        values = [_value(member.config, path) for path in self._bounds]
        known = [value for value in values if value is not None]
        if not is_number(member.score) or len(known) < len(values):
            self._since.pop(trial_id, None)  # NaN or infinite: nothing can be learned from it
            return
        time, score, before = self._since.get(trial_id, (member.time, 0.0, []))
        if before == known and member.time > time:
            gain = (member.score - score) / (member.time - time)
            self._observed = [*self._observed[1 - OBSERVED :], (time, score, known, gain)]
            self._training.pop(trial_id, None)
        self._since[trial_id] = (member.time, member.score, known)

    def _explored(self, trial_id: str, donor_id: str) -> dict[str, Any]:
        trial, donor = self._members[trial_id], self._members[donor_id]
        assert donor.score is not None
        config = copy.deepcopy(donor.config)
        values = []
        units = self._proposed(trial.time, donor.score)
        for (path, (low, high)), unit in zip(self._bounds.items(), units, strict=True):
            value = clipped(min(low + (high - low) * unit, high), low, high, like=_value(config, path))
            config = _with(config, path, value)
            values.append(float(value))
        self._training[trial_id] = values
        if is_number(donor.score):
            self._since[trial_id] = (trial.time, donor.score, values)
        else:
            self._since.pop(trial_id, None)
        return config

    def _proposed(self, time: float, score: float) -> Sequence[float]:
        """A value of [0, 1] for each of the bounds."""
        if not self._observed or not is_number(score):
            return [chance(self._key, "/".join(path)) for path in self._bounds]
        from threadpoolctl import threadpool_limits

        from tuner.schedulers.pb2_model import propose

        running = [values for trial_id, values in self._training.items() if trial_id in self._members]
        with threadpool_limits(1):  # the matrices are small, the cores are the trials', and sums keep their order
            return propose(self._observed, running, list(self._bounds.values()), (time, score), seed=self._key)

    def get_state(self) -> dict[str, Any]:
        own = {"observed": list(self._observed), "since": dict(self._since), "training": dict(self._training)}
        return {**super().get_state(), "pb2": own}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        own = state["pb2"]
        self._observed, self._since, self._training = list(own["observed"]), dict(own["since"]), dict(own["training"])


Path = tuple[str, ...]


def _flat_bounds(bounds: Any, within: Path = ()) -> dict[Path, tuple[float, float]]:
    name = "hyperparam_bounds" + "".join(f"[{key!r}]" for key in within)
    if not isinstance(bounds, Mapping) or not bounds:
        raise refused(name, bounds, "it is a dict: name -> [least, greatest]")
    found: dict[Path, tuple[float, float]] = {}
    for key, value in bounds.items():
        if isinstance(value, Mapping):
            found |= _flat_bounds(value, (*within, key))
            continue
        pair = [as_score(bound) for bound in value] if isinstance(value, list | tuple) else []
        if len(pair) != 2 or not all(map(is_number, pair)) or not pair[0] <= pair[1]:  # type: ignore[operator]
            raise refused(f"{name}[{key!r}]", value, "it is [least, greatest], two numbers")
        found[(*within, key)] = (float(value[0]), float(value[1]))
    return found


def _value(config: Mapping[str, Any], path: Path) -> Any:
    """The number at a path of a config; None if there is none."""
    there: Any = config
    for key in path:
        there = there.get(key) if isinstance(there, Mapping) else None
    return there if is_number(there) else None


def _with(config: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A config with another value at a path; the given one stays as it was."""
    inner = config.get(path[0])
    rest = path[1:]
    return {**config, path[0]: _with(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value}
