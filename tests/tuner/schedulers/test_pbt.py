"""PBT against population histories worked out by hand, and what must hold in every one of them."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.error import SettingError
from tuner.schedulers import Decision, PopulationBasedTraining, as_scheduler
from tuner.schedulers.base import Directive, Exploit, Verdict
from tuner.testing import TrialStub, check_scheduler

CONTINUE, SAVE, PAUSE = Decision.CONTINUE, Decision.SAVE, Decision.PAUSE


def pbt(**kwargs: Any) -> PopulationBasedTraining:
    """Every exploit doubles `lr`, so that a config tells through how many it went."""
    given: dict[str, Any] = {
        "time_attr": "training_iteration",
        "metric": "acc",
        "mode": "max",
        "perturbation_interval": 2,
        "hyperparam_mutations": {"lr": tune.uniform(0, 1000)},
        "resample_probability": 0,
        "perturbation_factors": (2.0,),
    }
    return PopulationBasedTraining(**given | kwargs)


class Population:
    """A few trials that run all the time; clones get their config at once."""

    def __init__(self, scheduler: PopulationBasedTraining, names: str = "abcd", *, started: bool = True) -> None:
        self.scheduler = scheduler
        self.trials = {name: TrialStub(name, {"lr": float(10**index)}) for index, name in enumerate(names)}
        for trial in self.trials.values():
            scheduler.on_trial_add(trial)
        for trial in self.trials.values():
            if started:
                scheduler.on_trial_start(trial)

    def report(self, name: str, iteration: int, acc: Any, **more: Any) -> Verdict:
        result = {"training_iteration": iteration, "acc": acc, **more}
        verdict = self.scheduler.on_trial_result(self.trials[name], result)
        if isinstance(verdict, Exploit):
            self.trials[name].config = verdict.config
        return verdict

    def publish(self, name: str, iteration: int) -> list[Directive]:
        self.scheduler.on_checkpoint(self.trials[name], iteration)
        return list(self.scheduler.orders())

    def all_report(self, iteration: int, **accs: float) -> list[Verdict]:
        return [self.report(name, iteration, acc) for name, acc in accs.items()]


HISTORY: list[tuple[str, int, float | str, Verdict | None]] = [
    ("a", 1, 1.0, CONTINUE),  # the interval is not over
    ("a", 2, 1.0, CONTINUE),  # alone
    ("b", 2, 3.0, SAVE),  # the better one of two
    ("b", 2, "published", None),
    ("c", 2, 2.0, CONTINUE),  # in the middle
    ("d", 2, 0.5, Exploit("b", {"lr": 20.0})),  # the worst of four: b's config, doubled
    ("a", 3, 0.0, CONTINUE),  # one step after its last interval
    ("a", 4, 0.9, CONTINUE),  # d's 0.5 is still the worst
    ("b", 4, 3.5, SAVE),
    ("c", 4, 0.1, Exploit("b", {"lr": 20.0})),  # from b's checkpoint of 2: that of 4 is not published
    ("d", 4, 9.0, SAVE),  # the clone is the best now
    ("d", 2, "published", None),  # late, and of its life before
    ("a", 6, 0.2, CONTINUE),
    ("c", 6, 0.05, CONTINUE),  # the worst, but the only donor has nothing of this life
    ("d", 4, "published", None),
    ("c", 7, 0.06, Exploit("d", {"lr": 40.0})),  # so it asks again at its next result
    ("c", 8, 0.06, CONTINUE),
    ("c", 9, 8.0, CONTINUE),
]


def test_a_population_history_worked_out_by_hand() -> None:
    population = Population(pbt())
    for name, iteration, value, expected in HISTORY:
        if value == "published":
            assert population.publish(name, iteration) == []
        else:
            assert population.report(name, iteration, value) == expected, (name, iteration)
    assert population.scheduler.debug_string() == "PopulationBasedTraining: 3 checkpoints, 3 perturbs"


def test_the_policy_of_a_trial_is_the_way_to_its_weights() -> None:
    population = Population(pbt())
    for name, iteration, value, _ in HISTORY:
        population.publish(name, iteration) if value == "published" else population.report(name, iteration, value)

    # What c was before d's weights replaced its own is no part of it.
    to_d = ("d", "b", 2, 2, {"lr": 10.0}, {"lr": 20.0})
    assert population.scheduler.policy("c") == [to_d, ("c", "d", 7, 4, {"lr": 20.0}, {"lr": 40.0})]
    assert population.scheduler.policy("d") == [to_d]
    assert population.scheduler.policy("a") == []


def test_the_policy_counts_how_long_the_weights_were_trained() -> None:
    """d has counted 4 iterations when it takes weights of 2; three iterations on, they were trained for 5."""
    population = Population(pbt())
    population.all_report(2, a=1.0, b=3.0, c=2.0)
    population.publish("b", 2)
    assert isinstance(population.report("d", 4, 0.5), Exploit)
    assert population.report("d", 7, 9.0) == SAVE
    population.publish("d", 7)
    assert isinstance(population.report("a", 5, 0.1), Exploit)
    assert [step[2:4] for step in population.scheduler.policy("a")] == [(4, 2), (5, 5)]


def test_only_so_many_exploits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.schedulers.pbt.LOGGED", 2)
    population = Population(pbt())
    for name, iteration, value, _ in HISTORY:
        population.publish(name, iteration) if value == "published" else population.report(name, iteration, value)
    assert len(population.scheduler.get_state()["log"]) == 2
    assert [step[:2] for step in population.scheduler.policy("c")] == [("c", "d")]


def test_without_log_config_nothing_is_kept() -> None:
    population = Population(pbt(log_config=False))
    for name, iteration, value, _ in HISTORY:
        population.publish(name, iteration) if value == "published" else population.report(name, iteration, value)
    assert population.scheduler.policy("c") == []


def test_nan_is_worst_and_never_a_donor() -> None:
    population = Population(pbt(quantile_fraction=0.5), "ab")
    population.report("a", 2, math.nan)
    assert population.report("b", 2, -math.inf) == SAVE  # a number, so better
    population.publish("a", 2)
    population.publish("b", 2)
    assert population.report("a", 4, math.nan) == Exploit("b", {"lr": 20.0})

    broken = Population(pbt(quantile_fraction=0.5), "ab")
    broken.report("a", 2, math.nan)
    broken.publish("a", 2)
    assert broken.report("b", 2, math.nan) == CONTINUE


def test_of_equal_scores_the_earlier_trial_is_the_better() -> None:
    population = Population(pbt(), "ab")
    population.report("a", 2, 1.0)
    population.publish("a", 2)
    assert population.report("b", 2, 1.0) == Exploit("a", {"lr": 2.0})


def test_before_the_burn_in_nothing_is_decided() -> None:
    population = Population(pbt(burn_in_period=5), "ab")
    for iteration in range(1, 5):
        assert population.all_report(iteration, a=1.0, b=2.0) == [CONTINUE, CONTINUE]
    assert population.all_report(5, a=1.0, b=2.0) == [CONTINUE, SAVE]


def test_who_has_ended_is_no_donor_and_not_in_the_way() -> None:
    population = Population(pbt())
    population.all_report(2, a=1.0, b=3.0, c=2.0)
    population.publish("b", 2)
    population.publish("c", 2)
    population.scheduler.on_trial_complete(population.trials["b"], {})
    assert population.report("d", 2, 0.5) == Exploit("c", {"lr": 200.0})
    population.scheduler.on_trial_error(population.trials["c"])
    assert population.report("a", 4, 1.0) == SAVE


def test_the_quantile_is_rounded_up_but_never_more_than_half() -> None:
    for size, fraction, expected in ((3, 0.5, 1), (4, 0.25, 1), (5, 0.25, 2), (5, 0.5, 2), (8, 0.25, 2), (4, 0.0, 0)):
        population = Population(pbt(quantile_fraction=fraction), "abcdefgh"[:size])
        for index, name in enumerate(population.trials):
            population.report(name, 2, float(index))
        decided = [population.report(name, 4, float(index)) for index, name in enumerate(population.trials)]
        assert decided.count(SAVE) == expected, (size, fraction)


def test_while_others_wait_a_trial_makes_room_at_its_interval() -> None:
    population = Population(pbt(), "abc", started=False)
    scheduler, trials = population.scheduler, population.trials
    scheduler.on_trial_start(trials["a"])
    scheduler.on_trial_start(trials["b"])
    assert population.report("a", 1, 1.0) == CONTINUE
    assert population.report("a", 2, 1.0) == PAUSE
    assert scheduler.choose_trial_to_run([trials["a"], trials["c"]]) is trials["c"]  # it has trained least
    scheduler.on_trial_start(trials["c"])
    assert population.report("b", 2, 2.0) == PAUSE  # a waits
    assert scheduler.choose_trial_to_run([trials["b"], trials["a"]]) is trials["b"]  # the first of equals
    scheduler.on_trial_start(trials["a"])
    scheduler.on_trial_start(trials["b"])
    assert population.report("c", 2, 3.0) == SAVE  # nobody waits


def test_there_may_be_more_trials_than_places() -> None:
    population = Population(pbt(), "abc")
    population.scheduler.set_search_properties("acc", "max", slots=2)
    assert population.report("a", 2, 1.0) == PAUSE


def test_a_clock_that_comes_with_the_donors_checkpoint_may_go_back() -> None:
    population = Population(pbt(time_attr="steps"), "ab")
    population.report("b", 1, 2.0, steps=10)
    population.publish("b", 1)
    assert isinstance(population.report("a", 1, 1.0, steps=100), Exploit)
    assert population.report("a", 2, 3.0, steps=11) == CONTINUE
    assert population.report("a", 3, 3.0, steps=13) == SAVE


# --- synchronous ---------------------------------------------------------------------------------------------


def synch(names: str = "abcd", **kwargs: Any) -> Population:
    population = Population(pbt(synch=True, **kwargs), names)
    population.scheduler.on_search_end()
    return population


def test_a_synchronous_round_worked_out_by_hand() -> None:
    population = synch()
    scheduler, trials = population.scheduler, population.trials
    assert population.all_report(1, a=1.0, b=4.0, c=2.0, d=3.0) == [CONTINUE] * 4
    assert population.all_report(2, a=1.0, b=4.0, c=2.0) == [PAUSE] * 3
    assert [population.publish(name, 2) for name in "abc"] == [[], [], []]
    waiting = [trials[name] for name in "abc"]
    assert scheduler.choose_trial_to_run(waiting) is None  # all wait for d
    assert scheduler.choose_trial_to_run([*waiting, trials["d"]]) is trials["d"]
    assert population.report("d", 2, 3.0) == PAUSE
    assert list(scheduler.orders()) == []  # its checkpoint is not published
    assert population.publish("d", 2) == [Directive("a", Exploit("b", {"lr": 20.0}))]
    assert scheduler.choose_trial_to_run([trials["a"], trials["b"]]) is trials["a"]
    assert population.report("b", 3, 9.0) == CONTINUE
    assert population.report("b", 4, 9.0) == PAUSE


def test_f26_the_last_one_that_all_wait_for_may_end() -> None:
    for end in ("on_trial_error", "on_trial_remove", "on_trial_complete"):
        population = synch("abc")
        for name, acc in (("a", 1.0), ("b", 2.0)):
            assert population.report(name, 2, acc) == PAUSE
            assert population.publish(name, 2) == []
        arguments = (population.trials["c"], {}) if end == "on_trial_complete" else (population.trials["c"],)
        getattr(population.scheduler, end)(*arguments)
        assert [order.trial_id for order in population.scheduler.orders()] == ["a"]
        assert population.scheduler.choose_trial_to_run([population.trials["b"]]) is not None


def test_f26_who_lost_its_checkpoint_runs_again_until_it_has_one() -> None:
    population = synch("ab")
    population.report("a", 2, 1.0)
    population.publish("a", 2)
    population.report("b", 2, 2.0)  # and is killed before it is saved
    assert population.scheduler.choose_trial_to_run([population.trials["a"], population.trials["b"]]).trial_id == "b"  # type: ignore[union-attr]
    assert population.report("b", 3, 2.0) == PAUSE
    assert [order.trial_id for order in population.publish("b", 3)] == ["a"]


def test_f26_functions_that_save_rarely_never_stall() -> None:
    """All are beyond the next interval too when the last one comes: it is moved on, not over at once."""
    population = synch("ab")
    for iteration in range(2, 10):
        assert population.all_report(iteration, a=1.0, b=2.0) == [PAUSE, PAUSE]
    population.publish("a", 9)
    assert [order.trial_id for order in population.publish("b", 9)] == ["a"]
    assert population.all_report(10, a=1.0, b=2.0) == [CONTINUE, CONTINUE]
    assert population.all_report(11, a=1.0, b=2.0) == [PAUSE, PAUSE]


def test_who_is_ahead_waits_for_the_others() -> None:
    population = synch("ab")
    trials = population.trials
    population.report("a", 5, 2.0)
    population.publish("a", 5)
    population.report("b", 2, 1.0)
    assert population.publish("b", 2) == [Directive("b", Exploit("a", {"lr": 2.0}))]
    assert population.scheduler.choose_trial_to_run([trials["a"], trials["b"]]) is trials["b"]
    assert population.report("b", 4, 1.0) == CONTINUE
    assert population.report("b", 5, 1.0) == PAUSE
    assert [order.trial_id for order in population.publish("b", 5)] == ["b"]


def test_trials_to_come_are_waited_for() -> None:
    population = Population(pbt(synch=True), "ab")
    population.all_report(2, a=1.0, b=2.0)
    assert population.publish("a", 2) + population.publish("b", 2) == []
    assert population.scheduler.choose_trial_to_run(list(population.trials.values())) is None  # a new one is created
    population.scheduler.on_search_end()
    assert [order.trial_id for order in population.scheduler.orders()] == ["a"]


def test_when_nothing_else_can_run_those_who_wait_go_on() -> None:
    population = Population(pbt(synch=True), "abc")
    population.all_report(2, a=1.0, b=2.0)
    assert population.publish("a", 2) + population.publish("b", 2) == []
    population.scheduler.on_idle()
    assert [order.trial_id for order in population.scheduler.orders()] == ["a"]


# --- in every history -------------------------------------------------------------------------------------------


class World:
    """A loop in small, whose checkpoints know with which config they were trained."""

    def __init__(self, size: int, *, always_saves: bool = False, **kwargs: Any) -> None:
        self.made, self._always_saves = 100, always_saves
        self.scheduler = pbt(custom_explore_fn=self.stamp, perturbation_interval=1, quantile_fraction=0.5, **kwargs)
        self.trials = {f"t{n}": TrialStub(f"t{n}", {"lr": 1.0, "id": n, "of": None}) for n in range(size)}
        self.iteration = dict.fromkeys(self.trials, 0)
        self.unpublished: list[tuple[str, int, int]] = []
        self.newest: dict[str, int] = {}
        """Trial -> the id of the config of its newest published checkpoint."""
        self.waiting: set[str] = set()
        self.ordered: dict[str, Exploit] = {}
        for trial in self.trials.values():
            self.scheduler.on_trial_add(trial)
            self.scheduler.on_trial_start(trial)
        self.scheduler.on_search_end()

    def stamp(self, config: dict[str, Any]) -> dict[str, Any]:
        self.made += 1
        return {**config, "id": self.made, "of": config["id"]}

    def report(self, name: str, acc: float) -> None:
        if name in self.waiting:
            return
        self.iteration[name] += 1
        result = {"training_iteration": self.iteration[name], "acc": acc}
        verdict = self.scheduler.on_trial_result(self.trials[name], result)
        if self._always_saves or verdict in (SAVE, PAUSE):
            self.unpublished.append((name, self.iteration[name], self.trials[name].config["id"]))
        if verdict == PAUSE:
            self.waiting.add(name)
        if isinstance(verdict, Exploit):
            self.clone(name, verdict)
        self.take_orders()

    def publish(self, which: int) -> None:
        """Of some trial the oldest that is not published yet: each trial's come in their order."""
        if self.unpublished:
            name = self.unpublished[which % len(self.unpublished)][0]
            oldest = next(found for found in self.unpublished if found[0] == name)
            self.unpublished.remove(oldest)
            _, iteration, config = oldest
            self.newest[name] = config
            self.scheduler.on_checkpoint(self.trials[name], iteration)
            self.take_orders()

    def take_orders(self) -> None:
        for order in self.scheduler.orders():
            assert order.trial_id in self.waiting
            assert isinstance(order.what, Exploit)
            self.clone(order.trial_id, order.what)
        for name in self.waiting - {name for name, _, _ in self.unpublished}:  # the others are not saved yet
            if self.scheduler.choose_trial_to_run([self.trials[name]]) is not None:
                self.waiting.discard(name)

    def clone(self, name: str, exploit: Exploit) -> None:
        assert exploit.donor != name
        assert exploit.donor in self.newest, "a donor has a checkpoint"
        assert exploit.config["of"] == self.newest[exploit.donor], "config and weights are of the same trial and life"
        self.trials[name].config = exploit.config


