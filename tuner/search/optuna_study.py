"""What is asked of Optuna's studies and samplers beside suggestions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainables.metrics import score_of
from tuner.error import SettingError

if TYPE_CHECKING:
    import optuna


def checked_sampler(sampler: Any, seed: int | None) -> Any:
    """The sampler itself, if it is one and the seed is not given beside it. Raises SettingError."""
    if sampler is None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise SettingError(f"seed={seed!r} is not accepted; it is a whole number")
        return None
    import optuna

    if not isinstance(sampler, optuna.samplers.BaseSampler):
        raise SettingError(
            f"sampler={sampler!r} is not accepted; it is one of optuna.samplers, made: TPESampler(seed=1)"
        )
    if seed is not None:
        raise SettingError(
            f"seed={seed!r} has no effect on a given sampler; give it to {type(sampler).__name__} itself"
        )
    return sampler


def checked_names_of_metrics(what: str, names: Any) -> tuple[str, ...]:
    """One name or several, as a tuple. Raises SettingError."""
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, (list, tuple)) or not all(isinstance(name, str) for name in listed):
        raise SettingError(f"{what}={names!r} is not accepted; it is the name of a metric, or a list of names")
    return tuple(listed)


def in_memory(storage: Any) -> bool:
    """True for a storage that ends with the process."""
    if storage is None or isinstance(storage, str):
        return False
    import optuna

    return isinstance(storage, optuna.storages.InMemoryStorage)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's line about a new study; its logging stays as the user set it."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


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
