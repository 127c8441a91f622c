"""Sharded state of tensors on a GPU, also while they change: staged in pinned memory, loaded back onto the GPU."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.gpu.harness import DEVICE, without_gpu
from trainables.torch import async_save, load_sharded, save_sharded
from trainables.torch.sharded_state import _background

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning"),  # as in test_cuda_state.py
]


def made() -> dict[str, Any]:
    drawn = torch.Generator(DEVICE).manual_seed(4)
    whole = torch.randn(64, 32, device=DEVICE, generator=drawn)
    return {
        "plain": whole.clone(),
        "half": whole.to(torch.bfloat16),
        "turned": whole.clone().t(),
        "every other": whole.clone()[::2, ::3],
        "broad": whole[:1].clone().expand(5, 32),
        "scalar": torch.tensor(3.5, device=DEVICE),
        "whole numbers": {"inner": [torch.arange(7, device=DEVICE), torch.arange(7)]},
        "parameter": torch.nn.Parameter(whole.clone()),
        "step": 4,
    }


def tensors(state: Any) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, list) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def spoil(state: dict[str, Any]) -> None:
    with torch.no_grad():
        for tensor in tensors(state):
            (tensor[:1] if tensor.ndim and not tensor.stride(0) else tensor).fill_(-1)


def wanted(device: str) -> dict[str, Any]:
    """Of the same shapes, contiguous or not; the one that is broadcast cannot be written into."""
    state = made()
    state["broad"] = torch.empty(5, 32, device=DEVICE)
    spoil(state)
    return state if device == DEVICE else moved(state)


def moved(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.detach().cpu()
    if isinstance(state, dict):
        return {name: moved(part) for name, part in state.items()}
    return [moved(part) for part in state] if isinstance(state, list) else state


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["step"] == expected["step"]
    for first, second in zip(tensors(found), tensors(expected), strict=True):
        assert first.dtype == second.dtype and first.cpu().equal(second.cpu())


@pytest.mark.parametrize("saver", ["save_sharded", "async_save"])
def test_what_is_saved_are_the_values_at_the_call_and_it_loads_onto_gpu_and_cpu(tmp_path: Path, saver: str) -> None:
    state = made()
    if saver == "save_sharded":
        save_sharded(state, tmp_path)
        spoil(state)
    else:
        saving = async_save(state, tmp_path)
        spoil(state)
        saving.wait()
        assert all(buffer.is_pinned() for name, buffer in _background._buffers.items() if name[-1] != 1)

    for device in (DEVICE, "cpu"):
        load_sharded(found := wanted(device), tmp_path)
        same(found, made())
        assert {str(tensor.device) for tensor in tensors(found)} == {device, "cpu"}


LOADS = """
import sys
import torch
from trainables.torch import load_sharded
state = {"half": torch.zeros(64, 32, dtype=torch.bfloat16), "step": 0}
load_sharded(state, sys.argv[1])
print(state["step"], float(state["half"].float().abs().sum()))
"""


def test_it_loads_where_there_is_no_gpu(tmp_path: Path) -> None:
    save_sharded(made(), tmp_path)
    step, total = without_gpu(LOADS, tmp_path).split()
    assert step == "4" and float(total) == pytest.approx(float(made()["half"].float().abs().sum()))


def test_work_that_is_still_queued_on_the_gpu_is_in_what_is_saved(tmp_path: Path) -> None:
    factor = torch.eye(4096, device=DEVICE)
    product = torch.ones(4096, 4096, device=DEVICE)
    for _ in range(50):
        product = product @ factor + 1
    saving = async_save({"product": product}, tmp_path)
    for _ in range(50):
        product.add_(1)
    saving.wait()
    load_sharded(found := {"product": torch.zeros(4096, 4096, device=DEVICE)}, tmp_path)
    assert found["product"].eq(51).all()


def test_the_stall_of_a_save(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = {f"layer {n}": torch.randn(64 * 2**20, device=DEVICE) for n in range(4)}

    def seconds(work: Any) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    savings: list[Any] = []
    first = seconds(lambda: savings.append(async_save(state, tmp_path / "1")))
    second = seconds(lambda: savings.append(async_save(state, tmp_path / "2")))
    where = {name: buffer.data_ptr() for name, buffer in _background._buffers.items()}
    savings[-1].wait()
    third = seconds(lambda: savings.append(async_save(state, tmp_path / "3")))
    savings[-1].wait()
    assert where == {name: buffer.data_ptr() for name, buffer in _background._buffers.items()}
    plain = seconds(lambda: torch.save(state, tmp_path / "plain.pt"))
    with capsys.disabled():
        print(
            f"\n1 GiB on {torch.cuda.get_device_name()}, torch {torch.__version__}: the training stands still for "
            f"{first:.3f} s in the first async_save, {second:.3f} s in one that waits for the first, {third:.3f} s in "
            f"a later one; {plain:.3f} s in torch.save"
        )
    _background._buffers.clear()


def test_a_model_that_is_sharded_over_nccl_is_staged_without_a_copy_on_the_gpu(tmp_path: Path, group: None) -> None:
    mesh = init_device_mesh("cuda", (1,))

    def trained(rate: float) -> tuple[Any, Any]:
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 1)).to(DEVICE)
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        model(torch.ones(2, 512, device=DEVICE)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return model, optimizer

    model, optimizer = trained(0.1)
    weights, moments = get_state_dict(model, optimizer)
    weight: DTensor = weights["0.weight"]
    expected = weight.full_tensor().clone()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    saving = async_save({"model": weights, "optimizer": moments}, tmp_path)
    assert torch.cuda.max_memory_allocated() == held
    assert all(buffer.is_pinned() for buffer in _background._buffers.values() if buffer.ndim)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7)
    saving.wait()

    other, second = trained(0.2)
    weights, moments = get_state_dict(other, second)
    load_sharded(state := {"model": weights, "optimizer": moments}, tmp_path)
    set_state_dict(other, second, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    found = other[0].weight
    assert isinstance(found, DTensor) and found.device == torch.device(DEVICE)
    assert found.full_tensor().equal(expected)
    assert second.param_groups[0]["lr"] == 0.1
