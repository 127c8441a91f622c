"""`TorchTrainer`: groups under torch's launcher. One experiment runs all cases, each a trial with two ranks on CPUs."""

from __future__ import annotations

import datetime
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import trainables as train
import tuner as tune
from trainables import Checkpoint, RunConfig, ScalingConfig
from trainables.collective import barrier, broadcast_from_rank_zero
from trainables.errors import InvalidSettingError
from trainables.torch import (
    TorchCheckpoint,
    TorchConfig,
    TorchTrainer,
    accelerate,
    async_save,
    backward,
    enable_reproducibility,
    get_device,
    load_sharded,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
    save_sharded,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


TWO = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})


def everywhere(value: Any) -> list[Any]:
    values: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def weights(model: Any) -> list[float]:
    found = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return [round(float(value), 5) for value in getattr(found, "full_tensor", lambda: found)()]


def ddp() -> None:
    context = train.get_context()
    data = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(8, 1))
    loader = prepare_data_loader(torch.utils.data.DataLoader(data, batch_size=2, shuffle=True))
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.001))
    seen: list[float] = []
    barrier()
    handed_on = broadcast_from_rank_zero(f"of rank {context.get_world_rank()}")
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for (batch,) in loader:
            seen += batch.flatten().tolist()
            optimizer.zero_grad()
            backward(model(batch).square().mean())
            optimizer.step()
    train.report(
        {
            "ranks": everywhere((context.get_world_rank(), context.get_local_rank(), context.get_world_size())),
            "handed_on": everywhere(handed_on),
            "seen": sorted(sum(everywhere(seen), [])),
            "shares": [len(share) for share in everywhere(seen)],
            "alike": len(set(map(tuple, everywhere(weights(model))))) == 1,
            "device": str(get_device()),
            "threads": everywhere(torch.get_num_threads()),
            "backend": torch.distributed.get_backend(),
            "kind": type(model).__name__,
            "elastic": torch.distributed.is_torchelastic_launched(),
        },
        checkpoint=Checkpoint.from_dict({"model": model.state_dict(), "nested": {"of": [model.state_dict()]}, "n": 1}),
    )


def fsdp() -> None:
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)), parallel_strategy="fsdp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    kinds = {type(parameter).__name__ for parameter in model.parameters()}
    whole = [tuple(parameter.full_tensor().detach().flatten().tolist()) for parameter in model.parameters()]
    train.report({"kinds": sorted(kinds), "alike": len(set(everywhere(tuple(whole)))) == 1})


def amp() -> None:
    seen: list[str] = []
    model = torch.nn.Linear(2, 1)
    model.register_forward_hook(lambda module, given, out: seen.append(str(out.dtype)))
    accelerate(amp=True)
    inner = torch.nn.Sequential(model)
    wrapped = prepare_model(inner)
    optimizer = prepare_optimizer(torch.optim.SGD(wrapped.parameters(), lr=0.1))
    before = weights(wrapped)
    out = wrapped(torch.ones(1, 2))
    backward(out.sum())
    optimizer.step()
    train.report({"inner": seen[0], "outer": str(out.dtype), "moved": weights(wrapped) != before})


def saves_its_own() -> None:
    rank = train.world_rank()
    with train.checkpoint_dir() as directory:
        torch.save({"shard": rank}, Path(directory, f"shard_{rank}.pt"))
    train.report({})
    train.report({"newest": everywhere(train.get_checkpoint().path)})  # type: ignore[union-attr]
    model = torch.nn.Linear(2, 1)
    train.report({}, checkpoint=TorchCheckpoint.from_model(prepare_model(model)))


def raises_while_others_wait() -> None:
    if train.world_rank() == 1:
        raise ValueError("wrong in rank 1")
    torch.distributed.barrier()


def dies_while_others_wait() -> None:
    torch.distributed.barrier()
    if train.world_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    torch.distributed.barrier()


def hangs_while_others_wait() -> None:
    train.report({})
    if train.world_rank() == 1:
        signal.pause()
    torch.distributed.monitored_barrier(timeout=datetime.timedelta(seconds=1))


