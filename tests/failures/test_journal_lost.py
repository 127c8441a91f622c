"""A journal of which a part is lost: said with the file and the number of facts, or refused (R4, R5)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import tuner as tune
from tuner.analysis import scopes
from tuner.error import ExperimentDamagedError
from tuner.experiment import journal_segment

STEPS = 6


class Flaky(tune.Trainable):
    """Fails once in the middle, so that it has a second attempt; then it is interrupted with the driver."""

    def setup(self, config):
        self.n = 0
        self.flag = Path(config["flag"])

    def step(self):
        self.n += 1
        if self.n == 3 and not self.flag.exists():
            self.flag.touch()
            raise ValueError("once")
        return {"n": self.n}

    def save_checkpoint(self, directory):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


class Ends(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        if result["n"] == 5:
            raise InterruptedError


def run(path, **settings):
    return tune.run(
        Flaky,
        storage_path=path,
        config={"flag": str(path / "flag")},
        **{
            "name": "e",
            "executor": "inline",
            "verbose": 1,
            "checkpoint_freq": 1,
            "max_failures": 1,
            "stop": {"n": STEPS},
            **settings,
        },
    )


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """The directory of an experiment with many small segments, and a trial in its second attempt."""
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(journal_segment, "SEGMENT_BYTES", 400)
        run(tmp_path, callbacks=[Ends()])
    return tmp_path / "e"


def segments(experiment):
    return sorted((experiment / "journal").glob("*.jsonl"))


def holds(experiment, text):
    """The segments from the first on that holds it."""
    found = segments(experiment)
    return found[next(number for number, segment in enumerate(found) if text in segment.read_bytes()) :]


def contents(experiment):
    """All but the record of who looked."""
    files = [path for path in experiment.rglob("*") if path.parent.name != "generations"]
    return {path.relative_to(experiment): path.read_bytes() for path in files if path.is_file()}


def test_f01_facts_that_are_damaged_at_the_end_are_one_line_with_file_and_number(interrupted, capsys):
    last = segments(interrupted)[-1]
    whole = b"".join(segment.read_bytes() for segment in segments(interrupted))
    for segment in segments(interrupted)[1:]:
        segment.unlink()
    first = segments(interrupted)[0]
    lines = whole.splitlines(keepends=True)
    lines[-4] = lines[-4].replace(b'"c":"', b'"c":"0', 1)
    first.write_bytes(b"".join(lines))
    capsys.readouterr()
    (trial,) = run(interrupted.parent, resume=True).trials
    said = capsys.readouterr().out
    line = (
        f"{first.name} is damaged before its end: facts {len(lines) - 3} to {len(lines)} are lost (4); the run goes on"
    )
    assert said.count(line) == 1 and last.name != first.name
    assert trial.status == "TERMINATED" and trial.last_result["n"] == STEPS
    capsys.readouterr()
    run(interrupted.parent, resume=True)
    assert "damaged" not in capsys.readouterr().out, "it is said once: the next generation names what it took over"


@pytest.mark.parametrize("how", ["missing", "flipped", "cut short"])
def test_f01_a_lost_middle_segment_is_refused_with_its_name_and_the_ways_out(interrupted, how):
    middle = holds(interrupted, b'"attempt":2')[0]
    assert middle not in (segments(interrupted)[0], segments(interrupted)[-1])
    data = middle.read_bytes()
    if how == "missing":
        middle.unlink()
    elif how == "flipped":
        middle.write_bytes(data.replace(b'"c":"', b'"c":"0', 1))
    else:
        middle.write_bytes(data[: len(data) // 2])
    before = contents(interrupted)
    with pytest.raises(ExperimentDamagedError) as caught:
        run(interrupted.parent, resume=True)
    said = str(caught.value)
    assert middle.name in said and "facts " in said and "are missing, and later ones build on them" in said
    assert "from a copy" in said and "overwrite=True" in said
    assert contents(interrupted) == before
    middle.write_bytes(data)
    assert run(interrupted.parent, resume=True).trials[0].status == "TERMINATED"


def test_f01_a_journal_whose_end_is_gone_with_a_whole_attempt_is_refused(interrupted, tmp_path):
    gone = {segment: segment.read_bytes() for segment in holds(interrupted, b'"kind":"attempt_ended"')}
    for segment in gone:
        segment.unlink()
    before = contents(interrupted)
    with pytest.raises(ExperimentDamagedError, match="saved by attempt 2 of generation 1, of which .* does not know"):
        run(interrupted.parent, resume=True, metric="n", mode="min", max_failures=7, log_to_file=True)
    assert contents(interrupted) == before
    for segment, data in gone.items():
        segment.write_bytes(data)
    (trial,) = run(interrupted.parent, resume=True).trials
    assert trial.last_result["n"] == STEPS and trial.checkpoints[-1].iteration == STEPS


def test_f01_without_those_checkpoints_the_run_goes_on_from_older_ones_as_it_is_told(interrupted, caplog):
    for segment in holds(interrupted, b'"kind":"attempt_ended"'):
        segment.unlink()
    (directory,) = (path for path in interrupted.iterdir() if path.name.startswith("Flaky"))
    for later in directory.glob("checkpoint_*-1.2"):
        later.rename(interrupted.parent / later.name)
    with caplog.at_level(logging.INFO):
        (trial,) = run(interrupted.parent, resume=True).trials
    assert trial.status == "TERMINATED" and [record.iteration for record in trial.checkpoints][:2] == [1, 2]


def test_f01_a_checkpoint_of_a_trial_that_the_journals_end_took_with_it_is_refused(tmp_path, monkeypatch):
    class Two(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if trial.index == 1 and result["n"] == 3:
                raise InterruptedError

    (tmp_path / "flag").touch()
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(journal_segment, "SEGMENT_BYTES", 400)
        run(tmp_path, callbacks=[Two()], num_samples=2, max_concurrent_trials=1)
    experiment = tmp_path / "e"
    for segment in holds(experiment, b'_00001","index":1,'):
        segment.unlink()
    with pytest.raises(ExperimentDamagedError, match="00001, which has results, is lost"):
        run(tmp_path, num_samples=2, resume=True)


def scores(config):
    """Saves at every report; its best score is in the middle."""
    start = tune.get_checkpoint()
    for n in range(1 if start is None else start.to_dict()["n"] + 1, 5):
        tune.report({"n": n, "s": [5, 9, 1, 4][n - 1]}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


class Saved(tune.Callback):
    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        if trial.iteration == 4:
            raise InterruptedError


@pytest.mark.parametrize("lost_from", [2, 3, 4])
def test_f01_a_checkpoint_ahead_of_a_damaged_journal_brings_the_state_up_to_it(tmp_path, lost_from):
    settings = {"name": "e", "storage_path": tmp_path, "executor": "inline", "verbose": 0, "metric": "s"}
    with pytest.raises(InterruptedError):
        tune.run(scores, callbacks=[Saved()], **settings)
    (segment,) = segments(tmp_path / "e")
    lines = segment.read_bytes().splitlines(keepends=True)
    results = [number for number, line in enumerate(lines) if b'"kind":"result"' in line]
    damaged = bytearray(lines[results[lost_from - 1]])
    damaged[len(damaged) // 2] ^= 1
    lines[results[lost_from - 1]] = bytes(damaged)
    segment.write_bytes(b"".join(lines))

    (resumed,) = tune.run(scores, resume="AUTO", **settings).trials
    read = tune.ExperimentAnalysis(tmp_path / "e")
    for trial in (resumed, read.trials[0]):
        assert (trial.status, trial.iteration) == ("TERMINATED", 4)
        assert (trial.last_result["n"], trial.last_result["s"]) == (4, 4)
        assert trial.latest_checkpoint.iteration == 4 and trial.latest_checkpoint.metrics["s"] == 4
    history = read.trial_dataframes[resumed.path]
    assert [*history["training_iteration"]] == [1, 2, 3, 4]
    assert read.get_best_trial("s", "max", scope="all") is not None
    assert read.dataframe("s", "max")["s"].tolist() == [9]
    assert scopes.score(read.trials[0], "s", "max", "all") == 9
