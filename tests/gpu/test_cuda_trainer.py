"""`TorchTrainer` on a GPU: one rank over nccl, two that share it over gloo, and kills."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import trainables as train
import tuner as tune
from tests.gpu.harness import BACKEND, on_gpu
from tests.trainables.killing import first_time
from tests.trainables.torch.test_trainer_killed import flat
from trainables import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from trainables.torch import (
    DistributedShardedDataset,
    InterruptableDistributedSampler,
    MetricsTracker,
    TorchCheckpoint,
    TorchConfig,
    TorchTrainer,
    TrainState,
    accelerate,
    async_save,
    backward,
    enable_reproducibility,
    get_device,
    load_sharded,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

WHOLE = ScalingConfig(num_workers=1, use_gpu=True)
HALVES = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": 0.5})


def fitted(function: Any, scaling: ScalingConfig, place: Path) -> Any:
    run = RunConfig(name="run", storage_path=str(place), verbose=0)
    return TorchTrainer(function, scaling_config=scaling, run_config=run).fit()


def learns() -> None:
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = prepare_data_loader(torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, pin_memory=True))
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for epoch in range(3):
        tracker = MetricsTracker()
        for batch, target in loader:
            loss = torch.nn.functional.mse_loss(model(batch), target)
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
            tracker.reset_local().update({"images": len(batch), "loss": loss * len(batch)}).reduce()
        metrics = {
            "on gpu": [pid in on_gpu() for pid in (os.getpid(), os.getppid())],
            "backend": dist.get_backend(),
            "devices": [str(each) for each in (get_device(), batch.device, model.weight.device)],
            "current": torch.cuda.current_device(),
            "visible": os.environ["CUDA_VISIBLE_DEVICES"],
            "images": tracker.agg["images"],
            "loss": tracker.agg["loss"] / tracker.agg["images"],
            "last": loss.detach(),
        }
        train.report(metrics, checkpoint=Checkpoint.from_dict({"model": model.state_dict(), "epoch": epoch}))
    train.report(metrics, checkpoint=TorchCheckpoint.from_model(model))


def test_one_worker_trains_on_its_gpu_over_nccl(tmp_path: Path) -> None:
    result = fitted(learns, WHOLE, tmp_path)

    found = result.metrics
    assert found["on gpu"] == [True, False], "the rank is there, and its leader has no context"
    assert (found["backend"], found["current"], found["visible"]) == ("nccl", 0, "0")
    assert found["devices"] == ["cuda:0"] * 3
    assert found["images"] == 64 and isinstance(found["last"], float)
    losses = result.metrics_dataframe["loss"].tolist()
    assert losses[0] > losses[1] > losses[2]
    *dicts, whole = [checkpoint for checkpoint, _ in result.best_checkpoints]
    states = [checkpoint.to_dict() for checkpoint in dicts]
    assert [state["epoch"] for state in states] == [0, 1, 2]
    assert str(states[2]["model"]["weight"].device) == "cuda:0"
    saved = TorchCheckpoint(whole.path).get_state_dict()
    assert saved["weight"].device.type == "cpu" and saved["weight"].equal(states[2]["model"]["weight"].cpu())


def shares() -> None:
    rank, device = train.world_rank(), get_device()
    numbers = DistributedShardedDataset([(float(n), n) for n in range(8)], device_id=device, shuffle=False)
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for sample, _ in torch.utils.data.DataLoader(numbers, batch_size=2):
        optimizer.zero_grad()
        model(sample.float().reshape(-1, 1)).square().mean().backward()
        optimizer.step()
    tracker = MetricsTracker().update({"sum": numbers.samples.sum(), f"rank {rank}": 1}).reduce()
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    with train.checkpoint_dir() as directory:
        saving = async_save({"model": model.module.state_dict(), "rank": rank}, directory)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(7)  # the next step
        saving.wait()
    told: list[Any] = [None] * 2
    mine = (rank, str(device), str(sample.device), [weight.flatten().tolist() for weight in weights])
    dist.all_gather_object(told, mine)
    train.report({"ranks": told, "backend": dist.get_backend(), "sums": dict(tracker.agg)})
    with train.get_checkpoint().as_directory() as saved:  # type: ignore[union-attr]
        load_sharded({"model": model.module.state_dict()}, saved)
    same = [bool(now.equal(before)) for now, before in zip(model.parameters(), weights, strict=True)]
    train.report({"ranks": told, "backend": dist.get_backend(), "sums": dict(tracker.agg), "same": same})


def test_two_workers_share_a_gpu_over_gloo(tmp_path: Path) -> None:
    found = fitted(shares, HALVES, tmp_path).metrics

    first, second = found["ranks"]
    assert first[:3] == (0, "cuda:0", "cuda:0") and second[:3] == (1, "cuda:0", "cuda:0")
    assert first[3] == second[3], "DDP averages"
    assert found["backend"] == "gloo" and found["same"] == [True, True]
    assert found["sums"] == {"sum": 28.0, "rank 0": 1.0, "rank 1": 1.0}


# --- kills ------------------------------------------------------------------------------------------------

SAMPLES, BATCH, EPOCHS, SAVE_EVERY, KILL_AT = 40, 4, 2, 3, 8
STEPS = EPOCHS * SAMPLES // BATCH


class Net(torch.nn.Module):
    """Has what keeps a state of its own: random numbers in dropout, running means in the norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(4 * 4 * 4, 3),
        )

    def forward(self, images: Any) -> Any:
        return self.layers(images)


