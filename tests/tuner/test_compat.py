"""Scripts written for Ray Tune, run unchanged, each in an interpreter of its own, for the hook is there to stay.

And the page that says what differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.logger import pretty_print

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


SCRIPT = """
import os, sys, tempfile
import ray
from ray import train, tune
from ray.air import RunConfig, session
from ray.train import Checkpoint, CheckpointConfig
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
import ray.tune.search.sample

ray.init(num_cpus=2)

def objective(config):
    import ray.tune as again

    assert ray.is_initialized() and again is tune
    checkpoint = train.get_checkpoint()
    for step in range(3):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "step"), "w") as file:
                file.write(str(step))
            train.report({"score": config["x"] * step}, checkpoint=Checkpoint.from_directory(directory))

class Classic(tune.Trainable):
    def step(self):
        return {"score": self.config["x"], "done": True}

for trainable in (objective, Classic):
    results = tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            num_samples=2, metric="score", mode="max", scheduler=ASHAScheduler(), search_alg=OptunaSearch()
        ),
        run_config=RunConfig(
            name=trainable.__name__, storage_path=sys.argv[1], verbose=0,
            checkpoint_config=CheckpointConfig(num_to_keep=1),
        ),
    ).fit()
    assert len(results) == 2 and not results.errors
    print(trainable.__name__, results.get_best_result().checkpoint is not None)
ray.shutdown()
"""


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=100)


def test_a_script_for_ray_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = python("-m", "tuner.compat", "script.py", str(tmp_path / "results"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "objective True\nClassic False\n"
    assert {path.name for path in (tmp_path / "results").iterdir() if not path.name.startswith(".")} == {
        "objective",
        "Classic",
    }


def test_installed_from_within_and_twice(tmp_path: Path) -> None:
    code = """
import tuner.compat, sys
tuner.compat.install(); tuner.compat.install()
from ray import tune
import tuner, trainables, ray.train
assert tune is tuner and ray.train is trainables and tuner.__spec__.name == "tuner"
from ray.air import session
from ray.tune.schedulers import ASHAScheduler
import tuner.schedulers
assert ASHAScheduler is tuner.schedulers.ASHAScheduler
print("ok")
"""
    done = python("-c", code, cwd=tmp_path)
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("ray.remote", "ray.remote has no counterpart"),
        ("import ray.rllib", "ray.rllib has no counterpart"),
        ("import ray.tune.schedulerz", "did you mean ray.tune.schedulers?"),
        ("from ray.tune import nothing_like_it", "nothing_like_it"),
        ("ray.init(address='127.0.0.1:9')", "there is no Ray cluster at '127.0.0.1:9'"),
        ("ray.init('ray://127.0.0.1:10001')", "the driver has to be on a node"),
    ],
)
def test_what_there_is_not_is_an_error_that_names_it(tmp_path: Path, line: str, named: str) -> None:
    done = python("-c", f"import tuner.compat; tuner.compat.install()\nimport ray\n{line}", cwd=tmp_path)
    assert done.returncode == 1 and named in done.stderr.splitlines()[-1]


def test_a_module_beside_the_script_has_the_names_in_its_trials_too(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("from ray import tune\ndef train(config): tune.report({'loss': 1})\n")
    (tmp_path / "script.py").write_text(
        "import sys\nfrom ray import tune\nfrom beside import train\n"
        "if __name__ == '__main__':\n    print(len(tune.run(train, storage_path=sys.argv[1], verbose=0).trials))\n"
    )
    done = python("-m", "tuner.compat", "script.py", str(tmp_path / "results"), cwd=tmp_path)
    assert done.stdout == "1\n", done.stderr


BECOMES = """
import tuner.compat
tuner.compat.install()
import ray
from ray import tune
before = ray
try:
    ray.init("127.0.0.1:9")
except ValueError as error:
    assert "no Ray cluster" in str(error), error
import ray.util, ray.tune.schedulers, tuner
assert ray is before and ray.tune is tune is tuner and ray.tune.schedulers is tuner.schedulers
assert ray.__file__.endswith("__init__.py") and not ray.is_initialized() and callable(ray.remote)
try:
    import ray.tune.nothing
except ModuleNotFoundError as error:
    assert "would be tuner.nothing" in str(error)
