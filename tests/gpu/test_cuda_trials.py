"""Trials with GPUs: what a forked one sees of them, what its end frees, and what is not given out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tuner as tune
from tests.gpu.harness import DEVICE, asked, opened_devices
from tests.trainables.killing import first_time
from trainables import ScalingConfig
from trainables.torch import TorchTrainer, get_device, get_devices
from tuner.cli import main
from tuner.error import ResourceError
from tuner.executors import LocalExecutor
from tuner.utils import validate_save_restore, wait_for_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.torch]


def seen() -> dict[str, Any]:
    """To be called before the trial touches its GPU."""
    return {
        "opened": opened_devices() + opened_devices(os.getppid()),
        "initialized": torch.cuda.is_initialized(),
        "preloaded": "libtorch" in Path(f"/proc/{os.getppid()}/maps").read_text(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def results(trainable: Any, place: Path, **settings: Any) -> list[dict[str, Any]]:
    analysis = tune.run(trainable, name="e", storage_path=place, verbose=0, **settings)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * len(analysis.trials)
    return [trial.last_result for trial in analysis.trials]


def meets_the_other(config: dict[str, Any]) -> None:
    before = seen()
    numbers = torch.full((64, 64), float(config["value"]), device="cuda")
    # Opening one end of a FIFO waits for the other end.
    os.close(os.open(config["fifo"], os.O_RDONLY if config["value"] == 1 else os.O_WRONLY))
    tune.report(
        **before,
        trace=torch.trace(numbers @ numbers),
        devices=[str(device) for device in get_devices()],
        count=torch.cuda.device_count(),
    )


def test_two_trials_share_a_gpu_at_once_and_are_forked_from_a_server_that_has_not_touched_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    found = results(
        meets_the_other,
        tmp_path,
        config={"value": tune.grid_search([1, 2]), "fifo": str(tmp_path / "fifo")},
        resources_per_trial={"cpu": 1, "gpu": 0.5},
    )

    for result in found:
        assert result["opened"] == [] and not result["initialized"] and result["preloaded"]
        assert (result["count"], result["devices"]) == (1, ["cuda:0"])
    assert {result["visible"] for result in found} == {"0"}
    assert sorted(result["trace"] for result in found) == [64.0**2, 4 * 64.0**2]


def looks_around(config: dict[str, Any]) -> None:
    tune.report(**seen(), available=torch.cuda.is_available(), device=str(get_device()))


def test_a_trial_that_asks_for_no_gpu_sees_none(tmp_path: Path) -> None:
    (result,) = results(looks_around, tmp_path, resources_per_trial={"cpu": 1})

    assert (result["visible"], result["available"], result["device"]) == ("", False, "cpu")


def test_a_gpu_is_known_by_its_uuid_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = asked("gpu=uuid")[0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", name)

    (result,) = results(looks_around, tmp_path, resources_per_trial={"gpu": 1})

    assert (result["visible"], result["available"], result["device"]) == (name, True, "cuda:0")
    assert wait_for_gpu(target_util=1.0, retry=1, delay_s=0)


def test_a_driver_that_has_used_its_gpu_starts_trials_that_use_it_with_tensors_of_the_drivers(tmp_path: Path) -> None:
    weights = torch.arange(4.0, device=DEVICE)
    model = torch.nn.Linear(4, 1).to(DEVICE)
    expected = model(weights).item()

    def train(config: dict[str, Any]) -> None:
        tune.report(
            server=opened_devices(os.getppid()),
            out=model(weights),
            devices=[str(weights.device), str(model.weight.device)],
        )

    (result,) = results(train, tmp_path, resources_per_trial={"gpu": 1})

    assert result["server"] == []
    assert result["out"] == [pytest.approx(expected, rel=1e-5)] and result["devices"] == [DEVICE] * 2
    assert model(weights).item() == expected


SHARE = 0.3
"""Of the GPU's memory, which the trial takes before it is killed."""


def takes_much(config: dict[str, Any]) -> None:
    marks = Path(config["marks"])
    if first_time(marks, "killed"):
        free, total = torch.cuda.mem_get_info()
        held = torch.empty(int(SHARE * total), dtype=torch.uint8, device="cuda")
        (marks / "held").write_text(str(held.numel()))
        tune.report(used=free - torch.cuda.mem_get_info()[0])
        os.kill(os.getpid(), signal.SIGKILL)
    assert wait_for_gpu(target_util=SHARE - 0.05, retry=50, delay_s=0.2)
    free, total = torch.cuda.mem_get_info()
    tune.report(used=total - free)


