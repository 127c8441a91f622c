"""What there is to compute with, what a trial asks for, and who has what."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from trainables.quick_dataclass import dataclass
from trainables.validation import nearest_name
from tuner import knobs
from tuner.error import ResourceError
from tuner.executors.base import Resources
from tuner.resources import SHORT_NAMES, amount_of

log = logging.getLogger(__name__)

_told: set[str] = set()
_UNIT = 10_000  # amounts are kept as whole ten-thousandths: thirds and tenths add up again


def visible_gpus() -> list[str]:
    """Ids of this machine's GPUs, as `CUDA_VISIBLE_DEVICES` spells them; asks no driver and no nvidia-smi."""
    visible = knobs.cuda_visible_devices()
    if visible is not None:
        ids = [part.strip() for part in visible.split(",")]
        # CUDA reads the list up to the first id that is not one
        end = next((i for i, name in enumerate(ids) if not name or name.startswith("-")), len(ids))
        return ids[:end]
    try:
        count = len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        count = sum(p.name[6:].isdigit() for p in Path("/dev").glob("nvidia*"))
    return [str(i) for i in range(count)]


def detect(
    *, cpus: float | None = None, gpus: float | None = None, resources: Mapping[str, float] | None = None
) -> tuple[dict[str, float], list[str]]:
    """What this machine has: amounts by resource, and the ids of its GPUs.

    Args:
        cpus: cores to use; default: those that this process may run on.
        gpus: number of GPUs to use; default: all visible ones.
        resources: custom resources and their amounts.
    """
    custom = {SHORT_NAMES.get(name, name): amount_of(name, amount) for name, amount in (resources or {}).items()}
    cpus = custom.pop("cpu", cpus)
    if "gpu" in custom:
        gpus = custom.pop("gpu")
    if gpus is not None and (not float(gpus).is_integer() or gpus < 0):
        raise ResourceError(f"gpus={gpus!r}: a whole number from 0 is accepted (trials may ask for fractions)")
    ids = visible_gpus()
    if gpus is not None:
        ids = ids[: int(gpus)] if len(ids) >= gpus else [str(i) for i in range(int(gpus))]
    total: dict[str, float] = {"cpu": float(len(os.sched_getaffinity(0)) if cpus is None else cpus)}
    total["gpu"] = float(len(ids))
    total["memory"] = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return total | custom, ids


def together(asked: Resources, promised: Iterable[Resources]) -> dict[str, float]:
    """The sum of several requests."""
    found = dict(asked)
    for other in promised:
        for name, amount in other.items():
            found[name] = found.get(name, 0.0) + amount
    return found


Shape = tuple[tuple[str, float], ...]
"""A request as those that ask for the same have it."""


def shape_of(asked: Resources) -> Shape:
    """What tells one request from another."""
    return tuple(sorted((name, float(amount)) for name, amount in asked.items() if amount))


