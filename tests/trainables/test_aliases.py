"""Modules of Ray's that are no files here are found all the same, and modules of ours find the names they lack."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import tuner
from trainables import aliases
from tuner.compat.missing import NotHere


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


def test_a_module_that_ray_has_is_found_under_our_name_after_import_tuner() -> None:
    done = python(
        "import tuner\nimport tuner.tune_config, tuner.trainable.trainable as deep\n"
        "from tuner.stopper.timeout import TimeoutStopper\nfrom tuner.stopper import TimeoutStopper as again\n"
        "assert tuner.tune_config.TuneConfig is tuner.TuneConfig and deep.Trainable is tuner.Trainable\n"
        "assert again is TimeoutStopper\nprint('found')"
    )
    assert done.stdout == "found\n", done.stderr


def test_a_module_that_ray_has_is_found_when_only_trainables_is_imported() -> None:
    done = python(
        "import sys\nimport trainables.config\nassert 'tuner' not in sys.modules\n"
        "from trainables.base_trainer import BaseTrainer\nfrom trainables.config import DatasetConfig\n"
        "import trainables.base_trainer as base, trainables\n"
        'assert BaseTrainer is base.BaseTrainer and base.__doc__.startswith("Ray\'s")\n'
        "assert 'tuner.run' not in sys.modules and 'tuner.compat.table' in sys.modules\n"
        "try:\n    import trainables.nothing_of_rays\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    assert done.stdout == "No module named 'trainables.nothing_of_rays'\n", done.stderr


@pytest.mark.parametrize("first", ["tuner", "trainables"])
def test_whichever_package_is_imported_first_one_pair_of_finders_is_there(first: str) -> None:
    done = python(
        f"import sys, {first}\nimport tuner.error, trainables.config, tuner.tune_config\n"
        "print([type(one).__name__ for one in sys.meta_path if type(one).__module__.startswith(('tu', 'tr'))])"
    )
    assert done.stdout == "['_Completing', 'NameFinder']\n", done.stderr


def test_a_module_that_is_a_file_stays_what_it_is() -> None:
    import tuner.search.sample as sample

    assert sample.__file__ is not None and not isinstance(sample, aliases.AliasModule)
    assert sample.uniform is tuner.uniform


def test_a_module_that_lacks_a_name_looks_it_up() -> None:
    module = importlib.import_module("trainables.config")
    assert isinstance(module.DatasetConfig, NotHere)
    assert "trainables.config" in aliases.COMPLETED and module.__file__ is not None


@pytest.mark.parametrize("module", ["trainables.checkpoint", "tuner.tune_config", "tuner"])
def test_a_name_that_nobody_has_is_an_attribute_error_that_names_it(module: str) -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = importlib.import_module(module).no_such_thing


def test_what_a_module_says_of_its_own_absent_names_is_said_still() -> None:
    with pytest.raises(AttributeError, match=r"from tuner\.schedulers import ASHAScheduler"):
        _ = tuner.ASHAScheduler  # type: ignore[attr-defined]


def test_a_module_that_nobody_has_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"tuner\.nothing_of_rays"):
        importlib.import_module("tuner.nothing_of_rays")


def test_an_alias_lists_its_names() -> None:
    import tuner.tune_config  # type: ignore[import-not-found]

    assert {"TuneConfig", "ResumeConfig"} <= set(dir(tuner.tune_config))
    assert vars(tuner.tune_config)["__path__"] == []


@pytest.mark.parametrize("modules", ["tuner", "trainables", "trainables.session, trainables.config"])
def test_importing_reads_no_table(modules: str) -> None:
    done = python(
        f"import sys, {modules}\n"
        "print(sorted({'tomllib', 'tuner.compat.table', 'tuner.executors'} & sys.modules.keys()))"
    )
    assert done.stdout == "[]\n", done.stderr


def test_installing_twice_changes_nothing() -> None:
    before = list(sys.meta_path)
    aliases.install(lambda: sys)
    assert sys.meta_path == before
