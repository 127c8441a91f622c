"""Base of the resumable samplers: epoch, progress, and their state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DistributedSampler

from trainables.errors import AdvancedTooFarError, HasNotResetProgressError
from trainables.torch.ranks import checked_ranks
from trainables.validation import flag, invalid, whole_number

Item = TypeVar("Item")


class Interruptable(Generic[Item]):
    """Base of the resumable samplers: the epoch, its progress, and how both are saved.

    Who inherits it has `dataset`, `num_replicas`, `rank`, `shuffle`, `seed`, `drop_last` and `epoch`.
    """

    dataset: Any
    num_replicas: int
    rank: int
    shuffle: bool
    seed: int
    drop_last: bool
    epoch: int

    _unit = "samples"
    _place = "position"
    """Which part of a state says where it stands, beside `progress`."""

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self._set_up(dataset, num_replicas, rank, shuffle, seed, drop_last)
        self._begin()

    @abstractmethod
    def _set_up(self, dataset: Any, num_replicas: int | None, rank: int | None, *more: Any) -> None:
        """Set the attributes named above from what the constructor got; `more`: shuffle, seed, drop_last."""

    def _begin(self) -> None:
        """Check the rest, and stand at the start of an epoch."""
        flag("shuffle", self.shuffle)
        flag("drop_last", self.drop_last)
        whole_number("seed", self.seed, least=0)
        self._taken = 0
        """What `advance` has counted since the state was loaded, or the epoch began."""
        self._told = False
        """The user says which epoch it is; otherwise the next one follows when one is over."""
        self._by_loader = False
        """The position came from a loader's own state, and nothing was counted since."""
        self._at_first: Callable[[], None] | None = None

    # --- as torch's and cycling_utils' users call it ----------------------------------------------------------

    def advance(self, n: int = 1) -> None:
        """Count `n` as trained on: samples of this rank (batches, for the grouped batch sampler).

        Call it after each step with the length of the batch: what a loader has fetched ahead is not trained on yet.
        Raises AdvancedTooFarError, and counts nothing, where the epoch has fewer left.
        """
        n = whole_number("advance: n", n, least=0)
        left = self._rest_size() - self._taken
        if n > left:
            raise AdvancedTooFarError(
                f"advance({n}): rank {self.rank} has {left} {self._unit} left in epoch {self.epoch}; "
                "pass the length of the batch, which is shorter at the end of an epoch"
            )
        self._taken += n
        self._by_loader = False

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes. The present one again is no change, so that a loaded position stays.

        Raises HasNotResetProgressError for another epoch while this one has progress.
        """
        epoch = whole_number("set_epoch: epoch", epoch, least=0)
        if self._by_loader and epoch != self.epoch:
            self.reset_progress()
        if epoch != self.epoch and self.progress:
            raise HasNotResetProgressError(
                f"set_epoch({epoch}): epoch {self.epoch} has progress {self.progress}. Call reset_progress() when an "
                f"epoch is over, or use `with sampler.in_epoch({epoch}):`, which does; after a resume go on with epoch "
                f"{self.epoch}"
            )
        self.epoch = epoch
        self._told = True

    @contextmanager
    def in_epoch(self, epoch: int) -> Iterator[None]:
        """Set the epoch; at the end of the block it is over, and the sampler stands at the start of the next one.

        An exception in the block leaves the position as it is, for `state_dict`; `break` and `return` end the epoch, so
        take the state before. Raises as `set_epoch` does.
        """
        self.set_epoch(epoch)
        yield
        self.reset_progress()
        self.epoch = epoch + 1  # a state saved from here on must not train on this epoch again

    def reset_progress(self) -> None:
        """Go back to the start of the epoch."""
        self._taken = 0
        self._by_loader = False
        self._at_first = None
        self._restart()

    @property
    def progress(self) -> int:
        """How much of the epoch this rank has done, in what `advance` counts; rounded up after a change of ranks."""
        return self._done_before() + self._taken

    def __iter__(self) -> Iterator[Any]:
        """What is left of the epoch for this rank.

        Where nobody says which epoch it is (`in_epoch`, `set_epoch`), the next one follows when one was advanced to its
        end.
        """
        if self._by_loader:
            self.reset_progress()  # the loader restored one iteration; this is another one
        if not self._told and self.progress and self._taken == self._rest_size():
            self.reset_progress()
            self.epoch += 1
        return Cursor(self)

    # --- states -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, as plain numbers: `epoch`, `progress`, and what another number of ranks needs."""
        return self._state(self._taken)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where a state was saved; one of cycling_utils ({"epoch", "progress"}) is read too.

        Raises:
            AdvancedTooFarError: the state is beyond the end of the dataset.
            InvalidSettingError: it is no such state, or one of another order (length, seed, shuffle): positions in it
                mean other samples here.
        """
        accepted = "what state_dict() of such a sampler returned"
        if not isinstance(state_dict, Mapping) or not {"epoch", "progress"} <= set(state_dict):
            raise invalid("load_state_dict: state_dict", state_dict, accepted)
        epoch = whole_number("load_state_dict: epoch", state_dict["epoch"], least=0)
        progress = whole_number("load_state_dict: progress", state_dict["progress"], least=0)
        if progress:
            if self._place not in state_dict and {"position", "segments"} & set(state_dict):
                raise invalid("load_state_dict: state_dict", dict(state_dict), f"that of a {type(self).__name__}")
            here = {"length": self._whole(), "seed": self.seed, "shuffle": self.shuffle}
            for name, value in here.items():
                if state_dict.get(name, value) != value:
                    raise invalid(
                        f"load_state_dict: {name}",
                        state_dict[name],
                        f"{value!r}, as this sampler has: with another {name} its position means other samples. "
                        "Build the sampler as it was, or start the epoch anew without loading the state",
                    )
        was, self.epoch = self.epoch, epoch  # what is left depends on the order, and that on the epoch
        try:
            self._taken = self._load(state_dict, progress)
        except BaseException:
            self.epoch = was
            raise
        self._by_loader = False
        self._at_first = None
        self._told = False

    def before_next(self, work: Callable[[], None]) -> None:
        """Have `work` called once, when the next iteration asks for its first sample, if the epoch has begun.

        A loader draws a number whenever an iteration begins. Of an epoch that is continued it has drawn one already,
        in the life before: who wants the same numbers as without the interruption restores the generators then.
        """
        if self.progress:
            self._at_first = work

    def _fresh(self, name: str, progress: int, size: int) -> None:
        """Refuse a state that is further than the epoch is long."""
        if progress > size:
            raise AdvancedTooFarError(
                f"load_state_dict: {name}={progress} is beyond the end of the epoch, which has {size} {self._unit}"
            )

    def _whole(self) -> int:
        """Samples that all ranks together go through in an epoch."""
        return len(self.dataset)

    def _order(self, length: int) -> list[int]:
        """That many samples in the order of the epoch, which is torch's."""
        if not self.shuffle:
            return list(range(length))
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        found: list[int] = torch.randperm(length, generator=generator).tolist()
        return found

    # --- what differs -----------------------------------------------------------------------------------------

    @abstractmethod
    def _rest(self) -> Sequence[Item]:
        """What this rank had to do when the state was loaded, or the epoch began."""

    @abstractmethod
    def _rest_size(self) -> int:
        """How much that is."""

    @abstractmethod
    def _done_before(self) -> int:
        """How much this rank had done of the epoch by then."""

    @abstractmethod
    def _state(self, taken: int) -> dict[str, Any]:
        """The state after `taken` of the rest."""

    @abstractmethod
    def _load(self, state: Mapping[str, Any], progress: int) -> int:
        """Set the position from a state whose `progress` was checked; return how much of the rest is done."""

    @abstractmethod
    def _restart(self) -> None:
        """Set the position to the start of the epoch."""


