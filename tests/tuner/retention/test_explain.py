"""Why checkpoints stayed or went: the journal's facts replayed, against what a run really kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner as tune
from trainables import tagged
from trainables.config import CheckpointConfig
from trainables.store.retention import Best, EveryN, Latest, Pareto, RetentionPolicy
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.retention import TrialRetention
from tuner.retention.explain import Chronicle, explain, would_keep
from tuner.retention.rules import BUDGET

SCORES = [3.0, 9.0, 1.0, 9.0, 5.0, 7.0, 2.0, 8.0]


def train(config: dict[str, Any]) -> None:
    for iteration in range(len(SCORES)):
        score = SCORES[(iteration + config["shift"]) % len(SCORES)]
        tune.report({"auc": score, "latency": score * iteration}, checkpoint=tune.Checkpoint.from_dict({"a": 1}))


def run(storage: Path, **settings: Any) -> Path:
    tune.run(
        train,
        name="run",
        storage_path=str(storage),
        executor="inline",
        verbose=0,
        config={"shift": tune.grid_search([0, 1, 5])},
        **settings,
    )
    return storage / "run"


def chronicle_of(path: Path) -> Chronicle:
    contents = read_journal(ExperimentPaths(path))
    state = ExperimentState.from_snapshot(path, contents.snapshot)
    return Chronicle(state, [ev.decode(body) for _, body in contents.bodies])


POLICIES: list[RetentionPolicy] = [
    Latest(2),
    Best(2, "auc"),
    Best(1, "auc", "min") | EveryN(3),
    Pareto({"auc": "max", "latency": "min"}),
    Pareto({"auc": "max", "latency": "min"}, limit=2),
]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_what_a_policy_would_have_kept_is_what_it_keeps(tmp_path: Path, policy: RetentionPolicy) -> None:
    really = chronicle_of(run(tmp_path / "really", checkpoint_config=CheckpointConfig(keep=[policy]))).state
    everything = chronicle_of(run(tmp_path / "all"))
    would = would_keep(everything.steps, TrialRetention(CheckpointConfig(keep=[policy])))

    kept = {trial.index: [record.iteration for record in trial.checkpoints] for trial in really.trials}
    assert any(len(iterations) < len(SCORES) for iterations in kept.values())
    indices = {trial.trial_id: trial.index for trial in everything.state.trials}
    assert {indices[trial]: [record.iteration for record in disk] for trial, disk in would.items()} == kept


def test_each_checkpoint_has_its_rule_and_the_newer_one_it_went_for(tmp_path: Path) -> None:
    path = run(tmp_path, keep_checkpoints_num=2, checkpoint_score_attr="auc")
    chronicle = chronicle_of(path)
    trial = chronicle.state.trials[0]

    told = explain(chronicle, trial, Best(2, "auc"))

    on_disk = sorted(entry.name for entry in Path(trial.path).iterdir() if entry.name.startswith("checkpoint_"))
    assert [one["name"] for one in told if one["fate"] == "kept"] == on_disk
    assert [(one["iteration"], one["fate"], one["why"], one["metrics"]["auc"]) for one in told] == [
        (1, "deleted", ["best:2:auc"], 3.0),
        (2, "kept", ["best:2:auc"], 9.0),
        (3, "deleted", ["best:2:auc"], 1.0),
        (4, "kept", ["best:2:auc"], 9.0),
        (5, "deleted", ["best:2:auc"], 5.0),
        (6, "deleted", ["best:2:auc"], 7.0),
        (7, "deleted", ["best:2:auc"], 2.0),
        (8, "kept", ["latest"], 8.0),
    ]
    names = {one["iteration"]: one["name"] for one in told}
    # 1 went when 4 was among the best two; 3 as soon as it was not the latest any more.
    assert [one["for"] for one in told if one["fate"] == "deleted"] == [names[n] for n in (4, 4, 6, 7, 8)]
    saved = {one["name"]: one["saved_at"] for one in told}
    assert all(one["at"] == saved[one["for"]] for one in told if one["fate"] == "deleted")


def ref_of(trial: str, index: int, attempt: int = 1) -> CheckpointRef:
    return CheckpointRef(trial, f"checkpoint_{index:06d}", 1, attempt, index, index)


def created(index: int) -> ev.TrialCreated:
    raw = msgspec.Raw(tagged.dumps({}))
    return ev.TrialCreated(f"t{index}", index, raw, raw, "", f"t{index}", f"t{index}")


def published(trial: str, index: int, attempt: int = 1) -> ev.CheckpointPublished:
    metrics = msgspec.Raw(tagged.dumps({"auc": float(index)}))
    return ev.CheckpointPublished(ref_of(trial, index, attempt), 10, "", 100.0 + index, metrics)


def test_the_budget_names_the_save_of_whatever_trial(tmp_path: Path) -> None:
    facts: list[ev.AnyFact] = [created(0), created(1)]
    facts += [ev.AttemptStarted("t0", 1, 1, 0.0), ev.AttemptStarted("t1", 1, 1, 0.0)]
    facts += [
        published("t0", 1),
        published("t0", 2),
        published("t1", 3),
        ev.CheckpointForgotten(ref_of("t0", 1), BUDGET),
    ]
    chronicle = Chronicle(ExperimentState(tmp_path), facts)

    first, second = explain(chronicle, chronicle.state.trials[0], Latest(5))

    assert (first["fate"], first["why"], first["for"], first["at"]) == (
        "deleted",
        ["checkpoint_budget"],
        "t1/checkpoint_000003",
        103.0,
    )
    assert (second["fate"], second["why"]) == ("kept", ["latest:5", "latest"])


def test_a_broken_one_is_told_with_what_is_wrong_with_it(tmp_path: Path) -> None:
    facts: list[ev.AnyFact] = [created(0), ev.AttemptStarted("t0", 1, 1, 0.0), published("t0", 1), published("t0", 2)]
    facts.append(ev.CheckpointSetAside(ref_of("t0", 2), "a file is missing"))
    chronicle = Chronicle(ExperimentState(tmp_path), facts)

    told = explain(chronicle, chronicle.state.trials[0], Latest(1))

    assert [(one["fate"], one["why"]) for one in told] == [
        ("kept", ["latest:1", "latest"]),
        ("set aside", ["a file is missing"]),
    ]
    disks = would_keep(chronicle.steps, TrialRetention(CheckpointConfig(num_to_keep=2)))
    assert [record.iteration for record in disks["t0"]] == [1]


def test_what_a_clone_starts_from_is_in_use_until_it_has_its_own(tmp_path: Path) -> None:
    facts: list[ev.AnyFact] = [created(0), created(1), ev.AttemptStarted("t0", 1, 1, 0.0), published("t0", 1)]
    facts += [ev.AttemptStarted("t1", 1, 1, 0.0, ref_of("t0", 1)), published("t0", 2), published("t0", 3)]
    keep_one = TrialRetention(CheckpointConfig(num_to_keep=1))
    before = Chronicle(ExperimentState(tmp_path), facts)
    after = Chronicle(ExperimentState(tmp_path), [*facts, published("t1", 1), published("t0", 4)])

    assert [record.iteration for record in would_keep(before.steps, keep_one)["t0"]] == [1, 3]
    assert [record.iteration for record in would_keep(after.steps, keep_one)["t0"]] == [4]
    first = Chronicle(ExperimentState(tmp_path), [*facts, published("t1", 1)])
    assert [record.iteration for record in would_keep(first.steps, keep_one)["t0"]] == [3]
    told = explain(before, before.state.trials[0], Best(1, "auc"))
    assert told[0]["why"] == ["in use: an attempt started from it"]


def test_of_a_trial_that_started_anew_the_life_before_goes(tmp_path: Path) -> None:
    facts: list[ev.AnyFact] = [created(0), ev.AttemptStarted("t0", 1, 1, 0.0), published("t0", 9)]
    facts += [ev.AttemptStarted("t0", 2, 1, 0.0), published("t0", 1, attempt=2)]
    chronicle = Chronicle(ExperimentState(tmp_path), facts)

    disks = would_keep(chronicle.steps, TrialRetention(CheckpointConfig(keep=[Best(1, "auc")])))

    assert [record.iteration for record in disks["t0"]] == [1]


def test_of_a_clone_the_best_of_all_its_lives_stays(tmp_path: Path) -> None:
    facts: list[ev.AnyFact] = [created(0), created(1), ev.AttemptStarted("t0", 1, 1, 0.0), published("t0", 9)]
    facts += [ev.AttemptStarted("t1", 1, 1, 0.0), published("t1", 1)]
    facts += [ev.AttemptStarted("t0", 2, 1, 0.0, ref_of("t1", 1)), published("t0", 5, 2), published("t0", 7, 2)]
    chronicle = Chronicle(ExperimentState(tmp_path), facts)

    disks = would_keep(chronicle.steps, TrialRetention(CheckpointConfig(keep=[Best(1, "auc")])))

    assert [record.iteration for record in disks["t0"]] == [9, 7]


def test_after_compaction_only_the_number_of_those_that_are_gone_is_known(tmp_path: Path) -> None:
    before = ExperimentState(tmp_path)
    facts: list[ev.AnyFact] = [created(0), ev.AttemptStarted("t0", 1, 1, 0.0), published("t0", 1), published("t0", 2)]
    for fact in [*facts, ev.CheckpointForgotten(ref_of("t0", 1), "latest:1")]:
        before.apply(fact)
    later: list[ev.AnyFact] = [published("t0", 3), ev.CheckpointForgotten(ref_of("t0", 2), "latest:1")]
    chronicle = Chronicle(ExperimentState.from_snapshot(tmp_path, before.snapshot({})), later)
    trial = chronicle.state.trials[0]

    told = explain(chronicle, trial, Latest(1))

    assert [(one["iteration"], one["fate"], one["for"]) for one in told] == [
        (2, "deleted", "checkpoint_000003"),
        (3, "kept", None),
    ]
    assert chronicle.unknown(trial) == 1


def test_a_journal_from_before_the_reason_was_written_down_reads(tmp_path: Path) -> None:
    ref = ref_of("t0", 1)
    old = b'{"kind":"forgotten","ref":' + msgspec.json.encode(ref) + b"}"
    assert ev.decode(old) == ev.CheckpointForgotten(ref)
    facts: list[ev.AnyFact] = [created(0), ev.AttemptStarted("t0", 1, 1, 0.0), published("t0", 1), published("t0", 2)]
    chronicle = Chronicle(ExperimentState(tmp_path), [*facts, ev.decode(old)])
    assert explain(chronicle, chronicle.state.trials[0], Latest(1))[0]["why"] == []