@given(seed=st.integers(0, 10**6), size=st.integers(2, 6), together=st.booleans())
def test_f26_t13_config_and_weights_are_of_one_trial_and_one_life(seed: int, size: int, together: bool) -> None:
    draw, world = random.Random(seed), World(size, synch=together, seed=seed)
    for _ in range(120):
        if draw.random() < 0.4:
            world.publish(draw.randrange(100))
        else:
            world.report(draw.choice(list(world.trials)), draw.choice([math.nan, math.inf, 0.0, draw.random()]))


def test_f05_perturbing_at_every_step_with_adversarial_scores() -> None:
    """The newest is always the worst. Whoever is named as donor has a checkpoint, and all keep on training."""
    world = World(8, always_saves=True)
    for step in range(500):
        for name in world.trials:
            world.report(name, -float(step * 8 + int(name[1:])))
            world.publish(0)
    assert world.made > 1000
    assert set(world.iteration.values()) == {500}


MUTATIONS = {"lr": tune.loguniform(1e-3, 10), "layers": [1, 2, 3]}
OURS: dict[str, Any] = {
    "at every result": {"perturbation_interval": 1, "quantile_fraction": 0.5},
    "now and then": {"perturbation_interval": 3},
    "after a burn-in": {"burn_in_period": 4},
    "by time": {"time_attr": "time_total_s", "perturbation_interval": 4},
    "synchronous": {"synch": True},
    "synchronous, late": {"synch": True, "burn_in_period": 5, "quantile_fraction": 0.4},
}


