"""Commands as trials: run, stopped, paused, cloned, killed and continued, by the ordinary driver."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.trainables.command.programs import loss, written
from trainables.errors import InvalidSettingError, SessionError
from tuner.error import SettingError, TrialsFailedError
from tuner.schedulers import ASHAScheduler, PopulationBasedTraining

METRICS = {"jsonl": "{trial_dir}/log.jsonl", "step": "epoch"}
CHECKPOINTS = {"glob": "{trial_dir}/epoch-(?P<step>[0-9]+)", "complete": "renamed"}
LINE = "--lr {lr} --out {trial_dir} [[--resume {checkpoint}]]"


def started(directory: Path) -> str:
    return f"{sys.executable} {shlex.quote(str(written(directory)))}"


def command(directory: Path, more: str = "", **changes: Any) -> tune.Command:
    given: dict[str, Any] = {"metrics": METRICS, "checkpoints": CHECKPOINTS, **changes}
    return tune.Command(f"{started(directory)} {LINE} {more}", **given)


def run(trainable: Any, place: Path, **settings: Any) -> Any:
    given: dict[str, Any] = {"config": {"lr": 0.5}, "metric": "loss", "mode": "min", "verbose": 0, **settings}
    return tune.run(trainable, name="e", storage_path=place, **given)


def rows(trial: Any) -> list[tuple[int, int]]:
    lines = (Path(trial.path) / "result.json").read_text().splitlines()
    return [(row["training_iteration"], row["epoch"]) for row in map(json.loads, lines)]


def saved(trial: Any) -> dict[int, int]:
    """Iteration of each checkpoint there -> the epoch in it."""
    found = {}
    for directory in Path(trial.path).glob("checkpoint_*"):
        manifest = json.loads((directory / ".manifest.json").read_text())
        found[manifest["iteration"]] = json.loads((directory / "state.json").read_text())["epoch"]
    return found


def test_lines_are_results_and_saves_belong_to_theirs(tmp_path: Path) -> None:
    analysis = run(command(tmp_path), tmp_path, config={"lr": tune.grid_search([0.25, 0.5])}, keep_checkpoints_num=2)
    for trial in analysis.trials:
        assert trial.status == "TERMINATED"
        assert rows(trial) == [(n, n) for n in range(1, 7)]
        assert trial.last_result["loss"] == pytest.approx(loss(trial.config["lr"], 6))
        assert saved(trial) == {5: 5, 6: 6}


def test_a_save_that_comes_late_belongs_to_its_own_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.command import life

    monkeypatch.setattr(life, "HOLD_S", 0.05)  # the line goes long before its save
    monkeypatch.setattr(life, "LOOK_S", 0.02)
    analysis = run(command(tmp_path, "--epochs 4 --late 0.3"), tmp_path, executor="local")
    (trial,) = analysis.trials
    assert rows(trial) == [(n, n) for n in range(1, 5)]
    assert saved(trial) == {n: n for n in range(1, 5)}


def test_a_trial_that_fails_goes_on_from_its_newest_save(tmp_path: Path) -> None:
    analysis = run(command(tmp_path, "--fail-at 4 --pause 0.3"), tmp_path, max_failures=1)
    (trial,) = analysis.trials
    lives = [int(line) for line in (Path(trial.path) / "lives.txt").read_text().split()]
    assert lives[0] == 0 and 1 <= lives[1] <= 3 and len(lives) == 2
    assert rows(trial) == [(n, n) for n in range(1, 7)]
    assert trial.last_result["loss"] == pytest.approx(loss(0.5, 6))


def test_a_failure_quotes_the_last_words(tmp_path: Path) -> None:
    with pytest.raises(TrialsFailedError) as caught:
        run(command(tmp_path, "--fail-at 1"), tmp_path)
    assert "exit code 1" in str(caught.value) and "no memory left for 1" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"metrics": {"jsonl": "{trial_dir}/other.jsonl"}}, "no line of metrics was found in .*other.jsonl"),
        ({"checkpoints": {**CHECKPOINTS, "complete": {"marker": "DONE"}}}, "never became complete.*no file 'DONE'"),
        ({"metrics": {**METRICS, "step": "ep"}}, "ep=None.*it has epoch, loss"),
    ],
)
def test_what_never_comes_is_an_error_that_says_what(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(TrialsFailedError, match=said):
        run(command(tmp_path, **given), tmp_path)


def test_what_is_known_before_the_first_trial_is_said_then(tmp_path: Path) -> None:
    regex = {"regex": "(?P<loss>x)"}
    with pytest.raises(SettingError, match="'nosuchprogram' cannot be started"):
        run(tune.Command("nosuchprogram {lr}", metrics=regex), tmp_path)
    with pytest.raises(SettingError, match="metric='acc' never comes"):
        run(tune.Command("true {lr}", metrics=regex), tmp_path, metric="acc")
    assert not (tmp_path / "e").exists()


def test_a_command_that_ignores_its_end_is_killed_and_what_it_leaves_behind_too(tmp_path: Path) -> None:
    line = (
        "trap '' TERM; (setsid sleep 300 & echo $! > {trial_dir}/pid); n=0; "
        'while :; do n=$((n + 1)); echo \'{{"epoch":\'$n\',"loss":{lr},"done":true}}\' >> {trial_dir}/log.jsonl; '
        "sleep 0.1; done"
    )
    trainable = tune.Command(line, shell=True, metrics=METRICS, stop_grace_s=0.3)
    (trial,) = run(trainable, tmp_path, stop={"training_iteration": 3}).trials
    assert rows(trial) == [(n, n) for n in (1, 2, 3)]  # "done" in its lines is a word of its own
    with pytest.raises(ProcessLookupError):
        os.kill(int((Path(trial.path) / "pid").read_text()), 0)


def test_asha_ends_a_command_with_all_that_it_started(tmp_path: Path) -> None:
    program = f"{started(tmp_path)} {LINE} --pause 0.2 --epochs 40"
    line = f"sleep 300 & echo $! > {{trial_dir}}/pid; exec {program}"
    trainable = tune.Command(line, shell=True, metrics=METRICS, checkpoints=CHECKPOINTS)
    analysis = run(
        trainable,
        tmp_path,
        config={"lr": tune.grid_search([0.5, 0.1, 0.05])},
        scheduler=ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2),
        max_concurrent_trials=1,
    )
    ends = [trial.last_result["epoch"] for trial in analysis.trials]
    assert ends[0] == 4 and ends[1] == ends[2] == 1
    for trial in analysis.trials:
        with pytest.raises(ProcessLookupError):
            os.kill(int((Path(trial.path) / "pid").read_text()), 0)


def test_pbt_clones_commands(tmp_path: Path) -> None:
    pbt = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": [0.5, 0.6]},
        quantile_fraction=0.5,
        synch=True,
    )
    analysis = run(
        command(tmp_path, "--pause 0.1 --epochs 8"),
        tmp_path,
        config={"lr": tune.grid_search([0.5, 0.001])},
        scheduler=pbt,
        stop={"training_iteration": 8},
        seed=1,
    )
    worse = analysis.trials[1]
    assert worse.config["lr"] > 0.1 and worse.last_result["loss"] < 0.1
    for trial in analysis.trials:
        assert [iteration for iteration, _ in rows(trial)] == list(range(1, 9))


@pytest.mark.parametrize("moment", [0.5, 1.1, 1.9])
def test_killed_with_its_driver_it_continues(tmp_path: Path, moment: float) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport tuner as tune\n"
        f"train = tune.Command({f'{started(tmp_path)} {LINE} --pause 0.25 --keep 2'!r}, "
        f"metrics={METRICS!r}, checkpoints={CHECKPOINTS!r})\n"
        "tune.run(train, config={'lr': tune.grid_search([0.25, 0.5])}, metric='loss', mode='min', name='e', "
        f"storage_path={str(tmp_path)!r}, resume='AUTO', keep_checkpoints_num=1, verbose=0)\n"
    )
    driver = subprocess.Popen([sys.executable, str(script)])
    while not list(tmp_path.glob("e/*/lives.txt")):
        assert driver.poll() is None
        time.sleep(0.02)
    time.sleep(moment)  # somewhere in its life
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    subprocess.run([sys.executable, str(script)], check=True, timeout=100)

    for trial in tune.ExperimentAnalysis(tmp_path / "e").trials:
        assert trial.status == "TERMINATED"
        assert rows(trial) == [(n, n) for n in range(1, 7)]
        assert trial.last_result["loss"] == pytest.approx(loss(trial.config["lr"], 6))
        assert saved(trial) == {6: 6}


def test_a_notice_to_leave_has_the_command_end_and_a_resume_continues(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import tuner as tune\n"
        f"train = tune.Command({f'{started(tmp_path)} {LINE} --pause 0.3'!r}, metrics={METRICS!r}, "
        f"checkpoints={CHECKPOINTS!r})\n"
        "tune.run(train, config={'lr': 0.5}, metric='loss', mode='min', name='e', "
        f"storage_path={str(tmp_path)!r}, resume='AUTO', verbose=0)\n"
    )
    driver = subprocess.Popen([sys.executable, str(script)])
    while not list(tmp_path.glob("e/*/checkpoint_*")):
        assert driver.poll() is None
        time.sleep(0.02)
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(60) == 143
    (trial,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert trial.status == "PAUSED"
    subprocess.run([sys.executable, str(script)], check=True, timeout=100)
    (trial,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert rows(trial) == [(n, n) for n in range(1, 7)]


def test_the_output_gives_metrics_and_is_kept(tmp_path: Path) -> None:
    program = tmp_path / "t.sh"
    program.write_text('for n in 1 2 3; do echo "step $n score=$((n * $1))"; sleep 0.1; done')
    trainable = tune.Command(
        ["sh", str(program), "{k}"], metrics={"regex": r"step (?P<step>\d+) score=(?P<score>\d+)", "step": "step"}
    )
    analysis = run(trainable, tmp_path, config={"k": 7}, metric="score", mode="max")
    assert analysis.trials[0].last_result["score"] == 21
    assert "score=14" in (Path(analysis.trials[0].path) / "stdout").read_text()


def test_a_file_is_a_checkpoint_too(tmp_path: Path) -> None:
    program = tmp_path / "t.sh"
    program.write_text(
        'start=0; [ "$2" = --from ] && start=$(cat "$3")\n'
        "for n in $(seq $((start + 1)) 6); do echo step $n; echo $n > $1/half; mv $1/half $1/m-$n.bin; sleep 0.3; "
        '[ "$2" != --from ] && [ $n = 4 ] && exit 3; done; exit 0\n'
    )
    trainable = tune.Command(
        ["sh", str(program), "{checkpoint_dir}", "[[--from", "{checkpoint}]]", "{x}"],
        metrics={"regex": r"step (?P<step>\d+)", "step": "step"},
        checkpoints={"glob": "{checkpoint_dir}/m-(?P<step>[0-9]+).bin", "complete": "renamed"},
    )
    analysis = run(
        trainable, tmp_path, config={"x": 1}, metric="step", mode="max", max_failures=1, keep_checkpoints_num=1
    )
    (trial,) = analysis.trials
    found = json.loads("[" + ",".join((Path(trial.path) / "result.json").read_text().splitlines()) + "]")
    assert [row["step"] for row in found] == [1, 2, 3, 4, 5, 6]
    assert [path.name for path in Path(trial.path).glob("checkpoint_*/m-*")] == ["m-6.bin"]


def test_a_budget_holds_for_commands(tmp_path: Path) -> None:
    with pytest.raises(TrialsFailedError, match="budget"):
        run(command(tmp_path, "--pause 0.2"), tmp_path, checkpoint_budget=10)


def test_the_config_reaches_files_and_the_environment(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text("optimizer: {lr: 1.0}\nname: x\n")
    trainable = tune.Command(
        'echo "lr=$LR"; cat {config_file} {config_json}',
        shell=True,
        metrics={"regex": r"lr=(?P<lr>[0-9.]+)"},
        config={"file": str(base), "set": {"optimizer.lr": "lr"}},
        env={"LR": "{lr}"},
    )
    analysis = run(trainable, tmp_path, config={"lr": 0.125, "more": {"a": [1]}}, metric="lr")
    (trial,) = analysis.trials
    printed = (Path(trial.path) / "stdout").read_text()
    assert trial.last_result["lr"] == 0.125
    assert "lr: 0.125" in printed and '"more"' in printed and "name: x" in printed


def test_a_place_holder_that_the_space_lacks_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    with pytest.raises((InvalidSettingError, SettingError), match="{lr} has no value. There are learning_rate, "):
        run(command(tmp_path), tmp_path, config={"learning_rate": 0.1})
    assert not (tmp_path / "e").exists()


def test_it_runs_as_a_trial_only(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="tune.run"):
        command(tmp_path)({"lr": 1})


def test_a_guess_is_refused_by_a_proof(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import tuner as tune\ntrain = tune.Command('true {{lr}} [[{{checkpoint}}]]', metrics={METRICS!r}, "
        "checkpoints={'glob': '{trial_dir}/x', 'complete': {'quiet_s': 1}})\n"
        f"tune.run(train, config={{'lr': 1}}, storage_path={str(tmp_path)!r})\n"
    )
    said = subprocess.run(
        [sys.executable, "-m", "tuner.cli", "prove", str(script)], capture_output=True, text=True, timeout=100
    )
    assert said.returncode != 0 and "which is a guess" in " ".join((said.stdout + said.stderr).split())


def test_a_command_is_proven_to_continue(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import tuner as tune\n"
        f"train = tune.Command({f'{started(tmp_path)} {LINE} --pause 0.1'!r}, metrics={METRICS!r}, "
        f"checkpoints={CHECKPOINTS!r})\n"
        "tune.run(train, config={'lr': tune.grid_search([0.25, 0.5])}, metric='loss', mode='min', verbose=0)\n"
    )
    said = subprocess.run(
        [sys.executable, "-m", "tuner.cli", "prove", str(script), "--kills", "2"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert said.returncode == 0, said.stdout + said.stderr
