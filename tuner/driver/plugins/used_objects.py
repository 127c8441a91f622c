"""Objects of a user's that a run of this process has used: stoppers begin again, others are refused."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import cloudpickle

from tuner.error import SettingError
from tuner.spec import Spec
from tuner.stopper import Stopper


class _Use(NamedTuple):
    plugin: weakref.ref[Any]
    experiment: str
    state: bytes
    """What it held when the run began."""


_uses: dict[int, _Use] = {}


def refuse_used(spec: Spec, experiment: str) -> None:
    """Raise SettingError for an object that has learned from the trials of another experiment."""
    for name in ("search_alg", "scheduler"):
        for each in _parts(getattr(spec, name)):
            use = _use_of(each)
            if use is not None and use.experiment != experiment and _state(each) not in (None, use.state):
                raise SettingError(
                    f"{name}={type(each).__name__}(...) was used by another run, and would carry on with what it holds "
                    f"of that run's trials; make a new {type(each).__name__} for each run"
                )


def begin(plugins: tuple[Any, ...], experiment: str) -> None:
    """Note what the objects of a run hold; those that were used before begin as they began then."""
    for each in [each for plugin in plugins for each in _parts(plugin)]:
        use = _use_of(each)
        if use is not None and (use.experiment == experiment or isinstance(each, Stopper)):
            each.set_state(cloudpickle.loads(use.state))
        elif (state := _state(each)) is not None:
            _uses[id(each)] = _Use(weakref.ref(each), experiment, state)


def _parts(plugin: Any) -> Iterator[Any]:
    """An object and those that it wraps or combines."""
    if isinstance(plugin, (list, tuple)):
        inner = plugin
    else:
        yield plugin
        own = getattr(plugin, "__dict__", {})
        inner = [own[name] for name in ("searcher", "scheduler") if name in own] + list(own.get("_stoppers", ()))
    for each in inner:
        yield from _parts(each)


def _use_of(plugin: Any) -> _Use | None:
    use = _uses.get(id(plugin))
    return use if use is not None and use.plugin() is plugin else None


def _state(plugin: Any) -> bytes | None:
    """What it holds; None: it has no state that can be kept."""
    try:
        return bytes(cloudpickle.dumps(plugin.get_state()))
    except Exception:
        return None
