"""Two trials that a tracker is told of. Usage: tracked.py TRACKER DIRECTORY SETTINGS [ITERATION]

With an iteration the driver kills itself there, when the tracker has been given what checkpoints cover.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import trainables as train
import tuner as tune

TRACKER, DIRECTORY, SETTINGS = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
KILLED_AT = int(sys.argv[4]) if len(sys.argv) > 4 else 0
LAST = 7


def train_function(config):
    checkpoint, done = train.get_checkpoint(), 0
    if checkpoint:
        with checkpoint.as_directory() as directory:
            done = int(Path(directory, "done").read_text())
    for number in range(done + 1, LAST + 1):
        saved = None
        if number % 2 == 0:
            directory = tempfile.mkdtemp()
            Path(directory, "done").write_text(str(number))
            saved = train.Checkpoint.from_directory(directory, move=True)
        train.report({"loss": config["lr"] * number, "life": os.environ["LIFE"]}, checkpoint=saved)
        if number == KILLED_AT:
            signal.pause()  # until the driver is killed


class Killer(tune.Callback):
    def on_step_end(self, iteration, trials, **info):
        if KILLED_AT and len(trials) == 2 and all(there(trial) for trial in trials):
            os.kill(os.getpid(), signal.SIGKILL)

    def next_refresh(self):
        return 0.02


def there(trial):
    covered, newest = KILLED_AT // 2 * 2, trial.latest_checkpoint
    saved = newest is not None and newest.iteration >= covered  # a result may come before the save of the one before
    return saved and trial.iteration >= KILLED_AT and given(trial) >= SETTINGS.get("given", covered)


def given(trial):
    marks = [json.loads(file.read_text()) for file in trial.directory.glob("tracked.*.json")]
    return marks[0]["sent"] if marks else 0


def callback():
    how = SETTINGS["callback"]
    if TRACKER == "wandb":
        from tuner.tracking.wandb import WandbLoggerCallback as kind
    elif TRACKER == "comet":
        from tuner.tracking.comet import CometLoggerCallback as kind
    elif TRACKER == "mlflow":
        from tuner.tracking.mlflow import MLflowLoggerCallback as kind
    elif TRACKER == "aim":
        from tuner.tracking.aim import AimLoggerCallback as kind
    else:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from tests.tuner.tracking.recording import RecordingCallback as kind
    return kind(**how)


if __name__ == "__main__":
    analysis = tune.run(
        train_function,
        config={"lr": tune.grid_search([1, 10])},
        name="tracked",
        storage_path=str(DIRECTORY),
        resume="AUTO",
        max_concurrent_trials=2,
        resources_per_trial={"cpu": 0.5},
        callbacks=[callback(), Killer()],
        verbose=0,
    )
    print([trial.trial_id for trial in analysis.trials])
