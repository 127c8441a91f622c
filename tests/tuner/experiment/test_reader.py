"""Reading an experiment: its description, its state, its history, and where what cannot be used stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.experiment.facts import attempt, created, result, saved
from tests.tuner.experiment.harness import Writers
from tuner.error import ExperimentDamagedError, ExperimentNotFoundError, NewerFormatError
from tuner.experiment import events as ev
from tuner.experiment.formats import FORMAT
from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import (
    facts_of,
    is_experiment,
    lies_at,
    load_state,
    load_with_journal,
    read_settings,
    replay,
    state_of,
)
from tuner.experiment.state import ExperimentState


def describe(paths: ExperimentPaths, **settings: Any) -> None:
    paths.root.mkdir(parents=True, exist_ok=True)
    paths.experiment_json.write_text(json.dumps({"format": FORMAT, "name": "e", "id": "ab", **settings}))


def bodies(*facts: ev.AnyFact | bytes) -> list[tuple[int, bytes]]:
    return [(seq, fact if isinstance(fact, bytes) else ev.encode(fact)) for seq, fact in enumerate(facts, 1)]


FACTS = [ev.GenerationStarted(1), created(), attempt(), *saved(1, loss=2.0), result(2, loss=1.0)]


# --- the description ------------------------------------------------------------------------------------------------


def test_an_experiment_is_where_its_description_is(paths: ExperimentPaths) -> None:
    assert not is_experiment(paths)
    with pytest.raises(ExperimentNotFoundError, match=re.escape(str(paths.root))):
        read_settings(paths)
    describe(paths, metric="loss")
    assert is_experiment(paths) and read_settings(paths)["metric"] == "loss"
    with pytest.raises(ExperimentNotFoundError):
        read_settings(ExperimentPaths(paths.experiment_json))  # a file


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "{}", '{"format": "two"}', '{"format": null}', '{"format": 1e999}', "[" * 100_000, "\xff"],
)
def test_a_description_that_cannot_be_read_is_damage_that_names_the_file(text: str, paths: ExperimentPaths) -> None:
    describe(paths)
    paths.experiment_json.write_bytes(text.encode("latin-1"))
    with pytest.raises(ExperimentDamagedError, match="experiment.json cannot be read") as caught:
        read_settings(paths)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", 3), ("id", ["x"]), ("metric", {}), ("retention", "all"), ("sync_command", "rsync"), ("space_blob", 1)],
)
def test_a_setting_of_another_kind_is_damage_that_names_it(key: str, value: Any, paths: ExperimentPaths) -> None:
    describe(paths, **{key: value})
    with pytest.raises(ExperimentDamagedError, match=f"{key} is "):
        read_settings(paths)
    describe(paths, **{key: None})
    assert read_settings(paths)[key] is None


def test_a_description_of_a_later_version_is_refused(paths: ExperimentPaths) -> None:
    describe(paths, format=FORMAT + 1)
    with pytest.raises(NewerFormatError):
        read_settings(paths)


def test_who_reads_what_was_fetched_is_told_of_the_place_it_came_from(paths: ExperimentPaths) -> None:
    with pytest.raises(ExperimentNotFoundError, match="s3://bucket/e") as caught, lies_at(paths.root, "s3://bucket/e"):
        read_settings(paths)
    assert str(paths.root) not in str(caught.value)


# --- the state ------------------------------------------------------------------------------------------------------


def test_the_state_is_what_the_journal_adds_up_to(paths: ExperimentPaths, writers: Writers) -> None:
    describe(paths)
    writer = writers(head=False)
    for fact in FACTS:
        writer.append(ev.encode(fact))
    writer.flush()
    (trial,) = load_state(paths).trials
    assert (trial.iteration, trial.last_result["loss"], len(trial.checkpoints)) == (2, 1.0, 1)
    state, contents = load_with_journal(paths)
    assert contents.last_seq == len(FACTS) and state.trials[0].directory == paths.root / trial.dirname


@pytest.mark.parametrize("bad", [b'{"kind":"nonsense"}', b"[1]", ev.encode(result(3, trial="nobody"))])
def test_a_fact_that_cannot_be_used_is_damage_with_its_place_or_a_line_and_the_rest_counts(
    bad: bytes, paths: ExperimentPaths
) -> None:
    with pytest.raises(ExperimentDamagedError, match=f"fact {len(FACTS) + 1} cannot be used"):
        state_of(paths, None, bodies(*FACTS, bad))
    problems: list[str] = []
    state = state_of(paths, None, bodies(*FACTS, bad, result(3, loss=0.5)), problems)
    assert len(problems) == 1 and state.trials[0].iteration == 3


def test_a_fact_is_named_by_its_file_and_line_where_it_stands_in_one(paths: ExperimentPaths, writers: Writers) -> None:
    writer = writers(head=False)
    for fact in FACTS:
        writer.append(ev.encode(fact))
    writer.append(b'{"kind":"nonsense"}')
    writer.flush()
    contents = read_journal(paths)
    with pytest.raises(ExperimentDamagedError, match=rf"\.jsonl, line {len(FACTS) + 1}: fact {len(FACTS) + 1} "):
        list(facts_of(paths, contents.bodies))
    assert len(list(facts_of(paths, contents.bodies[:-1]))) == len(FACTS)


def test_a_snapshot_that_cannot_be_used_is_damage_or_a_line(paths: ExperimentPaths) -> None:
    with pytest.raises(ExperimentDamagedError, match="the snapshot cannot be used"):
        state_of(paths, b"{", [])
    problems: list[str] = []
    state = state_of(paths, b'{"trials":3}', bodies(*FACTS), problems)
    assert len(problems) == 1 and state.trials[0].iteration == 2


# --- the history ----------------------------------------------------------------------------------------------------


def train(config: dict[str, Any]) -> None:
    for n in range(3):
        tune.report({"n": n})


def test_all_that_happened_is_gone_through_also_what_a_snapshot_replaced(tmp_path: Path, writers: Writers) -> None:
    paths = writers.paths
    describe(paths)
    writer = writers(head=False)
    state = ExperimentState(paths.root)
    for fact in FACTS:
        writer.append(ev.encode(fact))
        state.apply(fact)
    writer.flush()
    assert writer.compact(state.snapshot({}), grace_s=0)
    writer.append(ev.encode(result(3)))
    writer.flush()
    contents = read_journal(paths)
    assert contents.snapshot is not None and len(contents.bodies) == 1

    def kinds(begins: ExperimentState, facts: Iterable[ev.AnyFact]) -> list[str]:
        assert len(begins.trials) == 0
        return [type(fact).__name__ for fact in facts]

    replayed = replay(paths, contents, kinds)
    assert replayed.made == [type(fact).__name__ for fact in [*FACTS, result(3)]]
    assert replayed.since is None and replayed.notes == []


def test_where_the_beginning_is_not_kept_it_is_said_since_when(writers: Writers) -> None:
    paths = writers.paths
    describe(paths)
    writer = writers(head=False, history_bytes=0)
    state = ExperimentState(paths.root)
    for fact in FACTS:
        writer.append(ev.encode(fact))
        state.apply(fact)
    writer.flush()
    assert writer.compact(state.snapshot({}), grace_s=0)
    writer.append(ev.encode(result(3)))
    writer.flush()
    replayed = replay(paths, read_journal(paths), lambda begins, facts: (begins.trials[0].iteration, len(list(facts))))
    assert replayed.made == (2, 1) and replayed.since == 103.0


def test_a_run_is_read_by_its_directory(tmp_path: Path) -> None:
    tune.run(train, name="e", storage_path=tmp_path, executor="inline", verbose=0)
    (trial,) = load_state(ExperimentPaths(tmp_path / "e")).trials
    assert (trial.status, trial.last_result["n"]) == ("TERMINATED", 2)
