"""A checkpoint that a trial reads is not deleted under it, whatever it publishes meanwhile (R3)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import directories, facts, run, save

import tuner as tune
from trainables.store import verify
from trainables.wire import Closed, Opened


def reads_on(config):
    """Its first attempt saves once; the second keeps that open over three saves of its own, then lets go and saves."""
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        save(1)
        tune.report(count=1)
        tune.get_checkpoint()
        raise RuntimeError("the first attempt")
    with checkpoint.as_directory() as directory:
        for count in (2, 3, 4):
            save(count)
            tune.report(count=count)
            tune.get_checkpoint()  # waits until it is published
        tune.report(count=5)  # answered after all of that was heard
        verify.check(Path(directory))
        there = sorted(name for name in os.listdir(Path(directory).parent) if name.startswith("checkpoint"))
    tune.report(count=6, there=there)
    save(7)
    tune.report(count=7, there=there)


def test_d06_what_a_trial_keeps_open_stays_over_its_own_saves_and_goes_afterwards(tmp_path):
    (trial,) = run(reads_on, tmp_path, max_failures=1, keep_checkpoints_num=1).trials
    assert trial.status == "TERMINATED"
    assert "checkpoint_000001" in trial.last_result["there"]
    assert len(directories(trial)) == 1, directories(trial)
    forgotten = [fact["ref"]["name"] for fact in facts(tmp_path / "e", "forgotten")]
    assert forgotten.index("checkpoint_000001") == 2  # after the second and the third


def test_d06_what_is_open_when_the_trial_dies_goes_with_it(tmp_path):
    def dies(config):
        checkpoint = tune.get_checkpoint()
        if checkpoint is None:
            save(1)
            tune.report(count=1)
            tune.get_checkpoint()
            raise RuntimeError("the first attempt")
        if checkpoint.iteration == 1:
            with checkpoint.as_directory():
                for count in (2, 3):
                    save(count)
                    tune.report(count=count)
                    tune.get_checkpoint()
                os._exit(3)
        tune.report(count=4)

    (trial,) = run(dies, tmp_path, max_failures=2, keep_checkpoints_num=1).trials
    assert trial.status == "TERMINATED"
    assert len(directories(trial)) == 1, directories(trial)


def test_a_trial_that_reads_its_checkpoint_and_goes_on_says_nothing_of_it(tmp_path, monkeypatch):
    heard = []
    from tuner.loop import TrialLoop

    real = TrialLoop._on_message

    def listening(self, run, event):
        heard.append(event.body)
        real(self, run, event)

    monkeypatch.setattr(TrialLoop, "_on_message", listening)

    def usual(config):
        checkpoint = tune.get_checkpoint()
        start = 0
        if checkpoint is not None:
            with checkpoint.as_directory() as directory:
                start = int(Path(directory, "count").read_text())
        for count in range(start + 1, 4):
            save(count)
            tune.report(count=count)
            tune.get_checkpoint()
            if start == 0 and count == 2:
                raise RuntimeError("the first attempt")

    run(usual, tmp_path, max_failures=1, keep_checkpoints_num=1)
    assert heard and not [body for body in heard if isinstance(body, (Opened, Closed))]
