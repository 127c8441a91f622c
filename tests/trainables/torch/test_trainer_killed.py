"""Bit for bit: a training that was killed, and went on, ends where one ends that nobody disturbed (R11).

Each experiment has one trial that is left alone; in the others the trial's own process (the leader) or a rank is
killed, as the kernel does it, at steps and at places within a step that are drawn from a seed.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest

import trainables as train
import tuner as tune
from tests.trainables.killing import first_time
from tests.trainables.torch.kill_points import Calls
from trainables import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, session
from trainables.runtime.attempt import Attempt
from trainables.torch import (
    InterruptableDistributedSampler,
    TorchConfig,
    TorchTrainer,
    TrainState,
    prepare_data_loader,
    prepare_model,
)
from trainables.torch.launch import TorchBackend

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SAMPLES, BATCH, EPOCHS, SAVE_EVERY = 44, 4, 3, 3
PLACES = ("forward", "backward", "step", "saving", "reported")


class Kill(NamedTuple):
    """Where in a training somebody dies, once."""

    step: int
    place: str
    victim: str
    """"leader", "rank 0" or "rank 1"."""


def steps_of(size: int) -> int:
    share = -(-SAMPLES // size)
    return EPOCHS * -(-share // BATCH)


def kills_of(size: int, seed: int, most: int) -> list[Kill]:
    """One kill, or up to so many, in the order of their steps."""
    drawn = random.Random(1000 * size + seed)
    steps = sorted(drawn.sample(range(1, steps_of(size) + 1), drawn.randint(1, most)))
    victims = ["leader", *(f"rank {rank}" for rank in range(size))]
    return [Kill(step, drawn.choice(PLACES), drawn.choice(victims)) for step in steps]


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


class Executioner:
    """Kills at the planned places, each once, whatever is started again in between."""

    def __init__(self, marks: Path, kills: list[Kill]) -> None:
        self.marks, self.kills, self.step = marks, kills, 0
        self.me = f"rank {train.world_rank()}"

    def at(self, place: str) -> None:
        for number, (step, where, victim) in enumerate(self.kills):
            due = step == self.step and where == place and victim in (self.me, "leader")
            if due and (victim != "leader" or self.me == "rank 0") and first_time(self.marks, str(number)):
                os.kill(os.getppid() if victim == "leader" else os.getpid(), signal.SIGKILL)
                signal.pause()  # the leader's death ends this process too


def train_func(config: dict[str, Any]) -> None:
    rank = train.world_rank()
    marks = Path(config["marks"], str(config["trial"]))
    marks.mkdir(parents=True, exist_ok=True)
    executioner = Executioner(marks, [Kill(*kill) for kill in config["kills"][config["trial"]]])
    checkpoint = train.get_checkpoint()
    if checkpoint is None:  # a later life has its numbers from the state alone
        random.seed(rank)
        numpy.random.seed(rank)
        torch.manual_seed(rank)
    data = dataset()
    sampler = InterruptableDistributedSampler(data, train.world_size(), rank)
    loader = prepare_data_loader(torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=sampler))
    # With three terms the order of a sum counts. DDP goes over to other buckets after the first step of a life, and
    # with them to other orders, unless it looks for unused parameters.
    kwargs = {"find_unused_parameters": True} if train.world_size() > 2 else None
    model = prepare_model(Net(), parallel_strategy_kwargs=kwargs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    state = TrainState(model=model, optimizer=optimizer, lr_scheduler=scheduler, sampler=sampler)
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory, f"rank_{rank}.pt"))
        executioner.step = saved.pop("step")
        state.load_state_dict(saved)

    for epoch in range(sampler.epoch, EPOCHS):
        with sampler.in_epoch(epoch):
            for images, labels in loader:
                executioner.step += 1
                executioner.at("forward")
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                executioner.at("backward")
                loss.backward()
                executioner.at("step")
                optimizer.step()
                scheduler.step()
                sampler.advance(len(labels))
                metrics = {"loss": loss.item(), "lr": scheduler.get_last_lr()[0], "step": executioner.step}
                if executioner.step % SAVE_EVERY and executioner.step != steps_of(train.world_size()):
                    executioner.at("saving")
                    train.report(metrics)
                else:
                    with train.checkpoint_dir() as directory:
                        states = {"step": executioner.step, **state.state_dict()}
                        torch.save(states, Path(directory, f"rank_{rank}.pt"))
                        executioner.at("saving")
                    train.report(metrics)
                executioner.at("reported")


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """The leaves of a state: name -> bytes of a tensor, or the plain value's own text."""
    if isinstance(value, torch.Tensor):
        return {name: (value.dtype, tuple(value.shape), value.numpy().tobytes())}
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        return {name: repr(value)}
    return {key: leaf for part, inner in parts for key, leaf in flat(inner, f"{name}/{part}").items()}