@pytest.mark.parametrize("arguments", OURS.values(), ids=OURS)
def test_it_meets_its_obligations(arguments: dict[str, Any]) -> None:
    given: dict[str, Any] = {"time_attr": "training_iteration", "perturbation_interval": 2}
    given |= {"hyperparam_mutations": MUTATIONS, "custom_explore_fn": _drawing}
    check_scheduler(lambda: PopulationBasedTraining(**given | arguments))


def _drawing(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "drop": random.random()}


def test_the_same_seed_gives_the_same_population() -> None:
    def life(**spec: Any) -> list[Any]:
        scheduler = as_scheduler(
            PopulationBasedTraining("training_iteration", None, None, 1, hyperparam_mutations=MUTATIONS),
            metric="acc",
            mode="max",
            **spec,
        )
        found: list[Any] = []
        trials = []
        for number in range(6):
            trials.append(TrialStub(f"t{number}", scheduler.first_config({"own": number})))
            scheduler.on_trial_add(trials[-1])
            scheduler.on_trial_start(trials[-1])
        found += [trial.config for trial in trials]
        for iteration in range(1, 8):
            for number, trial in enumerate(trials):
                verdict = scheduler.on_trial_result(trial, {"training_iteration": iteration, "acc": float(number)})
                scheduler.on_checkpoint(trial, iteration)
                found.append(verdict)
        return found

    assert life(seed=1) == life(seed=1)
    assert life(seed=1) != life(seed=2)
    assert {"own", "lr", "layers"} == set(life(seed=1)[0])