def test_a_killed_trial_frees_its_memory_for_the_next_attempt(tmp_path: Path) -> None:
    (result,) = results(
        takes_much, tmp_path, config={"marks": str(tmp_path)}, resources_per_trial={"gpu": 1}, max_failures=1
    )

    assert result["used"] < int((tmp_path / "held").read_text())


DRIVER = f"""
import os, signal, sys
import torch
import tuner as tune

def holds(config):
    held = torch.empty(int({SHARE} * torch.cuda.mem_get_info()[1]), dtype=torch.uint8, device="cuda")
    os.close(os.open(config["fifo"], os.O_WRONLY))
    signal.pause()

tune.run(holds, config={{"fifo": sys.argv[1]}}, resources_per_trial={{"gpu": 1}}, storage_path=sys.argv[2], verbose=0)
"""


def test_a_killed_driver_leaves_no_trial_on_the_gpu(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, tmp_path / "fifo", tmp_path])
    os.close(os.open(tmp_path / "fifo", os.O_RDONLY))  # waits for the trial, which holds its memory then
    with pytest.raises(ResourceError, match="in use"):
        wait_for_gpu(0, target_util=SHARE - 0.05, retry=1, delay_s=0)

    driver.kill()
    driver.wait()

    assert wait_for_gpu(0, target_util=SHARE - 0.05, retry=50, delay_s=0.2)


def takes_too_much(config: dict[str, Any]) -> None:
    if config["share"]:
        torch.empty(int(config["share"] * torch.cuda.mem_get_info()[1]), dtype=torch.uint8, device="cuda")
    tune.report(sum=torch.ones(3, device="cuda").sum())


def test_a_gpu_without_room_is_the_error_of_the_trial_that_wanted_it(tmp_path: Path) -> None:
    config = {"share": tune.grid_search([2.0, 0])}
    settings: dict[str, Any] = {"config": config, "resources_per_trial": {"gpu": 0.5}, "verbose": 0}

    analysis = tune.run(takes_too_much, name="e", storage_path=tmp_path, raise_on_failed_trial=False, **settings)

    failed, other = analysis.trials
    assert failed.status == "ERROR" and "CUDA out of memory" in str(failed.error)
    assert other.status == "TERMINATED" and other.last_result["sum"] == 3.0


def test_gpus_are_counted_and_more_than_there_are_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    count = len(asked("gpu=index"))
    assert LocalExecutor().total()["gpu"] == count == torch.cuda.device_count()

    refused = rf"asks for {count + 1} gpu, available are {count} "
    with pytest.raises(ResourceError, match=refused):
        tune.run(looks_around, storage_path=tmp_path, resources_per_trial={"gpu": count + 1}, verbose=0)
    with pytest.raises(ResourceError, match=refused):
        TorchTrainer(looks_around, scaling_config=ScalingConfig(num_workers=count + 1, use_gpu=True)).fit()

    main(["doctor", "--storage-path", str(tmp_path)])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "resources: " in line]
    assert f" {count} gpu," in line


def test_a_gpu_in_use_is_waited_for_by_what_nvidia_smi_says_of_it() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    held = torch.empty(int(0.06 * total), dtype=torch.uint8, device=DEVICE)
    with pytest.raises(ResourceError, match=r"GPU 0: .*% of its memory is in use after 2 looks"):
        wait_for_gpu(0, target_util=0.05, retry=2, delay_s=0)
    assert wait_for_gpu(asked("gpu=uuid")[0], target_util=1.0, retry=1, delay_s=0)
    with pytest.raises(ResourceError, match="GPU 99 cannot be looked at"):
        wait_for_gpu(99, retry=1, delay_s=0)
    del held
    torch.cuda.empty_cache()


class OnGpu(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.weight = torch.zeros(3, device=DEVICE)

    def step(self) -> dict[str, Any]:
        self.weight += 1
        return {"sum": self.weight.sum()}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"weight": self.weight}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.weight = checkpoint["weight"]
        assert self.weight.device == torch.device(DEVICE) and self.weight.tolist() == [1.0] * 3


def test_a_class_saves_tensors_of_its_gpu() -> None:
    assert validate_save_restore(OnGpu)
