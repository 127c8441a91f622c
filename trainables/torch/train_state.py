"""`TrainState`: model, optimizer, sampler and random generators in one state, for a bit-exact resume."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from trainables.errors import InvalidSettingError
from trainables.torch.interruptable import Interruptable
from trainables.torch.ranks import rank_or_zero
from trainables.validation import invalid

RANDOM = "random"


class TrainState:
    """Gathers model, optimizer, lr scheduler, scaler, sampler and the random generators in one state.

    The generators (python's, numpy's, torch's, those of all CUDA devices) come last, in `state_dict` and in
    `load_state_dict`: loading the others may draw from them. In the middle of an epoch they are restored once more when
    the sampler is asked for its first sample, as a `DataLoader` draws a number before. A model in
    `DistributedDataParallel`, `DataParallel` or `torch.compile` is saved as the model itself, so that it loads with and
    without them. The state holds plain values and tensors only: `torch.load(path)` reads it as it is.

    Random states are those of the rank that saved. Where another rank loads them (rank 0 saves for all), it seeds its
    generators from them and its own number: ranks must not all draw the same. For a run that goes on bit for bit with
    several ranks, each saves a state of its own.

    Args:
        model, optimizer, lr_scheduler, scaler, sampler: None: there is none.
        **more: anything else with `state_dict()` and `load_state_dict(state)`, under a name of your own.

    Raises:
        InvalidSettingError: something without these two methods; the name "random".

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        >>> saved = state.state_dict()
        >>> list(saved)
        ['model', 'optimizer', 'random']
        >>> drawn = torch.rand(3)
        >>> state.load_state_dict(saved)
        >>> torch.equal(drawn, torch.rand(3))
        True
    """

    def __init__(
        self,
        *,
        model: Any = None,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        scaler: Any = None,
        sampler: Any = None,
        **more: Any,
    ) -> None:
        named = {"model": model, "optimizer": optimizer, "lr_scheduler": lr_scheduler, "scaler": scaler}
        named |= {"sampler": sampler, **more}
        if RANDOM in named:
            raise invalid("TrainState: random", more[RANDOM], "another name; the random states have this one")
        self.parts: dict[str, Any] = {name: part for name, part in named.items() if part is not None}
        for name, part in self.parts.items():
            if not callable(getattr(part, "state_dict", None)) or not callable(getattr(part, "load_state_dict", None)):
                raise invalid(f"TrainState: {name}", part, "an object with state_dict() and load_state_dict(state)")

    def state_dict(self) -> dict[str, Any]:
        """name -> state of each part, in the order of the constructor, and "random" at the end."""
        states = {name: _bare(part).state_dict() for name, part in self.parts.items()}
        return {**states, RANDOM: random_state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load each part, and the random generators last.

        Raises InvalidSettingError, before anything is loaded, when the state has other parts than this object.
        """
        if not isinstance(state_dict, Mapping):
            raise invalid("load_state_dict: state_dict", state_dict, "what TrainState.state_dict() returned")
        expected = {*self.parts, RANDOM}
        if set(state_dict) != expected:
            missing, unknown = sorted(expected - set(state_dict)), sorted(set(state_dict) - expected)
            raise InvalidSettingError(
                f"load_state_dict: the state has {sorted(state_dict)}; it lacks {missing or 'nothing'} that this "
                f"TrainState has, and has {unknown or 'nothing'} that it has not"
            )
        for name, part in self.parts.items():
            _bare(part).load_state_dict(state_dict[name])
        saved = state_dict[RANDOM]
        set_random_state(saved)  # last: what loads before it may draw
        for part in self.parts.values():
            if isinstance(part, Interruptable):
                part.before_next(lambda: set_random_state(saved))


def random_state() -> dict[str, Any]:
    """The states of python's, numpy's and torch's generators, and of all CUDA devices', as plain values and tensors."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "rank": rank_or_zero(),
        "python": {"version": version, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
        "numpy": {
            "kind": kind,
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore what `random_state` returned; on another rank seed from it and the rank. Tensors may be on any device."""
    rank = rank_or_zero()
    if state["rank"] != rank:
        _seed_apart(state, rank)
        return
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    keys = numpy["keys"].cpu().numpy().astype(np.uint32)
    np.random.set_state((numpy["kind"], keys, numpy["position"], numpy["has_gauss"], numpy["cached"]))
    torch.set_rng_state(_bytes(state["torch"]))
    if torch.cuda.is_available():
        for device, cuda in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(_bytes(cuda), device)


def _seed_apart(state: Mapping[str, Any], rank: int) -> None:
    drawn = hashlib.blake2b(_bytes(state["torch"]).numpy().tobytes(), digest_size=24, salt=rank.to_bytes(8, "little"))
    digest = drawn.digest()
    random.seed(digest[:8])
    np.random.seed(np.frombuffer(digest[8:16], dtype=np.uint32))
    torch.manual_seed(int.from_bytes(digest[16:], "little"))  # all devices


def _bytes(state: torch.Tensor) -> torch.Tensor:
    """A generator's state as torch wants it: `map_location` has moved it with everything else."""
    return state.cpu().to(torch.uint8)


def _bare(part: Any) -> Any:
    """The model in what torch wraps around it."""
    while True:
        if isinstance(part, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            part = part.module
        elif hasattr(part, "_orig_mod"):  # of torch.compile
            part = part._orig_mod
        else:
            return part
