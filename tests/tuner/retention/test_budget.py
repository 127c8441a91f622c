"""The experiment's budget: what goes first, what never goes, and when a save is refused (F27)."""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.config import Budget, CheckpointConfig
from trainables.store.retention import Order
from trainables.wire import CheckpointRef
from tuner.retention import BudgetLedger, Ending, TrialRetention
from tuner.retention.budget import Key, human_bytes


@dataclass(frozen=True)
class Saved:
    ref: CheckpointRef
    bytes: int
    metrics: dict[str, Any] = field(default_factory=dict)
    saved_at: float = 0.0

    @property
    def order(self) -> Order:
        return self.ref.order

    @property
    def iteration(self) -> int:
        return self.ref.iteration


def save(trial: str, index: int, score: Any = None, *, size: int = 10) -> Saved:
    metrics = {} if score is None else {"m": score}
    return Saved(CheckpointRef(trial, f"checkpoint_{index:06d}", 1, 1, index, index), size, metrics)


def ledger_of(limit: int, *records: Saved, top_k: int = 1, metric: str | None = "m", ended: str = "") -> BudgetLedger:
    ledger = BudgetLedger(Budget(limit, top_k), metric=metric)
    for record in records:
        ledger.saved(record)
    for trial in ended:
        ledger.ended(trial)
    return ledger


def names(refs: Collection[CheckpointRef]) -> list[str]:
    return [f"{ref.trial_id}{ref.index}" for ref in refs]


def test_within_the_budget_nothing_goes() -> None:
    ledger = ledger_of(20, save("a", 1, 1), save("a", 2, 2))
    assert ledger.used == 20
    assert ledger.plan() == ()


RECORDS = [
    save("a", 1, 5), save("a", 2, 9), save("a", 3, 7),  # ended, best 9: the top trial
    save("b", 1, 3), save("b", 2, 1),  # ended, best 3
    save("c", 1, 8), save("c", 2, 2),  # running, latest 2
    save("d", 1, 4), save("d", 2, 6), save("d", 3, 0),  # running, latest 0
]  # fmt: skip

LEAST_USEFUL_FIRST = ["b2", "a1", "a3", "b1", "d1", "d2", "c1"]


@pytest.mark.parametrize("room", range(3, 11))
def test_f27_least_useful_goes_first_and_the_protected_never(room: int) -> None:
    ledger = ledger_of(room * 10, *RECORDS, ended="ab")
    assert names(ledger.plan()) == LEAST_USEFUL_FIRST[: 10 - room]
    assert ledger.plan() == ledger.plan()  # planning changes nothing
    for ref in ledger.plan():
        ledger.gone(ref)
    assert ledger.used == room * 10
    assert ledger.plan() == ()


def test_all_others_go_when_the_protected_alone_is_too_much() -> None:
    assert names(ledger_of(25, *RECORDS, ended="ab").plan()) == LEAST_USEFUL_FIRST


def test_what_is_in_use_is_passed_over() -> None:
    ledger = ledger_of(80, *RECORDS, ended="ab")
    assert names(ledger.plan(in_use={("b", (1, 1, 2)), ("a", (1, 1, 3))})) == ["a1", "b1"]
    assert names(ledger.plan()) == ["b2", "a1"]


@pytest.mark.parametrize(("top_k", "kept"), [(0, "cd"), (1, "acd"), (2, "acd"), (3, "acd"), (4, "abcd")])
def test_the_best_of_the_top_k_trials_always_stays(top_k: int, kept: str) -> None:
    ledger = ledger_of(1, *RECORDS, top_k=top_k, ended="ab")
    left = {f"{record.ref.trial_id}{record.ref.index}" for record in RECORDS} - set(names(ledger.plan()))
    best = {"a": "a2", "c": "c1", "d": "d2", "b": "b1"}
    assert left == {"c2", "d3"} | {best[trial] for trial in ["a", "c", "d", "b"][:top_k]}
    assert {name[0] for name in left} == set(kept)


def test_a_lower_score_is_better_with_mode_min_and_nan_is_worst() -> None:
    ledger = BudgetLedger(Budget(10), metric="m", mode="min")
    for trial, score in [("a", 3), ("b", 1), ("c", math.nan), ("d", None), ("e", "high")]:
        ledger.saved(save(trial, 1, score))
        ledger.ended(trial)
    assert names(ledger.plan()) == ["e1", "d1", "c1", "a1"]


def test_without_a_metric_the_newest_trials_are_the_top_ones() -> None:
    ledger = ledger_of(20, save("a", 1), save("b", 1), save("b", 2), save("a", 2), metric=None, ended="ab")
    assert names(ledger.plan()) == ["a1", "b1"]
    ledger = ledger_of(10, save("a", 1), save("b", 1), save("b", 2), save("a", 2), metric=None, ended="ab")
    assert names(ledger.plan()) == ["a1", "b1", "b2"]