CASES = {
    case.__name__: case
    for case in (
        ddp,
        fsdp,
        amp,
        saves_its_own,
        raises_while_others_wait,
        dies_while_others_wait,
        hangs_while_others_wait,
    )
}


def run_case(config: dict[str, Any]) -> None:
    CASES[config["case"]]()


def metrics_of(result: Any) -> dict[str, Any]:
    if result.error is not None:
        raise result.error
    return dict(result.metrics)


def two_ranks_train_one_model_on_halves_of_the_data(results: dict[str, Any]) -> None:
    said = metrics_of(results["ddp"])

    assert said["ranks"] == [(0, 0, 2), (1, 1, 2)]
    assert said["handed_on"] == ["of rank 0", "of rank 0"]
    assert said["seen"] == sorted(2 * [float(i) for i in range(8)])
    assert said["shares"] == [8, 8]
    assert said["alike"]
    assert (said["device"], said["backend"], said["threads"]) == ("cpu", "gloo", [1, 1])
    assert said["kind"] == "DistributedDataParallel"
    assert said["elastic"]


def the_names_in_a_dict_checkpoint_are_those_of_the_bare_model(results: dict[str, Any]) -> None:
    found = results["ddp"].checkpoint.to_dict()

    assert list(found["model"]) == ["weight", "bias"]
    torch.nn.Linear(1, 1).load_state_dict(found["model"])
    assert list(found["nested"]["of"][0]) == ["weight", "bias"]
    assert found["n"] == 1


def fsdp_shards_the_values_of_rank_0(results: dict[str, Any]) -> None:
    said = metrics_of(results["fsdp"])

    assert said["kinds"] == ["DTensor"]
    assert said["alike"]


def mixed_precision_computes_in_half_and_gives_full(results: dict[str, Any]) -> None:
    said = metrics_of(results["amp"])

    assert (said["inner"], said["outer"], said["moved"]) == ("torch.bfloat16", "torch.float32", True)


def every_rank_may_save_its_own_files(results: dict[str, Any]) -> None:
    result = results["saves_its_own"]

    first, last = sorted(Path(result.path).glob("checkpoint_*"))
    assert {path.name for path in first.iterdir()} == {".manifest.json", "shard_0.pt", "shard_1.pt"}
    assert result.metrics_dataframe["newest"][1] == [str(first), str(first)]
    model = TorchCheckpoint(last).get_model(torch.nn.Linear(2, 1))
    assert isinstance(model, torch.nn.Linear)


def the_error_is_that_of_the_rank_that_failed_not_of_those_that_waited(results: dict[str, Any]) -> None:
    error = results["raises_while_others_wait"].error

    text = Path(results["raises_while_others_wait"].path, "error.txt").read_text()
    assert "wrong in rank 1" in str(error)
    assert 'raise ValueError("wrong in rank 1")' in text
    assert "in rank 1 of 2" in text


def a_rank_that_is_killed_is_named_not_what_the_others_saw(results: dict[str, Any]) -> None:
    assert "rank 1 (pid " in str(results["dies_while_others_wait"].error)
    assert "was killed by signal 9" in str(results["dies_while_others_wait"].error)


def a_rank_that_others_wait_for_in_vain_is_named(results: dict[str, Any]) -> None:
    text = Path(results["hangs_while_others_wait"].path, "error.txt").read_text()
    assert "in rank 0 of 2" in text
    assert "the others meanwhile: rank 1 (pid " in text
    assert "runs after 1 call of report()" in text


CHECKS = [
    a_rank_that_others_wait_for_in_vain_is_named,
    two_ranks_train_one_model_on_halves_of_the_data,
    the_names_in_a_dict_checkpoint_are_those_of_the_bare_model,
    fsdp_shards_the_values_of_rank_0,
    mixed_precision_computes_in_half_and_gives_full,
    every_rank_may_save_its_own_files,
    the_error_is_that_of_the_rank_that_failed_not_of_those_that_waited,
    a_rank_that_is_killed_is_named_not_what_the_others_saw,
]


