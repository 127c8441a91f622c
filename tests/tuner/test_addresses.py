"""EXPERIMENT@TAG and EXPERIMENT@TRIAL@ITERATION, wherever a checkpoint is taken: here, and of a replica."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tuner as tune
from tests.tuner.replicated import answer, bucket, cache, place, ran, refused, server
from trainables.errors import CheckpointNotFoundError
from tuner.addresses import checkpoint_at, ordered
from tuner.clock import SystemClock
from tuner.error import OrderError
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.orders.giving import give

__all__ = ["bucket", "cache", "place", "server"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials of three checkpoints, of which two have tags."""
    root = ran(None, tmp_path_factory.mktemp("storage"))
    tag(root, {"best": (0, 1), "v1.0": (1, 2), "7": (1, 0)})
    return root


def tag(root: Path, tags: dict[str, tuple[int, int]]) -> None:
    """Facts as a driver writes them that was told to tag (number of the trial, of its checkpoint)."""
    paths = ExperimentPaths(root)
    contents = read_journal(paths)
    after: dict[str, Any] = {"next_seq": contents.last_seq + 1, "parents": contents.chain, "clock": SystemClock()}
    writer = JournalWriter(paths, contents.generation, sync="inline", **after)
    trials = tune.ExperimentAnalysis(root).trials
    for name, (trial, number) in tags.items():
        writer.append(ev.encode(ev.CheckpointPinned(trials[trial].checkpoints[number].ref, tag=name)))
    writer.close()


@pytest.fixture
def default(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("TUNE_RESULT_DIR", str(made.parent))
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def paths_of(trials: Sequence[Any]) -> list[list[str]]:
    return [[str(trial.directory / record.ref.name) for record in trial.checkpoints] for trial in trials]


@pytest.mark.parametrize("form", ["mine", "{root}", "{root}/../mine", "{uri}"])
def test_by_a_name_or_a_path(made: Path, default: Path, form: str) -> None:
    form = form.format(root=made, uri=made.as_uri())
    saved = paths_of(tune.ExperimentAnalysis(made).trials)
    for selector, wanted in {"best": saved[0][1], "7": saved[1][0], "0@2": saved[0][1], "1@3": saved[1][2]}.items():
        checkpoint = tune.Checkpoint(f"{form}@{selector}")
        assert repr(checkpoint) == f"Checkpoint(path={f'{form}@{selector}'!r})"  # nothing has been looked for
        assert os.path.realpath(checkpoint.path) == wanted and checkpoint.local_path == checkpoint.path
        assert checkpoint == tune.Checkpoint.from_directory(f"{form}@{selector}")
        assert checkpoint.to_dict() == {"n": int(wanted[-1])} and f"path={checkpoint.path!r}" in repr(checkpoint)


def test_it_means_the_same_after_the_process_went_elsewhere(
    made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(made.parent)
    checkpoint = tune.Checkpoint("mine@best")
    monkeypatch.chdir(tmp_path)
    assert checkpoint.to_dict() == {"n": 2}
    with pytest.raises(CheckpointNotFoundError, match=f"no checkpoint at {re.escape(str(tmp_path))}/mine@best"):
        tune.Checkpoint("mine@best").to_dict()


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("bets", "its tags are best, 7, v1.0; did you mean 'best'"),
        ("1", "its tags are .*; one of trial 1 is 1@ITERATION"),
        ("0@9", "has those of iterations 1, 2, 3"),
        ("5@1", "there is no trial '5'; there are 2, numbered from 0"),
    ],
)
def test_what_there_is_not_is_said_with_what_there_is(made: Path, selector: str, said: str) -> None:
    with pytest.raises(CheckpointNotFoundError, match=said):
        tune.Checkpoint(f"{made}@{selector}").to_dict()
    with pytest.raises(CheckpointNotFoundError, match=said):
        tune.run(lambda config: None, restore=f"{made}@{selector}", storage_path=made.parent / "none", verbose=0)
    assert not (made.parent / "none").exists()


@settings(max_examples=25)
@given(
    st.text("ab@~ é.1-", min_size=1, max_size=10).filter(lambda name: name not in (".", "..", "mine")),
    st.text("aZ09._-", min_size=1, max_size=60),
)
def test_any_name_and_any_tag(made: Path, tmp_path_factory: pytest.TempPathFactory, name: str, given_tag: str) -> None:
    root = tmp_path_factory.mktemp("names")
    experiment = Path(shutil.copytree(made, root / name))
    tag(experiment, {given_tag: (1, 1)} if given_tag not in ("best", "v1.0", "7") else {})
    found = checkpoint_at(f"{experiment}@{given_tag}")
    assert found is not None and found.experiment == str(experiment) and given_tag in found.record.tags
    at = checkpoint_at(f"{experiment}@1@2")
    assert at is not None and (at.trial.index, at.record.iteration) == (1, 2)
    (root / f"{name}@{given_tag}").mkdir()  # a path that exists is that path
    assert checkpoint_at(f"{experiment}@{given_tag}") is None
    assert tune.Checkpoint(f"{experiment}@{given_tag}").path == f"{experiment}@{given_tag}"
    shutil.rmtree(root)


