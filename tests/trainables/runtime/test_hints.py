"""What is said beside exceptions that come of how trials run, and that of others nothing is."""

from __future__ import annotations

import bdb
import io
import pdb
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainables import wire
from trainables.runtime.hints import hint_of
from trainables.testing import example_job, run_trial

DIRECTORY = "trials run in their own directory"
TERMINAL = 'with executor="inline"'


def debugs(config: Any) -> None:
    pdb.Pdb(stdin=io.StringIO(""), stdout=io.StringIO()).set_trace()


def reads(config: Any) -> None:
    open("data/numbers.csv")


def reads_and_wraps(config: Any) -> None:
    try:
        open("data/numbers.csv")
    except OSError as error:
        raise RuntimeError("no data") from error


def calls(config: Any) -> None:
    subprocess.run(["no-such-program"])


def wants_cuda(config: Any) -> None:
    import torch

    torch.zeros(1).to("cuda")


def suggests(config: Any) -> float:
    return float(helper(config))


def helper(trial: Any) -> Any:
    return trial.suggest_float("x", 0, 1)


@pytest.mark.parametrize(
    ("function", "said"),
    [(reads, DIRECTORY), (reads_and_wraps, DIRECTORY), (suggests, "OptunaSearch(f)")],
)
def test_an_exception_of_how_trials_run_has_its_remedy(function: Any, said: str, tmp_path: Path) -> None:
    last = run_trial(function, tmp_path).end
    assert isinstance(last, wire.AttemptErrored)
    assert said in last.message and last.traceback.rstrip().splitlines()[-1].count(said) == 1
    assert said in pickle.loads(last.pickled).__notes__[0]


@pytest.mark.parametrize(
    ("function", "settings"),
    [
        (lambda config: open("/no/such/file"), {}),
        (lambda config: open(b"data"), {}),
        (lambda config: open("data"), {"chdir": False}),
        (calls, {}),
        (lambda config: config.suggested, {}),
        (lambda config: {}["x"], {}),
    ],
)
def test_of_others_nothing_is_said(function: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    last = run_trial(function, tmp_path, **settings).end
    assert isinstance(last, wire.AttemptErrored)
    assert DIRECTORY not in last.traceback and "Optuna" not in last.traceback


def test_where_the_file_lies_beside_the_script_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "numbers.csv").touch()
    monkeypatch.chdir(tmp_path)
    last = run_trial(reads, tmp_path / "t", original_cwd=tmp_path).end
    assert isinstance(last, wire.AttemptErrored)
    assert f"'data/numbers.csv' is in {tmp_path}: give an absolute path, or chdir_to_trial_dir=False" in last.message


def test_who_asked_for_no_gpu_and_uses_one_is_told_how_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as in a trial that has none
    for resources in ({"cpu": 1.0}, {"gpu": 1.0}):
        last = run_trial(wants_cuda, tmp_path / str(len(resources)), resources=resources).end
        assert isinstance(last, wire.AttemptErrored)
        assert ('resources_per_trial={"gpu": 1}' in last.message) == ("gpu" not in resources)


@pytest.mark.parametrize("own_process", [True, False])
def test_breakpoint_names_the_executor_that_has_a_terminal(own_process: bool, tmp_path: Path) -> None:
    with pytest.raises(bdb.BdbQuit) as quit:
        debugs({})
    hint = hint_of(quit.value, example_job(tmp_path), own_process=own_process)
    assert (hint is not None and TERMINAL in hint) is own_process
