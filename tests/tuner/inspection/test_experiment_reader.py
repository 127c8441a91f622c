"""What `tune.open_experiment` tells, in plain values: of a population, a failed trial, orders; here and of a copy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from trainables.store.manifest import MANIFEST_NAME
from tuner.cli import main
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment import events as ev
from tuner.orders.giving import give
from tuner.schedulers import PopulationBasedTraining

RATES = [1, 2, 3, 4]


class Learns(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.score = 0.0

    def step(self) -> dict[str, Any]:
        failed = Path(self.config["failed"])
        if self.iteration == 1 and self.config["rate"] == 2 and not failed.exists():
            failed.touch()
            raise ValueError("once")
        self.score += self.config["rate"]
        return {"score": self.score}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "score").write_text(str(self.score))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.score = float(Path(checkpoint_dir, "score").read_text())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    settings: dict[str, Any] = {
        "name": "e",
        "storage_path": storage,
        "config": {"rate": tune.grid_search(RATES), "failed": str(storage / "failed")},
        "metric": "score",
        "mode": "max",
        "stop": {"training_iteration": 8},
        "scheduler": PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=2,
            hyperparam_mutations={"rate": RATES},
            quantile_fraction=0.5,
            synch=True,
        ),
        "resources_per_trial": {"cpu": 0.25},
        "checkpoint_freq": 1,
        "keep_checkpoints_num": 2,
        "max_failures": 2,
        "verbose": 0,
    }
    tune.run(Learns, **settings)
    trial = tune.ExperimentAnalysis(storage / "e").trials[3]
    kept = trial.checkpoints[0].iteration
    give(storage / "e", {"order": "tag", "trial": "3", "iteration": kept, "tag": "good"}, if_dead="wait")
    give(storage / "e", {"order": "note", "trial": "0", "text": "flat"}, order_id="note-order", if_dead="wait")
    give(storage / "e", {"order": "note", "trial": "9", "text": "?"}, order_id="none-such", if_dead="wait")
    tune.run(Learns, **settings, resume="AUTO")
    return storage / "e"


@pytest.fixture(params=["here", "memory"])
def opened(request: pytest.FixtureRequest, root: Path, tmp_path: Path, monkeypatch: Any) -> Any:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    if request.param == "here":
        return tune.open_experiment(root)
    assert main(["cp", str(root), f"memory://{tmp_path.name}/e"]) == 0
    return tune.open_experiment(f"memory://{tmp_path.name}/e")


def test_everything_is_plain_and_the_same_wherever_it_lies(root: Path, opened: Any) -> None:
    here = tune.open_experiment(root)
    for name in ("lineage", "checkpoints"):
        told = getattr(opened, name)()
        assert told == getattr(here, name)() and json.loads(json.dumps(told)) == told
    for name in ("orders", "notes"):
        told = getattr(opened, name)
        assert told == getattr(here, name) and json.loads(json.dumps(told)) == told
    assert list(opened.changes()) == list(here.changes())
    assert opened.diff(0, 1) == here.diff(0, 1)
    assert opened.driver == here.driver == "ended"


def test_each_checkpoint_says_why_it_is_kept_or_went(opened: Any) -> None:
    rows = opened.checkpoints(verify=True)
    assert {row["index"] for row in rows} == {0, 1, 2, 3} and opened.checkpoints("3") == [
        row | {"verified": None} for row in rows if row["index"] == 3
    ]
    for trial in opened.trials:
        own = [row for row in rows if row["trial"] == trial.trial_id]
        kept = [row for row in own if row["fate"] == "kept"]
        assert [row["name"] for row in kept] == [record.ref.name for record in trial.checkpoints]
        assert all(
            row["why"] and row["verified"] is True and row["address"].endswith(f"@{row['iteration']}") for row in kept
        )
        gone = [row for row in own if row["fate"] != "kept"]
        assert gone and all(row["why"] and row["verified"] is None and not row["copies"] for row in gone)
    (good,) = [row for row in rows if row["tags"]]
    assert (good["index"], good["tags"], good["pinned"]) == (3, ["good"], True) and {"pinned", "good"} < {*good["why"]}
    assert all(set(row["metrics"]) == {"score"} for row in rows) and opened.tags == {"good": good["address"]}


def test_lineage_is_who_went_on_from_whom(opened: Any) -> None:
    edges = opened.lineage()
    kinds = {edge["kind"] for edge in edges}
    assert {"exploit", "restart"} <= kinds <= {"exploit", "restart", "pause"}
    for trial in opened.trials:
        exploits = [edge for edge in edges if edge["trial"] == trial.trial_id and edge["kind"] == "exploit"]
        assert [edge["from"] for edge in exploits] == [clone.donor.trial_id for clone in trial.clones]
        assert [edge["checkpoint"] for edge in exploits] == [clone.donor.name for clone in trial.clones]
        times = [edge["at"] for edge in edges if edge["trial"] == trial.trial_id]
        assert None not in times and times == sorted(times)
    assert any(edge["changed"].get("rate") for edge in edges)
    (failed,) = [edge for edge in edges if edge["kind"] == "restart"]
    assert (failed["why"], failed["iteration"], failed["reached"]) == ("failed", 1, 1)
    assert opened.trials[1].trial_id == failed["trial"] == failed["from"]


def test_orders_notes_and_changes(opened: Any) -> None:
    assert [each["text"] for each in opened.notes] == ["flat"] and opened.notes[0]["trial"] == opened.trials[0].trial_id
    note, refused = opened.orders["note-order"], opened.orders["none-such"]
    assert note["order"] == {"order": "note", "trial": "0", "text": "flat"} and note["state"] == "done"
    assert refused["state"] == "refused" and "there is no trial '9'" in refused["why"]
    assert refused["answered_at"] >= refused["at"] > 0
    changes = list(opened.changes())
    assert [change["n"] for change in changes] == list(range(1, len(changes) + 1))
    assert list(opened.changes(since=5)) == changes[5:]
    assert {"created", "result", "published", "noted"} <= {change["kind"] for change in changes}
    ev.decode(json.dumps(changes[0] | {"n": None}).encode())  # they are the facts


def test_two_trials_are_compared(opened: Any) -> None:
    found = opened.diff(0, opened.trials[1].name, ignore=["rate"])
    assert (found["a"], found["b"]) == (opened.trials[0].trial_id, opened.trials[1].trial_id)
    assert {row["section"] for row in found["differences"]} <= {"last result", "state"}
    assert opened.diff(0, 0) == found | {"same": True, "b": found["a"], "differences": []}
    with pytest.raises(SettingError, match="there is no trial '7'; there are 4"):
        opened.diff(0, 7)


def test_a_checkpoint_that_is_not_what_it_was_says_so(root: Path, tmp_path: Path) -> None:
    experiment = tune.open_experiment(shutil.copytree(root, tmp_path / "e"))
    first, second = (experiment.trials[number].checkpoints[-1] for number in (0, 1))
    (Path(experiment.trials[0].path) / first.ref.name / "score").write_text("other")
    (Path(experiment.trials[1].path) / second.ref.name / MANIFEST_NAME).unlink()
    broken = [row for row in experiment.checkpoints(verify=True) if row["verified"] is False]
    assert [(row["index"], row["name"]) for row in broken] == [(0, first.ref.name), (1, second.ref.name)]
    assert all(row["problem"] for row in broken)


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExperimentNotFoundError):
        tune.open_experiment(tmp_path / "none")