def dataset() -> Any:
    drawn = torch.Generator().manual_seed(5)
    images = torch.randn(SAMPLES, 1, 6, 6, generator=drawn)
    return torch.utils.data.TensorDataset(images, torch.randint(0, 3, (SAMPLES,), generator=drawn))


def dies_once(config: dict[str, Any]) -> None:
    step = 0
    scaler = accelerate(amp=True)
    enable_reproducibility(3)
    data = dataset()
    sampler = InterruptableDistributedSampler(data)
    loader = prepare_data_loader(torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=sampler))
    model = prepare_model(Net())
    optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    state = TrainState(model=model, optimizer=optimizer, lr_scheduler=scheduler, scaler=scaler, sampler=sampler)
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory, "state.pt"), map_location=get_device())
        step = saved.pop("step")
        state.load_state_dict(saved)
    for epoch in range(sampler.epoch, EPOCHS):
        with sampler.in_epoch(epoch):
            for images, labels in loader:
                step += 1
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                backward(loss)
                if (
                    step == KILL_AT
                    and config["victim"] != "nobody"
                    and first_time(Path(config["marks"]), config["victim"])
                ):
                    os.kill(os.getppid() if config["victim"] == "leader" else os.getpid(), signal.SIGKILL)
                    signal.pause()  # the leader's death ends this process too
                optimizer.step()
                scheduler.step()
                sampler.advance(len(labels))
                metrics = {"step": step, "loss": loss.item(), "scale": scaler.get_scale() if scaler else 0.0}
                if step % SAVE_EVERY and step != STEPS:
                    train.report(metrics)
                else:
                    with train.checkpoint_dir() as place:
                        torch.save({"step": step, **state.state_dict()}, Path(place, "state.pt"))
                    train.report(metrics)


def test_a_training_whose_rank_or_leader_is_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    trainer = TorchTrainer(
        dies_once,
        train_loop_config={"marks": str(tmp_path)},
        torch_config=TorchConfig(backend=BACKEND, timeout_s=60),
        scaling_config=ScalingConfig(num_workers=1, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": 0.3}),
        run_config=RunConfig(
            name="run", storage_path=str(tmp_path), verbose=0, failure_config=FailureConfig(max_failures=1)
        ),
    )
    victims = ["nobody", "rank", "leader"]

    grid = tune.Tuner(trainer, param_space={"train_loop_config": {"victim": tune.grid_search(victims)}}).fit()

    found = {result.config["train_loop_config"]["victim"]: result for result in grid}  # type: ignore[index]
    assert {path.name for path in tmp_path.glob(".once-*")} == {".once-rank", ".once-leader"}
    states, rows = {}, {}
    for victim, result in found.items():
        with result.checkpoint.as_directory() as directory:  # type: ignore[union-attr]
            states[victim] = flat(torch.load(Path(directory, "state.pt"), map_location="cpu"))
        rows[victim] = result.metrics_dataframe[["step", "loss", "scale"]].to_dict("records")
    assert [row["step"] for row in rows["nobody"]] == list(range(1, STEPS + 1))
    assert any("scaler/scale" in name for name in states["nobody"]) and states["nobody"]["/random/cuda/0"]
    for victim in victims[1:]:
        assert rows[victim] == rows["nobody"], victim
        differ = [name for name, leaf in states["nobody"].items() if states[victim].get(name) != leaf]
        assert not differ and states[victim].keys() == states["nobody"].keys(), victim
