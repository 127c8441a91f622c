"""Facts: each is one line of JSON with its kind, and a later version may know more of it."""

from __future__ import annotations

import json
import random
from typing import Any, get_args

import msgspec
import pytest

from tests.tuner.experiment.facts import attempt, created, life, published, raw, ref, result
from tuner.error import ExperimentDamagedError
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.state import ExperimentState

KINDS = get_args(ev.AnyFact)


def test_every_fact_has_a_kind_of_its_own_and_its_time_is_no_part_of_its_order() -> None:
    tags = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(tags)) == len(tags) and all(tag.isidentifier() for tag in tags)
    assert all(kind.__struct_config__.frozen for kind in KINDS)
    assert set(KINDS) == set(ev.Fact.__subclasses__()), "decode knows all of them"


@pytest.mark.parametrize("seed", range(5))
def test_a_fact_is_one_line_of_json_with_its_kind(seed: int) -> None:
    for fact in life(random.Random(seed), 40):
        line = ev.encode(fact)
        assert b"\n" not in line
        assert json.loads(line)["kind"] == type(fact).__struct_config__.tag
        assert type(ev.decode(line)) is type(fact)


def test_what_is_as_usual_is_not_written() -> None:
    assert json.loads(ev.encode(ev.AttemptEnded("t", 1, "lost"))) == {
        "kind": "attempt_ended", "trial": "t", "attempt": 1, "why": "lost",
    }  # fmt: skip
    assert set(json.loads(ev.encode(result(1)))) == {"kind", "trial", "attempt", "iteration", "metrics"}


def test_metrics_and_configs_stand_as_they_were_given() -> None:
    text = b'{"b":1e400,"a":[1.0,{"$":"inf"}]}'
    fact = ev.decode(ev.encode(ev.ResultReported("t", 1, 1, msgspec.Raw(text))))
    assert isinstance(fact, ev.ResultReported) and bytes(fact.metrics) == text
    assert isinstance(read := ev.decode(ev.encode(created(x=1))), ev.TrialCreated)
    assert json.loads(bytes(read.config)) == {"x": 1}


@pytest.mark.parametrize("missing", [ev.AttemptStarted, ev.CheckpointPublished])
def test_no_value_is_read_back_as_no_value(missing: type) -> None:
    fact = attempt() if missing is ev.AttemptStarted else published(1)
    again: Any = ev.decode(ev.encode(fact))
    assert (again.config if missing is ev.AttemptStarted else again.metrics) == ev.NO_RAW


def test_a_reason_goes_with_its_fact() -> None:
    reason = Reason(ReasonKind.WORSE, "ASHA", 4, "loss", 2.0, 3, 9, 1.5)
    again = ev.decode(ev.encode(result(4, then="stop", reason=reason)))
    assert isinstance(again, ev.ResultReported) and (again.reason, again.then) == (reason, "stop")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "truncated"),
        (b"[]", "object"),
        (b'{"trial":"t"}', "kind"),
        (b'{"kind":"what is that"}', "Invalid value"),
        (b'{"kind":"attempt_ended","trial":"t","attempt":1,"why":"bored"}', "Invalid enum value"),
        (b'{"kind":"attempt_ended","trial":"t","attempt":"one","why":"lost"}', "Expected `int`"),
        (b'{"kind":"attempt_ended","trial":"t"}', "missing required field"),
    ],
)
def test_what_is_no_fact_is_refused_with_a_reason(line: bytes, why: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=why):
        ev.decode(line)


def test_a_field_that_a_later_version_adds_is_passed_over() -> None:
    assert ev.decode(b'{"kind":"idle","mood":"calm"}') == ev.Idle()


def test_facts_that_free_space_or_end_trials_are_written_also_when_the_disk_is_full() -> None:
    assert {kind for kind in KINDS if issubclass(kind, ev.VITAL)} == set(ev.VITAL)
    frees = (ev.CheckpointForgotten(ref(1)), ev.CheckpointDeleted(ref(1)), ev.LocalCopyDropped(ref(1)))
    assert all(isinstance(fact, ev.VITAL) for fact in frees)
    assert not isinstance(published(1), ev.VITAL) and not isinstance(result(1), ev.VITAL)


def test_a_name_that_leads_out_of_the_experiment_is_damage(tmp_path: Any) -> None:
    state = ExperimentState(tmp_path)
    state.apply(created())
    hostile = msgspec.structs.replace(published(1), ref=msgspec.structs.replace(ref(1), name="../../x"))
    with pytest.raises(ExperimentDamagedError):
        state.apply(hostile)
    with pytest.raises(ExperimentDamagedError):
        state.apply(ev.TrialCreated("t", 1, raw({}), dirname="/etc"))
