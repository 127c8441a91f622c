"""What each trial of a trainable needs: `with_resources`, and every form in which scripts give amounts."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables.bundles import PlacementGroupFactory as PlacementGroupFactory
from trainables.config import ScalingConfig
from trainables.trainable import Trainable
from tuner.error import ResourceError, SettingError

ATTRIBUTE = "_tune_resources"

_NESTED = {"custom_resources", "extra_custom_resources"}
_NO_EFFECT = {"object_store_memory", "extra_memory", "extra_object_store_memory"}
SHORT_NAMES = {"num_cpus": "cpu", "num_gpus": "gpu", "CPU": "cpu", "GPU": "gpu", "extra_cpu": "cpu", "extra_gpu": "gpu"}


def with_resources(trainable: Any, resources: Any) -> Any:
    """The same trainable, with the resources of one trial.

    Args:
        trainable: a function or a `tune.Trainable` subclass.
        resources: {"cpu": 2, "gpu": 0.5, "my_resource": 1}, a list of such bundles, a PlacementGroupFactory, a
            ScalingConfig, or a function of the config.

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
    """What `with_resources` put there, or a class's own `default_resource_request`; None: neither."""
    given = getattr(trainable, ATTRIBUTE, None)
    if given is None and inspect.isclass(trainable) and issubclass(trainable, Trainable):
        own = trainable.default_resource_request
        return own if own.__func__ is not Trainable.default_resource_request.__func__ else None  # type: ignore[attr-defined]
    return given


def resource_dict_to_pg_factory(spec: Mapping[str, Any] | None = None) -> PlacementGroupFactory:
    """A dict of amounts, `{"cpu": 1, "gpu": 0.5, "custom_resources": {...}}`, as one bundle; None: one core."""
    named = {"cpu": "CPU", "gpu": "GPU"}
    return PlacementGroupFactory([{named.get(name, name): amount for name, amount in parse_resources(spec).items()}])


def parse_resources(asked: Any, config: Mapping[str, Any] | None = None) -> dict[str, float]:
    """What one trial asks for, from any form that is accepted, as amounts by resource.

    Args:
        asked: None (one core), a dict (`{"cpu": 2, "gpu": 0.5, "tpu": 1}`, `{"CPU": 1}`,
            `{"cpu": 1, "extra_cpu": 3, "custom_resources": {...}}`), a list of such dicts or an object with
            `bundles` (they are summed), a ScalingConfig, or a function from the config to one of these.
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
    asked = asked.as_placement_group_factory() if isinstance(asked, ScalingConfig) else asked
    bundles = getattr(asked, "bundles", asked)
    if isinstance(bundles, Mapping):
        return [bundles]
    if isinstance(bundles, Sequence) and not isinstance(bundles, str) and all(isinstance(b, Mapping) for b in bundles):
        return bundles
    raise ResourceError(
        f'resources_per_trial={asked!r}: accepted are a dict like {{"cpu": 2, "gpu": 0.5}}, a list of such dicts, '
        "a PlacementGroupFactory, a ScalingConfig, or a function from the config to one of these"
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
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
        raise ResourceError(f"{name}={value!r}: a number from 0 is accepted as the amount of a resource")
    return float(value)


def memory_in_use() -> tuple[int, int] | None:
    """Bytes of memory that are in use on this host, and all there are; those of this process's cgroup where it has a
    limit that leaves less. None: that cannot be found out here.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, LookupError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available, total = (int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
        found.append((total - available, total))
    with contextlib.suppress(OSError, ValueError):
        limit, used = (int(Path("/sys/fs/cgroup", name).read_text()) for name in ("memory.max", "memory.current"))
        found.append((used, limit))
    return min(found, key=lambda pair: pair[1] - pair[0], default=None)
