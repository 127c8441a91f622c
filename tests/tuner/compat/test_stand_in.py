"""Scripts written for Ray Tune, run unchanged, each in an interpreter of its own, for the hook is there to stay.

And the page that says what differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.listings import SCRIPTS
from trainables.user_frames import last_said
from tuner.logger import pretty_print

DOCS = Path(__file__).resolve().parents[3] / "docs"


def python(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=100)


def test_a_script_for_ray_runs_unchanged(tmp_path: Path) -> None:
    done = python("-m", "tuner.compat", SCRIPTS / "written_for_ray.py", tmp_path / "results", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "objective True\nClassic False\n"
    assert {path.name for path in (tmp_path / "results").iterdir() if not path.name.startswith(".")} == {
        "objective",
        "Classic",
    }


def test_installed_from_within_and_twice(tmp_path: Path) -> None:
    done = python(SCRIPTS / "ray_installed_twice.py", cwd=tmp_path)
    assert done.stdout == "ok\n", done.stderr


def test_what_init_gives_is_shared_and_examples_of_an_installed_ray_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = tmp_path / "installed" / "ray" / "tune" / "examples"
    examples.mkdir(parents=True)
    (examples / "__init__.py").touch()
    (examples / "half.py").write_text(
        "from ray import tune\ndef halved(config):\n    tune.report(half=config['x'] / 2)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path / "results"))
    done = python("-m", "tuner.compat", SCRIPTS / "init_and_examples.py", cwd=tmp_path)
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import ray.tune.examples.nobody", "is one of the examples that Ray ships"),
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
    assert done.returncode == 1 and named in last_said(done.stderr)


def test_custom_resources_are_taken_declared_or_not(tmp_path: Path) -> None:
    done = python("-m", "tuner.compat", SCRIPTS / "asks_for_resources.py", cwd=tmp_path)
    assert done.stdout == "TERMINATED TERMINATED\n1\n", done.stderr
    assert done.stderr.count("'TPU', which nobody has declared: it limits nothing") == 1
    assert "asks for 2 license, available are 1" in last_said(done.stderr)
    outside = "import tuner; tuner.run(lambda config: None, resources_per_trial={'TPU': 1}, storage_path='.')"
    assert "asks for 1 TPU, available are 0" in last_said(python("-c", outside, cwd=tmp_path).stderr)


def test_a_module_beside_the_script_has_the_names_in_its_trials_too(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("from ray import tune\ndef train(config): tune.report({'loss': 1})\n")
    (tmp_path / "script.py").write_text(
        "import sys\nfrom ray import tune\nfrom beside import train\n"
        "if __name__ == '__main__':\n    print(len(tune.run(train, storage_path=sys.argv[1], verbose=0).trials))\n"
    )
    done = python("-m", "tuner.compat", "script.py", tmp_path / "results", cwd=tmp_path)
    assert done.stdout == "1\n", done.stderr


def test_with_an_address_the_stand_in_becomes_ray_with_our_tune_in_it(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    done = python(SCRIPTS / "stand_in_becomes_ray.py", cwd=tmp_path)
    assert done.stdout == "ok\n", done.stderr


def test_without_ray_asking_for_it_is_an_error_that_names_the_extra_and_all_else_works(tmp_path: Path) -> None:
    done = python(SCRIPTS / "without_ray.py", tmp_path / "results", cwd=tmp_path)
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
    done = python(SCRIPTS / "names_of_ray_1.py", cwd=tmp_path)
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
        ("ray.tune.search.hebo.HEBOSearch", "missing"),
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


@pytest.mark.parametrize(
    ("code", "frames", "last"),
    [
        ("def f():\n    1/0\nf()", 2, "ZeroDivisionError: division by zero"),
        ("x = = 1", 1, "SyntaxError: invalid syntax"),
        ("from ray import tune\ntune.nosuch", 1, "AttributeError: module 'ray.tune' has no attribute 'nosuch'"),
        ("from ray import tune\ntune.choice([])", 1, "choice([]): there is nothing to choose from"),
    ],
)
def test_the_error_of_a_script_shows_its_own_frames_and_no_others(
    tmp_path: Path, code: str, frames: int, last: str
) -> None:
    (tmp_path / "script.py").write_text(code)
    done = python("-m", "tuner.compat", "script.py", cwd=tmp_path)
    assert done.returncode == 1 and last in last_said(done.stderr)
    assert [line.count("script.py") for line in done.stderr.splitlines() if '  File "' in line] == [1] * frames


def test_a_module_of_a_package_runs_as_one(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "numbers.py").write_text("HALF = 0.5\n")
    (package / "train.py").write_text(
        "import sys\nfrom ray import tune\nfrom .numbers import HALF\n"
        "def train(config):\n    tune.report(loss=HALF)\n"
        "if __name__ == '__main__':\n"
        "    found = tune.run(train, name='m', local_dir=sys.argv[1], metric='loss', mode='min', verbose=0)\n"
        "    print('loss', found.best_result['loss'], sys.argv[2:])\n"
    )
    done = python("-m", "tuner.compat", "-m", "mine.train", tmp_path / "results", "--more", cwd=tmp_path)
    assert "loss 0.5 ['--more']" in done.stdout, done.stderr
