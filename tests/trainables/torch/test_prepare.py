"""Devices, shares of the data and mixed precision, as one process has them."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from trainables import session
from trainables.errors import InvalidSettingError
from trainables.torch import (
    accelerate,
    backward,
    enable_reproducibility,
    prepare,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from trainables.torch.prepare import DeviceLoader, _mixed, moved

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_alone_a_model_and_an_optimizer_stay_as_they_are() -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    if not torch.cuda.is_available():
        assert prepare_model(model) is model
    assert prepare_optimizer(optimizer) is optimizer


def test_a_loss_is_scaled_only_on_a_gpu() -> None:
    if not torch.cuda.is_available():
        assert accelerate(amp=True) is None
    assert accelerate() is None


@pytest.mark.parametrize("scheduler_first", [False, True])
def test_an_optimizer_of_scaled_losses_takes_a_scheduler(
    monkeypatch: pytest.MonkeyPatch, scheduler_first: bool
) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    monkeypatch.setattr(_mixed, "scaler", scaler)
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def scheduled() -> object:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    scheduler = scheduled() if scheduler_first else None
    optimizer = prepare_optimizer(optimizer)
    scheduler = scheduler or scheduled()
    for loss in (weight.sum(), weight.sum(), (weight * float("inf")).sum()):
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
        scheduler.step()

    assert weight.tolist() == [1 - 0.5 - 0.25] * 2  # infinite gradients are no step
    assert scaler.get_scale() == 2.0**9
    with pytest.raises(InvalidSettingError, match="closure"):
        optimizer.step(lambda: 0.0)


@pytest.mark.parametrize("shuffle", [False, True])
def test_beginning_an_epoch_draws_nothing_from_torchs_own_generator(shuffle: bool) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    loader = prepare_data_loader(torch.utils.data.DataLoader(data, shuffle=shuffle), move_to_device=False)
    before = torch.get_rng_state()

    for _ in range(2):
        list(loader)

    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    first = [list(prepare_data_loader(torch.utils.data.DataLoader(data, shuffle=True))) for _ in range(2)]
    torch.manual_seed(3)
    assert [list(prepare_data_loader(torch.utils.data.DataLoader(data, shuffle=True))) for _ in range(2)] == first


def test_reproducible_means_the_same_numbers() -> None:
    import numpy

    states = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    try:
        drawn = []
        for _ in range(2):
            enable_reproducibility(seed=4)
            drawn.append((random.random(), numpy.random.random(), float(torch.rand(()))))
        assert drawn[0] == drawn[1]
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.deterministic = False
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        torch.set_rng_state(states[2])


# --- one process, as if it were one of several -------------------------------------------------------------


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """two(rank) makes this process one of two, as far as data goes."""
    monkeypatch.setattr(session, "get_world_size", lambda: 2)

    def be(rank: int) -> None:
        monkeypatch.setattr(session, "get_world_rank", lambda: rank)

    return be


def loader(length: int, **more: Any) -> Any:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(float(length))), **more)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("length", [7, 8])
def test_two_ranks_have_halves_of_the_data_and_the_loaders_own_settings(
    two: Callable[[int], None], length: int, shuffle: bool
) -> None:
    seen = []
    for rank in range(2):
        two(rank)
        made = prepare_data_loader(loader(length, batch_size=3, shuffle=shuffle, drop_last=False, timeout=0))
        made.sampler.set_epoch(1)
        seen.append([int(value) for (batch,) in made for value in batch])
        assert (made.batch_size, made.drop_last) == (3, False)

    assert {*seen[0], *seen[1]} == set(range(length))
    assert len(seen[0]) == len(seen[1]) == (length + 1) // 2
    assert shuffle or seen[0] == sorted(seen[0])[: len(seen[0])]


def test_who_shares_by_himself_is_left_alone(two: Callable[[int], None]) -> None:
    from torch.utils.data import DistributedSampler, IterableDataset

    from trainables.torch import InterruptableDistributedSampler

    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    two(1)
    data = range(10)
    for sampler in (DistributedSampler(data, 2, 1), InterruptableDistributedSampler(data, 2, 1)):  # type: ignore[arg-type]
        given = torch.utils.data.DataLoader(data, sampler=sampler)  # type: ignore[arg-type]
        assert prepare_data_loader(given) is given
    endless = torch.utils.data.DataLoader(Endless())
    assert prepare_data_loader(endless) is endless
    plain = loader(4)
    assert prepare_data_loader(plain, add_dist_sampler=False) is plain


def test_a_sampler_of_ones_own_is_refused_with_what_to_say(two: Callable[[int], None]) -> None:
    from torch.utils.data import BatchSampler, SequentialSampler, WeightedRandomSampler

    class Own(BatchSampler):
        pass

    two(0)
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    for how in (
        {"sampler": WeightedRandomSampler([1.0] * 4, 4)},
        {"batch_sampler": Own(SequentialSampler(data), 2, False)},
    ):
        with pytest.raises(InvalidSettingError, match="add_dist_sampler=False"):
            prepare_data_loader(torch.utils.data.DataLoader(data, **how))
    ones_own = torch.utils.data.DataLoader(data, sampler=WeightedRandomSampler([1.0] * 4, 4))
    assert prepare_data_loader(ones_own, add_dist_sampler=False) is ones_own


class Pair(NamedTuple):
    x: Any
    y: Any


def test_batches_of_every_shape_are_moved_and_the_rest_is_as_it_was() -> None:
    tensor, other = torch.ones(2), object()
    batch = {"a": tensor, "list": [tensor, "text"], "pair": Pair(tensor, other), "tuple": (tensor,), "n": None}

    found = moved(batch, torch.device("meta"))

    assert {found["a"].device.type, found["list"][0].device.type, found["tuple"][0].device.type} == {"meta"}
    assert type(found["pair"]) is Pair and found["pair"].x.device.type == "meta" and found["pair"].y is other
    assert (found["list"][1], found["n"], type(found["tuple"])) == ("text", None, tuple)
    assert tensor.device.type == "cpu"


def test_a_loader_of_a_device_is_the_loader_else() -> None:
    given = loader(4, batch_size=2)
    made = DeviceLoader(given, torch.device("meta"), ahead=True)

    assert [batch.device.type for (batch,) in made] == ["meta", "meta"]
    assert (len(made), made.batch_size, made.dataset) == (2, 2, given.dataset)
    again = pickle.loads(pickle.dumps(made))
    assert len(again) == 2 and again.batch_size == 2
    with pytest.raises(AttributeError):
        made.nothing  # noqa: B018


@pytest.fixture
def plain_again() -> Iterator[None]:
    yield
    accelerate(amp=False)


def test_mixed_precision_is_for_the_forward_pass_and_losses_are_full(plain_again: None) -> None:
    accelerate(amp=True)
    seen: list[Any] = []
    inner = torch.nn.Linear(2, 2)
    inner.register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    model = torch.nn.Sequential(inner)

    made = prepare_model(model, move_to_device=False)
    out = made(torch.ones(1, 2))
    backward(out.sum())

    assert seen == [torch.bfloat16] and out.dtype is torch.float32
    assert inner.weight.grad is not None and inner.weight.grad.dtype is torch.float32


def test_a_scaled_step_is_the_optimizers_own_with_the_scale_looked_after(
    plain_again: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerate(amp=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    monkeypatch.setattr(prepare._mixed, "scaler", scaler)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = prepare_optimizer(torch.optim.SGD([weight], lr=0.5))

    for expected in (0.5, 0.0):
        optimizer.zero_grad()
        backward(weight.sum())
        assert float(weight.grad) == 4.0, "scaled"
        optimizer.step()
        assert float(weight.detach()) == expected
    with pytest.raises(InvalidSettingError, match="without one"):
        optimizer.step(lambda: 0.0)
    backward(torch.tensor(float("inf"), requires_grad=True) * weight.sum())
    optimizer.step()
    assert float(weight.detach()) == 0.0, "a step of infinite gradients is left out"
    assert scaler.get_scale() == 2.0


def test_a_model_with_nothing_to_average_or_no_strategy_stays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "get_world_size", lambda: 2)
    frozen = torch.nn.Linear(1, 1).requires_grad_(False)

    assert prepare_model(frozen, move_to_device=False) is frozen
    model = torch.nn.Linear(1, 1)
    assert prepare_model(model, move_to_device=False, parallel_strategy=None) is model
    assert prepare_model(model, move_to_device=False, wrap_ddp=False) is model
    assert next(prepare_model(model, torch.device("meta"), None).parameters()).device.type == "meta"


@pytest.mark.parametrize(
    ("gpus", "ranks", "rank", "devices"),
    [
        (0.0, 2, 1, ["cpu"]),
        (2.0, 2, 0, ["cuda:0"]),
        (2.0, 2, 1, ["cuda:1"]),
        (4.0, 2, 1, ["cuda:2", "cuda:3"]),
        (1.0, 2, 1, ["cuda:0"]),
        (0.5, 1, 0, ["cuda:0"]),
    ],
)
def test_each_rank_has_its_own_devices(
    monkeypatch: pytest.MonkeyPatch, gpus: float, ranks: int, rank: int, devices: list[str]
) -> None:
    monkeypatch.setattr(session, "get_trial_resources", lambda: {"cpu": 2.0, "gpu": gpus})
    monkeypatch.setattr(session, "get_local_world_size", lambda: ranks)
    monkeypatch.setattr(session, "get_local_rank", lambda: rank)

    assert [str(device) for device in prepare.get_devices()] == devices
    assert str(prepare.get_device()) == devices[0]
