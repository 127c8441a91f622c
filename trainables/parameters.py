"""`with_parameters`: binds large objects to a trainable, shipped once per run instead of with each config."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from trainables.bound_objects import BoundObjects
from trainables.errors import InvalidSettingError
from trainables.trainable import Trainable
from trainables.validation import unknown_name

_RESERVED = {"config", "checkpoint_dir", "reporter", "self"}


def with_parameters(trainable: Any, **objects: Any) -> Any:
    """Bind objects to a trainable, by name. They travel with it, once per run, and never with a config.

    What it returns pickles to a few kB, however large the objects are: a pickle that is not the run's own refers to
    them, and can be loaded as long as this process lives.

    Args:
        trainable: A function `f(config, data=None)`, or a `Trainable` with `setup(self, config, data=None)`.
        **objects: What to bind; each must be a parameter of the function or of `setup`.

    Returns:
        A trainable of the same name that takes only what is left.

    Raises:
        InvalidSettingError: A name that the trainable does not take, or that is reserved.

    Example:
        >>> def train(config, data):
        ...     return {"sum": sum(data)}
        >>> with_parameters(train, data=[1, 2])({})
        {'sum': 3}
    """
    if inspect.isclass(trainable):
        if not issubclass(trainable, Trainable):
            raise InvalidSettingError(f"with_parameters() takes a function or a Trainable class, not {trainable!r}")
        _check(trainable.setup, objects, f"{trainable.__name__}.setup()")
        return _bind_class(trainable, BoundObjects(objects))
    if not callable(trainable):
        raise InvalidSettingError(f"with_parameters() takes a function or a Trainable class, not {trainable!r}")
    _check(trainable, objects, f"{getattr(trainable, '__name__', repr(trainable))}()")
    return _bind_function(trainable, BoundObjects(objects))


def _check(function: Callable[..., Any], objects: dict[str, Any], name: str) -> None:
    parameters = inspect.signature(function).parameters.values()
    taken = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    accepted = [parameter for parameter in taken if parameter not in _RESERVED]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for given in objects:
        if given in _RESERVED:
            raise InvalidSettingError(f"with_parameters({given}=) is not accepted: every trial gets its own {given}")
        if given not in accepted and not takes_any:
            raise InvalidSettingError(unknown_name(f"parameter of {name}", given, accepted))


def _bind_function(function: Callable[..., Any], objects: BoundObjects) -> Callable[..., Any]:
    @functools.wraps(function)
    def bound(*args: Any, **given: Any) -> Any:
        return function(*args, **{**objects.by_name, **given})

    signature = inspect.signature(function)
    left = [parameter for name, parameter in signature.parameters.items() if name not in objects.by_name]
    bound.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    return bound


def _bind_class(kind: type[Trainable], objects: BoundObjects) -> type[Trainable]:
    class Bound(kind):  # type: ignore[misc, valid-type]
        def setup(self, config: dict[str, Any]) -> None:
            kind.setup(self, config, **objects.by_name)

    Bound.__name__, Bound.__qualname__, Bound.__doc__ = kind.__name__, kind.__qualname__, kind.__doc__
    Bound.__module__ = kind.__module__
    Bound.__wrapped__ = kind
    return Bound
