"""Helpers around Optuna's studies, storages and samplers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from trainables.masking import MASK, masked
from trainables.metrics import score_of
from tuner.error import SettingError, require
from tuner.search.arguments import seed_or_none

if TYPE_CHECKING:
    import optuna

TRIAL_ID, RESULT = "trial_id", "result"
"""User attributes of a study's trials: whose it is, and its last result."""


def checked_sampler(sampler: Any, seed: int | None) -> Any:
    """The sampler itself, if it is one and the seed is not given beside it. Raises SettingError."""
    if sampler is None:
        seed_or_none(seed)
        return None
    import optuna

    accepted = "it is one of optuna.samplers, made: TPESampler(seed=1)"
    require(isinstance(sampler, optuna.samplers.BaseSampler), "sampler", sampler, accepted)
    if seed is not None:
        raise SettingError(
            f"seed={seed!r} has no effect on a given sampler; give it to {type(sampler).__name__} itself"
        )
    return sampler


def checked_names_of_metrics(what: str, names: Any) -> tuple[str, ...]:
    """One name or several, as a tuple. Raises SettingError."""
    listed = [names] if isinstance(names, str) else names
    fits = isinstance(listed, (list, tuple)) and all(isinstance(name, str) for name in listed)
    require(fits, what, names, "it is the name of a metric, or a list of names")
    return tuple(listed)


def in_memory(storage: Any) -> bool:
    """True for a storage that ends with the process."""
    if storage is None or isinstance(storage, str):
        return False
    import optuna

    return isinstance(storage, optuna.storages.InMemoryStorage)


@contextlib.contextmanager
def quiet(least: int | None = None) -> Iterator[None]:
    """Without Optuna's lines of a level below `least`, or below a warning; its logging stays as the user set it."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, least or optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def open_study(storage: Any, name: str, sampler: Any, modes: Sequence[str]) -> optuna.Study:
    """The study of that name in a storage, made where there is none; a storage or URL, or None: in memory."""
    import optuna

    if isinstance(storage, str) and MASK in storage:
        raise SettingError(
            f"the password of storage={storage!r} is not kept with the experiment: give the search_alg "
            "again (Tuner.restore(..., tune_config=)), or a URL without it, with the password where the database's "
            "driver looks (PGPASSWORD, ~/.pgpass, ~/.my.cnf)"
        )
    wanted: list[Literal["minimize", "maximize"]] = ["minimize" if mode == "min" else "maximize" for mode in modes]
    with quiet():
        study = optuna.create_study(
            storage=storage,
            sampler=sampler or optuna.samplers.RandomSampler(seed=0),
            pruner=optuna.pruners.NopPruner(),
            study_name=name,
            directions=wanted,
            load_if_exists=True,
        )
    there = [direction.name.lower() for direction in study.directions]
    if there != wanted:
        raise SettingError(
            f"{_named(study, storage)} has the objectives {', '.join(there)}; this run has {', '.join(wanted)}. Give "
            "metric= and mode= as that study has them, or another study_name="
        )
    return study


def refuse_other_space(study: optuna.Study, storage: Any, space: Mapping[str, Any]) -> None:
    """Raise SettingError where trials of the study have other choices, or another kind of values, under a name.

    Args:
        storage: as it was given, for the message.
        space: name -> distribution of what is going to be asked for.
    """
    from optuna.distributions import check_distribution_compatibility

    known: dict[str, Any] = {}
    for trial in study.get_trials(deepcopy=False):
        known.update(trial.distributions)
    for name in known.keys() & space.keys():
        try:
            check_distribution_compatibility(known[name], space[name])
        except ValueError as error:
            raise SettingError(
                f"{_named(study, storage)} has trials with {name!r}: {_described(known[name])}; this run has {name!r}: "
                f"{_described(space[name])}. In one study a name keeps its choices and its kind of values: give the "
                "same ones, or another study_name="
            ) from error


def suggesting(trial: Any, study: optuna.Study, storage: Any) -> Any:
    """The trial for a define-by-run function, whose suggestions raise as `refuse_other_space` does."""
    suggest = trial._suggest

    def checked(name: str, distribution: Any) -> Any:
        try:
            return suggest(name, distribution)
        except ValueError:
            refuse_other_space(study, storage, {name: distribution})
            raise

    trial._suggest = checked
    return trial


def _named(study: optuna.Study, storage: Any) -> str:
    where = repr(masked(storage)) if isinstance(storage, str) else type(storage).__name__
    return f"the study {study.study_name!r} in storage={where}"


def _described(distribution: Any) -> str:
    choices = getattr(distribution, "choices", None)
    return repr(distribution) if choices is None else f"choice({list(choices)!r})"


def states() -> type[optuna.trial.TrialState]:
    """How a trial of a study stands."""
    from optuna.trial import TrialState

    return TrialState


def optuna_id(study: optuna.Study, number: int) -> int:
    """What the storage calls a trial of a study."""
    return int(study._storage.get_trial_id_from_study_id_trial_number(study._study_id, number))


def insert(study: optuna.Study, **trial: Any) -> int:
    """Put a trial into a study as it is, without asking the sampler; returns its number."""
    import optuna

    template = optuna.trial.create_trial(**trial)
    return int(study._storage.get_trial_number_from_id(study._storage.create_new_trial(study._study_id, template)))


def end_state(values: Sequence[float | None], *, error: bool, reported: bool) -> optuna.trial.TrialState:
    """How a trial has ended that has these values, NaN and None among them; `reported`: it had results before."""
    if error or any(value is not None and math.isnan(value) for value in values):
        return states().FAIL
    if None not in values:
        return states().COMPLETE
    return states().PRUNED if reported else states().FAIL


def begin(study: optuna.Study) -> optuna.Trial:
    """A new trial. Raises SettingError where the sampler cannot search for as many objectives as there are."""
    try:
        trial = study.ask()
        _ = trial.relative_params  # or a sampler that cannot would say so with the first domain
    except ValueError as error:
        raise SettingError(f"{type(study.sampler).__name__} cannot search here: {error}") from error
    return trial


def grid_is_taken(sampler: Any, study: optuna.Study) -> bool:
    """True once a grid sampler has given out every combination, also those that still run: it would repeat them."""
    import optuna

    if not isinstance(sampler, optuna.samplers.GridSampler):
        return False
    given = {trial.system_attrs.get("grid_id") for trial in study.get_trials(deepcopy=False)} - {None}
    return len(given) >= math.prod(len(values) for values in sampler._search_space.values())


def constrain(study: optuna.Study, optuna_id: int, result: Mapping[str, Any], names: Sequence[str]) -> None:
    """Set a trial's constraints from its last result, before it is told: the sampler looks at them then."""
    if not names:
        return
    import optuna

    before, study.sampler = study.sampler, optuna.samplers.RandomSampler(seed=0)  # its own would see a trial begin
    trial = optuna.trial.Trial(study, optuna_id)
    study.sampler = before
    for name in names:
        value = score_of(result, name)
        trial.set_constraint(name, math.inf if value is None or math.isnan(value) else value)