def test_the_longest_experiment_is_meant(made: Path, tmp_path: Path) -> None:
    for name in ("e", "e@1"):
        shutil.copytree(made, tmp_path / name)
    tag(tmp_path / "e@1", {"2": (0, 2)})
    found = checkpoint_at(tmp_path / "e@1@2")  # not: of e, trial 1, iteration 2
    assert found is not None and (found.experiment, found.record.iteration) == (str(tmp_path / "e@1"), 3)


def test_restore_starts_from_it(made: Path, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        assert checkpoint is not None
        tune.report(checkpoint.to_dict())

    for given_ in (f"{made}@best", tune.Checkpoint(f"{made}@best")):
        (trial,) = tune.run(train, restore=given_, storage_path=tmp_path, executor="inline", verbose=0).trials
        assert (trial.last_result["n"], trial.iteration) == (2, 3)


class Counts(tune.Trainable):
    def load_checkpoint(self, checkpoint: Any) -> None:
        self.found = checkpoint


def test_a_trainable_alone_restores_it(made: Path, default: Path) -> None:
    trainable = Counts({})
    trainable.restore("mine@best")
    assert trainable.found == {"n": 2}
    with pytest.raises(CheckpointNotFoundError, match="did you mean 'best'"):
        trainable.restore("mine@bets")


def test_on_the_command_line(made: Path, default: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = paths_of(tune.ExperimentAnalysis(made).trials)[0][1]
    assert f"{best}: a checkpoint" in answer(capsys, "verify", "mine@best")
    answer(capsys, "cp", "mine@v1.0", default / "copied")
    assert tune.Checkpoint(default / "copied").to_dict() == {"n": 3}
    assert "dict_checkpoint.pkl" in answer(capsys, "diff", "mine@best", "mine@v1.0", status=1)
    assert "the two checkpoints are the same" in answer(capsys, "diff", "mine@best", "mine@0@2")
    said = answer(capsys, "show", "mine@best")
    assert f"{best}\naddress: {made}@0@2\nkept: all, pinned, best\ntags: best\n" in said and "n = 2" in said
    told = json.loads(answer(capsys, "show", f"{made}@0@2", "--json"))
    assert (told["path"], told["tags"], told["result"]["n"]) == (best, ["best"], 2)
    assert "\ntags: best (0@2), 7 (1@1), v1.0 (1@3)\n" in answer(capsys, "show", "mine")
    for words in (
        ("verify", "mine@bets"),
        ("show", "mine@bets"),
        ("cp", "mine@bets", default / "x"),
        ("unpin", "mine", "bets"),
    ):
        assert "did you mean 'best'" in refused(capsys, *words)


def test_orders_name_a_checkpoint_by_its_trial_and_iteration_or_its_tag(made: Path, tmp_path: Path) -> None:
    root = shutil.copytree(made, tmp_path / "e")
    experiment = tune.open_experiment(root)
    trials = experiment.trials
    assert ordered("3@40", lambda: pytest.fail("nobody needs them")) == ("3", 40)
    assert ordered("v1.0", lambda: trials) == (trials[1].trial_id, 3)
    assert experiment.tag("v1.0", "newest").wait(60) == experiment.unpin("best").wait(60) == "done"
    assert tune.Checkpoint(f"{root}@newest") == tune.Checkpoint(f"{root}@v1.0")
    with pytest.raises(CheckpointNotFoundError, match="its tags are newest, 7, v1.0"):
        tune.Checkpoint(f"{root}@best").to_dict()
    with pytest.raises(CheckpointNotFoundError, match="did you mean 'newest'"):
        experiment.tag("newst", "other")
    for wrong in ("a/b", "", 3):
        with pytest.raises(OrderError, match="accepted are TRIAL@ITERATION"):
            experiment.pin(wrong)  # type: ignore[arg-type]


def test_tags_of_a_replica_are_found_and_what_is_only_there_is_fetched(place: str, tmp_path: Path) -> None:
    root = ran(place, tmp_path / "results")
    order = give(root, {"order": "tag", "trial": "1", "iteration": 2, "tag": "good"}, if_dead="wait")
    ran(place, tmp_path / "results", resume="AUTO")
    assert order.state == "done"
    uri = f"{place}/mine"
    good = checkpoint_at(f"{root}@good")
    assert good is not None and good.record.copies == [uri]
    shutil.rmtree(good.checkpoint.path)  # only the replica has it
    assert tune.Checkpoint(f"{root}@good").to_dict() == {"n": 2}
    shutil.rmtree(root)
    assert tune.Checkpoint(f"{uri}@good").to_dict() == {"n": 2}
    found = checkpoint_at(f"{uri}@1@3")
    assert found is not None and found.checkpoint.to_dict() == {"n": 3}
    with pytest.raises(CheckpointNotFoundError, match="its tags are good"):
        tune.Checkpoint(f"{uri}@goood").fetched()
    with pytest.raises(CheckpointNotFoundError):
        tune.Checkpoint(f"{place}/other@good").to_dict()