def test_the_latest_of_an_errored_trial_stays_and_of_an_ended_one_goes() -> None:
    records = [save("a", 1, 9), save("b", 1, 1), save("c", 1, 2)]
    ledger = ledger_of(10, *records, ended="b")  # a leads; c errored: it can be resumed
    assert names(ledger.plan()) == ["b1"]


# --- refusals -------------------------------------------------------------------------------------------


def test_a_save_fits_where_its_trials_own_latest_makes_room_for_it() -> None:
    ledger = ledger_of(20, save("a", 1, 1), save("b", 1, 5), top_k=0)
    assert ledger.admit("a", 10) is None
    assert ledger.plan() == ()  # the old latest stays until the new one is there
    ledger.saved(save("a", 2, 2))
    assert names(ledger.plan()) == ["a1"]


def test_a_save_that_does_not_fit_is_refused_with_the_sizes() -> None:
    ledger = ledger_of(20, save("a", 1, 1), save("b", 1, 5), top_k=0)
    refusal = ledger.admit("c", 10)
    assert refusal is not None
    assert (refusal.save, refusal.protected, refusal.budget) == (10, 30, 20)
    for text in ("trial c", "10 bytes", "checkpoint_budget=20 bytes", "30 bytes", "larger checkpoint_budget"):
        assert text in refusal.message
    assert ledger.admit("a", 10) is None  # nothing of the refused one is left
    assert ledger.plan() == ()  # and nothing is removed for it


def test_saves_on_their_way_hold_their_place() -> None:
    ledger = ledger_of(25, top_k=0)
    assert ledger.admit("a", 10) is None
    assert ledger.admit("b", 10) is None
    assert ledger.admit("c", 10) is not None
    ledger.not_saved("b")
    assert ledger.admit("c", 10) is None
    ledger.attempt_ended("a")
    assert ledger.admit("b", 10) is None
    assert ledger.used == 0


def test_the_best_of_the_top_trial_counts_until_a_better_one_takes_its_place() -> None:
    ledger = ledger_of(20, save("a", 1, 9), save("b", 1, 5), ended="a")
    assert ledger.admit("b", 15, metrics={"m": 4}) is not None  # a1 is the best of all, and stays
    assert ledger.admit("b", 15, metrics={"m": 10}) is None  # this leads then, and a1 may go
    ledger.saved(save("b", 2, 10, size=15))
    assert names(ledger.plan()) == ["a1", "b1"]


def test_what_is_in_use_elsewhere_counts_and_an_own_start_does_not() -> None:
    ledger = ledger_of(20, save("donor", 1, 1), save("donor", 2, 1), top_k=0)
    assert ledger.admit("clone", 10, in_use={("donor", (1, 1, 1))}) is not None
    assert ledger.admit("clone", 10) is None


def test_a_save_of_unknown_size_is_judged_when_it_is_there() -> None:
    ledger = ledger_of(25, save("a", 1, 1), save("b", 1, 5), top_k=0)
    ledger.saved(save("a", 2, 2, size=20))
    refusal = ledger.overfull("a")
    assert refusal is not None and (refusal.save, refusal.protected) == (20, 30)
    ledger.gone(save("a", 2).ref)
    assert ledger.overfull("a") is None
    assert ledger.used == 20


def test_sizes_read_well() -> None:
    assert [human_bytes(size) for size in (0, 999, 5e9, 120_500_000, 2e15)] == [
        "0 bytes",
        "999 bytes",
        "5 GB",
        "120.5 MB",
        "2000 TB",
    ]


# --- against a model --------------------------------------------------------------------------------------


