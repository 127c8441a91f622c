"""Validation of settings, the wording of its errors, and the base of the config dataclasses.

Every message carries the name, the value and what is accepted. All functions raise `InvalidSettingError`.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import inspect
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields
from typing import Any, ParamSpec, TypeVar

from trainables.errors import InvalidSettingError
from trainables.user_frames import from_the_call
from trainables.warned import warn

T = TypeVar("T")
P = ParamSpec("P")
Check = Callable[[str, Any], Any]
"""(name, value) -> the value as it holds; raises InvalidSettingError."""

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    _UNITS |= {_letter: 1000**_power, f"{_letter}B": 1000**_power, f"{_letter}IB": 1024**_power}
_FIELD = re.compile(r"(?<!\$)(\{[A-Za-z_][A-Za-z_0-9]*\})")
_BYTES = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


_ELSEWHERE = {
    "algo": ("search_alg",),
    "direction": ("mode",),
    "fn": ("run_or_experiment", "trainable"),
    "max_evals": ("num_samples",),
    "n_iter": ("num_samples",),
    "n_jobs": ("max_concurrent_trials",),
    "n_trials": ("num_samples",),
    "num_trials": ("num_samples",),
    "objective": ("run_or_experiment", "trainable"),
    "pruner": ("scheduler",),
    "sampler": ("search_alg",),
    "space": ("config", "param_space"),
    "study_name": ("name",),
    "timeout": ("time_budget_s",),
}
"""What Optuna, Hyperopt and scikit-learn call a setting -> what it is called here."""


def nearest_name(got: str, accepted: Iterable[str]) -> str | None:
    """The accepted name that means what `got` does in another library, else reads most like it; None: none is near."""
    by_lower = {name.lower(): name for name in accepted}
    if (means := [name for name in _ELSEWHERE.get(got, ()) if name in by_lower]) and got not in by_lower:
        return means[0]
    found = difflib.get_close_matches(str(got).lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[found[0]] if found else None


def unknown_name(kind: str, got: str, accepted: Iterable[str]) -> str:
    """The message about a name that is not known: the nearest one first, then all that are.

    >>> unknown_name("argument of tune.run", "num_sample", ["metric", "num_samples"])
    "unknown argument of tune.run 'num_sample'; did you mean 'num_samples'? Accepted: metric, num_samples"
    """
    names = sorted(accepted)
    near = nearest_name(got, names)
    hint = f"; did you mean {near!r}?" if near is not None else "."
    return f"unknown {kind} {got!r}{hint} Accepted: {', '.join(names)}"


def invalid(name: str, value: object, accepted: str) -> InvalidSettingError:
    """The error about a value that is not accepted."""
    return InvalidSettingError(f"{name}={value!r} is not accepted; accepted: {accepted}")


def unknown_fields(template: str, accepted: Iterable[str]) -> list[str]:
    """Fields of a command template that nobody fills in; a shell's `${name}` and other braces are none.

    >>> unknown_fields("cp {source} {targt} ${HOME} { x } {a,b}", ["{source}", "{target}"])
    ['{targt}']
    """
    return sorted(set(_FIELD.findall(template)).difference(accepted))


def whole_number(name: str, value: Any, *, least: int, most: float = math.inf, accepted: str | None = None) -> int:
    """`value` as an int between `least` and `most`. True and False are no numbers here; numpy's ints are."""
    accepted = accepted or f"a whole number >= {least}"
    if isinstance(value, bool):
        raise invalid(name, value, accepted)
    try:
        number = operator.index(value)
    except TypeError:
        raise invalid(name, value, accepted) from None
    if not least <= number <= most:
        raise invalid(name, value, accepted)
    return number


LONGEST_S = 1e300
"""More seconds are none; an int of that size is no float either."""


def seconds(name: str, value: Any, *, zero: bool, accepted: str | None = None) -> float:
    """`value` as it is, if it is a finite number of seconds above zero (or zero, where that is accepted)."""
    accepted = accepted or f"a number of seconds {'>=' if zero else '>'} 0"
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LONGEST_S:
        raise invalid(name, value, accepted)
    if value < 0 or (value == 0 and not zero):
        raise invalid(name, value, accepted)
    return value


