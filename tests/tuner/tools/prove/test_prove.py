"""`tuner prove` and `tuner.testing.prove`: trainings that continue, and trainings that do not, with the right words."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tuner as tune
from tuner.cli import main
from tuner.testing import prove

SCRIPT = """
import random, os, sys
import tuner as tune

def train(config):
    rng, start, total = random.Random(7), 0, 0.0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        state = checkpoint.to_dict()
        start, total = state["step"], state["total"]
        LOADED
    for step in range(start + 1, 9):
        total += config["lr"] * rng.random()
        saved = {"step": step, "total": total, "rng": rng.getstate(), "weights": [total, 2 * total]}
        SAVING
        tune.report({"total": total}, checkpoint=kept)

if __name__ == "__main__":
    MAIN
"""
RUN = 'tune.run(train, config={"lr": tune.grid_search([0.5, 2.0])}, storage_path="mine", verbose=0)'
ONE = 'tune.run(train, config={"lr": 1.0}, storage_path="mine", verbose=0, raise_on_failed_trial=False)'
SAVING = "kept = tune.Checkpoint.from_dict(saved) if step % 2 == 0 else None"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def write(loaded: str = 'rng.setstate(state["rng"])', saving: str = SAVING, run: str = RUN) -> str:
        text = SCRIPT.replace("LOADED", loaded).replace("SAVING", saving).replace("MAIN", run)
        Path("train.py").write_text(text)
        return "train.py"

    return write


def test_a_script_whose_training_continues_is_proven_and_its_results_are_not_touched(
    script: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", script(), "--kills", "1", "--keep", "both"]) == 0
    said = capsys.readouterr().out
    assert "proven: killed once (trial " in said and "all 16 results and the last checkpoints of 2 trials" in said
    assert "began anew" not in said and said.count("killed, and started again") == 1
    assert not (tmp_path / "mine").exists()
    assert {path.name for path in (tmp_path / "both").iterdir()} == {"whole", "killed"}


def test_a_generator_that_is_not_saved_is_found_and_named(
    script: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", script(loaded="pass", run=ONE), "--kills", "1", "--seed", "3"]) == 1
    said = capsys.readouterr().out
    assert "not proven: trial 0" in said
    assert "first metric that differs: total at iteration " in said
    assert "differs in the last checkpoint: dict_checkpoint.pkl: total " in said
    assert "Two runs without a kill are the same" in said and "random states" in said


UNSAVED = "kept = None"


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"saving": UNSAVED}, 1, ["nothing was saved", "tune.report(metrics, checkpoint=...)"]),
        ({"run": "pass"}, 1, ["ran no experiment"]),
        ({"run": "sys.exit('no data')"}, 1, ["ended with status 1 without any kill", "no data"]),
        ({"run": "tune.Tuner.restore('mine/e', train).fit()"}, 1, ["Tuner.can_restore(path) is False"]),
    ],
)
def test_what_hinders_a_proof_is_said(
    script: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    status: int,
    words: list[str],
) -> None:
    assert main(["prove", script(**{"run": ONE, **changes}), "--kills", "1"]) == status
    said = capsys.readouterr().out
    assert all(word in said for word in words), said


TUNER = """
    path = "mine/named"
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, train)
    else:
        space = {"lr": float(sys.argv[sys.argv.index("--lr") + 1])}
        tuner = tune.Tuner(train, param_space=space, run_config=tune.RunConfig(name="named", storage_path="mine"))
    tune.run(train, config={"lr": 1.0}, storage_path="mine", verbose=0)
    tuner.fit()
"""


def test_scripts_with_arguments_several_experiments_and_a_restore_of_their_own(
    script: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a script of that name had left is not continued."""
    tune.run(lambda config: tune.report({"total": 1.0}), name="named", storage_path=tmp_path / "mine", verbose=0)
    assert main(["prove", script(run=TUNER), "--kills", "1", "--", "--lr", "0.25"]) == 0, capsys.readouterr().out
    assert "all 16 results" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "mine").iterdir() if path.name[0] != ".") == ["named"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.py"], "none.py is not there"),
        (["train.py", "--kills", "0"], "--kills 0 is not accepted"),
        (["train.py", "--keep", "."], "is there already"),
    ],
)
def test_commands_that_are_not_accepted(
    script: Callable[..., str], capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    script()
    assert main(["prove", *arguments]) == 2
    assert words in capsys.readouterr().err


# --- the helper for tests ---------------------------------------------------------------------------------------


class Walk(tune.Trainable):
    """A class whose state is complete."""

    def setup(self, config):
        self.x = np.full(3, 10.0)

    def step(self):
        self.x = self.x - random.random()
        return {"x": float(self.x[0])}

    def save_checkpoint(self, directory):
        return {"x": self.x, "random": random.getstate()}

    def load_checkpoint(self, state):
        self.x = state["x"]
        random.setstate(state["random"])


class Forgetful(Walk):
    def load_checkpoint(self, state):
        self.x = state["x"]


STEPS = {"checkpoint_freq": 2, "stop": {"training_iteration": 8}}


def test_a_class_that_saves_all_its_state_is_proven() -> None:
    prove(Walk, kills=2, **STEPS)


def test_a_class_that_forgets_some_of_its_state_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="first metric that differs: x at iteration") as caught:
        prove(Forgetful, kills=1, **STEPS)
    tensor = (
        "first tensor that differs in the last checkpoint: dict_checkpoint.pkl: x (3,) float64: 3 of 3 values differ"
    )
    assert tensor in str(caught.value)


def test_a_trial_in_this_process_cannot_be_killed() -> None:
    with pytest.raises(tune.TuneError, match="leave executor= away"):
        prove(Walk, kills=1, executor="inline", **STEPS)


@pytest.mark.soak
@pytest.mark.torch
@pytest.mark.parametrize("all_of_it", [True, False])
def test_a_training_with_torch_is_proven_with_its_optimizer_and_differs_without(all_of_it: bool) -> None:
    def train(config):
        import torch

        from trainables.torch import TrainState

        model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        state = TrainState(model=model, **({"optimizer": optimizer} if all_of_it else {}))
        start, checkpoint = 0, tune.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as directory:
                saved = torch.load(Path(directory, "state.pt"))
            state.load_state_dict(saved["state"])
            start = saved["step"]
        for step in range(start + 1, 6):
            loss = model(torch.rand(8, 2)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with tune.checkpoint_dir(step) as directory:
                torch.save({"state": state.state_dict(), "step": step}, Path(directory, "state.pt"))
            tune.report({"loss": loss.item()})

    if all_of_it:
        prove(train, kills=2)
        return
    with pytest.raises(AssertionError) as caught:
        prove(train, kills=1, ignore=["loss"])
    assert "first tensor that differs in the last checkpoint: state.pt: state.model.0.weight (4, 2) float32" in str(
        caught.value
    )
