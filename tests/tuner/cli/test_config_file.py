"""Config files of `tuner run`: what they may say, and what a mistake in one gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.cli import parser, run
from tuner.cli.config_file import KEYS, load
from tuner.cli.load_object import load_object
from tuner.error import SettingError
from tuner.stopper import at_least, at_most

ROOT = Path(__file__).resolve().parents[3]


def written(directory: Path, text: str) -> Path:
    path = directory / "small.yaml"
    path.write_text("trainable: train.py:train\n" + text)
    return path


def test_the_shipped_config_says_what_the_script_says() -> None:
    described = load(ROOT / "configs" / "digits_asha.yaml")
    given = described.arguments()

    assert given["num_samples"] >= 24
    assert given["keep_checkpoints_num"] == 2
    assert given["checkpoint_score_attr"] == "max-accuracy"
    assert given["resume"] == "AUTO"
    assert type(given["search_alg"]).__name__ == "OptunaSearch"
    assert type(given["scheduler"]).__name__ in ("ASHAScheduler", "AsyncHyperBandScheduler")
    assert set(given["config"]) == {"lr", "batch_size", "channels", "dropout", "weight_decay"}


def test_the_name_is_the_files_own_unless_it_says_one(tmp_path: Path) -> None:
    assert load(written(tmp_path, "")).said["name"] == "small"
    assert load(written(tmp_path, "name: other")).said["name"] == "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_sample: 3", "unknown key 'num_sample'; did you mean 'num_samples'?"),
        ("sheduler: asha", "unknown key 'sheduler'; did you mean 'scheduler'?"),
        ("num_samples: many", "num_samples='many' is not accepted; accepted: integer"),
        ("executor: dask", "executor='dask' is not accepted; accepted: 'local', 'inline', 'ray' or 'slurm'"),
        (
            "executor: {ray: {adress: x}}",
            "executor: ray: unknown key 'adress'; did you mean 'address'? Accepted: address, options, runtime_env",
        ),
        ("executor: {dask: {}}", "executor={'dask': {}} is not accepted; accepted: local, inline, ray, slurm, {ray: {"),
        (
            "executor: {slurm: {partion: x}}",
            "executor: slurm: unknown option of executor: slurm: 'partion'; did you mean 'partition'?",
        ),
        (
            "executor: {slurm: {time: 12:00:00}}",  # YAML 1.1 counts in sixties
            "executor: slurm: time=43200 is not accepted; accepted is a text as sbatch takes it",
        ),
        ("executor: {slurm: {account: a b}}", "executor: slurm: account='a b' is not accepted"),
        ("executor: {ray: {address: 3}}", "executor: ray: address=3 is not accepted; accepted: string"),
        (
            "executor: {ray: auto}",
            "executor={'ray': 'auto'} is not accepted; accepted: local, inline, ray, sl",
        ),
        ("executor: {}", "executor={} is not accepted"),
        ("mode: maximum", "mode='maximum' is not accepted; accepted: 'min' or 'max'"),
        ("fail_fast: soon", "fail_fast='soon' is not accepted"),
        ("param_space: {x: {unifrom: [0, 1]}}", "unknown domain 'unifrom'; did you mean 'uniform'?"),
        ("param_space: {x: {uniform: [1]}}", "param_space.x: uniform: [1] is not accepted"),
        ("param_space: {x: {y: {choice: 3}}}", "param_space.x.y: choice: 3 is not accepted"),
    ],
)
def test_a_mistake_is_named_with_what_is_accepted(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        load(written(tmp_path, text))

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("search_alg: optunna", "optuna"),
        ("search_alg: {optuna: {sede: 1}}", "seed"),
        ("scheduler: ashaa", "asha"),
        ("scheduler: {asha: {max_time: 3}}", "max_t"),
        ("scheduler: {asha: {}, fifo: {}}", "is not accepted; accepted is one name"),
    ],
)
def test_a_wrong_plug_in_or_argument_is_an_error_with_the_nearest(tmp_path: Path, text: str, message: str) -> None:
    described = load(written(tmp_path, text))

    with pytest.raises(SettingError, match=message):
        described.arguments()


def test_d25_a_stop_criterion_may_have_a_direction(tmp_path: Path) -> None:
    text = "stop: {loss: {at_most: 0.1}, acc: {at_least: 0.9}, training_iteration: 5}"

    stop = load(written(tmp_path, text)).arguments()["stop"]

    assert stop == {"loss": at_most(0.1), "acc": at_least(0.9), "training_iteration": 5}
    with pytest.raises(SettingError, match="stop: loss: .* one of at_least and at_most is said"):
        load(written(tmp_path, "stop: {loss: {at_most: 1, at_least: 0}}")).arguments()


def test_every_mistake_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        load(written(tmp_path, "num_samples: x\nmode: y"))

    assert "num_samples" in str(caught.value)
    assert "mode" in str(caught.value)


@pytest.mark.parametrize("text", ["- a list", "a: [unclosed", "42"])
def test_what_is_no_config_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)

    with pytest.raises(SettingError, match=r"broken\.yaml"):
        load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="nothing.yaml"):
        load(tmp_path / "nothing.yaml")


def test_a_config_cannot_run_code(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="not YAML"):
        load(written(tmp_path, "seed: !!python/object/apply:os.getpid []"))


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("num_samples=50", "num_samples", 50),
        ("metric=loss", "metric", "loss"),
        ("resume=false", "resume", False),
        ("time_budget_s=1e2", "time_budget_s", 100.0),
        ("param_space.lr=0.1", "param_space", {"lr": 0.1}),
        ("param_space.lr.loguniform=[1e-4,1e-1]", "param_space", {"lr": {"loguniform": ["1e-4", "1e-1"]}}),
        ("scheduler.asha.max_t=3", "scheduler", {"asha": {"max_t": 3}}),
    ],
)
def test_set_changes_one_setting(tmp_path: Path, change: str, key: str, value: Any) -> None:
    described = load(written(tmp_path, "param_space: {lr: {uniform: [0, 1]}}"), [change])

    assert described.said[key] == value
    assert described.arguments()


@pytest.mark.parametrize("change", ["num_samples", "=3", "num_samples.x=3\n", "nonsense=1"])
def test_a_wrong_set_is_refused(tmp_path: Path, change: str) -> None:
    with pytest.raises(SettingError):
        load(written(tmp_path, "num_samples: 2"), [change])


def test_only_what_the_file_says_is_passed_on(tmp_path: Path) -> None:
    assert set(load(written(tmp_path, "num_samples: 2")).arguments()) == {"name", "config", "num_samples"}


def test_every_key_is_an_argument_of_tune_run() -> None:
    import inspect

    from tuner.run import run

    assert set(KEYS) - {"trainable", "param_space"} <= set(inspect.signature(run).parameters)


def test_a_trainable_is_found_beside_the_config_and_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "one_of_a_kind.py").write_text("def train(config): pass")
    monkeypatch.chdir(tmp_path)

    assert load_object("one_of_a_kind.py:train", tmp_path / "configs").__name__ == "train"
    assert load_object("../one_of_a_kind.py:train", tmp_path / "configs").__name__ == "train"
    assert load_object("json:dumps", tmp_path).__name__ == "dumps"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("train", "accepted are module:name and path/file.py:name"),
        ("nowhere.py:train", "there is no file"),
        ("no_such_module_here:train", "there is no module"),
        ("json:dumsp", "did you mean 'dump'?"),
    ],
)
def test_a_trainable_that_is_not_there_is_named(tmp_path: Path, where: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        load_object(where, tmp_path)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], None),
        (["--executor", "inline"], "inline"),
        (["--executor", "ray"], "ray"),
        (["--address", "10.0.0.1:6379"], "RayExecutor(address='10.0.0.1:6379')"),
        (["--executor", "ray", "--address", "auto"], "RayExecutor(address='auto')"),
        (["--set", "executor={ray: }"], "RayExecutor(address=None)"),
        (["--executor", "slurm"], "slurm"),
        (
            ["--executor", "slurm", "--set", "executor.slurm.jobs=3"],
            "SlurmExecutor(jobs=3, partition=None, time='02:00:00')",
        ),
        (
            ["--set", "executor={slurm: {jobs: 2, partition: p}}", "--executor", "slurm"],
            "SlurmExecutor(jobs=2, partition='p', time='02:00:00')",
        ),
    ],
)
def test_the_command_line_says_where_trials_run(words: list[str], said: str | None, tmp_path: Path) -> None:
    given = parser().parse_args(["run", str(written(tmp_path, "")), *words])
    found = load(given.config, [*run.where(given), *given.changes]).arguments().get("executor")
    assert found == said or repr(found) == said


def test_an_address_of_a_cluster_goes_with_ray_only(tmp_path: Path) -> None:
    given = parser().parse_args(["run", "x.yaml", "--executor", "local", "--address", "10.0.0.1:6379"])
    with pytest.raises(SettingError, match="goes with --executor ray, and not with local"):
        run.where(given)
