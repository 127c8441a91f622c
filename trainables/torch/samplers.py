"""Resumable samplers: the position within an epoch is part of a checkpoint.

The order of every epoch is that of torch's own `DistributedSampler` with the same arguments and epoch. A position is
counted over the whole dataset, so that training continues with another number of ranks or another batch size.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from torch.utils.data import Sampler

from trainables.torch.interruptable import BySegments, SharedOut
from trainables.validation import whole_number


class InterruptableDistributedSampler(SharedOut[int]):
    """Shares a dataset out to the ranks as torch's `DistributedSampler` does, and can be stopped and resumed anywhere.

    Every epoch has exactly torch's order. `advance(n)` counts what was trained on; `state_dict()` says where that is,
    over the whole dataset: with another number of ranks, or another batch size, training goes on with the first sample
    that nobody has seen. Nothing is repeated but what torch's sampler adds to share out evenly, at the epoch's end.

    Args:
        dataset: anything with a length.
        num_replicas, rank: as in torch; None: of the process group, or 1 and 0 where there is none.
        shuffle: another order in each epoch, drawn from `seed + epoch`.
        seed: the same on all ranks.
        drop_last: leave out what cannot be shared out evenly, instead of repeating a few samples; after a resume with
            another number of ranks the rest is cut to a multiple of that.

    Raises:
        InvalidSettingError: an argument that is not accepted.
        RanksError: several ranks, and no process group yet.

    Source: the interface is that of StrongResearch/cycling_utils, the order that of `torch.utils.data`.

    Example:
        >>> sampler = InterruptableDistributedSampler(range(10), num_replicas=2, rank=0, shuffle=False)
        >>> with sampler.in_epoch(0):
        ...     for sample in sampler:
        ...         sampler.advance(1)
        ...         if sample == 4:
        ...             saved = sampler.state_dict()
        >>> saved["progress"], saved["position"]
        (3, 6)
        >>> alone = InterruptableDistributedSampler(range(10), num_replicas=1, rank=0, shuffle=False)
        >>> alone.load_state_dict(saved)
        >>> list(alone)
        [6, 7, 8, 9]
    """

    def _set_up(self, dataset: Any, num_replicas: int | None, rank: int | None, *more: Any) -> None:
        super()._set_up(dataset, num_replicas, rank, *more)
        self._start = 0

    @property
    def position(self) -> int:
        """Samples of the dataset that all ranks together have done in this epoch."""
        return min(len(self.dataset), self._start + self._taken * self.num_replicas)

    def _rest(self) -> list[int]:
        count, ranks, length = self._rest_size(), self.num_replicas, len(self.dataset)
        order, first = self._order(length), self._start + self.rank
        # Beyond its end the order starts over: so torch pads what its ranks cannot share out evenly.
        return [order[(first + step * ranks) % length] for step in range(count)]

    def _rest_size(self) -> int:
        left = len(self.dataset) - self._start
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)

    def _done_before(self) -> int:
        return -(-self._start // self.num_replicas)

    def _state(self, taken: int) -> dict[str, Any]:
        length = len(self.dataset)
        return {
            "epoch": self.epoch,
            "progress": self._done_before() + taken,
            "position": min(length, self._start + taken * self.num_replicas),
            "num_replicas": self.num_replicas,
            "length": length,
            "seed": self.seed,
            "shuffle": self.shuffle,
        }

    def _load(self, state: Mapping[str, Any], progress: int) -> int:
        length = len(self.dataset)
        if "position" in state:
            position = whole_number("load_state_dict: position", state["position"], least=0)
            self._fresh("position", position, length)
            self._start = position
        else:
            size = length // self.num_replicas if self.drop_last else -(-length // self.num_replicas)
            self._fresh("progress", progress, size)
            self._start = min(length, progress * self.num_replicas)
        return 0

    def _restart(self) -> None:
        self._start = 0


class InterruptableSampler(BySegments[int], Sampler[int]):
    """Goes through a whole dataset on its own rank, and can be stopped and resumed anywhere.

    For data that is shared out already, as a `DistributedShardedDataset`: each rank goes through what it holds. Its
    order is that of `InterruptableDistributedSampler` with one rank. Also spelled `InterruptibleSampler`.

    Resumed with another number of ranks, where a sharded dataset lies differently, each rank goes through what it holds
    and nobody has seen. As that is not the same everywhere, those that have less repeat some of theirs, so that all
    make equally many steps (with `drop_last` those that have more leave some out).

    Args:
        dataset: anything with a length.
        num_replicas, rank: as `InterruptableDistributedSampler` has them; nothing is shared out, so they say nothing.
        shuffle, seed: as there.
        drop_last: see above.

    Raises:
        InvalidSettingError: an argument that is not accepted.

    Example:
        >>> sampler = InterruptableSampler(range(4), shuffle=False)
        >>> sampler.advance(3)
        >>> list(sampler)
        [3]
    """

    def _set_up(self, dataset: Any, num_replicas: int | None, rank: int | None, *more: Any) -> None:
        self.dataset, (self.shuffle, self.seed, self.drop_last) = dataset, more
        self._sharded = callable(getattr(dataset, "shard", None))
        self.num_replicas, self.rank = (dataset.world_size, dataset.rank) if self._sharded else (1, 0)
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def _settings(self) -> tuple[int, ...]:
        return (self.num_replicas,)

    def _whole(self) -> int:
        return int(self.dataset.total) if self._sharded else len(self.dataset)

    def _left(self) -> list[int]:
        if not self._before:
            return self._order(len(self.dataset))
        done: set[int] = set()
        for world_size, taken in self._before:
            done |= {sample for left in self._lefts(world_size, done) for sample in left[:taken]}
        here = {sample: index for index, sample in enumerate(self._shard(self.rank, self.num_replicas))}
        return [here[sample] for sample in self._lefts(self.num_replicas, done)[self.rank]]

    def _lefts(self, world_size: int, done: set[int]) -> list[list[int]]:
        """What each of so many ranks goes through when these samples are done, equally much."""
        held = [self._shard(rank, world_size) for rank in range(world_size)]
        orders = [[shard[index] for index in self._order(len(shard))] for shard in held]
        lefts = [[sample for sample in each if sample not in done] for each in orders]
        count = (min if self.drop_last else max)(len(left) for left in lefts)
        return [
            left[:count] + list(islice(cycle(each), max(0, count - len(left))))
            for left, each in zip(lefts, orders, strict=True)
        ]

    def _shard(self, rank: int, world_size: int) -> list[int]:
        """The samples that a rank holds, by their numbers in the whole dataset."""
        return self.dataset.shard(rank, world_size) if self._sharded else list(range(len(self.dataset)))


InterruptibleSampler = InterruptableSampler
"""The other spelling."""