class Cursor(Iterator[Any]):
    """One iteration of a sampler. It has a state of its own, for loaders that save how far they have *fetched*
    (torchdata's `StatefulDataLoader`): the sampler's own is how far `advance` has counted."""

    def __init__(self, sampler: Interruptable[Any]) -> None:
        self._sampler = sampler
        self._seek()

    def __next__(self) -> Any:
        work, self._sampler._at_first = self._sampler._at_first, None
        if work is not None:
            work()
        if self._next >= len(self._items):
            raise StopIteration
        item = self._items[self._next]
        self._next += 1
        return item

    def state_dict(self) -> dict[str, Any]:
        return self._sampler._state(self._next)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        sampler = self._sampler
        told = sampler._told
        sampler.load_state_dict(state_dict)
        sampler._told, sampler._by_loader = told, True
        self._seek()

    def _seek(self) -> None:
        self._items = self._sampler._rest()
        self._next = self._sampler._taken


class SharedOut(Interruptable[Item], DistributedSampler[Item]):
    """Gives each rank its share of the dataset, as torch's `DistributedSampler` does."""

    def _set_up(self, dataset: Any, num_replicas: int | None, rank: int | None, *more: Any) -> None:
        DistributedSampler.__init__(self, dataset, *checked_ranks(num_replicas, rank), *more)


class BySegments(Interruptable[Item]):
    """A position is a list of segments: with which settings so much of the epoch was done. Where the order depends on
    the settings, they are what tells which samples were."""

    _place = "segments"

    def _begin(self) -> None:
        super()._begin()
        self._before: list[tuple[int, ...]] = []
        """What was done with other settings: (*settings, so much of what `advance` counts)."""
        self._known: tuple[object, Sequence[Item]] | None = None

    @abstractmethod
    def _settings(self) -> tuple[int, ...]:
        """Those of now, as whole numbers from 1."""

    @abstractmethod
    def _left(self) -> Sequence[Item]:
        """What this rank has to do after `_before`."""

    def _rest(self) -> Sequence[Item]:
        key = (self.epoch, tuple(self._before))
        if self._known is None or self._known[0] != key:
            self._known = (key, self._left())
        return self._known[1]

    def _rest_size(self) -> int:
        return len(self._rest())

    def _done_before(self) -> int:
        return sum(segment[-1] for segment in self._before)

    def _state(self, taken: int) -> dict[str, Any]:
        now = [(*self._settings(), taken)] if taken else []
        return {
            "epoch": self.epoch,
            "progress": self._done_before() + taken,
            "segments": [list(segment) for segment in (*self._before, *now)],
            "length": self._whole(),
            "seed": self.seed,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }

    def _load(self, state: Mapping[str, Any], progress: int) -> int:
        if progress and state.get("drop_last", self.drop_last) != self.drop_last:
            raise invalid("load_state_dict: drop_last", state["drop_last"], f"{self.drop_last!r}, as this sampler has")
        settings = self._settings()
        given = state.get("segments", [(*settings, progress)] if progress else [])
        numbers = len(settings) + 1
        if not isinstance(given, Sequence) or any(not isinstance(s, Sequence) or len(s) != numbers for s in given):
            raise invalid("load_state_dict: segments", given, f"a list of lists of {numbers} whole numbers")
        before = [tuple(whole_number("load_state_dict: segments", number, least=1) for number in s) for s in given]
        taken = before.pop()[-1] if before and before[-1][:-1] == settings else 0
        self._before, before = before, self._before
        size = self._rest_size()
        if taken > size:
            whole = self._done_before() + size
            self._before = before
            self._fresh("progress", progress, whole)
        return taken

    def _restart(self) -> None:
        self._before = []
