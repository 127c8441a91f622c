"""What each trial of a trainable needs: `with_resources`, and bundles as Ray's scripts give them."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainables.validation import no_effect, unknown_name
from tuner.error import ResourceError, SettingError

ATTRIBUTE = "_tune_resources"

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_RAYS = ("bundle_label_selector", "lifetime", "name")
_NESTED = {"custom_resources", "extra_custom_resources"}
_NO_EFFECT = {"object_store_memory", "extra_memory", "extra_object_store_memory"}
SHORT_NAMES = {"num_cpus": "cpu", "num_gpus": "gpu", "CPU": "cpu", "GPU": "gpu", "extra_cpu": "cpu", "extra_gpu": "gpu"}


class PlacementGroupFactory:
    """Bundles of resources, wherever resources are accepted.

    A trial of a function or a class is one process. It gets the sum of the bundles, on one machine: on a cluster a node
    has to hold all of it. The workers of a trainer, which may be on several nodes, are described by `ScalingConfig`.

    Args:
        bundles: dicts of resources, from one on; an empty one counts nothing.
        strategy: Ray's: "PACK", "STRICT_PACK", "SPREAD" or "STRICT_SPREAD". The first two are what happens; the others,
            of several bundles, and the further arguments that Ray takes, have no effect, and a warning says so.

    Raises ResourceError for what are no bundles, for amounts that are none, and for bundles that ask for nothing,
    SettingError for another strategy and for an argument that Ray does not take.

    Example:
        >>> PlacementGroupFactory([{"CPU": 1}, {"CPU": 2, "GPU": 0.5}]).required_resources
        {'cpu': 3.0, 'gpu': 0.5}
    """

    def __init__(
        self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", *arguments: Any, **named: Any
    ) -> None:
        listed = isinstance(bundles, Sequence) and bundles
        if not listed or not all(isinstance(each, Mapping) for each in bundles):
            raise ResourceError(
                f'PlacementGroupFactory(bundles={bundles!r}): accepted is a list of dicts like [{{"CPU": 1}}, ...]'
            )
        if strategy not in _STRATEGIES:
            raise SettingError(
                f"PlacementGroupFactory(strategy={strategy!r}) is not accepted; accepted: {', '.join(_STRATEGIES)}"
            )
        for name in named:
            if name not in _RAYS and not name.startswith("_"):
                known = ("bundles", "strategy", *_RAYS)
                raise SettingError(unknown_name("argument of PlacementGroupFactory", name, known))
        self.bundles = [dict(bundle) for bundle in bundles]
        self.strategy = strategy
        asked = parse_resources(self.bundles)
        vain = [repr(argument) for argument in arguments]
        if strategy.endswith("SPREAD") and len(self.bundles) > 1:
            vain.append(f"strategy={strategy!r}")
        vain += [f"{name}={value!r}" for name, value in named.items()]
        if vain:
            no_effect(
                f"PlacementGroupFactory({', '.join(vain)})",
                f"a trial is one process, which gets the sum of its bundles, {asked}, on one machine",
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
        strategy = "" if self.strategy == "PACK" else f", strategy={self.strategy!r}"
        return f"PlacementGroupFactory({self.bundles!r}{strategy})"


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


def parse_resources(asked: Any, config: Mapping[str, Any] | None = None) -> dict[str, float]:
    """What one trial asks for, from any form that is accepted, as amounts by resource.

    Args:
        asked: None (one core), a dict (`{"cpu": 2, "gpu": 0.5, "tpu": 1}`, `{"CPU": 1}`,
            `{"cpu": 1, "extra_cpu": 3, "custom_resources": {...}}`), a list of such dicts or an object with
            `bundles` (they are summed), or a function from the config to one of these.
        config: the trial's config, for a function.

    Raises:
        ResourceError: an amount that is no number from 0, a GPU share above 1 that is not whole, nothing at all.

    Example:
        >>> parse_resources([{"CPU": 1}, {"CPU": 2, "GPU": 0.5}])
        {'cpu': 3.0, 'gpu': 0.5}
    """
    if callable(asked) and not hasattr(asked, "bundles"):
        function: Callable[[Mapping[str, Any]], Any] = asked
        return parse_resources(function(config or {}))
    if asked is None:
        return {"cpu": 1.0}
    found: dict[str, float] = {}
    for bundle in _bundles(asked):
        for name, amount in _flat(bundle):
            found[name] = found.get(name, 0.0) + amount
    found = {name: amount for name, amount in found.items() if amount > 0}
    if not found:
        raise ResourceError(f"resources_per_trial={asked!r} asks for nothing; give at least a share of something")
    gpu = found.get("gpu", 0.0)
    if gpu > 1 and not gpu.is_integer():
        raise ResourceError(f"gpu={gpu:g}: a share of one GPU (up to 1) or a whole number of them is accepted")
    return found


def _bundles(asked: Any) -> Sequence[Mapping[str, Any]]:
    bundles = getattr(asked, "bundles", asked)
    if isinstance(bundles, Mapping):
        return [bundles]
    if isinstance(bundles, Sequence) and not isinstance(bundles, str) and all(isinstance(b, Mapping) for b in bundles):
        return bundles
    raise ResourceError(
        f'resources_per_trial={asked!r}: accepted are a dict like {{"cpu": 2, "gpu": 0.5}}, a list of such dicts, '
        "a PlacementGroupFactory, or a function from the config to one of these"
    )


def _flat(bundle: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    for name, value in bundle.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        elif name in _NESTED and value:
            raise ResourceError(f"{name}={value!r}: a dict of amounts is accepted")
        elif name not in _NO_EFFECT | _NESTED and value is not None:
            yield SHORT_NAMES.get(name, str(name)), amount_of(name, value)


def amount_of(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ResourceError(f"{name}={value!r}: a number from 0 is accepted as the amount of a resource")
    return float(value)