print("ok")
"""


def test_with_an_address_the_stand_in_becomes_ray_with_our_tune_in_it(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    done = python("-c", BECOMES, cwd=tmp_path)
    assert done.stdout == "ok\n", done.stderr


WITHOUT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == "ray" or name.startswith("ray."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import tuner as tune
from tuner.cli import main
from tuner.executors import RayExecutor

def train(config):
    tune.report({"loss": 1})

def says(action):
    try:
        action()
    except ImportError as error:
        assert "pip install 'tuner[ray]'" in str(error), error
    else:
        raise AssertionError("no error")

if __name__ == "__main__":
    place = sys.argv[1]
    says(lambda: tune.run(train, storage_path=place, verbose=0, executor="ray"))
    says(lambda: tune.run(train, storage_path=place, verbose=0, executor=RayExecutor("auto")))
    assert len(tune.run(train, storage_path=place, verbose=0, name="here").trials) == 1
    assert main(["doctor"]) == 0 and main(["doctor", "--executor", "ray"]) == 1
    assert "ray" not in sys.modules
    import tuner.compat
    tuner.compat.install()
    import ray
    ray.init()
    says(lambda: ray.init(address="auto"))
    from ray import tune as again
    assert again is tune
    print("well")
"""


def test_without_ray_asking_for_it_is_an_error_that_names_the_extra_and_all_else_works(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WITHOUT)
    done = python("script.py", str(tmp_path / "results"), cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("well\n"), done.stdout + done.stderr
    assert "problem  cluster: executor='ray' needs Ray, which is not installed" in done.stdout
    assert {path.name for path in (tmp_path / "results").iterdir() if not path.name.startswith(".")} == {"here"}


def test_a_ray_that_is_imported_already_is_not_shadowed(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("real = True\n")
    done = python("-c", "import ray, tuner.compat; tuner.compat.install()", cwd=tmp_path)
    assert done.returncode == 1 and "ray is imported already" in done.stderr and "ray.py" in done.stderr


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    assert "no file nothing.py" in python("-m", "tuner.compat", "nothing.py", cwd=tmp_path).stderr
    assert python("-m", "tuner.compat", cwd=tmp_path).returncode == 2


def test_names_of_ray_1_and_what_scripts_import_from_within(tmp_path: Path) -> None:
    code = """
import tuner.compat, sys
tuner.compat.install()
from ray.tune.suggest import ConcurrencyLimiter
from ray.tune.suggest.optuna import OptunaSearch
from ray.tune.suggest.suggestion import Searcher
from ray.tune.trial import Trial
from ray.tune.sample import Domain
from ray.tune.trainable import Trainable, with_parameters
from ray.tune.tune_config import ResumeConfig, TuneConfig
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.result import MEAN_ACCURACY, TIMESTAMP, TRAINING_ITERATION
from ray.tune.logger import pretty_print
from ray.train.context import TrainContext, get_context
from ray import tune
import tuner.search
assert tune.PlacementGroupFactory is PlacementGroupFactory and tune.TuneContext is TrainContext
assert Searcher is tuner.search.Searcher and tune.Trainable is Trainable
print("ok")
"""
    done = python("-c", code, cwd=tmp_path)
    assert done.stdout == "ok\n", done.stderr


def test_a_result_is_printed_for_people() -> None:
    result = {"loss": 0.5, "eval": {"auc": 0.9}, "pid": 1, "config": {"lr": 1}, "note": None}
    assert pretty_print(result, exclude=["pid"]) == "eval:\n  auc: 0.9\nloss: 0.5\n"


def test_the_migration_page_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, DOCS / "migrating.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run python docs/migrating.py; it said: {done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("theirs", "line"),
    [
        ("ray.tune.uniform", "equal"),
        ("ray.tune.schedulers.PopulationBasedTraining", "differs"),
        ("ray.tune.search.hyperopt.HyperOptSearch", "missing"),
        ("ray.tune.utils.flatten_dict", "differs"),
    ],
)
def test_a_name_of_ray_is_compared_by_its_signature(theirs: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    import migrating

    module, _, name = theirs.rpartition(".")
    known = json.loads(migrating.NAMES.read_text())["modules"][module][name]
    none = {"meaning": {}, "missing": {}, "given": (), "internal": ("NOOP",), "opaque": ()}
    assert migrating.compared(module, name, known, none).state == line
    if known["arguments"]:
        more = {**known, "arguments": {"new_one": None, **known["arguments"]}}
        found = migrating.compared(module, name, more, none)
        assert found.state == "missing" or "does not take `new_one`" in found.said
