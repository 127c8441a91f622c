"""The table of Ray's names: all of four versions are there, and each ends in one of three ways."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from trainables import aliases
from tuner.compat import table

ROOT = Path(__file__).parents[3]
NAMES = ROOT / "docs" / "ray_public.json"
TABLE = ROOT / "tuner" / "compat" / "names.toml"


@pytest.fixture(scope="module")
def became() -> dict[str, list[str]]:
    """Path of a name -> what became of it as `ray.M.N`, and as `tuner.M.N` or `trainables.M.N`."""
    script = ROOT / "tests" / "scripts" / "ray_names.py"
    done = subprocess.run([sys.executable, script, NAMES], capture_output=True, text=True, timeout=200, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_public_name_of_four_versions_works_or_says_what_to_use(became: dict[str, list[str]]) -> None:
    assert len(became) > 1_000
    wrong = {
        path: said for path, said in became.items() if any(not one.startswith(("works", "instead: ")) for one in said)
    }
    assert wrong == {}
    assert {path: said for path, said in became.items() if said[0] != said[1] and "works" in said} == {}


@pytest.mark.parametrize(
    "path",
    [
        "ray.tune.tune_config:TuneConfig",
        "ray.tune.trainable:Trainable",
        "ray.tune.trainable.trainable:Trainable",
        "ray.tune.tune:run",
        "ray.tune.execution.placement_groups:PlacementGroupFactory",
        "ray.tune.analysis.experiment_analysis:ExperimentAnalysis",
        "ray.tune.logger.logger:LoggerCallback",
        "ray.tune.stopper.timeout:TimeoutStopper",
        "ray.tune.suggest.suggestion:Searcher",
        "ray.train.v2.torch.torch_trainer:TorchTrainer",
        "ray.train._internal.session:report",
    ],
)
def test_what_programs_import_most_works(path: str, became: dict[str, list[str]]) -> None:
    assert became[path] == ["works", "works"]


def test_of_each_version_most_names_of_tune_work(became: dict[str, list[str]]) -> None:
    versions = json.loads(NAMES.read_text())
    count = Counter(
        (version, said[0].partition(":")[0])
        for path, said in became.items()
        for version in versions[path].split()
        if path.startswith("ray.tune.")
    )
    assert {version for version, _ in count} == {"1.13.0", "2.0.1", "2.9.3", "2.60.0"}
    assert all(count[version, "works"] > count[version, "instead"] for version in ("2.9.3", "2.60.0")), count


def test_no_row_is_about_a_name_that_no_version_has() -> None:
    public = json.loads(NAMES.read_text())
    handed_on = {  # names that a module of Ray's has from elsewhere, and does not list
        "air.constants",
        "air.data_batch_type",
        "train.constants",
        "tune.cloud",
        "tune.durable_trainable",
        "tune.suggest.flaml",
        "air.integrations.comet",
        "tune.analysis.experiment_analysis",
        "tune.function_runner",
        "tune.logger.comet",
        "tune.logger.mlflow",
        "tune.logger.wandb",
        "tune.trainable",
    }
    stale = [
        f"ray.{module}:{name}"
        for module, section in table.sections().items()
        for name in [*section.names, *section.instead, *section.never]
        if f"ray.{module}:{name}" not in public and module not in handed_on
    ]
    assert stale == []


def test_every_text_is_used_and_every_use_has_a_text() -> None:
    read = tomllib.loads(TABLE.read_text())
    texts = read.pop("texts")
    used = {row.get("gone") for row in read.values()} | {
        said for row in read.values() for said in row.get("instead", {}).values()
    }
    assert set(texts) - used == set()
    assert [said for said in used if said and " " not in said and said not in texts] == []


def test_every_module_that_lacks_names_gets_them_and_no_other() -> None:
    script = ROOT / "tests" / "scripts" / "ray_lacking.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=200, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == aliases.COMPLETED


def test_no_module_is_said_to_be_where_it_is() -> None:
    given = {theirs: section.here for theirs, section in table.sections().items() if section.here is not None}
    assert [theirs for theirs, here in given.items() if here == table.beside(theirs)] == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("tuner", ["tune"]),
        ("tuner.search", ["tune.search"]),
        ("trainables.config", ["train.config", "air.config", "ml.config"]),
    ],
)
def test_a_module_of_ours_stands_for_those_of_rays_with_its_path(ours: str, theirs: list[str]) -> None:
    assert list(table.theirs_of(ours)) == theirs
    assert all(table.beside(module) == ours for module in theirs)


def test_a_name_that_is_not_known_names_the_nearest() -> None:
    assert "did you mean 'TuneConfig'?" in table.unknown("tune.tune_config", "TuneConfigs")
    with pytest.raises(KeyError):
        table.look_up("tune.tune_config", "TuneConfigs")
