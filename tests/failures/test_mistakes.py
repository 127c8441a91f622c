"""The table of mistakes that are refused before the first trial: each is said at once, and nothing is made (D20)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mistakes import BEGIN, Mistake, check
from mistakes import place as place

NOTHING_MADE = [
    Mistake("mode typo", 'tune.run(train, metric="loss", mode="mn")', "SettingError", ("mode='mn'", "'min' and 'max'")),
    Mistake("config is a list", "tune.run(train, config=[1, 2])", "SettingError", ("config=[1, 2]", "a dict")),
    Mistake(
        "a trainable without argument", "tune.run(lambda: 1)", "InvalidSettingError", ("takes no config", "f(config)")
    ),
    Mistake(
        "a trainable with a further argument",
        "def two(config, data): ...\ntune.run(two)",
        "InvalidSettingError",
        ("two(config, data)", "nobody gives it data", "tune.with_parameters"),
    ),
    Mistake(
        "a class that is no Trainable",
        "class Model: ...\ntune.run(Model)",
        "SettingError",
        ("Model is not a trainable", "subclass of tune.Trainable"),
    ),
    Mistake(
        "an objective of Optuna",
        'def objective(trial):\n    lr = trial.suggest_float("lr", 1e-4, 1e-1)\n    return lr\ntune.run(objective)',
        "InvalidSettingError",
        ("objective of Optuna", "def space(trial):", "def train(config):", 'config["lr"]', "OptunaSearch(space)"),
    ),
    Mistake("typo in resume", 'tune.run(train, resume="AUT0")', "SettingError", ("'AUT0'", "did you mean 'AUTO'?")),
    *(
        Mistake(
            f"keep_checkpoints_num={number}",
            f"tune.run(train, keep_checkpoints_num={number})",
            "InvalidSettingError",
            (f"={number} is not accepted", "a whole number >= 1"),
        )
        for number in (0, -1)
    ),
    Mistake(
        "num_samples=-5", "tune.run(train, num_samples=-5)", "SettingError", ("num_samples=-5", "1, 2, ... and -1")
    ),
    Mistake("num_samples=0", "tune.run(train, num_samples=0)", "SettingError", ("num_samples=0", "1, 2, ... and -1")),
    Mistake(
        "another metric in the scheduler",
        "from tuner.schedulers import ASHAScheduler\n"
        'tune.run(train, metric="loss", mode="min", scheduler=ASHAScheduler(metric="acc", mode="max"))',
        "SettingError",
        ("metric='loss'", "metric='acc'", "give them in one place"),
    ),
    Mistake(
        "overwrite with resume",
        'tune.run(train, name="e", overwrite=True, resume="AUTO")',
        "SettingError",
        ("overwrite=True", "resume='AUTO'", "give one of them"),
    ),
    Mistake(
        "upload_dir and storage_path",
        'tune.run(train, storage_path="s3://a/b", sync_config=tune.SyncConfig(upload_dir="s3://c/d"))',
        "SettingError",
        ("s3://a/b", "s3://c/d", "give one of them"),
    ),
    Mistake(
        "bounds swapped",
        'tune.run(train, config={"lr": tune.uniform(1, 0)})',
        "SettingError",
        ("uniform(1.0, 0.0)", "lower is not below upper"),
    ),
    Mistake(
        "log of 0",
        'tune.run(train, config={"lr": tune.loguniform(0, 1)})',
        "SettingError",
        ("loguniform(0.0, 1.0)", "lower must be above 0"),
    ),
    Mistake(
        "an empty choice",
        'tune.run(train, config={"a": tune.choice([])})',
        "SettingError",
        ("choice([])", "nothing to choose from"),
    ),
    Mistake("an empty grid", 'tune.run(train, config={"a": tune.grid_search([])})', "SettingError", ("grid_search",)),
    Mistake(
        "a grid in a choice",
        'tune.run(train, config={"a": tune.choice([tune.grid_search([1, 2])])})',
        "SettingError",
        ("a: a grid_search cannot be in a branch of a choice",),
    ),
    Mistake(
        "tune.uniform without parentheses",
        'tune.run(train, config={"lr": tune.uniform})',
        "SettingError",
        ("lr: tune.uniform makes a domain", "write tune.uniform(lower, upper)"),
    ),
    Mistake("a misspelt keyword", "tune.run(train, num_sample=3)", "SettingError", ("'num_sample'", "'num_samples'?")),
    Mistake("n_trials", "tune.run(train, n_trials=3)", "SettingError", ("'n_trials'", "did you mean 'num_samples'?")),
    Mistake(
        "n_trials of a Tuner", "tune.TuneConfig(n_trials=3)", "InvalidSettingError", ("did you mean 'num_samples'?",)
    ),
    Mistake(
        "checkpoint= that is none",
        'tune.run(train, restore={"a": 1})',
        "SettingError",
        ("restore={'a': 1}", "a checkpoint"),
    ),
    Mistake(
        "checkpoint= that is not there",
        'tune.run(train, restore="nowhere")',
        "SettingError",
        ("there is no", "nowhere"),
    ),
    Mistake("report outside of a trial", "train({})", "SessionError", ("outside a trial", "tune.run or Tuner")),
    Mistake(
        "searcher typo", 'tune.run(train, search_alg="optna")', "SettingError", ("'optna'", "did you mean 'optuna'?")
    ),
    Mistake("scheduler typo", 'tune.run(train, scheduler="ahsa")', "SettingError", ("'ahsa'", "did you mean 'asha'?")),
    Mistake(
        "storage that cannot be",
        'tune.run(train, storage_path="/proc/x")',
        "SettingError",
        ("storage_path='/proc/x'", "give a directory on a disk"),
    ),
    Mistake("a bad name", 'tune.run(train, name="a/b")', "SettingError", ("'a/b'",)),
    Mistake(
        "more CPUs than there are",
        'tune.run(train, resources_per_trial={"cpu": 6400})',
        "ResourceError",
        ("asks for 6400 cpu, available are",),
    ),
    Mistake(
        "cpus for cpu", 'tune.run(train, resources_per_trial={"cpus": 1})', "ResourceError", ("did you mean 'cpu'?",)
    ),
    Mistake(
        "a GPU that is not there",
        'tune.run(train, resources_per_trial={"gpu": 99})',
        "ResourceError",
        ("asks for 99 gpu, available are",),
    ),
    Mistake(
        "checkpoint_freq of a function",
        "tune.run(train, checkpoint_freq=1)",
        "SettingError",
        ("checkpoint_frequency=1 needs a class", "'train' is a function"),
    ),
    Mistake(
        "a metric is needed and none is named",
        'tune.run(train, scheduler="asha")',
        "SettingError",
        ("needs a metric", "give metric="),
    ),
]


@pytest.mark.parametrize("row", NOTHING_MADE, ids=str)
def test_a_mistake_in_the_call_is_said_at_once_and_nothing_is_made(row: Mistake, place: Path) -> None:
    told = check(row, place)
    assert told.printed == ""
    assert not (place / "results").exists() or not list((place / "results").iterdir())


HERE = Path(__file__).parents[1]
ELSEWHERE = {
    "PBT without checkpoints": "tuner/schedulers/test_schedulers_run.py: test_a_function_that_never_saves",
    "CUDA in a trial without a GPU": "trainables/runtime/test_hints.py: test_who_asked_for_no_gpu_and_uses_one",
    "a segfault, os._exit, SIGKILL": "tuner/driver/test_deaths.py: test_a_crash_has_the_stack",
    "a large closure": "failures/test_lifecycle_settings.py: test_f42_a_large_closure_is_named_stored_once",
    "the same name in two terminals": "failures/test_lifecycle_names.py: test_f31_of_two_drivers_the_second_is_refused",
    "two runs in threads": "failures/test_lifecycle_names.py: test_f31_two_experiments_of_one_process",
    "no __main__ guard, stdin, -c": "tuner/executors/local/test_forkserver.py: test_scripts_without_a_guard_run_once",
    "-W error": "failures/test_warnings_are_errors.py: test_nothing_is_leaked",
    "no credentials": "trainables/transfer/test_gcs.py: test_no_credentials_of_google_name_their_remedy",
    "a storage that is read-only": "failures/test_storage_unusable.py: test_f44_a_place_where_nothing_can_be_made",
    "a second Ctrl-C": "failures/test_lifecycle_signals.py: test_f37_ctrl_c_twice_exits_at_once",
}
"""Rows that other tests hold."""


@pytest.mark.parametrize("where", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_row_that_is_held_elsewhere_is_there(where: str) -> None:
    file, name = where.split(": ")
    assert f"def {name}" in (HERE / file).read_text("utf-8")


def test_python_without_assertions_runs_a_script_as_it_does_with_them(place: Path) -> None:
    (place / "mistake.py").write_text(BEGIN + "print(tune.run(train, executor='inline', verbose=0).trials[0].status)\n")
    ended = subprocess.run([sys.executable, "-O", "mistake.py"], capture_output=True, text=True, cwd=place)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "TERMINATED\n", "")