def parse_bytes(text: Any, *, name: str = "checkpoint_budget") -> int:
    """A size in bytes: 50000000000, "50GB", "50 GiB", "1.5T". kB, MB, GB, TB, PB are decimal, KiB and so on binary."""
    accepted = 'a number of bytes > 0, or a text like "50GB", "1.5 TB", "512MiB"'
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise invalid(name, text, accepted)
    if isinstance(text, str):
        match = _BYTES.fullmatch(text)
        unit = _UNITS.get(match[2].upper()) if match else None
        if match is None or unit is None:
            raise invalid(name, text, accepted)
        number, _, fraction = match[1].replace("_", "").partition(".")
        # In whole numbers: 1.1 PB is exactly that many bytes.
        size = int(number or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
    else:
        if not math.isfinite(text):
            raise invalid(name, text, accepted)
        size = int(text)
    if size <= 0:
        raise invalid(name, text, accepted)
    return size


def one_of(name: str, value: T, accepted: Sequence[Any]) -> T:
    """`value`, if it is one of the literals `accepted`; 0 and 1 do not pass for False and True."""
    for literal in accepted:
        if literal is value or (type(literal) is type(value) and literal == value):
            return value
    listed = ", ".join(repr(literal) for literal in accepted)
    near = nearest_name(value, [a for a in accepted if isinstance(a, str)]) if isinstance(value, str) else None
    raise invalid(name, value, listed + (f" (did you mean {near!r}?)" if near is not None else ""))


def flag(name: str, value: Any) -> bool:
    """`value`, if it is True or False."""
    return bool(one_of(name, value, (True, False)))


def text_or_none(name: str, value: Any) -> str | None:
    """`value`, if it is None or a text with something in it."""
    if value is not None and (not isinstance(value, str) or not value):
        raise invalid(name, value, "None, or a text that is not empty")
    return value


def path_or_none(name: str, value: Any, accepted: str = "None, a path, one with ~, or file:///...") -> Any:
    """`value`, if it is None or a path or URI."""
    if value is not None and (not isinstance(value, str | os.PathLike) or not os.fspath(value).strip()):
        raise invalid(name, value, accepted)
    return value


def duration_or_none(name: str, value: Any) -> float | None:
    """A time limit in seconds, from a number above zero or a timedelta; None: none."""
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    return value if value in (None, math.inf) else seconds(name, value, zero=False, accepted="seconds above 0, or None")


def optional(check: Check) -> Check:
    """The same check, where None is accepted too."""
    return lambda name, value: None if value is None else check(name, value)


def one_config(*kinds: type) -> Check:
    """A check that a value is an object of one of these config classes; None stands for the first one's defaults."""

    def check(name: str, value: Any) -> Any:
        value = kinds[0]() if value is None else value
        instance_of(name, value, kinds)
        return value

    return check


def instance_of(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    """Refuse an object of another class."""
    if not isinstance(value, kinds):
        raise invalid(name, value, "None, or " + " or ".join(kind.__name__ for kind in kinds))


def no_effect(name: str, why: str) -> None:
    """Warn, at the caller's line, that an argument is accepted and does nothing here."""
    warn(f"{name} has no effect: {why}", stacklevel=_caller_level())


def a_guess(name: str, instead: str) -> None:
    """Warn, at the caller's line, that an argument has something guessed."""
    warn(f"{name} is a guess: {instead}", stacklevel=_caller_level())


def _caller_level() -> int:
    """How far up the first frame is that is not of this package, for a warning that points at the user's line."""
    frame = inspect.currentframe()
    level = 0
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        # A dataclass's generated __init__ runs in its module's own globals, so it counts as this package's.
        if name.partition(".")[0] not in ("trainables", "tuner"):
            return level
        frame = frame.f_back
        level += 1
    return max(level, 1)


def checked_names(cls: type[T]) -> type[T]:
    """Class decorator: an unknown keyword of the constructor is an error that names the nearest known one."""
    cls.__init__ = checked_arguments(cls.__name__)(cls.__init__)  # type: ignore[method-assign]
    return cls


def checked_arguments(of: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator of a method: an unknown keyword is an error that names the nearest known one."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        known = list(inspect.signature(method).parameters)[1:]
        public = [name for name in known if not name.startswith("_")]

        @from_the_call
        @functools.wraps(method)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs:
                if name not in known:
                    raise InvalidSettingError(unknown_name(f"argument of {of}", name, public))
            return method(*args, **kwargs)

        return checked

    return decorate


def setting(check: Check, default: Any = None) -> Any:
    """A field of a config class, with what it accepts."""
    return field(default=default, metadata={"check": check})


def ignored(why: str, default: Any = None) -> Any:
    """A field of a config class that has no effect here, and warns where it is given."""

    def check(name: str, value: Any) -> Any:
        if value != default:
            no_effect(f"{name.replace(': ', '(')}=)", why)
        return value

    return setting(check, default)


class Config:
    """What the config classes share: checked fields, and a repr that shows what differs and can be evaluated."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            if (check := each.metadata.get("check")) is not None:
                setattr(self, each.name, check(f"{type(self).__name__}: {each.name}", getattr(self, each.name)))

    def __repr__(self) -> str:
        blank = type(self)()
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        shown = [f"{name}={value!r}" for name in names if (value := getattr(self, name)) != getattr(blank, name)]
        return f"{type(self).__name__}({', '.join(shown)})"
