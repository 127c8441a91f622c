"""State that lies on several ranks: saved by 4, loaded by 2 and 8; saved behind the training as it was at the call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trainables.errors import CheckpointError, CheckpointNotFoundError, InvalidSettingError, PublishError, RanksError
from trainables.torch import async_save, load_sharded, save_sharded
from trainables.torch.sharded_state import _background

HERE = Path(__file__).parent


ROWS = [[2.0 * row, 2.0 * row + 1] for row in range(20)]


WHOLE = [ROWS, list(range(7)), ROWS, [1.5, 2.5], 3, 0, 1.0, 5]


SPOILED = [[[-1.0, -1.0]] * 20, [-1] * 7, [[-1.0, -1.0]] * 20, [-1.0, -1.0], -1, -1, -1.0, -1]


pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that needs ranks, in one process that forks them: importing torch is what takes time."""
    command = [sys.executable, HERE / "sharded_script.py", tmp_path_factory.mktemp("sharded")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=380, env=environment)
    assert done.returncode == 0 and done.stdout, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "said": done.stderr}


@pytest.mark.parametrize("size", [2, 8])
def test_what_four_ranks_saved_loads_on_fewer_and_on_more(found: dict[str, Any], size: int) -> None:
    assert [rank[0] for rank in found[f"loads {size}"]] == [WHOLE] * size, found["said"]


def test_files_of_the_ranks_have_names_of_their_own_so_that_directories_merge(found: dict[str, Any]) -> None:
    names = [".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp", "__3_0.distcp"]
    assert found["saved"] == found["behind"] == names
    assert found["atomic"] == ["AtomicDirectory_checkpoint_0"]


def test_what_is_saved_behind_the_training_is_what_was_there_at_the_call(found: dict[str, Any]) -> None:
    for rank in found["loads 2"]:
        _, behind, later, atomic = rank
        assert behind == atomic == WHOLE
        assert later == SPOILED


def test_a_second_save_waits_for_the_first_and_uses_its_buffers(found: dict[str, Any]) -> None:
    assert found["saves"] == [[True, True]] * 4


def test_a_rank_that_cannot_read_is_told_to_all(found: dict[str, Any]) -> None:
    here, there = found["misses"]
    assert here[0].startswith("CheckpointError: ") and there[0].startswith("CheckpointNotFoundError: ")
    assert all("nowhere holds no sharded state: .metadata is missing" in told[0] for told in (here, there))
    assert here[1] == there[1]
    assert "whole-saved failed at rank 1: " in here[1] and "unknown" in here[1]


def test_a_rank_that_cannot_write_is_told_to_all_and_one_that_dies_leaves_nobody_waiting(found: dict[str, Any]) -> None:
    told, died = found["fails"]
    assert died == -9
    assert "directory failed at rank 1: " in told[0] and "file" in told[0]
    assert told[1] == "the one before failed"
    assert "another rank is gone" in told[2]


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_one_process_saves_a_model_and_its_optimizer_and_loads_them_again(tmp_path: Path) -> None:
    (model, optimizer), (other, second) = trained(), trained()
    async_save({"model": model, "optimizer": optimizer.state_dict(), "step": 4}, tmp_path / "a").wait()
    state: dict[str, Any] = {"model": other, "optimizer": second.state_dict(), "step": 0}
    load_sharded(state, tmp_path / "a")
    assert torch.equal(model.weight, other.weight) and state["step"] == 4
    moments = [each.state[net.weight]["exp_avg"] for each, net in ((optimizer, model), (second, other))]
    assert torch.equal(*moments)


def test_buffers_follow_a_state_that_changes_its_shape_and_leave_what_is_gone(tmp_path: Path) -> None:
    async_save({"a": torch.ones(3), "b": torch.ones(2)}, tmp_path / "1").wait()
    async_save({"a": torch.ones(5)[::2], "c": torch.ones(())}, tmp_path / "2").wait()
    async_save({"a": torch.full((4,), 2.0)}, tmp_path / "3").wait()
    assert {name: tuple(buffer.shape) for name, buffer in _background._buffers.items()} == {("a",): (4,)}
    load_sharded(state := {"a": torch.zeros(4)}, tmp_path / "3")
    assert state["a"].tolist() == [2.0] * 4


def test_mutable_values_are_copied_at_the_call_too(tmp_path: Path) -> None:
    seen = {1, 2}
    saving = async_save({"seen": seen, "a": torch.ones(1)}, tmp_path / "x")
    seen.add(3)
    saving.wait()
    load_sharded(state := {"seen": set(), "a": torch.zeros(1)}, saving.directory)
    assert state["seen"] == {1, 2} and saving.done()


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        ({"b": torch.ones(2)}, CheckpointError, "b"),
        ({"a": torch.ones(3)}, CheckpointError, "[Ss]ize"),
        ([1], InvalidSettingError, "load_sharded: state"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_it(
    tmp_path: Path, state: Any, error: type[Exception], words: str
) -> None:
    save_sharded({"a": torch.ones(2)}, tmp_path)
    with pytest.raises(error, match=words):
        load_sharded(state, tmp_path)


def test_directories_that_are_none_and_ranks_without_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"a": torch.ones(2)}
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointNotFoundError, match=r"\.metadata is missing"):
        load_sharded(state, tmp_path)
    with pytest.raises(PublishError, match="file"):
        save_sharded(state, tmp_path / "file")
    for wrong in ({}, [1], None, {"a": torch.eye(2).to_sparse()}):
        with pytest.raises(InvalidSettingError, match="async_save: state"):
            async_save(wrong, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettingError, match="save_sharded: directory"):
        save_sharded(state, "")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RanksError, match="init_process_group"):
        save_sharded(state, tmp_path)
