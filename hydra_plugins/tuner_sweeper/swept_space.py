"""Hydra's overrides as a search space, and a trial's config as the overrides of its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep, Transformer
from hydra.errors import OverrideParseException

_SAMPLES = 50
"""Configs that are composed before the first trial, at most."""


class SweptSpace:
    """The overrides of one sweep.

    A config holds, under each override's key as it is written (`lr`, `+optimizer.beta`, `db@src`), a number, a boolean,
    None, or a text, which is a value in Hydra's grammar with its quotes: so a trial's own config is all that its job
    needs, whatever the command line says by then.

    Args:
        overrides: As parsed; of one key the last holds.
        grids: Whether what can be enumerated is a grid, as for Hydra's own sweeper. Else all of it is drawn.

    Raises OverrideParseException, which names the override, for what cannot be searched.
    """

    def __init__(self, overrides: Sequence[Override], *, grids: bool) -> None:
        self._grids = grids
        self._some: dict[str, list[Any]] = {}
        self.space: dict[str, Any] = {each.get_key_element(): self._values(each) for each in overrides}
        """As `tune.run` takes it."""
        self.drawn = any(each.is_interval_sweep() or (each.is_sweep_override() and not grids) for each in overrides)
        """Whether each further sample is another one."""

    @property
    def samples(self) -> list[dict[str, Any]]:
        """A few configs in which every value that can be enumerated occurs."""
        number = max((len(values) for values in self._some.values()), default=1)
        return [
            {key: values[n % len(values)] for key, values in self._some.items()} for n in range(min(number, _SAMPLES))
        ]

    def _values(self, override: Override) -> Any:
        key, value = override.get_key_element(), override.value()
        if override.is_delete():
            value = (override.input_line or "").partition("=")[2]
        elif not override.is_sweep_override():
            value = value if _is_plain(value) else override.get_value_string()
        else:
            return self._swept(override, value)
        self._some[key] = [value]
        return value

    def _swept(self, override: Override, sweep: Any) -> Any:
        key = override.get_key_element()
        if getattr(sweep, "shuffle", False):
            raise _refused(override, "shuffle() draws another order at each start: a sweep that continues needs one")
        if unknown := sorted(getattr(sweep, "tags", set()) - {"log"}):
            raise _refused(override, f"the tag {unknown[0]!r} means nothing here; accepted is log")
        if isinstance(sweep, IntervalSweep):
            self._some[key] = [sweep.start]
            return _interval(override, sweep)
        listed = [_kept(value) for value in override.sweep_iterator()]
        if not listed:
            raise _refused(override, "there is nothing to choose from")
        self._some[key] = listed
        if isinstance(sweep, RangeSweep) and not self._grids:
            return _range(override, sweep, listed)
        if isinstance(sweep, ChoiceSweep | RangeSweep) and sweep.tags:
            raise _refused(override, "the tag log needs an interval, or with a search_alg a range")
        from tuner.search.sample import choice, grid_search

        return grid_search(listed) if self._grids else choice(listed)


def overrides_of(config: Mapping[str, Any]) -> list[str]:
    """The overrides of the job that has this config."""
    return [_line(key, value) for key, value in config.items()]


def _line(key: str, value: Any) -> str:
    if key.startswith("~") and not value:
        return key
    value = value.item() if hasattr(value, "item") else value  # numpy's
    return f"{key}={value if isinstance(value, str) else Transformer.str(value)}"


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float)  # bool is an int


def _kept(element: Any) -> Any:
    """What the config holds of one of several values."""
    return element if _is_plain(element) else Transformer.str(element)


def _interval(override: Override, sweep: IntervalSweep) -> Any:
    from tuner.search import sample

    low, high = sweep.start, sweep.end
    assert low is not None and high is not None
    if low >= high:
        raise _refused(override, "the first bound has to be less than the second")
    log = "log" in sweep.tags
    if log and low <= 0:
        raise _refused(override, "the tag log needs bounds above 0")
    if isinstance(low, int) and isinstance(high, int):  # int(interval(1, 8))
        return (sample.lograndint if log else sample.randint)(low, high + 1)
    return (sample.loguniform if log else sample.uniform)(low, high)


def _range(override: Override, sweep: RangeSweep, values: list[Any]) -> Any:
    """Drawn, as what it is: numbers in an order, where the space has that. The stop is excluded, as Hydra has it."""
    from tuner.search import sample

    log = "log" in sweep.tags
    if log and (min(values) <= 0 or any(not isinstance(value, int) for value in values) or abs(sweep.step) != 1):
        raise _refused(override, "the tag log needs a range of whole numbers above 0, in steps of 1")
    low, high, step = min(values), max(values), abs(sweep.step)
    if len(values) > 1 and all(isinstance(value, int) for value in values):
        if step == 1:
            return (sample.lograndint if log else sample.randint)(low, high + 1)
        if low % step == 0:
            return sample.qrandint(low, high, int(step))
    elif len(values) > 1 and Decimal(str(low)) % Decimal(str(step)) == 0:
        return sample.quniform(low, high, float(step))
    return sample.choice(values)


def _refused(override: Override, why: str) -> OverrideParseException:
    line = override.input_line or override.get_key_element()
    return OverrideParseException(override=line, message=f"{line}: {why}")
