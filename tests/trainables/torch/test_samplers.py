""""""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainables.torch.harness import epochs, lengths, ranks, torchs
from trainables.errors import InvalidSettingError, RanksError
from trainables.torch import (
    AdvancedTooFarError,
    InterruptableDistributedGroupedBatchSampler,
    InterruptableDistributedSampler,
    InterruptableSampler,
)

pytestmark = pytest.mark.torch


@given(lengths, ranks, epochs, st.booleans(), st.booleans(), st.integers(0, 3), st.data())
def test_d24_every_epoch_is_torchs_own_from_any_interruption(
    length: int, size: int, epoch: int, shuffle: bool, drop_last: bool, seed: int, data: st.DataObject
) -> None:
    more: dict[str, Any] = {"shuffle": shuffle, "drop_last": drop_last, "seed": seed}
    rank = data.draw(st.integers(0, size - 1))
    sampler = InterruptableDistributedSampler(range(length), size, rank, **more)
    whole = torchs(length, size, rank, epoch, **more)
    sampler.set_epoch(epoch)
    assert list(sampler) == whole
    assert len(sampler) == len(whole)

    stop = data.draw(st.integers(0, len(whole)))
    sampler.advance(stop)
    resumed = InterruptableDistributedSampler(range(length), size, rank, **more)
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(epoch)

    assert resumed.progress == stop
    assert list(resumed) == whole[stop:]
    with pytest.raises(AdvancedTooFarError):
        resumed.advance(len(whole) - stop + 1)
    assert resumed.progress == stop


@given(lengths, epochs, st.lists(st.tuples(ranks, st.integers(0, 12)), min_size=1, max_size=4), st.booleans(), ranks)
def test_d24_a_position_survives_other_numbers_of_ranks(
    length: int, epoch: int, lives: list[tuple[int, int]], drop_last: bool, last: int
) -> None:
    seen: list[int] = []
    state: dict[str, Any] | None = None
    for size, steps in [*lives, (last, 10**6)]:
        group = [
            InterruptableDistributedSampler(range(length), size, rank, drop_last=drop_last) for rank in range(size)
        ]
        for sampler in group:
            if state is not None:
                sampler.load_state_dict(state)
            sampler.set_epoch(epoch)
        shares = [list(sampler) for sampler in group]
        assert len({len(share) for share in shares}) == 1, "ranks must make equally many steps"
        done = [share[:steps] for share in shares]
        seen += itertools.chain.from_iterable(zip(*done, strict=True))
        for sampler, share in zip(group, done, strict=True):
            sampler.advance(len(share))
        assert len({sampler.position for sampler in group}) == 1
        state = group[0].state_dict()

    order = torchs(length, 1, 0, epoch)
    if drop_last:
        assert seen == order[: len(seen)]
        assert length - len(seen) < last
    else:
        assert seen[:length] == order, "every sample once, in torch's order"
        # A life that came to the padding was over: only one of them pads.
        padding = seen[length:]
        assert len(padding) < max(last, *(size for size, _ in lives))
        assert padding == list(itertools.islice(itertools.cycle(order), len(padding)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: InterruptableDistributedSampler(range(3), 0, 0), "num_replicas=0 is not accepted"),
        (lambda: InterruptableDistributedSampler(range(3), 2, 2), r"rank=2 is not accepted; accepted: .* 0 to 1"),
        (lambda: InterruptableDistributedSampler(range(3), 1, 0, shuffle=1), "shuffle=1 is not accepted"),
        (lambda: InterruptableSampler(range(3), seed=-1), "seed=-1 is not accepted"),
        (lambda: InterruptableSampler(range(3)).advance(-1), "n=-1 is not accepted"),
        (lambda: InterruptableSampler(range(3)).advance(1.5), "n=1.5 is not accepted"),
        (lambda: InterruptableSampler(range(3)).set_epoch(-1), "epoch=-1 is not accepted"),
        (lambda: InterruptableSampler(range(3)).load_state_dict({"epoch": 1}), "what state_dict"),
        (
            lambda: InterruptableSampler(range(3)).load_state_dict({"epoch": 1, "progress": 1, "seed": 5}),
            "seed=5 is not accepted; accepted: 0, as this sampler has",
        ),
        (lambda: InterruptableDistributedGroupedBatchSampler(range(3), [1], 2), "one for each of the 3 samples"),
        (lambda: InterruptableDistributedGroupedBatchSampler(range(3), [1] * 3, 0), "batch_size=0 is not accepted"),
        (lambda: InterruptableDistributedGroupedBatchSampler(range(1), [[1]], 2), r"group_ids=\[1\] is not accepted"),
        (
            lambda: InterruptableDistributedGroupedBatchSampler(range(1), [torch.ones(2)], 2),
            "group_ids=.* is not accepted",
        ),
    ],
)
def test_bad_input_is_named(call: Any, said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        call()


def test_without_a_process_group_there_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    sampler = InterruptableDistributedSampler(range(3))
    assert (sampler.rank, sampler.num_replicas) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RanksError, match="init_process_group"):
        InterruptableDistributedSampler(range(3))
