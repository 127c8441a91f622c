"""Batches of one group each: the same at all ranks, and resumable with others."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler

from tests.trainables.torch.harness import epochs, lengths, ranks, torchs
from trainables.torch import (
    InterruptableDistributedGroupedBatchSampler,
)

pytestmark = pytest.mark.torch


@given(
    st.lists(st.integers(0, 3), max_size=40),
    epochs,
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 6)), max_size=3),
    st.booleans(),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_d24_grouped_batches_survive_other_ranks_and_batch_sizes(
    groups: list[int], epoch: int, lives: list[tuple[int, int, int]], drop_last: bool, last: int, batch_size: int
) -> None:
    seen: Counter[int] = Counter()
    state: dict[str, Any] | None = None
    for size, batch, steps in [*lives, (last, batch_size, 10**6)]:
        group = [
            InterruptableDistributedGroupedBatchSampler(range(len(groups)), groups, batch, size, r, drop_last=drop_last)
            for r in range(size)
        ]
        for sampler in group:
            if state is not None:
                sampler.load_state_dict(state)
            sampler.set_epoch(epoch)
        shares = [list(sampler)[:steps] for sampler in group]
        assert len({len(share) for share in shares}) == 1
        for together in zip(*shares, strict=True):
            assert len({groups[sample] for share in together for sample in share}) == 1, "one group at a time"
            assert len({len(share) for share in together}) == 1
            assert 1 <= len(together[0]) <= batch
            seen.update(itertools.chain.from_iterable(together))
        for sampler, share in zip(group, shares, strict=True):
            for _ in share:
                sampler.advance()
        state = group[0].state_dict()

    members = Counter(groups)
    biggest = max([last, *(size for size, _, _ in lives)])
    for group_id, count in members.items():
        mine = [seen[sample] for sample in range(len(groups)) if groups[sample] == group_id]
        if drop_last:
            assert max(mine) <= 1
            assert count - sum(mine) < last
        else:
            assert min(mine) >= 1
            assert sum(mine) - count < biggest


@given(lengths, ranks, epochs, st.integers(1, 5), st.booleans(), st.data())
def test_one_group_gives_the_batches_of_torchs_sampler(
    length: int, size: int, epoch: int, batch_size: int, drop_last: bool, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, size - 1))
    sampler = InterruptableDistributedGroupedBatchSampler(
        range(length), torch.zeros(length), batch_size, size, rank, drop_last=drop_last
    )
    sampler.set_epoch(epoch)
    expected = list(BatchSampler(torchs(length, size, rank, epoch, drop_last=drop_last), batch_size, False))

    assert list(sampler) == expected
    assert len(sampler) == len(expected)
    stop = data.draw(st.integers(0, len(expected)))
    sampler.advance(stop)
    resumed = InterruptableDistributedGroupedBatchSampler(
        range(length), [0] * length, batch_size, size, rank, drop_last=drop_last
    )
    resumed.load_state_dict(sampler.state_dict())
    assert resumed.progress == stop
    with resumed.in_epoch(epoch):
        assert list(resumed) == expected[stop:]
    with resumed.in_epoch(epoch + 1):
        again = list(BatchSampler(torchs(length, size, rank, epoch + 1, drop_last=drop_last), batch_size, False))
        assert list(resumed) == again


def test_groups_that_are_tensors_or_numbers_of_numpy_are_told_by_their_values() -> None:
    plain = [number % 2 for number in range(8)]
    for ids in ([torch.tensor(each) for each in plain], list(numpy.array(plain)), torch.tensor(plain)):
        sampler = InterruptableDistributedGroupedBatchSampler(range(8), ids, 2, 1, 0, shuffle=False)
        assert list(sampler) == [[0, 2], [1, 3], [4, 6], [5, 7]]