@pytest.mark.timeout(400)
def test_groups_of_two_ranks(tmp_path: Path) -> None:
    """One test: each of these would start an experiment of its own, and load torch anew."""
    trainer = TorchTrainer(
        run_case,
        torch_config=TorchConfig(timeout_s=100),
        scaling_config=TWO,
        run_config=RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    )

    grid = tune.Tuner(trainer, param_space={"train_loop_config": {"case": tune.grid_search(list(CASES))}}).fit()

    results = {result.config["train_loop_config"]["case"]: result for result in grid}  # type: ignore[index]
    for check in CHECKS:
        check(results)


def sharded(config: dict[str, Any]) -> None:
    """Saves as its ranks hold it, once before a step and once while the next one runs; goes on from what there is."""
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    torch.manual_seed(0)
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 1)), parallel_strategy="fsdp")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def taken(step: int) -> dict[str, Any]:
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments, "step": step}

    def advance() -> None:
        optimizer.zero_grad()
        model(torch.arange(10.0).reshape(2, 5)).sum().backward()
        optimizer.step()

    checkpoint = train.get_checkpoint()
    start = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            load_sharded(state := taken(0), directory)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        start = state["step"]
        train.report({"step": start, "values": values_of(taken(start))})
    for step in range(start + 1, config["steps"] + 1):
        advance()
        state, values = taken(step), values_of(taken(step))
        with train.checkpoint_dir() as directory:
            if step == 1:
                save_sharded(state, directory)
            else:
                saving = async_save(state, directory)
                advance()
                saving.wait()
        train.report({"step": step, "values": values})


def values_of(state: dict[str, Any]) -> list[float]:
    moments = [moment["exp_avg"] for moment in state["optimizer"]["state"].values()]
    return [float(value) for part in (*state["model"].values(), *moments) for value in part.full_tensor().flatten()]


@pytest.mark.timeout(400)
def test_a_sharded_checkpoint_of_four_ranks_goes_on_with_two(tmp_path: Path) -> None:
    def trained(name: str, size: int, steps: int, start: Checkpoint | None = None) -> Any:
        return TorchTrainer(
            sharded,
            train_loop_config={"steps": steps},
            scaling_config=ScalingConfig(num_workers=size, resources_per_worker={"CPU": 1 / size}),
            run_config=RunConfig(name=name, storage_path=str(tmp_path), verbose=0),
            resume_from_checkpoint=start,
        ).fit()

    four = trained("four", 4, 2)
    first, second = (checkpoint for checkpoint, _ in four.best_checkpoints)
    assert sorted(path.name for path in Path(second.path).iterdir()) == [
        ".manifest.json", ".metadata", *(f"__{rank}_0.distcp" for rank in range(4))
    ]  # fmt: skip
    load_sharded(before := {"step": 0}, first.path)
    two = trained("two", 2, 3, second)

    assert before["step"] == 1
    said = four.metrics_dataframe
    assert list(two.metrics_dataframe["step"]) == [2, 3]
    assert two.metrics_dataframe["values"][0] == said["values"][1]
    assert said["values"][0] != said["values"][1] != two.metrics_dataframe["values"][1]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda: TorchConfig(backend="mpi"),
            "TorchConfig: backend='mpi' is not accepted; accepted: None, 'nccl', 'gloo'",
        ),
        (lambda: TorchConfig(timeout_s=0), "timeout_s=0 is not accepted"),
        (lambda: TorchTrainer(lambda: None, torch_config="gloo"), "torch_config='gloo' is not accepted"),
        (lambda: TorchTrainer(3), "train_loop_per_worker=3 is not accepted"),
        (lambda: prepare_model("model"), "model='model' is not accepted"),
        (lambda: prepare_model(torch.nn.Linear(1, 1), parallel_strategy="dp"), "parallel_strategy='dp'"),
        (lambda: prepare_data_loader([1, 2]), r"data_loader=\[1, 2\] is not accepted"),
        (lambda: prepare_optimizer(None), "optimizer=None is not accepted"),
        (lambda: enable_reproducibility(-1), "seed=-1 is not accepted"),
        (lambda: TorchCheckpoint.from_model(3), "model=3 is not accepted"),
    ],
)
def test_what_cannot_be_meant_is_refused(made: Any, said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        made()
