"""Epoch, progress and state, as all resumable samplers have them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.trainables.torch.harness import torchs
from trainables.errors import InvalidSettingError
from trainables.torch import (
    AdvancedTooFarError,
    HasNotResetProgressError,
    InterruptableDistributedGroupedBatchSampler,
    InterruptableDistributedSampler,
    InterruptableSampler,
    InterruptibleSampler,
)

pytestmark = pytest.mark.torch


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
