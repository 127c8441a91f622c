"""What each trial of a trainable needs: `with_resources`, and bundles as Ray's scripts give them."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.error import SettingError
from tuner.executors.resources import parse_resources

ATTRIBUTE = "_tune_resources"


class PlacementGroupFactory:
    """Bundles of resources, wherever resources are accepted. A trial gets their sum, on one machine.

    Args:
        bundles: dicts of resources, from one on; an empty one counts nothing.
        strategy: Ray's; "PACK" or "STRICT_PACK" are what happens. Others, and further arguments, have no effect.

    Raises ResourceError for amounts that are none, and for bundles that ask for nothing.

    Example:
        >>> PlacementGroupFactory([{"CPU": 1}, {"CPU": 2, "GPU": 0.5}]).required_resources
        {'cpu': 3.0, 'gpu': 0.5}
    """

    def __init__(
        self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", *arguments: Any, **named: Any
    ) -> None:
        self.bundles = [dict(bundle) for bundle in bundles]
        self.strategy = strategy
        parse_resources(self.bundles)
        if strategy not in ("PACK", "STRICT_PACK") or arguments or named:
            warnings.warn(
                f"PlacementGroupFactory(strategy={strategy!r}, ...): a trial runs on one machine, and only the sum of "
                "its bundles counts",
                stacklevel=2,
            )

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of the bundles."""
        return parse_resources(self.bundles)

    @property
    def head_cpus(self) -> float:
        """Cores of the first bundle: what the trial's own process gets."""
        return parse_resources(self.bundles[:1]).get("cpu", 0.0) if self.bundles[0] else 0.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and other.bundles == self.bundles

    def __hash__(self) -> int:
        return hash(tuple(tuple(sorted(bundle.items())) for bundle in self.bundles))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self.bundles!r})"


def with_resources(trainable: Any, resources: Any) -> Any:
    """The same trainable, with the resources of one trial.

    Args:
        trainable: a function or a `tune.Trainable` subclass.
        resources: {"cpu": 2, "gpu": 0.5, "my_resource": 1}, a list of such bundles, a PlacementGroupFactory, or a
            function of the config.

    Raises ResourceError for amounts that are none, SettingError for a trainer.

    Example:
        >>> tune.run(tune.with_resources(train, {"cpu": 2}), num_samples=4)
    """
    if not callable(resources):
        parse_resources(resources)
    if hasattr(trainable, "as_trainable"):
        raise SettingError(
            f"with_resources({type(trainable).__name__}, ...) is not accepted: a trainer's ScalingConfig says what its "
            "workers get; accepted are a function and a tune.Trainable subclass"
        )
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
