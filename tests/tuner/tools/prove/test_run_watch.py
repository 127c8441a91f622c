"""How a run is watched and killed, and what of it depends on timing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.schedulers import ASHAScheduler, MedianStoppingRule
from tuner.search import BasicVariantGenerator
from tuner.search.optuna import OptunaSearch
from tuner.spec import Spec
from tuner.stopper import CombinedStopper, TimeoutStopper
from tuner.tools.prove import run_records
from tuner.tools.prove.run_records import KillPoint
from tuner.tools.prove.run_watch import ProofPlan, Watch, decided_by_timing, redirected


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scheduler": ASHAScheduler(), "search_alg": OptunaSearch(), "stop": {"training_iteration": 3}}, []),
        ({"scheduler": "fifo", "search_alg": BasicVariantGenerator(), "concurrent": 2}, []),
        ({"scheduler": MedianStoppingRule()}, ["MedianStoppingRule goes by time_total_s"]),
        ({"time_budget_s": 5}, ["time_budget_s ends it"]),
        ({"stop": {"time_total_s": 5, "x": 3}}, ["stopped by time_total_s"]),
        ({"stop": CombinedStopper(TimeoutStopper(5))}, ["stopped by TimeoutStopper"]),
        (
            {"scheduler": "asha", "search_alg": OptunaSearch(), "concurrent": 4},
            ["asha decides by the order in which 4", "OptunaSearch decides by the order"],
        ),
    ],
)
def test_what_depends_on_timing_is_known_from_the_settings(settings: dict[str, Any], said: list[str]) -> None:
    found = decided_by_timing(**settings)
    assert len(found) == len(said) and all(part in line for part, line in zip(said, found, strict=True))


# --- watching -------------------------------------------------------------------------------------------------------


def saves_each(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["n"] if checkpoint else 0
    for n in range(start + 1, 4):
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


def watched(tmp_path: Path, *planned: KillPoint, executor: str, **settings: Any) -> dict[int, run_records.TrialRecord]:
    file = tmp_path / f"0{run_records.SUFFIX}"
    tune.run(
        saves_each, name="e", storage_path=tmp_path, executor=executor, verbose=0, max_failures=3,
        callbacks=[Watch(file, planned, victim="trial")], **settings,
    )  # fmt: skip
    return run_records.read(file)


def test_all_that_a_trial_does_is_written_down(tmp_path: Path) -> None:
    (trial,) = watched(tmp_path, executor="inline").values()
    assert sorted(trial.results) == [1, 2, 3] and trial.saved == [1, 2, 3] and trial.kills == []
    assert [trial.results[n]["n"] for n in (1, 2, 3)] == [1, 2, 3] and trial.configs[1] == {}


def test_a_trial_is_killed_where_it_is_planned_and_once_it_can_go_on(tmp_path: Path) -> None:
    (trial,) = watched(tmp_path, KillPoint(0, 0, 1), executor="local").values()
    (kill,) = trial.kills
    assert kill.iteration in (2, 3), "at the first report it had nothing to go on from"
    assert kill.went_on_from is not None and 1 <= kill.went_on_from < kill.iteration
    assert sorted(trial.results) == [1, 2, 3]


def test_a_kill_that_has_happened_is_not_planned_again(tmp_path: Path) -> None:
    file = tmp_path / f"0{run_records.SUFFIX}"
    run_records.write(file, "killed", 0, 2)
    (trial,) = watched(tmp_path, KillPoint(0, 0, 2), executor="inline").values()
    assert len(trial.kills) == 1


def test_a_trial_of_this_process_cannot_be_killed(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="a trial in this very process cannot be killed"):
        watched(tmp_path, KillPoint(0, 0, 2), executor="inline")


# --- the settings of a script's run ---------------------------------------------------------------------------------


def spec_of(tmp_path: Path, **settings: Any) -> Spec:
    return Spec(**{"trainable": saves_each, "name": "mine", "storage_path": tmp_path / "own", **settings})


@pytest.mark.parametrize(("limit", "concurrent", "at_once"), [(None, 2, 2), (1, 2, 1), (8, 2, 2), (0, 3, 3)])
def test_a_proof_has_results_of_its_own_and_touches_none_of_the_scripts(
    limit: int | None, concurrent: int, at_once: int, tmp_path: Path
) -> None:
    place = tmp_path / "proof"
    place.mkdir()
    ProofPlan(seed=7, concurrent=concurrent, points=[]).write(place)
    assert ProofPlan.read(place).seed == 7
    given = spec_of(
        tmp_path, max_concurrent_trials=limit, overwrite=True, sync_config=tune.SyncConfig(upload_dir="s3://bucket/x")
    )
    spec = redirected(given, place)
    assert Path(str(spec.storage_path)).parent == place and not spec.overwrite
    assert spec.sync_config.upload_dir is None and spec.max_concurrent_trials == at_once
    assert (spec.seed, redirected(spec_of(tmp_path, seed=3), place).seed) == (7, 3)
    assert isinstance(list(spec.callbacks)[-1], Watch)
    assert getattr(spec.checkpoint_config, "publish", None) == "blocking"
    second = redirected(given, place)
    assert second.storage_path != spec.storage_path, "a script may run several"


def test_a_script_that_continues_something_that_was_there_is_not_proven(tmp_path: Path) -> None:
    tune.run(saves_each, name="old", storage_path=tmp_path, executor="inline", verbose=0)
    with pytest.raises(SettingError, match="continues no experiment that was there before"):
        redirected(spec_of(tmp_path, restore=tmp_path / "old"), tmp_path)
