from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from trainables.errors import InvalidSettingError, RanksError
from trainables.torch import (
    AdvancedTooFarError,
    HasNotResetProgressError,
    InterruptableDistributedGroupedBatchSampler,
    InterruptableDistributedSampler,
    InterruptableSampler,
    InterruptibleSampler,
)

pytestmark = pytest.mark.torch

lengths = st.integers(0, 40)
ranks = st.integers(1, 7)
epochs = st.integers(0, 5)


def torchs(length: int, size: int, rank: int, epoch: int, **more: Any) -> list[int]:
    """What torch's own sampler gives a rank."""
    sampler = DistributedSampler(range(length), size, rank, **more)  # type: ignore[arg-type]
    sampler.set_epoch(epoch)
    return list(sampler)


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize("workers", [0, 2])
def test_prefetching_does_not_count(workers: int) -> None:
    def build() -> tuple[InterruptableDistributedSampler, DataLoader[int]]:
        sampler = InterruptableDistributedSampler(range(50), 1, 0, seed=3)
        return sampler, DataLoader(range(50), sampler=sampler, batch_size=4, num_workers=workers)  # type: ignore[arg-type]

    sampler, loader = build()
    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt), sampler.in_epoch(2):
        for batch in loader:
            sampler.advance(len(batch))
            seen += batch.tolist()
            if len(seen) == 12:
                raise KeyboardInterrupt
    state = sampler.state_dict()
    assert (state["epoch"], state["progress"]) == (2, 12)

    resumed, loader = build()
    resumed.load_state_dict(state)
    with resumed.in_epoch(resumed.epoch):
        for batch in loader:
            resumed.advance(len(batch))
            seen += batch.tolist()
    assert seen == torchs(50, 1, 0, 2, seed=3)
    assert (resumed.epoch, resumed.progress) == (3, 0), "what is saved now must not train on epoch 2 again"


def test_without_epochs_named_the_next_one_follows_when_one_is_over() -> None:
    sampler = InterruptableDistributedSampler(range(10), 2, 1)
    loader = DataLoader(range(10), sampler=sampler)  # type: ignore[arg-type]
    for epoch in range(3):
        seen = []
        for batch in loader:
            sampler.advance(1)
            seen += batch.tolist()
        assert seen == torchs(10, 2, 1, epoch)
    resumed = InterruptableDistributedSampler(range(10), 2, 1)
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed) == torchs(10, 2, 1, 3)


def test_a_sampler_that_nobody_advances_repeats_its_epoch_as_torchs_does() -> None:
    sampler = InterruptableDistributedSampler(range(10), 2, 1)

    assert list(sampler) == list(sampler) == torchs(10, 2, 1, 0)


def test_another_epoch_in_the_middle_of_one_is_refused() -> None:
    sampler = InterruptableDistributedSampler(range(10), 1, 0)
    sampler.set_epoch(1)
    sampler.advance(3)
    sampler.set_epoch(1)
    with pytest.raises(HasNotResetProgressError, match=r"set_epoch\(2\): epoch 1 has progress 3.*reset_progress"):
        sampler.set_epoch(2)
    sampler.reset_progress()
    sampler.set_epoch(2)
    assert list(sampler) == torchs(10, 1, 0, 2)


def test_cycling_utils_states_are_read() -> None:
    sampler = InterruptableDistributedSampler(range(10), 2, 1)
    sampler.load_state_dict({"progress": 3, "epoch": 4})
    assert list(sampler) == torchs(10, 2, 1, 4)[3:]
    grouped = InterruptableDistributedGroupedBatchSampler(range(10), [0] * 10, 2, 2, 1)
    grouped.load_state_dict({"progress": 2, "epoch": 4})
    assert list(grouped) == [torchs(10, 2, 1, 4)[4:]]
    with pytest.raises(AdvancedTooFarError, match="progress=6 is beyond the end of the epoch, which has 5 samples"):
        sampler.load_state_dict({"progress": 6, "epoch": 0})
    with pytest.raises(AdvancedTooFarError, match="4 is beyond the end of the epoch, which has 3 batches"):
        grouped.load_state_dict({"progress": 4, "epoch": 0})


def test_a_state_of_another_kind_of_sampler_is_refused() -> None:
    one = InterruptableDistributedSampler(range(10), 1, 0)
    own = InterruptableSampler(range(10))
    grouped = InterruptableDistributedGroupedBatchSampler(range(10), [0] * 10, 2, 1, 0)
    for sampler in (one, own, grouped):
        sampler.advance(2)  # samples, or batches: one is not the other
    for sampler in (one, own, grouped):
        for other in {one, own, grouped} - {sampler}:
            with pytest.raises(InvalidSettingError, match=r"load_state_dict: (state_dict|segments)=.* is not accepted"):
                sampler.load_state_dict(other.state_dict())
        assert sampler.progress == 2


def test_groups_that_are_tensors_or_numbers_of_numpy_are_told_by_their_values() -> None:
    plain = [number % 2 for number in range(8)]
    for ids in ([torch.tensor(each) for each in plain], list(numpy.array(plain)), torch.tensor(plain)):
        sampler = InterruptableDistributedGroupedBatchSampler(range(8), ids, 2, 1, 0, shuffle=False)
        assert list(sampler) == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_interruptable_sampler_goes_through_its_own_dataset() -> None:
    assert InterruptibleSampler is InterruptableSampler
    sampler = InterruptableSampler(range(10), num_replicas=4, rank=2)
    with sampler.in_epoch(3):
        assert list(sampler) == torchs(10, 1, 0, 3)
        sampler.advance(4)
        state = sampler.state_dict()
    resumed = InterruptableSampler(range(10))
    resumed.load_state_dict(state)
    assert list(resumed) == torchs(10, 1, 0, 3)[4:]
    assert len(resumed) == 10


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


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata calls it
class TestBesideStatefulDataLoader:
    @pytest.fixture
    def loader_class(self) -> Any:
        return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("advancing", [True, False])
    @pytest.mark.parametrize("grouped", [True, False])
    def test_a_restored_loader_goes_on_where_it_was(
        self, loader_class: Any, workers: int, advancing: bool, grouped: bool
    ) -> None:
        def build() -> tuple[Any, Any]:
            if grouped:
                batches = InterruptableDistributedGroupedBatchSampler(range(30), [0] * 30, 3, 1, 0)
                return batches, loader_class(range(30), batch_sampler=batches, num_workers=workers)
            sampler = InterruptableDistributedSampler(range(30), 1, 0)
            return sampler, loader_class(range(30), sampler=sampler, batch_size=3, num_workers=workers)

        def train(sampler: Any, loader: Any, steps: int) -> list[int]:
            seen: list[int] = []
            for batch in itertools.islice(loader, steps):
                if advancing:
                    sampler.advance(1 if grouped else len(batch))
                seen += batch.tolist()
            return seen

        sampler, loader = build()
        sampler.set_epoch(1)
        seen = train(sampler, loader, 4)
        states = loader.state_dict(), sampler.state_dict()

        resumed, loader = build()
        loader.load_state_dict(states[0])
        if advancing:
            resumed.load_state_dict(states[1])
        resumed.set_epoch(1)
        seen += train(resumed, loader, 100)
        assert seen == torchs(30, 1, 0, 1)

        if advancing:
            resumed.reset_progress()
        resumed.set_epoch(2)
        assert train(resumed, loader, 100) == torchs(30, 1, 0, 2), "the next epoch is a whole one"
