"""Domains that are no numbers: a choice of values, and what a function says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal

from trainables.quick_dataclass import dataclass
from tuner.error import SettingError
from tuner.search.domain import Domain, describe, same
from tuner.search.domain_samplers import BaseSampler, Grid, Sampler, Uniform


@dataclass(frozen=True)
class Categorical(Domain):
    """One of some values. A value that is a dict or list may hold domains: a branch."""

    categories: Sequence[Any]
    own_sampler: Sampler | None = field(default=None, repr=False, kw_only=True)
    default_sampler_cls: ClassVar[type[Sampler]] = Uniform
    _Uniform: ClassVar = Uniform

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(self.categories))

    def uniform(self) -> Categorical:
        """Each as often as every other."""
        return Categorical(self.categories)

    def grid(self) -> Categorical:
        """All of them, as `tune.grid_search` gives them."""
        return Categorical(self.categories, own_sampler=Grid())

    def sampled_by(self, sampler: Sampler) -> Domain:
        return Categorical(self.categories, own_sampler=None if isinstance(sampler, Uniform) else sampler)

    def index_at(self, u: float) -> int:
        """Which one, at `u` of [0, 1)."""
        if self.own_sampler is None:
            return min(int(u * len(self.categories)), len(self.categories) - 1)
        drawn = self.own_sampler.at(self, u)
        found = (index for index, category in enumerate(self.categories) if same(drawn, category))
        index = next(found, None)
        if index is None:
            raise SettingError(f"{self.own_sampler} gave {drawn!r}, which is not a value of {self}")
        return index

    def at(self, u: float) -> Any:
        return self.categories[self.index_at(u)]

    def is_valid(self, value: Any) -> bool:
        return any(same(value, category) for category in self.categories)

    @property
    def domain_str(self) -> str:
        return f"{list(self.categories)}"

    def describe(self) -> str:
        own = "" if self.own_sampler is None else f".sampled_by({describe(self.own_sampler)})"
        return f"choice([{', '.join(describe(category) for category in self.categories)}]){own}"

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> Any:
        return self.categories[index]


@dataclass(frozen=True)
class Function(Domain):
    """What a function says, which sees the values that are drawn already.

    Raises SettingError for what is no function, or needs more than one argument.
    """

    func: Callable[..., Any]
    takes: Literal["nothing", "config", "spec"] | None = None
    default_sampler_cls: ClassVar[type[Sampler]] = BaseSampler

    def __post_init__(self) -> None:
        object.__setattr__(self, "takes", self.takes or _taken_by(self.func))

    @property
    def pass_config(self) -> bool:
        """True if the function gets the config."""
        return self.takes != "nothing"

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        raise SettingError(f"{self}: a function draws by itself, and takes no sampler")

    def at(self, u: float) -> Any:
        raise TypeError("a sample_from has a value only together with the rest of its config")

    def call(self, config: Any) -> Any:
        """The function's value; `config` answers to `config["x"]`, `config.x` and `config.config.x`."""
        return self.func() if self.takes == "nothing" else self.func(config)

    def _draw(self, draw: Callable[[], float], config: Any) -> Any:
        return self.call(_ByAttribute(config) if isinstance(config, Mapping) else config)

    def is_function(self) -> bool:
        return True

    def is_valid(self, value: Any) -> bool:
        return True

    @property
    def domain_str(self) -> str:
        return f"{getattr(self.func, '__name__', type(self.func).__name__)}()"

    def describe(self) -> str:
        return f"sample_from({getattr(self.func, '__name__', type(self.func).__name__)})"


def _taken_by(func: Any) -> Literal["nothing", "config", "spec"]:
    if not callable(func):
        raise SettingError(
            f"sample_from({func!r}): it needs a function, e.g. sample_from(lambda config: config['x'] * 2)"
        )
    try:
        signature = inspect.signature(func)
    except (ValueError, TypeError):  # some builtins have none
        return "nothing"
    for arguments in ((None,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        if not arguments:
            return "nothing"
        return "spec" if next(iter(signature.parameters)) == "spec" else "config"
    raise SettingError(
        f"sample_from({describe(func)}): the function is called with the config or with nothing, but needs {signature}"
    )


class _ByAttribute(dict[str, Any]):
    """A config whose values are attributes too; `config` is itself."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            value = self[name]
            return _ByAttribute(value) if isinstance(value, Mapping) else value
        if name == "config":
            return self
        raise AttributeError(name)