class Model:
    """The same, without heaps or totals: sorts everything every time."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.held: list[tuple[Saved, int]] = []
        self.done: set[str] = set()

    def use(self, item: tuple[Saved, int]) -> tuple[Any, ...]:
        score = item[0].metrics.get("m")
        if score is None:
            return (0, 0, -item[1])
        return (1, 0, -item[1]) if score != score else (2, score, -item[1])

    def plan(self, in_use: set[Key]) -> list[CheckpointRef]:
        trials = {item[0].ref.trial_id for item in self.held}
        mine = {trial: [item for item in self.held if item[0].ref.trial_id == trial] for trial in trials}
        best = {trial: max(items, key=self.use) for trial, items in mine.items()}
        latest = {trial: max(items, key=lambda item: item[0].order) for trial, items in mine.items()}
        top = sorted(trials, key=lambda trial: self.use(best[trial]), reverse=True)[: self.budget.top_k]
        protected = [best[trial] for trial in top] + [latest[trial] for trial in trials - self.done]
        free = [
            item for item in self.held if item not in protected and (item[0].ref.trial_id, item[0].order) not in in_use
        ]
        others = [i for i in free if i[0].ref.trial_id in self.done and i != best[i[0].ref.trial_id]]
        bests = [i for i in free if i[0].ref.trial_id in self.done and i == best[i[0].ref.trial_id]]
        running = [i for i in free if i[0].ref.trial_id not in self.done]
        gone = []
        excess = sum(item[0].bytes for item in self.held) - self.budget.size
        for item in [*sorted(others, key=self.use), *sorted(bests, key=self.use), *sorted(running, key=self.use)]:
            if excess > 0:
                gone.append(item[0].ref)
                excess -= item[0].bytes
        return gone


steps = st.lists(
    st.tuples(
        st.sampled_from(["save", "save", "save", "end", "drop", "use"]),
        st.sampled_from("abcd"),
        st.one_of(st.none(), st.integers(-3, 3), st.just(math.nan)),
        st.integers(1, 9),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 60), st.integers(0, 3))
def test_a_plan_is_what_sorting_everything_would_give(
    life: list[tuple[str, str, Any, int]], limit: int, top_k: int
) -> None:
    budget = Budget(limit, top_k)
    ledger, model = BudgetLedger(budget, metric="m"), Model(budget)
    used: set[Key] = set()
    counts = dict.fromkeys("abcd", 0)
    for number, (what, trial, score, size) in enumerate(life):
        if what == "save":
            counts[trial] += 1
            record = save(trial, counts[trial], score, size=size)
            ledger.saved(record)
            model.held.append((record, number))
        elif what == "end" and any(item[0].ref.trial_id == trial for item in model.held):
            ledger.ended(trial)
            model.done.add(trial)
        elif what == "drop":
            ledger.gone(save(trial, size).ref)
            model.held = [i for i in model.held if (i[0].ref.trial_id, i[0].ref.index) != (trial, size)]
        elif what == "use":
            used = {(trial, (1, 1, size))}
        forget = list(ledger.plan(used))
        assert forget == model.plan(used)
        for ref in forget:
            ledger.gone(ref)
        model.held = [item for item in model.held if item[0].ref not in forget]
        model.done &= {
            item[0].ref.trial_id for item in model.held
        }  # with nothing on disk there is nothing to be done with
        assert ledger.used == sum(item[0].bytes for item in model.held)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_f27_500_trials_of_100_mb_stay_within_5_gb(mode: Literal["max", "min"]) -> None:
    rng = random.Random(7)
    size, limit, workers, top_k = 100_000_000, 5_000_000_000, 16, 3
    retention = TrialRetention(CheckpointConfig(num_to_keep=3, checkpoint_score_attribute=f"{mode}-m"))
    ledger = BudgetLedger(Budget("5GB", top_k), metric="m", mode=mode)
    disk: dict[str, list[Saved]] = {}
    running: dict[str, int] = {}
    ever: dict[str, float] = {}
    started = 0
    while started < 500 or running:
        while started < 500 and len(running) < workers:
            running[f"t{started}"] = 0
            started += 1
        trial = rng.choice(sorted(running))
        running[trial] += 1
        score = rng.random()
        assert ledger.admit(trial, size, metrics={"m": score}) is None  # 16 latest and 3 best always fit
        record = save(trial, running[trial], score, size=size)
        disk.setdefault(trial, []).append(record)
        ledger.saved(record)
        better = max if mode == "max" else min
        ever[trial] = better(ever.get(trial, score), score)
        gone = retention.forget(disk[trial], Ending.UNFINISHED)
        if running[trial] == 8:
            del running[trial]
            ledger.ended(trial)
        for ref in gone:
            ledger.gone(ref)
        gone += ledger.plan()
        for ref in gone:
            ledger.gone(ref)
            disk[ref.trial_id] = [each for each in disk[ref.trial_id] if each.ref != ref]
        assert ledger.used == size * sum(map(len, disk.values())) <= limit
        assert all(disk[one][-1].iteration == count for one, count in running.items() if count)
    top = sorted(ever, key=lambda one: ever[one], reverse=mode == "max")[:top_k]
    assert all(ever[one] in [each.metrics["m"] for each in disk[one]] for one in top)


def test_a_save_costs_the_same_with_many_trials_on_disk() -> None:
    """Counted in comparisons, not in seconds: one more save over a full budget touches only the top of the heaps."""

    def touched(trials: int) -> int:
        ledger = BudgetLedger(Budget(trials * 10), metric="m")
        for number in range(trials):
            ledger.saved(save(f"t{number}", 1, number))
            ledger.ended(f"t{number}")
        looked = 0
        holds = ledger._holds

        def counting(entry: Any, use: Any) -> Any:
            nonlocal looked
            looked += 1
            return holds(entry, use)

        ledger._holds = counting  # type: ignore[method-assign]
        ledger.saved(save("new", 1, trials))
        (gone,) = ledger.plan()
        assert gone.trial_id == "t0"
        return looked

    assert touched(2000) <= touched(20) + 2
