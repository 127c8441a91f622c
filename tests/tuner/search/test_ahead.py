"""Suggestions that are computed beside running trials: what they see, and that nothing of it depends on time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.search import ConcurrencyLimiter, Repeater, Searcher, as_searcher
from tuner.search.ahead import AskAhead, with_ask_ahead
from tuner.search.optuna import OptunaSearch


class Noting(Searcher):
    """Says what it was asked and told, in order, and waits where it is told to."""

    ask_ahead = True

    def __init__(self, *, gate: threading.Event | None = None, fails: str | None = None) -> None:
        super().__init__(metric="loss", mode="min")
        self.gate, self.fails = gate, fails
        self.calls: list[str] = []
        self.asked = threading.Semaphore(0)

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.asked.release()
        if self.gate is not None and trial_id != "t0":
            assert self.gate.wait(60)
        if trial_id == self.fails:
            raise ArithmeticError(trial_id)
        self.calls.append(f"suggest {trial_id}")
        return {"x": len(self.calls)}

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        self.calls.append(f"suggest {trial_id}")
        return config == {"x": len(self.calls)}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.calls.append(f"result {trial_id} {result['loss']}")

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.calls.append(f"complete {trial_id}")

    def on_pause(self, trial_id: str) -> None:
        self.calls.append(f"pause {trial_id}")

    def get_state(self) -> dict[str, Any]:
        return {"calls": list(self.calls)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.calls = list(state["calls"])


def told(searcher: Searcher, name: str) -> None:
    searcher.on_trial_result(name, {"loss": 1.0})
    searcher.on_pause(name)
    searcher.on_trial_complete(name, {"loss": 1.0})


IN_ORDER = [
    "suggest t0",
    "suggest t1",
    *("result t0 1.0", "pause t0", "complete t0"),
    "suggest t2",
    *("result t1 1.0", "pause t1", "complete t1"),
    "suggest t3",
    *("result t2 1.0", "pause t2", "complete t2"),
]


@pytest.mark.parametrize("slow", [False, True])
def test_a_suggestion_sees_what_was_there_when_the_one_before_was_taken(slow: bool) -> None:
    gate = threading.Event()
    inner = Noting(gate=gate)
    searcher = as_searcher(inner, {}, num_samples=4)
    for number in range(4):
        assert searcher.suggest(f"t{number}")
        searcher.prepare(f"t{number + 1}")
        if not slow and number < 3:
            assert inner.asked.acquire(timeout=60)
        if number == 3:
            break
        if slow:
            gate.clear()
        told(searcher, f"t{number}")
        gate.set()
    assert searcher.suggest("t4") == Searcher.FINISHED
    assert inner.calls == IN_ORDER


def test_while_it_computes_it_is_told_nothing_and_nobody_waits() -> None:
    gate = threading.Event()
    inner = Noting(gate=gate)
    searcher = as_searcher(inner, {}, num_samples=-1)
    searcher.suggest("t0")
    searcher.prepare("t1")
    told(searcher, "t0")  # returns although the gate is closed
    assert inner.calls == ["suggest t0"]
    gate.set()
    assert searcher.suggest("t1") == {"x": 2}
    assert inner.calls == IN_ORDER[:5]


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("by", ["state", "replay"])
def test_it_comes_back_in_the_same_order(cut: int, by: str) -> None:
    inner = Noting()
    first = as_searcher(inner, {}, num_samples=4)
    configs = []
    for number in range(cut):
        configs.append(first.suggest(f"t{number}"))
        first.prepare(f"t{number + 1}")
        told(first, f"t{number}")
    again_inner = Noting()
    again = as_searcher(again_inner, {}, num_samples=4)
    if by == "state":
        again.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
    else:
        for number, config in enumerate(configs):
            assert isinstance(config, dict)
            assert again.replay_suggest(f"t{number}", config)
            told(again, f"t{number}")
    for number in range(cut, 4):
        assert again.suggest(f"t{number}")
        again.prepare(f"t{number + 1}")
        if number < 3:
            told(again, f"t{number}")
    assert again_inner.calls == IN_ORDER


def test_a_state_with_a_suggestion_that_was_not_taken_is_replayed_over() -> None:
    first = as_searcher(Noting(), {}, num_samples=4)
    first.suggest("t0")
    first.prepare("t1")
    told(first, "t0")
    state = first.get_state()
    inner = Noting()
    again = as_searcher(inner, {}, num_samples=4)
    again.set_state(state)
    assert again.replay_suggest("t1", {"x": 2})
    told(again, "t1")
    again.suggest("t2")
    assert inner.calls == [*IN_ORDER[:5], "suggest t2", *IN_ORDER[6:9]]


def test_nothing_is_asked_for_that_nobody_will_run() -> None:
    inner = Noting()
    searcher = as_searcher(inner, {}, num_samples=1)
    searcher.suggest("t0")
    searcher.prepare("t1")
    told(searcher, "t0")
    searcher.on_search_end()
    assert inner.calls == IN_ORDER[:1] + IN_ORDER[2:5]


def test_after_a_replay_of_the_last_sample_what_it_was_told_arrives_at_the_end_of_the_search() -> None:
    inner = Noting()
    searcher = as_searcher(inner, {}, num_samples=1)
    searcher.replay_suggest("t0", {"x": 1})
    told(searcher, "t0")
    searcher.on_search_end()
    assert inner.calls == IN_ORDER[:1] + IN_ORDER[2:5]


def test_an_error_of_the_thread_is_raised_where_the_suggestion_is_taken() -> None:
    searcher = as_searcher(Noting(fails="t1"), {}, num_samples=-1)
    searcher.suggest("t0")
    searcher.prepare("t1")
    told(searcher, "t0")
    with pytest.raises(ArithmeticError, match="t1"):
        searcher.suggest("t1")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda searcher: searcher,
        lambda searcher: ConcurrencyLimiter(searcher, 2),
        lambda searcher: Repeater(searcher, 2),
        lambda searcher: ConcurrencyLimiter(Repeater(searcher, 2), 2),
    ],
)
def test_it_goes_around_the_innermost_searcher(wrap: Callable[[Searcher], Searcher]) -> None:
    inner = Noting()
    searcher: Any = as_searcher(wrap(inner), {}, num_samples=-1)
    while searcher.searcher is not inner:
        searcher = searcher.searcher
    assert isinstance(searcher, AskAhead)


def test_repeats_ask_for_the_next_suggestion_with_their_last_one_only() -> None:
    inner = Noting()
    searcher = as_searcher(Repeater(inner, 2), {}, num_samples=-1)
    for number in range(3):
        searcher.suggest(f"t{number}")
        searcher.prepare(f"t{number + 1}")
    assert inner.calls == ["suggest t0", "suggest t2"]


def test_one_who_takes_results_back_is_told_of_that_in_order_too() -> None:
    class Undoing(Noting):
        def on_rollback(self, trial: Any, iteration: int) -> None:
            self.calls.append(f"undo {iteration}")

    gate = threading.Event()
    inner = Undoing(gate=gate)
    searcher: Any = as_searcher(inner, {}, num_samples=-1)
    assert not hasattr(as_searcher(Noting(), {}), "on_rollback")
    searcher.suggest("t0")
    searcher.prepare("t1")
    searcher.on_trial_result("t0", {"loss": 1.0})
    searcher.on_rollback(None, 3)
    gate.set()
    searcher.suggest("t1")
    assert inner.calls == ["suggest t0", "suggest t1", "result t0 1.0", "undo 3"]


def test_a_function_in_the_space_would_seed_the_generators_of_others() -> None:
    space = {"a": tune.uniform(0, 1), "m": {"b": [tune.sample_from(lambda config: config["a"])]}}
    with pytest.raises(SettingError, match="ask_ahead=True is not accepted with the sample_from at 'm/b/0'"):
        as_searcher(OptunaSearch(metric="l", mode="min", ask_ahead=True), space)


def test_a_run_with_suggestions_ahead_equals_one_that_was_ended_and_continued(tmp_path: Any) -> None:
    class Ends(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            if len([one for one in trials if one.is_finished()]) in (3, 6):
                raise InterruptedError

    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": config["x"] ** 2})

    def run(path: Any, *callbacks: Any) -> list[float]:
        analysis = tune.run(
            train,
            config={"x": tune.uniform(-1, 1)},
            name="e",
            storage_path=path,
            search_alg=OptunaSearch(metric="loss", mode="min", ask_ahead=True),
            num_samples=14,
            seed=3,
            executor="inline",
            callbacks=list(callbacks),
            resume="AUTO",
            verbose=0,
        )
        assert all(trial.status == "TERMINATED" for trial in analysis.trials)
        return [trial.config["x"] for trial in analysis.trials]

    expected = run(tmp_path / "whole")
    for _ in range(2):
        with pytest.raises(InterruptedError):
            run(tmp_path / "ended", Ends())
    assert run(tmp_path / "ended") == expected


def life(seed: int, samples: int = 12) -> list[tuple[str, str]]:
    """What the loop might do, in order: trials created while others report and end."""
    draw = random.Random(seed)
    moves: list[tuple[str, str]] = []
    live: list[str] = []
    created = 0
    while created < samples or live:
        if created < samples and (not live or (len(live) < 4 and draw.random() < 0.5)):
            live.append(f"t{created}")
            moves.append(("create", live[-1]))
            created += 1
        elif draw.random() < 0.6:
            moves.append(("result", draw.choice(live)))
        else:
            moves.append(("end", live.pop(draw.randrange(len(live)))))
    return moves


def lived(searcher: Searcher, moves: list[tuple[str, str]], replayed: dict[str, Any]) -> dict[str, Any]:
    configs = {}
    for move, name in moves:
        if move == "result":
            searcher.on_trial_result(name, {"loss": 1.0})
        elif move == "end":
            searcher.on_trial_complete(name, {"loss": 1.0})
        elif name in replayed:
            assert searcher.replay_suggest(name, replayed[name])
            configs[name] = replayed[name]
        else:
            configs[name] = searcher.suggest(name)
            searcher.prepare(f"t{int(name[1:]) + 1}")
    return configs


@pytest.mark.parametrize("seed", range(25))
def test_f14_whatever_happens_and_whenever_it_is_interrupted_the_searcher_lives_the_same(seed: int) -> None:
    moves = life(seed)
    inner = Noting()
    configs = lived(as_searcher(inner, {}, num_samples=12), moves, {})
    draw = random.Random(seed)
    snapshot, cut = sorted(draw.sample(range(len(moves)), 2))
    first = as_searcher(Noting(), {}, num_samples=12)
    known = lived(first, moves[:snapshot], {})
    state = cloudpickle.loads(cloudpickle.dumps(first.get_state()))
    known |= lived(first, moves[snapshot:cut], {})
    for begin, restored in ((0, None), (snapshot, state)):
        again_inner = Noting()
        again = as_searcher(again_inner, {}, num_samples=12)
        if restored is not None:
            again.set_state(restored)
        assert configs == known | lived(again, moves[begin:cut], known) | lived(again, moves[cut:], {})
        again.on_search_end()
        assert again_inner.calls == inner.calls


def test_it_asks_once_however_often_it_is_told_to() -> None:
    inner = Noting()
    searcher = AskAhead(inner)
    for _ in range(3):
        searcher.prepare("t0")
    assert searcher.suggest("t0") == {"x": 1}
    assert inner.calls == ["suggest t0"]


def test_a_suggestion_for_another_trial_is_given_up_and_asked_for_anew() -> None:
    inner = Noting()
    searcher = AskAhead(inner)
    searcher.prepare("t0")
    assert searcher.suggest("t7") == {"x": 3}
    assert inner.calls == ["suggest t0", "complete t0", "suggest t7"]


def test_a_journal_that_knows_another_config_has_it_stand() -> None:
    """The suggestion that was computed is told to have failed; the one that was run follows."""
    inner = Noting()
    searcher = AskAhead(inner)
    searcher.prepare("t0")
    assert searcher.replay_suggest("t0", {"x": 99}) is False
    assert inner.calls == ["suggest t0", "complete t0", "suggest t0"]
    same = AskAhead(Noting())
    same.prepare("t0")
    assert same.replay_suggest("t0", {"x": 1, "constant": 3}) is True


def test_after_a_replay_it_holds_back_what_it_is_told_until_the_next_suggestion() -> None:
    inner = Noting()
    searcher = AskAhead(inner)
    searcher.replay_suggest("t0", {"x": 1})
    told(searcher, "t0")
    searcher.on_unpause("t0")
    assert inner.calls == ["suggest t0"]
    searcher.suggest("t1")
    assert inner.calls == ["suggest t0", "suggest t1", "result t0 1.0", "pause t0", "complete t0"]


def test_what_it_was_told_does_not_change_with_the_callers_result() -> None:
    gate = threading.Event()
    inner = Noting(gate=gate)
    searcher = AskAhead(inner)
    searcher.suggest("t0")
    searcher.prepare("t1")
    result = {"loss": 1.0}
    searcher.on_trial_result("t0", result)
    result["loss"] = 99.0
    gate.set()
    searcher.suggest("t1")
    assert inner.calls[-1] == "result t0 1.0"


def test_a_state_with_a_suggestion_that_failed_asks_for_it_again() -> None:
    searcher = AskAhead(Noting(fails="t1"))
    searcher.suggest("t0")
    searcher.prepare("t1")
    state = cloudpickle.loads(cloudpickle.dumps(searcher.get_state()))
    again = AskAhead(Noting())
    again.set_state(state)
    assert state["asked"] is None and again.suggest("t1") == {"x": 2}


def test_it_is_put_around_once_and_only_where_it_is_wanted() -> None:
    wrapped = with_ask_ahead(Noting())
    assert isinstance(wrapped, AskAhead) and with_ask_ahead(wrapped) is wrapped

    class Quick(Noting):
        ask_ahead = False

    quick = Quick()
    assert with_ask_ahead(quick) is quick
