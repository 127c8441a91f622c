"""How orders are taken up and answered, and that a kill between any two steps loses none and does none twice."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.failures.checkpoint_faults import fill, volume
from tests.tuner.driver.harness import plugin_set
from tests.tuner.driver.steered import Steered
from trainables.store import fs
from tuner.driver import steering, trial_orders
from tuner.error import OrderError
from tuner.experiment import events as ev
from tuner.experiment.journal_format import parse_lines
from tuner.experiment.paths import ExperimentPaths
from tuner.orders import mailbox, order, pins
from tuner.orders.giving import GivenOrder
from tuner.orders.mailbox import Mailbox, OrderAnswer, OrderState

_CODE_OF_ORDERS = tuple(module.__file__ or "" for module in (steering, trial_orders, pins, order, mailbox))

_orders = st.one_of(
    st.builds(lambda word, trial: {"order": word, "trial": trial}, st.sampled_from(["stop", "pause", "go"]), st.text()),
    st.builds(
        lambda text: {"order": "note", "trial": "0", "text": text},
        st.text(min_size=1).filter(lambda text: bool(text.strip())),
    ),
)


@pytest.fixture
def run(tmp_path: Path) -> Steered:
    harness = Steered(tmp_path / "e", plugin_set(num_samples=2), class_api=True)
    harness.turn()
    return harness


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"order": "stop", "trial": "77"}', "there is no trial '77'; there are 2"),
        (b'{"order": "go", "trial": "0"}', "was not told to pause: it is running"),
        (b"rubbish", "accepted is JSON"),
    ],
)
def test_what_cannot_be_done_is_refused_with_why(run: Steered, body: bytes, said: str) -> None:
    run.mailbox.put("some-order", body)
    run.look()
    state, why = run.said("some-order")
    assert state == "refused" and said in why
    assert not run.mailbox.is_waiting("some-order")


@given(order=_orders, indent=st.sampled_from([None, 1, "\t"]), around=st.text(" \n\t\r", max_size=5))
@settings(max_examples=25, deadline=None)
def test_however_it_was_written_an_order_is_one_line_of_the_journal(
    order: dict[str, Any], indent: Any, around: str
) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "e")
        run = Steered(root, plugin_set(num_samples=2), class_api=True)
        run.turn()
        run.mailbox.put("some-order", f"{around}{json.dumps(order, indent=indent)}{around}".encode())
        run.look()
        run.journal.close()
        (segment,) = ExperimentPaths(root).journal.glob("*.jsonl")
        lines, rest = parse_lines(segment.read_bytes())
        assert rest == 0 and [ev.decode(body) for _, body in lines] == run.facts
        assert [json.loads(bytes(record.order)) for record in run.state.orders.values()] == [order]


def test_a_known_id_gets_its_first_answer(run: Steered) -> None:
    run.order("note", text="one", order_id="same-order")
    (run.mailbox.directory / "same-order.answer.json").unlink()
    run.order("note", text="two", order_id="same-order")
    assert run.said("same-order") == ("done", "") and [note.text for note in run.trial().notes] == ["one"]


def test_an_answer_that_its_driver_could_not_write_any_more_is_written_by_the_next(
    run: Steered, tmp_path: Path
) -> None:
    order = run.order("note", text="one")
    run.mailbox.reply(OrderAnswer(order, OrderState.TAKEN))  # as it was before
    again = Steered(tmp_path / "e", plugin_set(num_samples=2), class_api=True, facts=run.facts)
    again.loop.steering.begin()
    assert again.said(order) == ("done", "")


def test_a_result_costs_nothing_where_nobody_orders(run: Steered) -> None:
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_CODE_OF_ORDERS):
            called.append(f"{frame.f_code.co_filename} {frame.f_code.co_name}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for _ in range(20):
            run.report(run.trial(), loss=1.0)
        results = list(called)
        run.look()
    finally:
        sys.setprofile(before)
    assert results == [] and called != []


@pytest.mark.root
def test_on_a_full_disk_orders_wait_and_none_is_lost(tmp_path: Path) -> None:
    with volume(tmp_path / "small", "3m") as place:
        run = Steered(place / "e", plugin_set(num_samples=2), class_api=True)
        run.turn()
        given = [f"order-{number:04d}" for number in range(20)]
        for order_id in given:
            run.mailbox.put(order_id, json.dumps({"order": "note", "trial": "0", "text": order_id}).encode())
        ballast = fill(place)
        with pytest.raises(OrderError, match="No space left"):
            run.mailbox.put("late-order", b"{}")
        for _ in range(3):
            run.look()
        assert {GivenOrder(place / "e", order_id).state for order_id in given} <= {"waiting", "taken", "done"}
        ballast.unlink()
        run.look()
        assert [run.said(order_id) for order_id in given] == [("done", "")] * 20
        assert [note.text for note in run.trial().notes] == given and run.mailbox.take() == []
        assert {path.name for path in run.mailbox.directory.iterdir()} == {f"{name}.answer.json" for name in given}
        run.journal.close()


# --- kills ------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The driver is gone at that instruction."""


CHANGING = ("rename", "link", "unlink", "write", "create", "fsync", "fdatasync", "mkdir", "chmod", "truncate")
GIVEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("note", {"trial": "0", "text": "one"}),
    ("pause", {"trial": "0"}),
    ("stop", {"trial": "1"}),
    ("retry", {"trial": "2"}),
    ("note", {"trial": "9", "text": "no"}),
    ("set", {"name": "max_concurrent", "value": 4}),
    ("set", {"name": "resources", "value": {"cpu": 2}, "trial": "0"}),
    ("add", {"config": {"x": 9}}),
    ("fork", {"trial": "0", "iteration": 1, "config": {"x": 8}}),
)


