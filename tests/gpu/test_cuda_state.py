"""States on a GPU: random generators, scaled losses, sums, shards of data, and files for a machine without one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu.harness import DEVICE, without_gpu
from trainables import Checkpoint
from trainables.torch import (
    DistributedShardedDataset,
    InterruptableSampler,
    MetricsTracker,
    TimestampedTimer,
    TorchCheckpoint,
    TrainState,
    accelerate,
    atomic_torch_save,
    backward,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from trainables.torch.prepare import DeviceLoader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    # torch says so of every first backward, which runs in a thread of its own.
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning"),
]


@pytest.mark.parametrize("location", ["cpu", DEVICE])
def test_what_a_gpu_draws_goes_on_where_a_state_was_saved(tmp_path: Path, location: str) -> None:
    model = torch.nn.Linear(2, 1).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    model(torch.ones(1, 2, device=DEVICE)).sum().backward()
    optimizer.step()
    state = TrainState(model=model, optimizer=optimizer)
    torch.rand(5, device=DEVICE)  # in the middle of what it draws
    torch.save(state.state_dict(), tmp_path / "state.pt")
    drawn = torch.rand(9, device=DEVICE), torch.rand(9), torch.nn.functional.dropout(torch.ones(99, device=DEVICE))
    moment = optimizer.state[model.weight]["exp_avg"].clone()
    with torch.no_grad():
        model.weight.fill_(3)
        optimizer.state[model.weight]["exp_avg"].fill_(4)

    saved = torch.load(tmp_path / "state.pt", map_location=location)
    state.load_state_dict(saved)

    again = torch.rand(9, device=DEVICE), torch.rand(9), torch.nn.functional.dropout(torch.ones(99, device=DEVICE))
    assert all(first.equal(second) for first, second in zip(drawn, again, strict=True))
    assert model.weight.cpu().equal(saved["model"]["weight"].cpu())
    assert optimizer.state[model.weight]["exp_avg"].equal(moment) and moment.device == torch.device(DEVICE)


def test_mixed_precision_scales_losses_and_goes_on_with_its_scale() -> None:
    inside: list[torch.dtype] = []
    layer = torch.nn.Linear(4, 1)
    layer.register_forward_hook(lambda module, given, out: inside.append(out.dtype))
    try:
        scaler = accelerate(amp=True)
        assert scaler is not None
        model = prepare_model(torch.nn.Sequential(layer))
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        state = TrainState(model=model, optimizer=optimizer, lr_scheduler=scheduler, scaler=scaler)
        inputs = torch.randn(32, 4, device=DEVICE)
        losses, scale = [], scaler.get_scale()
        for _ in range(20):
            out = model(inputs)
            loss = torch.nn.functional.mse_loss(out, inputs.sum(1, keepdim=True))
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        assert (inside[0], out.dtype, layer.weight.dtype) == (torch.float16, torch.float32, torch.float32)
        assert losses[-1] < losses[0] / 2

        before = layer.weight.detach().clone()
        optimizer.zero_grad()
        backward(model(inputs).sum() * float("inf"))
        optimizer.step()
        assert layer.weight.equal(before), "infinite gradients are no step"
        assert scaler.get_scale() <= scale / 2
        saved = io.BytesIO()
        torch.save(state.state_dict(), saved)
        saved.seek(0)
        expected, fresh = scaler.get_scale(), accelerate(amp=True)
        other = TrainState(model=model, optimizer=optimizer, lr_scheduler=scheduler, scaler=fresh)
        other.load_state_dict(torch.load(saved))
        assert fresh is not scaler and fresh is not None and fresh.get_scale() == expected
    finally:
        accelerate()


def test_batches_come_to_the_gpu_from_pinned_memory_whatever_holds_them() -> None:
    data = [{"image": torch.full((3,), float(n)), "more": (n, str(n))} for n in range(8)]
    loader = prepare_data_loader(torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=2))  # type: ignore[arg-type]
    assert isinstance(loader, DeviceLoader) and len(loader) == 2
    batches = list(loader)
    assert [str(batch["image"].device) for batch in batches] == [DEVICE] * 2
    assert batches[1]["image"][:, 0].tolist() == [4.0, 5.0, 6.0, 7.0]
    assert str(batches[0]["more"][0].device) == DEVICE and list(batches[0]["more"][1]) == ["0", "1", "2", "3"]


def test_sums_and_timings_under_nccl(group: None, capsys: pytest.CaptureFixture[str]) -> None:
    timer = TimestampedTimer("Start")
    tracker = MetricsTracker()
    for step in range(2):
        loss = torch.tensor(1.5 + step, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
        tracker.reset_local().update({"loss": loss, "n": 2, f"only {step}": torch.ones(1, device=DEVICE)}).reduce()
    torch.cuda.synchronize()
    timer.report("Summed")
    assert tracker.end_epoch().epoch_reports == [{"loss": 4.0, "n": 4.0, "only 0": 1.0, "only 1": 1.0}]
    assert [line.split("] ")[1].split()[0] for line in capsys.readouterr().out.splitlines()] == ["Start", "Summed"]


def test_a_shard_of_data_lies_on_the_gpu() -> None:
    source = [(torch.full((2,), float(n)), n) for n in range(10)]
    shards = [
        DistributedShardedDataset(source, rank, 2, device_id=place, shuffle=True)
        for rank, place in ((0, DEVICE), (1, torch.device(DEVICE)))
    ]
    for shard in shards:
        assert str(shard.samples.device) == str(shard.targets.device) == DEVICE
        loader = torch.utils.data.DataLoader(shard, batch_size=5, sampler=InterruptableSampler(shard, shuffle=False))
        ((samples, targets),) = list(loader)
        assert str(samples.device) == DEVICE and targets.tolist() == shard.indices
        assert samples[:, 0].tolist() == [float(n) for n in shard.indices]
    assert sorted(shards[0].indices + shards[1].indices) == list(range(10))


LOADS = """
import json, sys
import torch
from trainables import Checkpoint
from trainables.torch import TorchCheckpoint
place, = sys.argv[1:]
assert not torch.cuda.is_available()
found = [
    torch.load(place + "/model.pt", map_location="cpu"),
    Checkpoint.from_bytes(open(place + "/bytes", "rb").read()).to_dict()["model"],
    TorchCheckpoint(place + "/safe").get_state_dict(),
]
eighth = Checkpoint.from_bytes(open(place + "/bytes", "rb").read()).to_dict()["eight"]
print(json.dumps([[str(w.device), w.float().tolist()] for w in (*(each["weight"] for each in found), eighth)]))
"""


def test_what_a_gpu_saved_loads_where_there_is_none(tmp_path: Path) -> None:
    weight = torch.arange(6.0, device=DEVICE, dtype=torch.bfloat16).reshape(2, 3).t()
    eight = weight.to(torch.float8_e4m3fn)
    atomic_torch_save({"weight": weight}, tmp_path / "model.pt")
    checkpoint = Checkpoint.from_dict({"model": {"weight": weight}, "eight": eight})
    (tmp_path / "kept").mkdir()
    kept = Checkpoint(checkpoint.to_directory(tmp_path / "kept")).to_dict()
    (tmp_path / "bytes").write_bytes(checkpoint.to_bytes())
    TorchCheckpoint.from_state_dict({"weight": weight}).to_directory(tmp_path / "safe")

    found: list[Any] = json.loads(without_gpu(LOADS, tmp_path))

    assert found == [["cpu", weight.float().tolist()]] * 4
    assert torch.load(tmp_path / "model.pt")["weight"].equal(weight)
    assert kept["model"]["weight"].equal(weight) and kept["eight"].float().equal(eight.float())
