"""Words for continuing an experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.experiment.continuing import how_to_choose, how_to_continue, resume_words, starter_of
from tuner.experiment.paths import ExperimentPaths


@pytest.mark.parametrize(
    ("starter", "words", "errored", "whole"),
    [
        (
            "tune.run",
            'resume="AUTO"',
            'resume="AUTO+ERRORED"',
            "the same call with name='my run' and resume=\"AUTO\"",
        ),
        (
            "Tuner",
            "Tuner.restore('/r/my run', trainable)",
            "Tuner.restore('/r/my run', trainable, resume_errored=True)",
            "Tuner.restore('/r/my run', trainable)",
        ),
        (
            "TorchTrainer",
            "TorchTrainer.restore('/r/my run', ...)",
            "TorchTrainer.restore('/r/my run', ...)",
            "TorchTrainer.restore('/r/my run', ...)",
        ),
        (
            "tuner run",
            "`tuner resume '/r/my run'`",
            "`tuner resume '/r/my run' --errored`",
            "`tuner resume '/r/my run'`",
        ),
    ],
)
def test_words_have_the_form_of_what_started_the_run(starter: str, words: str, errored: str, whole: str) -> None:
    root = Path("/r/my run")
    assert resume_words(root, starter) == words
    assert resume_words(root, starter, errored=True) == errored
    assert how_to_continue(root, starter) == whole


def test_a_uri_is_named_as_it_is() -> None:
    assert how_to_continue("s3://b/runs/e", "Tuner") == "Tuner.restore('s3://b/runs/e', trainable)"
    assert how_to_continue("s3://b/runs/e", "tuner run") == "the same call with name='e' and resume=\"AUTO\""


@pytest.mark.parametrize(
    ("starter", "said"),
    [
        ("tune.run", 'resume="LOCAL" or resume="REMOTE" chooses one'),
        ("Tuner", "Tuner.restore('/r/e', trainable) or Tuner.restore('s3://b/e', trainable) chooses one"),
    ],
)
def test_of_two_histories_one_is_chosen(starter: str, said: str) -> None:
    assert how_to_choose(Path("/r/e"), "s3://b/e", starter) == said


def test_an_experiment_says_what_started_it(tmp_path: Path) -> None:
    paths = ExperimentPaths(tmp_path)
    assert starter_of(paths, {"started_by": "Tuner"}) == "Tuner"
    assert starter_of(paths, {}) == "tune.run", "older experiments do not have the field"
    paths.config_yaml.touch()
    assert starter_of(paths, {"started_by": "tune.run"}) == "tuner run"
