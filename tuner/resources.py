"""`with_resources`: a trainable that carries what each of its trials needs."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from tuner.executors.resources import parse_resources

ATTRIBUTE = "_tune_resources"


def with_resources(trainable: Any, resources: Any) -> Any:
    """The same trainable, with the resources of one trial.

    Args:
        trainable: a function or a `tune.Trainable` subclass.
        resources: {"cpu": 2, "gpu": 0.5, "my_resource": 1}, a list of such bundles, or a function of the config.

    Raises ResourceError for amounts that are none.

    Example:
        >>> tune.run(tune.with_resources(train, {"cpu": 2}), num_samples=4)
    """
    if not callable(resources):
        parse_resources(resources)
    if inspect.isclass(trainable):
        return type(
            trainable.__name__,
            (trainable,),
            {
                "__module__": trainable.__module__,
                ATTRIBUTE: staticmethod(resources) if callable(resources) else resources,
            },
        )
    wrapped = functools.partial(trainable)
    setattr(wrapped, ATTRIBUTE, resources)
    return wrapped


def resources_of(trainable: Any) -> Any:
    """What `with_resources` put there, or None."""
    return getattr(trainable, ATTRIBUTE, None)
