from __future__ import annotations

import functools
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from trainables.errors import InvalidSettingError
from trainables.torch import (
    InterruptableDistributedGroupedBatchSampler,
    InterruptableDistributedSampler,
    InterruptableSampler,
    MetricsTracker,
    TimestampedTimer,
    TrainState,
    atomic_torch_save,
)

pytestmark = pytest.mark.torch


def drawn() -> list[float]:
    return [
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        torch.rand(1).item(),
    ]


def build() -> tuple[dict[str, Any], TrainState]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Dropout(), torch.nn.Linear(3, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    parts: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2),
        "scaler": torch.amp.GradScaler("cpu"),
        "sampler": InterruptableDistributedSampler(range(12), 1, 0),
        "average": torch.optim.swa_utils.AveragedModel(model),
    }
    return parts, TrainState(**parts)


def train(parts: dict[str, Any], stop: int | None = None, save: Any = None) -> None:
    """Train to the end of epoch 1, or for so many steps and then save."""
    sampler, steps = parts["sampler"], 0
    data = torch.arange(24.0).reshape(12, 2)
    for epoch in range(sampler.epoch, 2):
        with sampler.in_epoch(epoch):
            for batch in DataLoader(data, batch_size=3, sampler=sampler):  # type: ignore[arg-type]
                noise = torch.rand(1).item() + random.random() + np.random.rand()
                loss = (parts["model"](batch) * noise).square().mean()
                parts["optimizer"].zero_grad()
                parts["scaler"].scale(loss).backward()
                parts["scaler"].step(parts["optimizer"])
                parts["scaler"].update()
                parts["average"].update_parameters(parts["model"])
                sampler.advance(len(batch))
                steps += 1
                if steps == stop:
                    save()
                    return
        parts["lr_scheduler"].step()


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")  # resumed at an epoch's end
@pytest.mark.parametrize("stop", [0, 1, 3, 4, 7])
def test_r11_interrupted_training_equals_uninterrupted_bit_for_bit(tmp_path: Path, stop: int) -> None:
    whole, _ = build()
    random.seed(1)
    np.random.seed(1)
    train(whole)
    expected = [*drawn(), *(value.clone() for value in whole["average"].state_dict().values())]

    parts, state = build()
    random.seed(1)
    np.random.seed(1)
    save = functools.partial(lambda state: atomic_torch_save(state.state_dict(), tmp_path / "state.pt"), state)
    if stop:
        train(parts, stop, save)
    else:
        save()
    parts, state = build()
    drawn()
    state.load_state_dict(torch.load(tmp_path / "state.pt"))
    train(parts)

    found = [*drawn(), *parts["average"].state_dict().values()]
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(found, expected, strict=True))


def test_random_states_come_last_and_are_restored_last() -> None:
    class Drawing:
        def state_dict(self) -> dict[str, int]:
            return {}

        def load_state_dict(self, state: dict[str, int]) -> None:
            drawn()

    state = TrainState(more=Drawing(), model=torch.nn.Linear(1, 1))
    saved = state.state_dict()
    assert list(saved) == ["model", "more", "random"]
    expected = drawn()
    state.load_state_dict(saved)
    assert drawn() == expected


def test_another_rank_draws_other_numbers_and_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = TrainState().state_dict()
    seen = []
    for rank in ("0", "1", "2", "1"):
        monkeypatch.setenv("RANK", rank)
        TrainState().load_state_dict(saved)
        seen.append(drawn())

    assert seen[1] == seen[3]
    assert len({tuple(each) for each in seen}) == 3


def test_a_bare_load_reads_the_states_of_everything_and_they_go_on(tmp_path: Path) -> None:
    def built() -> TrainState:
        return TrainState(
            model=torch.nn.Linear(1, 1),
            sampler=InterruptableDistributedSampler(range(8), 2, 1),
            grouped=InterruptableDistributedGroupedBatchSampler(range(8), [0, 1] * 4, 2, 1, 0),
            own=InterruptableSampler(range(8)),
            metrics=MetricsTracker(),
            timer=TimestampedTimer(file=io.StringIO()),
        )

    state = built()
    for name in ("sampler", "grouped", "own"):
        state.parts[name].set_epoch(3)
        state.parts[name].advance()
    state.parts["metrics"].update({"n": torch.tensor(1)}).reduce()
    saved = state.state_dict()
    atomic_torch_save(saved, tmp_path / "state.pt")
    again = built()
    again.load_state_dict(torch.load(tmp_path / "state.pt"))

    for name in ("sampler", "grouped", "own"):
        assert again.parts[name].epoch == 3
        assert list(again.parts[name]) == list(state.parts[name])
    assert again.parts["metrics"].agg == state.parts["metrics"].agg
    assert again.parts["timer"].running == state.parts["timer"].running


def test_wrapped_models_are_saved_as_themselves() -> None:
    model = torch.nn.Linear(2, 1)
    wrapped = TrainState(model=torch.nn.DataParallel(model)).state_dict()
    compiled = TrainState(model=torch.compile(model, backend="eager")).state_dict()

    assert list(wrapped["model"]) == list(compiled["model"]) == ["weight", "bias"]
    TrainState(model=torch.nn.Linear(2, 1)).load_state_dict(wrapped)


def test_states_that_do_not_fit_are_refused_before_anything_is_loaded() -> None:
    model = torch.nn.Linear(1, 1)
    saved = TrainState(model=torch.nn.Linear(1, 1), more=torch.nn.Linear(1, 1)).state_dict()
    before = model.weight.clone()
    with pytest.raises(InvalidSettingError, match=r"lacks \['sampler'\] .* has \['more'\] that it has not"):
        TrainState(model=model, sampler=InterruptableDistributedSampler(range(1), 1, 0)).load_state_dict(saved)
    assert torch.equal(model.weight, before)
    with pytest.raises(InvalidSettingError, match="scaler=3 is not accepted"):
        TrainState(scaler=3)
    with pytest.raises(InvalidSettingError, match="another name"):
        TrainState(random=model)
    with pytest.raises(InvalidSettingError, match=r"TrainState\.state_dict"):
        TrainState().load_state_dict([])  # type: ignore[arg-type]
