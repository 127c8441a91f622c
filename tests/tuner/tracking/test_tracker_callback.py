"""A tracker through real runs: kills, pauses, clones, failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.tracking.recording import RecordingCallback, RecordingTracker, lines, steps
from tests.tuner.tracking.running import killed_and_resumed, tracked
from tuner.error import SettingError
from tuner.tracking.tracker import Tracker


def runs(place: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.stem: lines(path) for path in sorted(place.glob("*.jsonl"))}


@pytest.mark.parametrize("at_once", [True, False], ids=["writes-at-once", "writes-at-the-end"])
def test_the_same_run_goes_on_after_a_kill(tmp_path: Path, at_once: bool) -> None:
    place = tmp_path / "tracker"
    ids = killed_and_resumed("recording", tmp_path, callback={"place": str(place), "at_once": at_once})
    found = runs(place)
    assert sorted(found) == ids
    for told in found.values():
        rows = [line for line in told if "step" in line]
        assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
        assert {row["step"]: row["life"] for row in rows} == dict.fromkeys((1, 2, 3, 4), "1") | dict.fromkeys(
            (5, 6, 7), "2"
        )
        assert told[0]["experiment"] == "tracked"
        assert told[-1] == {"ended": "finished"}


def test_at_once_says_what_the_rollback_made_void_again(tmp_path: Path) -> None:
    place = tmp_path / "tracker"
    settings = {"callback": {"place": str(place), "hold_back": False}, "given": 5}
    killed_and_resumed("recording", tmp_path, **settings)
    for path in place.glob("*.jsonl"):
        assert steps(path) == [1, 2, 3, 4, 5, 5, 6, 7]


def test_a_tracker_that_is_added_at_a_resume_gets_what_was_before(tmp_path: Path) -> None:
    tracked("recording", tmp_path, killed_at=5, life="1", callback={"place": str(tmp_path / "first")})
    tracked("recording", tmp_path, life="2", callback={"place": str(tmp_path / "second")})
    assert [steps(path) for path in (tmp_path / "second").glob("*.jsonl")] == [[1, 2, 3, 4, 5, 6, 7]] * 2


class _Down(RecordingCallback):
    def make_tracker(self) -> Tracker:
        tracker = RecordingTracker(Path(self.place))
        tracker.down = True
        return tracker


class _Failing(tune.Trainable):
    def step(self) -> dict[str, Any]:
        if self.iteration == 3:
            raise RuntimeError("as configured")
        return {"loss": 1.0}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "state").write_text("")

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


def _run(tmp_path: Path, trainable: Any, callback: RecordingCallback, **how: Any) -> Any:
    return tune.run(
        trainable,
        name="tracked",
        storage_path=str(tmp_path),
        callbacks=[callback],
        verbose=0,
        raise_on_failed_trial=False,
        **{"executor": "inline", **how},
    )


def test_a_run_goes_on_without_its_tracker_and_a_resume_sends_what_it_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def trainable(config: dict[str, Any]) -> None:
        for _ in range(3):
            tune.report(loss=1.0)

    place = tmp_path / "tracker"
    analysis = _run(tmp_path, trainable, _Down(str(place), upload_timeout=0.1))
    assert analysis.trials[0].status == "TERMINATED"
    assert any("did not get everything" in message for message in caplog.messages)
    _run(tmp_path, trainable, RecordingCallback(str(place)), resume="AUTO")
    (told,) = runs(place).values()
    assert [line.get("step") for line in told] == [None, 1, 2, 3, None]


def test_a_failed_trial_is_told_with_what_it_had_reported(tmp_path: Path) -> None:
    place = tmp_path / "tracker"
    _run(tmp_path, _Failing, RecordingCallback(str(place)))
    (told,) = runs(place).values()
    assert [line.get("step") for line in told] == [None, 1, 2, 3, None]
    assert told[-1] == {"ended": "failed"}


def test_a_retry_sends_no_result_twice(tmp_path: Path) -> None:
    place = tmp_path / "tracker"
    config = tune.CheckpointConfig(checkpoint_frequency=2)
    _run(tmp_path, _Failing, RecordingCallback(str(place)), max_failures=1, checkpoint_config=config)
    (told,) = runs(place).values()
    assert [line["step"] for line in told if "step" in line] == [1, 2, 3]


def test_clones_of_population_based_training_change_their_config(tmp_path: Path) -> None:
    class Grows(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.value = 0.0

        def step(self) -> dict[str, Any]:
            self.value += self.config["rate"]
            return {"value": self.value, "done": self.iteration == 7}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "value").write_text(str(self.value))

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.value = float(Path(checkpoint, "value").read_text())

    scheduler = tune.schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        metric="value",
        mode="max",
        perturbation_interval=2,
        hyperparam_mutations={"rate": [1.0, 2.0, 3.0, 4.0]},
        synch=True,
        seed=1,
    )
    place = tmp_path / "tracker"
    space = {"rate": tune.grid_search([1.0, 2.0, 3.0, 4.0])}
    how = {"scheduler": scheduler, "checkpoint_config": tune.CheckpointConfig(num_to_keep=2, checkpoint_frequency=2)}
    analysis = _run(tmp_path, Grows, RecordingCallback(str(place), saves=True), config=space, **how)
    found = runs(place)
    for trial in analysis.trials:
        told = found[trial.trial_id]
        assert [line["step"] for line in told if "step" in line] == [*range(1, 9)]
        assert [line["at"] for line in told if "at" in line] == [clone.iteration for clone in trial.clones]
        saved = [line for line in told if "saved" in line]
        assert len(saved) <= trial.saves
        assert [line["files"] for line in saved] == [["value"]] * len(saved)
    assert any("saved" in line for told in found.values() for line in told)
    assert any(trial.clones for trial in analysis.trials)


@pytest.mark.parametrize("how", [{"hold_back": "no"}, {"upload_timeout": -1}], ids=lambda how: next(iter(how)))
def test_a_setting_that_is_none_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(how))):
        RecordingCallback("x", **how)
