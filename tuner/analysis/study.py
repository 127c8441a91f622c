"""An experiment as an `optuna.Study`, for everything that Optuna's world does with one. Nothing is unpickled."""

from __future__ import annotations

import ast
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainables.metrics import score_of
from tuner.analysis import scopes
from tuner.error import SettingError
from tuner.experiment.forks import evaluated_at
from tuner.experiment.trial import Trial
from tuner.search import sample
from tuner.search.domains import Categorical, Domain, NormalFloat, describe
from tuner.search.optuna_space import distribution_of
from tuner.search.optuna_study import end_state, quiet

if TYPE_CHECKING:
    import optuna

_PLAIN = (str, int, float, bool, type(None))


def study_of(
    trials: Sequence[Trial],
    metrics: Sequence[str],
    modes: Sequence[str],
    *,
    space: Mapping[str, str],
    name: str,
    curves: bool = True,
) -> optuna.Study:
    """All trials as Optuna's, in memory, in order of creation.

    A trial's values are its last ones, of one objective its results are the intermediate values by
    `training_iteration`. TERMINATED with all values is COMPLETE, without them PRUNED, or FAIL if there is nothing at
    all; ERROR is FAIL; RUNNING and PAUSED are RUNNING; what has not begun is WAITING. The parameters are those with
    which a trial reported its last result. User attributes: "trial_id", "name", "status", "iteration".

    Args:
        metrics, modes: one objective each.
        space: the domains as experiment.json has them; what is not among them gets the range of what was tried.
        name: the study's.
        curves: False: without intermediate values, for which the results of each trial would be read from the disk.
    """
    import optuna

    params = [{str(key): value for key, value in evaluated_at(trial, trial.iteration).items()} for trial in trials]
    distributions = _distributions(params, space)
    ways = optuna.study.StudyDirection
    directions = [ways.MINIMIZE if mode == "min" else ways.MAXIMIZE for mode in modes]
    with quiet():
        study = optuna.create_study(study_name=name, directions=directions)
    for trial, values in zip(trials, params, strict=True):
        own = {key: distributions[key] for key in values}
        labelled = {key: _label(value) if _is_choice(own[key]) else value for key, value in values.items()}
        study.add_trial(_frozen(trial, labelled, own, metrics, curves=curves))
    return study


def _frozen(
    trial: Trial, params: dict[str, Any], distributions: dict[str, Any], metrics: Sequence[str], *, curves: bool
) -> Any:
    import optuna

    states = optuna.trial.TrialState
    curve: dict[int, float] = {}
    if curves and len(metrics) == 1 and trial.iteration:
        for row in scopes.history(trial):
            score = score_of(row, metrics[0])
            if score is not None:
                curve[int(row["training_iteration"])] = score
    values = [scopes.score(trial, metric, "min", "last") for metric in metrics]
    if trial.is_finished():
        known = [None if value != value else value for value in values]
        state = end_state(known, error=trial.status == Trial.ERROR, reported=bool(curve))
    else:
        state = states.WAITING if trial.status == Trial.PENDING and not trial.iteration else states.RUNNING
    began = _time(trial.started_at) or datetime.datetime.fromtimestamp(0)
    return optuna.trial.FrozenTrial(
        number=-1,  # the study numbers them
        trial_id=-1,
        state=state,
        value=None,
        values=[value for value in values if value is not None] if state is states.COMPLETE else None,
        datetime_start=None if state is states.WAITING else began,
        datetime_complete=(_time(trial.ended_at) or began) if state.is_finished() else None,
        params=params,
        distributions=distributions,
        user_attrs={name: getattr(trial, name) for name in ("trial_id", "name", "status", "iteration")},
        system_attrs={},
        intermediate_values=curve,
    )


def _time(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds)


def _distributions(params: Iterable[Mapping[str, Any]], space: Mapping[str, str]) -> dict[str, Any]:
    """For each parameter what Optuna says of its domain, if all values that were tried lie in it; else their range."""
    seen: dict[str, list[Any]] = {}
    for each in params:
        for key, value in each.items():
            seen.setdefault(key, []).append(value)
    made = {}
    for key, values in seen.items():
        domain = domain_of(space.get(key, ""))
        told = None if domain is None else _of_domain(domain)
        made[key] = told if told is not None and all(_holds(told, value) for value in values) else _range_of(values)
    return made


def domain_of(text: str) -> Domain | None:
    """The domain that a line of experiment.json describes; None for a constant, a function, and branches.

    >>> domain_of("loguniform(0.001, 0.1)")
    Float(lower=0.001, upper=0.1, log=True, q=None)
    """
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return None
        arguments = [ast.literal_eval(argument) for argument in call.args]
    except (SyntaxError, ValueError):
        return None
    name = call.func.id
    if name in ("choice", "grid_search") and len(arguments) == 1 and isinstance(arguments[0], list):
        return Categorical(tuple(arguments[0]))
    if name in sample.BOUNDED:
        try:
            made: Domain = getattr(sample, name)(*arguments)
        except (SettingError, TypeError):
            return None  # a line that no run has written
        return made
    return None


def _of_domain(domain: Domain) -> Any:
    if isinstance(domain, Categorical):
        import optuna

        return optuna.distributions.CategoricalDistribution(list(dict.fromkeys(map(_label, domain.categories))))
    try:
        return None if isinstance(domain, NormalFloat) else distribution_of(domain)
    except (SettingError, ValueError):
        return None


def _holds(distribution: Any, value: Any) -> bool:
    if _is_choice(distribution):
        return _label(value) in distribution.choices
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except (ValueError, TypeError):
        return False


def _range_of(values: Sequence[Any]) -> Any:
    import optuna

    kinds = {type(value) for value in values}
    if kinds == {int}:
        return optuna.distributions.IntDistribution(min(values), max(values))
    if kinds <= {int, float} and all(abs(value) < float("inf") for value in values):
        return optuna.distributions.FloatDistribution(min(values), max(values))
    return optuna.distributions.CategoricalDistribution(list(dict.fromkeys(map(_label, values))))


def _is_choice(distribution: Any) -> bool:
    import optuna

    return isinstance(distribution, optuna.distributions.CategoricalDistribution)


def _label(value: Any) -> Any:
    """A category as Optuna can hold it."""
    return value if type(value) in _PLAIN and value == value else describe(value)
