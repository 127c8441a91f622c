"""Random generators of a trial: seeded from the experiment's seed, the trial's index and where it starts.

A trial that starts anew starts alike, whatever ran beside it; one that continues from iteration 40 does not draw
again what it drew before iteration 1. Hash randomisation is left alone: `PYTHONHASHSEED` acts only at the start of an
interpreter, and trials are forked from one that has started; all trials of a run share its value.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
import secrets
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def trial_seed(seed: int, index: int, start_iteration: int = 0, rank: int = 0) -> int:
    """The 64 bits that a trial's generators start from.

    Args:
        seed: The experiment's seed.
        index: The trial's number in the experiment, from 0.
        start_iteration: The trial's own iteration at the checkpoint that it starts from.
        rank: The worker's number in a group; rank 0 draws what the trial alone would draw.

    Returns:
        An int in [0, 2**64), the same on every machine and version.

    Example:
        >>> trial_seed(1, 0) == trial_seed(1, 0), trial_seed(1, 0) == trial_seed(1, 1)
        (True, False)
    """
    return _hashed(f"{seed}/{index}/{start_iteration}" + (f"/{rank}" if rank else ""))


def seed_everything(seed: int | None, index: int, start_iteration: int = 0, rank: int = 0) -> int:
    """Seed python's, numpy's and torch's generators for a trial; return the seed used.

    numpy and torch are seeded at once where they are loaded, else at the moment somebody imports them: seeding never
    imports either. With `seed=None` the operating system's randomness is used, because forked trials would otherwise
    share one state.

    Example:
        >>> first = seed_everything(7, 0); a = random.random()
        >>> again = seed_everything(7, 0); a == random.random()
        True
    """
    value = secrets.randbits(64) if seed is None else trial_seed(seed, index, start_iteration, rank)
    random.seed(value)
    _SeedAtImport.remove()
    later: dict[str, Callable[[ModuleType], None]] = {}
    for name, apply in (("numpy.random", _seed_numpy), ("torch", _seed_torch)):
        module = sys.modules.get(name)
        if module is None:
            later[name] = lambda module, apply=apply: apply(module, value)  # type: ignore[misc]
        else:
            apply(module, value)
    if later:
        sys.meta_path.insert(0, _SeedAtImport(later))
    return value


def forget_later_imports() -> None:
    """Seed nothing at later imports any more: the trial that asked for it is over."""
    _SeedAtImport.remove()


def _seed_numpy(module: ModuleType, value: int) -> None:
    own = _hashed(f"{value}/numpy")  # numpy's generator is python's: one seed would give both the same numbers
    module.seed([own & 0xFFFFFFFF, own >> 32])  # 32 bits at a time


def _seed_torch(module: ModuleType, value: int) -> None:
    module.manual_seed(_hashed(f"{value}/torch"))  # all devices; one not yet initialised is seeded when it is


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=b"trial-seed").digest(), "little")


class _SeedAtImport(MetaPathFinder):
    """Runs a function after the first import of a module."""

    def __init__(self, later: dict[str, Callable[[ModuleType], None]]) -> None:
        self._later = later

    @staticmethod
    def remove() -> None:
        # not isinstance: finders have abstract bases, and asking those takes memory in every trial
        sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder) is not _SeedAtImport]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        seed = self._later.pop(fullname, None)  # popped: the search below comes through here again
        if seed is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _SeedingLoader(spec.loader, seed)
        return spec


class _SeedingLoader(Loader):
    def __init__(self, loader: Loader, seed: Callable[[ModuleType], None]) -> None:
        self._loader, self._seed = loader, seed

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module sees its real loader: some look at it for their own resources.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._seed(module)