def life(root: Path, facts: list[ev.AnyFact], until: int) -> tuple[list[ev.AnyFact], bool]:
    """One driver's life, killed before its `until`-th change of the disk; returns all facts that are on the disk."""
    shutil.rmtree(ExperimentPaths(root).journal, ignore_errors=True)
    count = 0

    def counted(real: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count > until:
                raise Killed
            return real(*arguments, **more)

        return call

    patch = pytest.MonkeyPatch()
    run = Steered(root, plugin_set(num_samples=3), facts=facts, slots=5, class_api=True)
    try:
        for name in CHANGING:
            patch.setattr(fs, name, counted(getattr(fs, name)))
        run.loop.steering.begin()
        run.loop._settle()
        run.look()
        killed = False
    except Killed:
        killed = True
    finally:
        patch.undo()
    segments = sorted(ExperimentPaths(root).journal.glob("*.jsonl"))
    lines = [body for segment in segments for _, body in parse_lines(segment.read_bytes())[0]]
    return [*facts, *map(ev.decode, lines)], killed


def begun(root: Path) -> list[ev.AnyFact]:
    """Three trials, of which the first has a checkpoint and the last has failed."""
    run = Steered(root, plugin_set(num_samples=3), slots=3, class_api=True)
    run.turn()
    run.report(run.trial(), saves=True)
    run.exit(run.trial(2), status=1, next_turn=False)
    for trial in list(run.state.trials)[:2]:
        run.loop.endings.transitions.end_attempt(run.loop.attempts.running[trial.trial_id], "halted")
    return list(run.facts)


def test_killed_before_any_change_of_the_disk_each_order_is_done_once(tmp_path: Path) -> None:
    """Twice, at every pair of a first and a second moment a few apart; then a life that nobody ends."""
    first = begun(tmp_path / "first")
    until, most = 0, 0
    while True:
        root = tmp_path / f"killed-{until}"
        mailbox = Mailbox(root)
        root.mkdir()
        for number, (word, fields) in enumerate(GIVEN):
            body = json.dumps({"order": word, **fields}).encode()
            mailbox.put(f"order-{number:04d}", body)
        facts, killed = life(root, first, until)
        facts, _ = life(root, facts, until // 3)
        facts, again = life(root, facts, 10**9)
        assert not again
        check_done_once(root, facts)
        most = max(most, len(facts))
        if not killed:
            break
        until += 1
    assert until > 30  # it was killed at as many moments


def check_done_once(root: Path, facts: list[ev.AnyFact]) -> None:
    answered = Counter(fact.id for fact in facts if isinstance(fact, ev.OrderAnswered))
    answered += Counter(fact.order for fact in facts if isinstance(fact, (ev.TrialNoted, ev.SettingChanged)))
    assert answered == {f"order-{number:04d}": 1 for number in range(len(GIVEN))}
    assert Counter(type(fact) for fact in facts)[ev.TrialReopened] == 1
    assert sum(isinstance(fact, ev.TrialHeld) for fact in facts) == 1
    assert [fact.resources for fact in facts if isinstance(fact, ev.Reallocated)] == [{"cpu": 2.0}]
    assert [fact.value for fact in facts if isinstance(fact, ev.SettingChanged)] == [4]
    mailbox = Mailbox(root)
    said = [mailbox.answer(f"order-{number:04d}") for number in range(len(GIVEN))]
    assert [answer and answer.state.value for answer in said] == [*["done"] * 4, "refused", *["done"] * 4]
    made = [fact for fact in facts if isinstance(fact, ev.TrialCreated) and fact.order]
    assert [(fact.order, fact.trial, bytes(fact.config)) for fact in made] == [
        ("order-0007", "ab_o0000", b'{"x":9}'),
        ("order-0008", "ab_o0001", b'{"x":8}'),
    ]
    begun = [fact for fact in facts if isinstance(fact, ev.AttemptStarted) and fact.trial == "ab_o0001"]
    assert begun and {(start.iteration, start.checkpoint == made[1].fork.donor) for start in begun if made[1].fork} == {
        (1, True)
    }
    assert mailbox.take() == []


@pytest.mark.parametrize("held", [True, False])
def test_killed_between_any_two_facts_of_a_go_it_is_answered_as_it_was_done(tmp_path: Path, held: bool) -> None:
    """Also between the fact that it goes on and the answer; one that nobody holds is refused all the same."""
    first = Steered(tmp_path / "first", plugin_set(num_samples=1), class_api=True)
    first.turn()
    trial = first.trial()
    if held:
        first.order("pause")
        first.report(trial, loss=1.0)
        first.say(trial, first.publish(trial, 1))
        first.exit(trial)
    before = len(first.facts)
    first.order("go", order_id="go-order")
    kinds = first.kinds()[before:]
    assert kinds[: 3 if held else 2] == ["order_taken", *(["held"] if held else []), "order_answered"]
    for kept in range(len(kinds)):
        run = Steered(
            tmp_path / f"killed-{kept}", plugin_set(num_samples=1), facts=first.facts[: before + kept], class_api=True
        )
        run.mailbox.put("go-order", b'{"order": "go", "trial": "0"}')
        run.turn()
        run.look()
        answers = [fact for fact in [*first.facts[: before + kept], *run.facts] if isinstance(fact, ev.OrderAnswered)]
        assert [fact.done for fact in answers if fact.id == "go-order"] == [held]
        assert run.said("go-order")[0] == ("done" if held else "refused")
        assert not run.trial().held
