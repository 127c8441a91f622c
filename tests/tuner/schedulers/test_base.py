"""The interface of schedulers: decisions, their reasons, and what is ordered for trials that wait."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest

from tuner.error import SettingError
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers import base
from tuner.schedulers.base import Decision, Directive, Exploit, Reallocate, Reasoned, TrialScheduler, split
from tuner.testing import TrialStub


def test_a_directive_that_was_stored_under_its_old_name_is_read() -> None:
    stored = pickle.dumps({"t_00001": Directive("t_00001", Decision.STOP)}, protocol=2)
    old = stored.replace(b"ctuner.schedulers.base\nDirective\n", b"ctuner.schedulers.base\nOrder\n")
    assert old != stored
    assert pickle.loads(old) == {"t_00001": Directive("t_00001", Decision.STOP)}


def test_a_scheduler_of_a_user_may_name_it_as_before() -> None:
    assert base.Order is Directive


def test_every_decision_says_what_happens_to_the_checkpoint() -> None:
    source = Path(inspect.getfile(Decision)).read_text("utf-8")
    body = source.split("class Decision(Enum)")[1].split("@dataclass")[0]
    for member in Decision:
        described = body.split(f"{member.name} = ")[1].split('"""')[1]
        assert "checkpoint" in described or "saved" in described


# --- verdicts and their reasons

WORSE = Reason(ReasonKind.WORSE, metric="loss", value=2.0)


def test_to_go_on_needs_no_reason() -> None:
    assert split(Decision.CONTINUE, "Mine", 3) == (Decision.CONTINUE, None)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Decision.SAVE, ReasonKind.DECIDED),
        (Decision.PAUSE, ReasonKind.DECIDED),
        (Decision.STOP, ReasonKind.DECIDED),
        (Exploit("t1", {"lr": 1}), ReasonKind.EXPLOIT),
        (Reallocate({"cpu": 2.0}), ReasonKind.RESOURCES),
    ],
    ids=str,
)
def test_a_bare_verdict_is_named_by_who_gave_it(answer: Any, kind: ReasonKind) -> None:
    assert split(answer, "Mine", 3) == (answer, Reason(kind, by="Mine", iteration=3))


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Reasoned(Decision.STOP, WORSE), Decision.STOP),
        (Exploit("t1", {}, WORSE), Exploit("t1", {})),
        (Reallocate({"cpu": 2.0}, WORSE), Reallocate({"cpu": 2.0})),
    ],
    ids=["reasoned", "exploit", "reallocate"],
)
def test_a_reason_is_kept_and_gets_who_and_when(answer: Any, verdict: Any) -> None:
    assert split(answer, "Mine", 3) == (verdict, WORSE.filled("Mine", 3))
    said = Reason(ReasonKind.LIMIT, by="Other", iteration=2)
    _, reason = split(Reasoned(Decision.STOP, said), "Mine", 3)
    assert reason == said, "what it says of that stands"


@pytest.mark.parametrize(
    "answer",
    ["STOP", None, True, Reasoned("STOP", WORSE), Reasoned(Decision.STOP, "worse"), Exploit("t", {}, "better")],  # type: ignore[arg-type]
    ids=str,
)
def test_an_answer_that_is_no_decision_is_named_with_whose_it_is(answer: Any) -> None:
    with pytest.raises(SettingError, match=r"^Mine decided .* is not accepted; accepted are TrialScheduler.CONTINUE"):
        split(answer, "Mine", 3)


def test_a_reason_changes_nothing_for_who_extends_a_scheduler() -> None:
    reasoned = Reasoned(Decision.STOP, WORSE)
    assert reasoned == Decision.STOP and Decision.STOP == reasoned
    assert reasoned == Reasoned(Decision.STOP, Reason(ReasonKind.LIMIT)) != Reasoned(Decision.PAUSE, WORSE)
    assert {reasoned: 1}[Decision.STOP] == 1
    assert (reasoned.name, reasoned.value) == ("STOP", "stop")
    again = Reasoned(reasoned, Reason(ReasonKind.LIMIT))  # type: ignore[arg-type]
    assert again.verdict is Decision.STOP and again.reason.kind is ReasonKind.LIMIT
    assert Exploit("t", {}, WORSE) == Exploit("t", {}) and Reallocate({}, WORSE) == Reallocate({})


@pytest.mark.parametrize(
    ("made", "before"),
    [
        (Exploit("t1", {"lr": 1}), ["t1", {"lr": 1}]),
        (Reallocate({"cpu": 2.0}), [{"cpu": 2.0}]),
        (Directive("t1", Decision.STOP), ["t1", Decision.STOP]),
    ],
    ids=str,
)
def test_what_was_stored_before_there_were_reasons_is_read(made: Any, before: list[Any]) -> None:
    old = type(made).__new__(type(made))
    old.__setstate__(before)
    assert old == made and old.reason is None
    with_reason = type(made)(*before, WORSE)
    assert pickle.loads(pickle.dumps(with_reason)).reason == WORSE


# --- the interface


class Needing(TrialScheduler):
    needs_metric = True


def test_the_runs_metric_and_mode_fill_in_what_is_not_given() -> None:
    bare, own = TrialScheduler(), TrialScheduler(metric="acc", mode="max")
    assert bare.set_search_properties("loss", "min", later="unknown") is True
    assert (bare.metric, bare.mode) == ("loss", "min")
    assert own.set_search_properties(None, None) is True
    assert (own.metric, own.mode) == ("acc", "max")


@pytest.mark.parametrize(("metric", "mode"), [("loss", "max"), ("acc", "min"), ("loss", None)])
def test_a_run_that_contradicts_the_constructor_changes_nothing(metric: str, mode: str | None) -> None:
    own = TrialScheduler(metric="acc", mode="max")
    assert own.set_search_properties(metric, mode) is False
    assert (own.metric, own.mode) == ("acc", "max")


def test_a_mode_alone_means_the_unnamed_metric_where_one_is_needed() -> None:
    needing, bare = Needing(), TrialScheduler()
    for scheduler in (needing, bare):
        scheduler.set_search_properties(None, "min")
    assert (needing.metric, bare.metric) == ("_metric", None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": ["a", "b"]}, "Needing: metric=.*compares by one number; ASHAScheduler takes several"),
        ({"metric": 3}, "Needing: metric=3"),
        ({"mode": "up"}, "Needing: mode='up'"),
    ],
)
def test_what_is_no_metric_or_mode_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Needing(**arguments)
    with pytest.raises(SettingError, match=message):
        Needing().set_search_properties(**{"metric": None, "mode": None, **arguments})


def test_a_scheduler_without_a_rule_says_so_and_all_else_has_a_default() -> None:
    scheduler, trials = Needing(), [TrialStub("a"), TrialStub("b")]
    with pytest.raises(NotImplementedError, match="Needing does not define on_trial_result"):
        scheduler.on_trial_result(trials[0], {})
    config = {"lr": 1}
    assert scheduler.first_config(config) is config
    assert scheduler.choose_trial_to_run(trials) is trials[0]
    assert scheduler.choose_trial_to_run([]) is None
    assert list(scheduler.orders()) == []
    assert scheduler.debug_string() == "Using Needing"
