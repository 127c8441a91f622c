"""Devices, shares of the data and mixed precision, as one process has them."""

from __future__ import annotations

import random

import pytest

from trainables.torch import (
    enable_reproducibility,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_alone_a_model_and_an_optimizer_stay_as_they_are() -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    if not torch.cuda.is_available():
        assert prepare_model(model) is model
    assert prepare_optimizer(optimizer) is optimizer


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