def last_states(result: Any, size: int) -> list[dict[str, Any]]:
    with result.checkpoint.as_directory() as directory:
        return [flat(torch.load(Path(directory, f"rank_{rank}.pt"))) for rank in range(size)]


def check(size: int, kills: list[list[Kill]], place: Path) -> None:
    """One experiment: a trial that is left alone, and one for each list of kills."""
    kills = [[], *kills]
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"marks": str(place / "marks"), "kills": [[tuple(kill) for kill in each] for each in kills]},
        torch_config=TorchConfig(timeout_s=100),
        scaling_config=ScalingConfig(num_workers=size, resources_per_worker={"CPU": 1 / size}),
        run_config=RunConfig(
            name="run",
            storage_path=str(place),
            verbose=0,
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            failure_config=FailureConfig(max_failures=-1),
        ),
    )
    space = {"train_loop_config": {"trial": tune.grid_search(list(range(len(kills))))}}

    grid = tune.Tuner(trainer, param_space=space).fit()

    results = {result.config["train_loop_config"]["trial"]: result for result in grid}  # type: ignore[index]
    columns = ["training_iteration", "step", "loss", "lr"]
    metrics = [results[trial].metrics_dataframe[columns].to_dict("records") for trial in range(len(kills))]
    assert [row["training_iteration"] for row in metrics[0]] == list(range(1, steps_of(size) + 1))
    expected = last_states(results[0], size)
    for trial, planned in enumerate(kills):
        told = f"{size} ranks, {planned}"
        done = {path.name for path in (place / "marks" / str(trial)).iterdir()}
        assert done == {f".once-{number}" for number in range(len(planned))}, told
        assert metrics[trial] == metrics[0], told
        found = last_states(results[trial], size)
        for rank in range(size):
            assert found[rank].keys() == expected[rank].keys()
            differ = [name for name, leaf in found[rank].items() if leaf != expected[rank][name]]
            assert not differ, f"{told}: rank {rank}"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("size", [1, 2])