def test_a_mutated_value_that_is_fixed_at_first_has_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"acc": config["net"]["lr"]}, checkpoint=tune.Checkpoint.from_dict({}))

    scheduler = pbt(hyperparam_mutations={"net": {"lr": tune.uniform(0, 1)}, "beta": [1, 2]})
    analysis = tune.run(
        train, config={"net": {"lr": 0.125, "depth": 3}, "beta": 2}, num_samples=2, scheduler=scheduler, name="e",
        storage_path=tmp_path, executor="inline", verbose=2,
    )  # fmt: skip
    assert [trial.evaluated_params for trial in analysis.trials] == [{"net/lr": 0.125, "beta": 2}] * 2
    (header,) = {line for line in capsys.readouterr().out.splitlines() if line.startswith("trial ")}
    assert header.split()[2:4] == ["net/lr", "beta"]


def test_a_given_seed_is_not_replaced() -> None:
    first = pbt(seed=5, hyperparam_mutations={"x": tune.uniform(0, 1)})
    other = pbt(seed=5, hyperparam_mutations={"x": tune.uniform(0, 1)})
    other.set_search_properties("acc", "max", seed=9)
    assert first.first_config({}) == other.first_config({})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quantile_fraction": 0.6}, r"quantile_fraction=0\.6 is not accepted; accepted: a number from 0 to 0\.5"),
        ({"quantile_fraction": -0.1}, r"quantile_fraction=-0\.1"),
        ({"perturbation_interval": 0}, "perturbation_interval=0"),
        ({"perturbation_interval": "often"}, "perturbation_interval='often'"),
        ({"burn_in_period": -1}, "burn_in_period=-1"),
        ({"resample_probability": 2}, "resample_probability=2"),
        ({"perturbation_factors": (1.2, 0)}, r"perturbation_factors=\(1\.2, 0\)"),
        ({"perturbation_factors": ()}, r"perturbation_factors=\(\)"),
        ({"perturbation_factors": 1.2}, r"perturbation_factors=1\.2"),
        ({"hyperparam_mutations": None}, "hyperparam_mutations=None and custom_explore_fn=None.*needs one of them"),
        ({"hyperparam_mutations": {}}, "needs one of them"),
        ({"hyperparam_mutations": {"lr": 0.1}}, r"hyperparam_mutations\['lr'\]=0\.1"),
        ({"hyperparam_mutations": {"lr": []}}, r"\['lr'\]=\[\] is empty"),
        ({"hyperparam_mutations": {"a": {"b": "text"}}}, r"hyperparam_mutations\['a'\]\['b'\]='text'"),
        ({"hyperparam_mutations": {"lr": tune.sample_from(lambda c: 1)}}, r"\['lr'\]=sample_from.*depends on a config"),
        ({"hyperparam_mutations": {"lr": tune.grid_search([1, 2])}}, r"\['lr'\] is a grid_search.*give its list"),
        ({"hyperparam_mutations": [1]}, r"hyperparam_mutations=\[1\]"),
        ({"custom_explore_fn": 3}, "custom_explore_fn=3"),
        ({"synch": 1}, "synch=1"),
        ({"mode": "best"}, "mode='best'"),
        ({"time_attr": ""}, "time_attr=''"),
        ({"seed": "x"}, "seed='x'"),
        ({"quantile_frction": 0.1}, "did you mean 'quantile_fraction'"),
    ],
)
def test_what_does_not_fit_is_said_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pbt(**arguments)


def test_a_custom_explore_fn_that_returns_nothing_is_named() -> None:
    population = Population(pbt(custom_explore_fn=lambda config: None), "ab")
    population.report("a", 2, 1.0)
    population.publish("a", 2)
    with pytest.raises(SettingError, match="custom_explore_fn returned None"):
        population.report("b", 2, 0.5)
