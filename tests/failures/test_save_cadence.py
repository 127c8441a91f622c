"""`checkpoint_freq="auto"` and `should_save()` in runs whose trials and drivers are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tuner as tune
from tuner.error import SettingError

SCRIPT = """
import json, os, signal, sys, time
import tuner as tune

class Trains(tune.Trainable):
    def setup(self, config):
        self.count = 0

    def step(self):
        self.count += 1
        time.sleep(0.01)
        with open(sys.argv[1] + "/told", "a") as file:
            file.write(json.dumps([self.count, PACE.interruptions, PACE.wanted, PACE.save_s]) + chr(10))
        if (str(self.count), KILLS.get(str(self.count))) not in DONE and str(self.count) in KILLS:
            with open(sys.argv[1] + "/killed", "a") as file:
                file.write(str(self.count) + chr(10))
            os.kill(os.getpid() if KILLS[str(self.count)] == "trial" else DRIVER, signal.SIGKILL)
            time.sleep(5)
        return {"count": self.count, "done": self.count == 40}

    def save_checkpoint(self, directory):
        with open(directory + "/count", "w") as file:
            file.write(str(self.count))

    def load_checkpoint(self, checkpoint):
        with open(checkpoint + "/count") as file:
            self.count = int(file.read())

from trainables import session

class Told(Trains):
    def setup(self, config):
        global PACE, KILLS, DONE, DRIVER
        super().setup(config)
        PACE, KILLS, DRIVER = session.current().job.save_pace, config["kills"], config["driver"]
        done = open(sys.argv[1] + "/killed").read().split() if os.path.exists(sys.argv[1] + "/killed") else []
        DONE = [(count, KILLS[count]) for count in done]

tune.run(
    Told, config={"kills": json.loads(sys.argv[2]), "driver": os.getpid()}, storage_path=sys.argv[1], name="e",
    checkpoint_freq="auto", max_failures=-1, resume="AUTO", verbose=0,
)
"""


def test_interruptions_are_counted_over_kills_of_trials_and_drivers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    kills = {"10": "trial", "20": "driver", "30": "trial"}
    for status in (-signal.SIGKILL, 0):
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path), json.dumps(kills)], timeout=100, capture_output=True, text=True
        )
        assert done.returncode == status, done.stderr
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    lives = [told[0]]
    for before, line in zip(told, told[1:], strict=False):
        if line[0] <= before[0]:
            lives.append(line)
    assert [interruptions for _, interruptions, _, _ in lives] == [0, 1, 2, 3]
    assert all(wanted for _, _, wanted, _ in lives)
    assert all(count > 1 for count, *_ in lives[1:]), "each went on from a checkpoint"
    assert lives[0][3] is None and lives[1][3] > 0, "the next attempt knows what a save takes"
    (trial,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert trial.last_result["count"] == 40
    assert len(told) < 120, "what it lost is less than what it did"


def test_a_function_that_was_to_save_and_never_asks_is_told_so(tmp_path: Path) -> None:
    def deaf(config: dict[str, float]) -> None:
        for count in range(5):
            tune.report(count=count)

    (trial,) = tune.run(deaf, storage_path=tmp_path, checkpoint_freq="auto", verbose=0).trials
    assert Path(trial.path, "stderr").read_text().count("save when tune.should_save() is true") == 1


def test_the_end_of_a_slurm_job_is_known_to_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(config: dict[str, float]) -> None:
        from trainables import session

        pace = session.current().job.save_pace  # type: ignore[union-attr]
        tune.report(deadline=pace.deadline, wanted=pace.wanted, pid=os.getpid())

    for given, known in (("1900000000", 1.9e9), ("soon", None), (None, None)):
        monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
        if given is not None:
            monkeypatch.setenv("SLURM_JOB_END_TIME", given)
        (trial,) = tune.run(looks, storage_path=tmp_path, verbose=0).trials
        assert (trial.last_result["deadline"], trial.last_result["wanted"]) == (known, False)


@pytest.mark.parametrize("given", ["always", -1, 1.5, True])
def test_other_frequencies_are_refused_by_name(given: object, tmp_path: Path) -> None:
    with pytest.raises((SettingError, ValueError), match=r'checkpoint_frequency.*"auto"'):
        tune.run(lambda config: None, storage_path=tmp_path, checkpoint_freq=given, verbose=0)  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())