def test_r11_a_killed_training_ends_with_the_same_bits(size: int, tmp_path: Path) -> None:
    check(size, [kills_of(size, seed, most=1) for seed in range(3)], tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("size", [1, 2, 3])
def test_r11_a_training_killed_at_many_points_ends_with_the_same_bits(size: int, tmp_path: Path) -> None:
    check(size, [kills_of(size, seed, most=3) for seed in range(25)], tmp_path)


# --- four ranks, killed before the calls of a save to the disk ----------------------------------------------

FOUR, SAVES = 4, 3
CALLS_OF_LEADER, CALLS_OF_RANK = 40, 9
"""At least so many there are, of a trial's whole life and of a rank's saves."""


class KilledBackend(TorchBackend):
    """Each trial takes one of the kills: in its first life its leader, or a rank, dies before one of its disk calls."""

    def __init__(self, config: TorchConfig, marks: Path, kills: list[tuple[int | str, int]]) -> None:
        super().__init__(config, 0)
        self.marks, self.kills = marks, kills
        self.kill: tuple[int | str, int] = ("nobody", 0)

    def launcher(self, size: int) -> Any:
        attempt = session.current()
        assert isinstance(attempt, Attempt)
        trial = attempt.job.directory.name
        if first_time(self.marks, trial):
            number = next(number for number in range(len(self.kills)) if first_time(self.marks, f"kill-{number}"))
            self.kill = self.kills[number]
            (self.marks / trial).write_text(str(number))
        with open(self.marks / trial, "a") as file:
            file.write(" life")
        self.calls = Calls()
        self._arm("leader")
        return super().launcher(size)

    def around(self, rank: int, function: Any) -> Any:
        self._arm(rank)
        return super().around(rank, function)

    def _arm(self, who: int | str) -> None:
        victim, call = self.kill
        self.calls.kill_before(call if who == victim else 0)


class KilledTrainer(TorchTrainer):
    """Its kills are part of `train_loop_config`."""

    def backend_of(self, scaling: ScalingConfig) -> Any:
        config: Any = self.train_loop_config
        return KilledBackend(self.backend_config, Path(config["marks"]), config["kills"])


def count_up(config: dict[str, Any]) -> None:
    rank, step = train.world_rank(), 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            steps = [torch.load(Path(directory, f"rank_{each}.pt"))["step"] for each in range(FOUR)]
        assert len(set(steps)) == 1, f"torn: {steps}"
        step = steps[rank]
    while step < SAVES:
        step += 1
        total = torch.tensor(step)
        torch.distributed.all_reduce(total)
        with tempfile.TemporaryDirectory() as own:
            torch.save({"step": step}, Path(own, f"rank_{rank}.pt"))
            train.report({"step": step, "total": int(total)}, checkpoint=Checkpoint.from_directory(own))


def check_four(kills: list[tuple[int | str, int]], place: Path) -> None:
    marks = place / "marks"
    marks.mkdir()
    trainer = KilledTrainer(
        count_up,
        train_loop_config={"marks": str(marks), "kills": kills},
        torch_config=TorchConfig(timeout_s=100),
        scaling_config=ScalingConfig(num_workers=FOUR, resources_per_worker={"CPU": 1 / FOUR}),
        run_config=RunConfig(
            name="run",
            storage_path=str(place),
            verbose=0,
            checkpoint_config=CheckpointConfig(num_to_keep=1),
            failure_config=FailureConfig(max_failures=1),
        ),
    )
    space = {"train_loop_config": {"trial": tune.grid_search(list(range(len(kills))))}}

    grid = tune.Tuner(trainer, param_space=space).fit()

    for result in grid:
        number, *lives = (marks / Path(result.path).name).read_text().split()
        told = kills[int(number)]
        assert len(lives) == 2, f"{told}: nobody was killed"
        assert result.metrics_dataframe["step"].tolist() == list(range(1, SAVES + 1)), told
        assert result.metrics["total"] == FOUR * SAVES
        with result.checkpoint.as_directory() as directory:  # type: ignore[union-attr]
            found = [torch.load(Path(directory, f"rank_{rank}.pt"))["step"] for rank in range(FOUR)]
        assert found == [SAVES] * FOUR, told
        left = sorted(path.name for path in Path(result.path).iterdir() if "checkpoint" in path.name or path.is_dir())
        assert left == [Path(result.checkpoint.path).name], told  # type: ignore[union-attr]
    assert list((place / ".tmp").glob("*")) == []


@pytest.mark.timeout(400)
def test_r10_four_ranks_of_which_one_or_the_leader_is_killed_in_a_save_lose_nothing(tmp_path: Path) -> None:
    drawn = random.Random(3)
    kills: list[tuple[int | str, int]] = [("leader", drawn.randint(1, CALLS_OF_LEADER)) for _ in range(2)]
    kills += [(drawn.randrange(FOUR), drawn.randint(1, CALLS_OF_RANK))]
    check_four(kills, tmp_path)


@pytest.mark.soak
def test_r10_four_ranks_killed_before_every_call_of_a_save_lose_nothing(tmp_path: Path) -> None:
    kills: list[tuple[int | str, int]] = [("leader", call) for call in range(1, CALLS_OF_LEADER + 1)]
    kills += [(call % FOUR, call) for call in range(1, CALLS_OF_RANK + 1)]
    check_four(kills, tmp_path)
