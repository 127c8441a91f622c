"""Resumable distributed batch sampler whose batches hold samples of one group each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from itertools import chain, cycle, islice
from typing import Any

from trainables.torch.interruptable import BySegments, SharedOut
from trainables.validation import invalid, whole_number


class InterruptableDistributedGroupedBatchSampler(BySegments[list[int]], SharedOut[list[int]]):
    """Batches whose samples are all of one group (images of like shape, texts of like length), one for each rank.

    For `DataLoader(dataset, batch_sampler=...)`. It goes through the epoch in the order of torch's
    `DistributedSampler`; whenever a group has a batch for every rank, each rank gets its share of it, so all ranks have
    batches of the same group at the same time, and equally many. With one group the batches are those of torch's
    sampler. What is left of each group comes last, the largest first, as shorter batches; to share it out evenly a
    group's first samples are repeated, at most `num_replicas - 1` of each group.

    `advance()` counts one batch. A state is resumed with other numbers of ranks and other batch sizes: what was done
    is known sample by sample.

    Args:
        dataset: anything with a length.
        group_ids: the group of each sample, in the dataset's order: a list, array or tensor of numbers or texts.
        batch_size: samples in a batch of one rank.
        num_replicas, rank, shuffle, seed: as `InterruptableDistributedSampler` has them.
        drop_last: leave out what of a group cannot be shared out evenly, instead of repeating samples.

    Raises:
        InvalidSettingError: an argument that is not accepted.
        RanksError: several ranks, and no process group yet.

    Source: the interface is that of StrongResearch/cycling_utils; grouping after torchvision's reference for detection.

    Example:
        >>> wide = [0, 1, 0, 1, 0, 1]
        >>> sampler = InterruptableDistributedGroupedBatchSampler(range(6), wide, 2, shuffle=False)
        >>> with sampler.in_epoch(0):
        ...     for batch in sampler:
        ...         sampler.advance()
        ...         print(batch)
        [0, 2]
        [1, 3]
        [4]
        [5]
    """

    _unit = "batches"

    def __init__(
        self,
        dataset: Any,
        group_ids: Iterable[Hashable],
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        self.batch_size = whole_number("batch_size", batch_size, least=1)
        as_list = getattr(group_ids, "tolist", None)
        self.group_ids: list[Hashable] = [_plain(each) for each in (group_ids if as_list is None else as_list())]
        if len(self.group_ids) != len(dataset):
            raise invalid(
                "group_ids", f"<{len(self.group_ids)} of them>", f"one for each of the {len(dataset)} samples"
            )

    @property
    def num_batches(self) -> int:
        """Batches of this rank in a whole epoch."""
        share = self.num_replicas * self.batch_size
        least = self.num_replicas if self.drop_last else 1
        counts = Counter(self.group_ids).values()
        return sum(count // share + (count % share >= least) for count in counts)

    def __len__(self) -> int:
        return self.num_batches

    def _settings(self) -> tuple[int, ...]:
        return (self.num_replicas, self.batch_size)

    def _left(self) -> list[list[int]]:
        left = order = self._order(len(self.dataset))
        for ranks, batch_size, batches in self._before:
            done = set(chain.from_iterable(self._steps(left, order, ranks, batch_size)[:batches]))
            left = [sample for sample in left if sample not in done]
        steps = self._steps(left, order, self.num_replicas, self.batch_size)
        return [step[self.rank :: self.num_replicas] for step in steps]

    def _steps(self, left: list[int], order: list[int], ranks: int, batch_size: int) -> list[list[int]]:
        """Share out the samples that are left, of one group at a time."""
        steps = []
        waiting: dict[Hashable, list[int]] = {}
        for sample in left:
            group = self.group_ids[sample]
            waiting.setdefault(group, []).append(sample)
            if len(waiting[group]) == ranks * batch_size:
                steps.append(waiting.pop(group))
        for group, rest in sorted(waiting.items(), key=lambda item: -len(item[1])):
            uneven = len(rest) % ranks
            if uneven and self.drop_last:
                rest = rest[:-uneven]
            elif uneven:  # as torch pads: with the first ones of the epoch's order, over again where there are too few
                first = (sample for sample in order if self.group_ids[sample] == group)
                rest = rest + list(islice(cycle(first), ranks - uneven))
            if rest:
                steps.append(rest)
        return steps


def _plain(group: Any) -> Hashable:
    """What a group is told by: tensors hash by identity, their numbers do not."""
    try:
        plain: Hashable = group.item() if hasattr(group, "item") else group
        hash(plain)
    except (TypeError, ValueError, RuntimeError):
        raise invalid("group_ids", group, "a number or a text for each sample") from None
    return plain
