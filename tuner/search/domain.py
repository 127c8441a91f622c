"""`Domain`: what a searched value may be; and values as text, and compared.

`at(u)` maps a number u of [0, 1) to a value, so that whoever draws the number decides how reproducible the value is;
`sample()` draws the number itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tuner.error import SettingError
from tuner.search.domain_samplers import Grid, Sampler, as_draw, generator

CHOSEN_ALREADY = "{}: its sampler is chosen already; set_sampler(sampler, allow_override=True) takes another one"


class Domain:
    """What a searched value may be. A domain of one's own defines `is_valid`, and `sample` or `at` or a sampler."""

    own_sampler: Sampler | None = None
    """A sampler that `at` cannot do without: a user's, or one that was put here by `set_sampler`."""
    default_sampler_cls: ClassVar[type[Sampler] | None] = None

    @property
    def sampler(self) -> Sampler | None:
        """How the values are distributed."""
        kind = self.default_sampler_cls
        return self.own_sampler or (kind() if kind is not None else None)

    def get_sampler(self) -> Sampler:
        """How the values are distributed. Raises SettingError for a domain of a user's that does not say."""
        if self.sampler is None:
            raise SettingError(f"{self} has no sampler: set_sampler gives it one")
        return self.sampler

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        """Let a sampler draw the values of this very domain, before it is used.

        Raises SettingError where one was chosen already, unless `allow_override`.
        """
        if self.own_sampler is not None and not allow_override:
            raise SettingError(CHOSEN_ALREADY.format(self))
        object.__setattr__(self, "own_sampler", sampler)

    def sampled_by(self, sampler: Sampler) -> Domain:
        """The same values, drawn by another sampler."""
        raise NotImplementedError(f"{type(sampler).__name__} does not draw from {type(self).__name__}")

    def at(self, u: float) -> Any:
        """The value at `u` of [0, 1): uniform numbers give the domain's distribution."""
        if type(self).sample is not Domain.sample:
            return self.sample(random_state=generator(int(u * 2**53)))
        return self.get_sampler().at(self, u)

    def cast(self, value: Any) -> Any:
        """A value as the type of this domain's."""
        return value

    def is_valid(self, value: Any) -> bool:
        """True if the domain could give `value`."""
        raise NotImplementedError

    def is_grid(self) -> bool:
        """True if all values come, and none is drawn."""
        return isinstance(self.own_sampler, Grid)

    def is_function(self) -> bool:
        """True for a `sample_from`."""
        return False

    @property
    def domain_str(self) -> str:
        """The values, for people: "(0.0, 1.0)"."""
        return self.describe()

    def describe(self) -> str:
        """The call that makes the domain, the same in every process: `uniform(0.0, 1.0)`."""
        attributes = (f"{name}={describe(value)}" for name, value in sorted(vars(self).items()))
        return f"{type(self).__name__}({', '.join(attributes)})"

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None, *, spec: Any = None) -> Any:
        """Draw a value, or a list of `size` values.

        Args:
            config: what `sample_from` functions are called with; a list of them gives each value its own.
            size: how many; with 1 the value itself is returned.
            random_state: None (python's global generator), a seed, a `random.Random` or a numpy generator.
            spec: Ray's older name for `config`.
        """
        config = spec if config is None else config
        if self.own_sampler is not None and type(self.own_sampler).sample is not Sampler.sample:
            return self.own_sampler.sample(self, config, size, generator(random_state))
        draw = as_draw(random_state)
        each = config if isinstance(config, list) else [config] * size
        values = [self._draw(draw, one) for one in each[:size]]
        return values[0] if size == 1 else values

    def _draw(self, draw: Callable[[], float], config: Any) -> Any:
        return self.at(draw())

    def __str__(self) -> str:
        return self.describe()


def same(a: Any, b: Any) -> bool:
    """Equality that never raises and never answers with an array; True and 1 differ."""
    if a is b:
        return True
    if isinstance(a, bool) is not isinstance(b, bool):
        return False
    try:
        if type(a) is type(b):
            if hasattr(a, "equals"):  # a frame
                return bool(a.equals(b))
            if hasattr(a, "tolist"):  # an array or a tensor
                return bool(a.tolist() == b.tolist())
        return bool(a == b)
    except Exception:  # some refuse to be compared with what they do not know
        return repr(a) == repr(b)


def call_text(name: str, *arguments: float | None) -> str:
    return f"{name}({', '.join(repr(argument) for argument in arguments if argument is not None)})"


_PLAIN = (str, int, float, bool, bytes, type(None))


def describe(value: Any) -> str:
    """A value as text that is the same in every process: no addresses, no bytecode."""
    if isinstance(value, Domain):
        return value.describe()
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {describe(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(describe(item) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(describe(item) for item in value)) + "}"
    name = getattr(value, "__qualname__", None)
    if name is not None:
        return f"{getattr(value, '__module__', '')}.{name}"
    text = repr(value)
    return text if " at 0x" not in text else f"<{type(value).__module__}.{type(value).__qualname__}>"