def fitting(there: Resources, shape: Shape) -> int:
    """How many requests of that shape `there` holds in all."""
    return min((_units(there.get(name, 0.0)) // max(1, _units(amount)) for name, amount in shape), default=0)


def check_fits(asked: Resources, total: Resources) -> None:
    """Raise `ResourceError`, naming both numbers, if this can never run here."""
    for name, amount in asked.items():
        if _units(amount) > _units(total.get(name, 0.0)):
            have = ", ".join(f"{n}: {a:g}" for n, a in total.items() if n != "memory" or name == "memory")
            hint = ""
            if name not in ("cpu", "gpu", "memory"):
                near = nearest_name(name, total)
                hint = f"; did you mean {near!r}?" if near else ""
                hint += f" A custom resource is declared with LocalExecutor(resources={{{name!r}: ...}})"
            raise ResourceError(
                f"a trial asks for {amount:g} {name}, available are {total.get(name, 0.0):g} (in all: {have}){hint}"
            )


def declared(asked: Resources, total: Resources) -> dict[str, float]:
    """What is asked for of what there is; all else is taken as it is, and a line says so, once in a process."""
    for name in [name for name in asked if name not in total and name not in _told]:
        _told.add(name)
        near = nearest_name(name, total)
        log.warning(
            "trials ask for %r, which nobody has declared: it limits nothing on this machine%s; "
            "ray.init(resources={%r: ...}) says how much there is",
            name,
            f" (did you mean {near!r}?)" if near else "",
            name,
        )
    return {name: amount for name, amount in asked.items() if name in total}


def check_fits_nodes(asked: Resources, nodes: Sequence[Resources]) -> int:
    """How many such requests the nodes of a cluster hold; ResourceError, naming the numbers, where none does."""
    room = sum(fitting(node, shape_of(asked)) for node in nodes)
    if not room:
        have = "; ".join(dict.fromkeys(_listed(node) for node in nodes)) or "no node"
        raise ResourceError(
            f"a trial asks for {_listed(asked)}, and no node of the cluster has that much. Available, node by node: "
            f"{have}"
        )
    return room


def _listed(amounts: Resources) -> str:
    return ", ".join(f"{name}: {amount:g}" for name, amount in amounts.items())


def _units(amount: float) -> int:
    return round(amount * _UNIT)


@dataclass(frozen=True, slots=True)
class Share:
    """What one attempt holds while it runs."""

    amounts: Mapping[str, int]
    gpus: tuple[str, ...]
    """Ids of the GPUs that it may use."""
    gpu_units: int
    """How much of each of them."""


class Pool:
    """Hands out shares of what there is, and takes them back.

    GPU shares: a fraction goes to the fullest GPU that still holds it, so that whole ones stay free. What nobody has
    declared limits nothing: `check_fits` refuses it, or `declared` has let it pass.
    """

    def __init__(self, total: Resources, gpus: Sequence[str] = ()) -> None:
        self._free = {name: _units(amount) for name, amount in total.items()}
        self._gpus = dict.fromkeys(gpus, _UNIT)

    def fits(self, asked: Resources) -> bool:
        """True if a share of this size is free now."""
        free = self._free
        for name, amount in asked.items():
            if name in free and _units(amount) > free[name]:
                return False
        gpu = asked.get("gpu", 0.0)
        return not gpu or self._pick(gpu) is not None

    def take(self, asked: Resources) -> Share:
        """Take a share; needs `fits`."""
        gpu = asked.get("gpu", 0.0)
        ids = self._pick(gpu) if gpu else ()
        if ids is None or not self.fits(asked):
            raise ResourceError(f"no room for {dict(asked)} now")
        amounts = {name: _units(amount) for name, amount in asked.items() if name in self._free}
        share = Share(amounts, ids, min(_units(gpu), _UNIT))
        for name, units in amounts.items():
            self._free[name] -= units
        for name in ids:
            self._gpus[name] -= share.gpu_units
        return share

    def give_back(self, share: Share) -> None:
        """Free what `take` handed out."""
        for name, units in share.amounts.items():
            self._free[name] += units
        for name in share.gpus:
            self._gpus[name] += share.gpu_units

    def hold(self, share: Share) -> None:
        """Take again what was given back, when nobody has taken anything meanwhile."""
        for name, units in share.amounts.items():
            self._free[name] -= units
        for name in share.gpus:
            self._gpus[name] -= share.gpu_units

    def _pick(self, gpu: float) -> tuple[str, ...] | None:
        units = _units(gpu)
        if units < _UNIT:
            room = [(free, -i, name) for i, (name, free) in enumerate(self._gpus.items()) if free >= units]
            return (min(room, key=lambda r: (r[0], -r[1]))[2],) if room else None
        whole = [name for name, free in self._gpus.items() if free == _UNIT]
        count = units // _UNIT
        return tuple(whole[:count]) if len(whole) >= count else None


class NodePools:
    """Pools of several like nodes, of which some may be lost. Finding room does not cost more with more of them."""

    def __init__(self, total: Resources, count: int) -> None:
        gpus = [str(i) for i in range(int(total.get("gpu", 0)))]
        self.total = {name: amount * count for name, amount in total.items()}
        self._pools: list[Pool | None] = [Pool(total, gpus) for _ in range(count)]
        self._open: dict[Shape, dict[int, None]] = {}
        """Request -> nodes that may have room for it; one that had none is back when something was freed there."""

    def fits(self, asked: Resources, promised: Iterable[Resources] = ()) -> bool:
        """True if there is room for it on some node, beside the promised ones."""
        taken: list[tuple[int, Share]] = []
        for other in promised:
            if self._find(other) is None:
                break
            taken.append(self.take(other))
        found = self._find(asked) is not None
        for node, share in taken:
            self.give_back(node, share)
        return found

    def take(self, asked: Resources) -> tuple[int, Share]:
        """A share, and on which node; needs `fits`."""
        node = self._find(asked)
        pool = None if node is None else self._pools[node]
        if node is None or pool is None:
            raise ResourceError(f"no room for {dict(asked)} now")
        return node, pool.take(asked)

    def give_back(self, node: int, share: Share) -> None:
        """Free what `take` handed out; nothing where the node is lost."""
        pool = self._pools[node]
        if pool is not None:
            pool.give_back(share)
            for waiting in self._open.values():
                waiting[node] = None

    def lose(self, node: int) -> None:
        """There is no such node any more."""
        self._pools[node] = None

    def _find(self, asked: Resources) -> int | None:
        shape = tuple(sorted(asked.items()))
        waiting = self._open.get(shape)
        if waiting is None:
            waiting = self._open[shape] = dict.fromkeys(range(len(self._pools)))
        while waiting:
            node = next(reversed(waiting))
            pool = self._pools[node]
            if pool is not None and pool.fits(asked):
                return node
            del waiting[node]
        return None
