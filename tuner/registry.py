"""Names for trainables and environments, and what counts as a trainable."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from trainables.runtime.function import check_signature
from trainables.runtime.function_trainable import function_of, is_class_api
from trainables.trainable import Trainable, check_class
from trainables.validation import nearest_name
from tuner.error import SettingError

_trainables: dict[str, Any] = {}
_environments: dict[str, Callable[..., Any]] = {}
_inputs: dict[str, Callable[..., Any]] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """Give a trainable (function or `Trainable` subclass) a name that `tune.run` understands.

    Raises SettingError for anything else, and TrainablesError for a function whose signature does not fit, and for a
    class that lacks a method.

    Example:
        >>> tune.register_trainable("first", train)
        >>> tune.run("first")
    """
    if not isinstance(name, str) or not name:
        raise SettingError(f"name={name!r} is not accepted; accepted is a non-empty string")
    resolve_trainable(trainable)
    _trainables[name] = trainable


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Give an environment's constructor a name; a trainable looks it up with `get_env`.

    Example:
        >>> tune.register_env("maze", lambda config: Maze(config["size"]))
    """
    if not callable(env_creator):
        raise SettingError(f"env_creator={env_creator!r} is not accepted; accepted is a callable")
    _environments[name] = env_creator


def register_input(name: str, input_creator: Callable[..., Any]) -> None:
    """Give what makes a reader of experiences a name, as programs with RLlib do; `registry_get_input` looks it up."""
    if not callable(input_creator):
        raise SettingError(f"input_creator={input_creator!r} is not accepted; accepted is a callable")
    _inputs[name] = input_creator


def registry_contains_input(name: str) -> bool:
    """Whether a reader is registered under `name`."""
    return name in _inputs


def registry_get_input(name: str) -> Callable[..., Any]:
    """The reader registered under `name`. Raises SettingError with the nearest names."""
    creator: Callable[..., Any] = _look_up(_inputs, name, "input")
    return creator


def get_trainable_cls(trainable_name: str) -> Any:
    """The trainable registered under `trainable_name`. Raises SettingError with the nearest names."""
    return resolve_trainable(trainable_name)[0]


def validate_trainable(trainable_name: str) -> None:
    """Raise SettingError unless a trainable is registered under `trainable_name`."""
    get_trainable_cls(trainable_name)


def is_function_trainable(trainable: Any) -> bool:
    """True for a function, or the name of one; False for a `Trainable` class."""
    return not inspect.isclass(resolve_trainable(trainable)[0])


def get_env(name: str) -> Callable[..., Any]:
    """The constructor registered under `name`. Raises SettingError with the nearest names."""
    creator: Callable[..., Any] = _look_up(_environments, name, "environment")
    return creator


def _look_up(table: dict[str, Any], name: str, kind: str) -> Any:
    if name in table:
        return table[name]
    near = nearest_name(name, table)
    hint = f"; did you mean {near!r}?" if near else f"; registered are: {', '.join(sorted(table)) or 'none'}"
    raise SettingError(f"no {kind} is registered as {name!r}{hint}")


def resolve_trainable(trainable: Any) -> tuple[Any, str]:
    """(the trainable itself, its name); SettingError for what is none, TrainablesError for one that cannot run."""
    if isinstance(trainable, str):
        found, _ = resolve_trainable(_look_up(_trainables, trainable, "trainable"))
        return found, trainable
    convert = getattr(trainable, "as_trainable", None)
    if convert is not None and not inspect.isclass(trainable):
        return resolve_trainable(convert())
    if inspect.isclass(trainable):
        if issubclass(trainable, Trainable):
            check_class(trainable) if is_class_api(trainable) else check_signature(function_of(trainable))
            return trainable, trainable.__name__
        raise SettingError(f"{trainable.__name__} is not a trainable: it has to be a subclass of tune.Trainable")
    if callable(trainable):
        check_signature(trainable)
        return trainable, _name_of(trainable)
    raise SettingError(
        f"trainable={trainable!r} is not accepted; accepted are a function f(config), a subclass of tune.Trainable, "
        "a trainer, or a name given to register_trainable"
    )


def _name_of(trainable: Any) -> str:
    inner = getattr(trainable, "func", None)  # functools.partial
    name = getattr(trainable, "__name__", None) or (_name_of(inner) if inner is not None else type(trainable).__name__)
    return "lambda" if name == "<lambda>" else str(name)
