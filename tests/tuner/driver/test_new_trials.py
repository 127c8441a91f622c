"""Trials that users order: added ones and forks, beside searchers and schedulers, over kills and resumes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.samplers import TPESampler

import tuner as tune
from tests.tuner.driver.harness import Proposer, plugin_set
from tests.tuner.driver.steered import Steered
from tuner.driver.plugins import TrialSource, stored
from tuner.experiment import events as ev
from tuner.experiment.naming import TrialNames
from tuner.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)
from tuner.search import Repeater, as_searcher
from tuner.search.optuna import OptunaSearch

SPACE = {"x": tune.uniform(0, 10), "model": {"width": tune.choice([8, 16]), "depth": 3}}


def plugins(num_samples: int = 2, space: dict[str, Any] | None = None, **more: Any) -> Any:
    """Plug-ins whose searcher proposes x = 1, 2, ..."""
    made = plugin_set(num_samples=num_samples, **more)
    made.source = TrialSource(
        made.searcher,
        made.scheduler,
        space={"x": tune.uniform(0, 10)} if space is None else space,
        num_samples=num_samples,
        prefix="ab",
        trainable_name="train",
        names=TrialNames(None, None),
        blobs=None,
    )
    return made


@pytest.fixture
def run(tmp_path: Path) -> Steered:
    """Two trials run; the first has a checkpoint of its second iteration."""
    return begun(tmp_path / "e")


def begun(root: Path, *, slots: float = 8, **more: Any) -> Steered:
    run = Steered(root, plugins(**more), slots=slots, class_api=True)
    run.turn()
    run.report(run.trial(), loss=3.0, time_total_s=5.0)
    run.report(run.trial(), saves=True, loss=2.0, time_total_s=10.0)
    return run


def test_a_fork_starts_from_the_checkpoint_with_the_edited_config(run: Steered) -> None:
    said = run.said(run.order("fork", 0, iteration=2, config={"x": 5}))
    assert said == ("done", "ab_o0000: waits for a slot, starts from 0@2")
    fork, job = run.trial(2), run.executor.launched[-1].job
    assert (job.trial_id, job.config, job.start_iteration, job.start_time_total_s) == ("ab_o0000", {"x": 5}, 2, 10.0)
    assert job.checkpoint == run.trial().checkpoints[0].ref
    assert job.index == run.trial().index  # its draws are the trunk's
    assert fork.fork is not None and fork.fork.changed == {"x": (1, 5)} and fork.evaluated_params == {"x": 5}
    assert fork.iteration == 2 and fork.index == 2
    run.report(fork, loss=1.0)
    assert fork.iteration == 3 and run.trial().iteration == 2
    assert run.state.borrowed == {"ab_o0000": run.trial().checkpoints[0].ref}  # until it has one of its own
    run.report(fork, saves=True, loss=0.5)
    assert run.state.borrowed == {}


def test_a_fork_of_a_tag_and_of_a_fork(run: Steered) -> None:
    run.order("tag", 0, iteration=2, tag="warm")
    run.mailbox.put("fork-tagged", b'{"order": "fork", "tag": "warm", "config": {"x": 7}}')
    run.look()
    run.report(run.trial(2), saves=True, loss=1.0)
    run.order("fork", 2, iteration=3, config={"x": 8})
    assert [trial.config for trial in run.state.trials] == [{"x": 1}, {"x": 2}, {"x": 7}, {"x": 8}]
    assert run.trial(3).iteration == 3 and run.trial(3).seed_index == 0


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (
            {"order": "fork", "trial": "0", "iteration": 1},
            "there is no checkpoint 0@1: train_ab_00000 has those of iterations 2",
        ),
        ({"order": "fork", "trial": "7", "iteration": 1}, "there is no trial '7'"),
        ({"order": "fork", "tag": "best"}, "there is no checkpoint best: nothing is tagged there"),
        ({"order": "fork", "trial": "0"}, "it has trial and iteration, or a tag"),
        ({"order": "fork", "trial": "0", "iteration": 2, "tag": "best"}, "it has trial and iteration, or a tag"),
        ({"order": "fork", "trial": "0", "iteration": 2, "config": {"xx": 1}}, "'xx' is not in the config; did you"),
        ({"order": "add", "config": {"xx": 1}}, "'xx' is not in the search space; did you mean 'x'?"),
        ({"order": "add", "config": {"x": 11}}, "x=11 is not a value of uniform(0.0, 10.0)"),
        ({"order": "add", "config": {"": 1}}, "keys are text"),
    ],
)
def test_what_does_not_fit_is_refused_and_makes_no_trial(run: Steered, order: dict[str, Any], why: str) -> None:
    run.mailbox.put("some-order", msgspec.json.encode(order))
    run.look()
    state, said = run.said("some-order")
    assert state == "refused" and why in said and len(run.state.trials) == 2


def test_an_added_trial_is_drawn_alike_for_one_order_and_uses_up_no_sample(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        run = Steered(tmp_path / name, plugins(3, SPACE, searcher=Spaced(3)), slots=2)
        run.turn()
        run.mailbox.put("same-order", b'{"order": "add", "config": {"model/width": 16}}')
        run.look()
        for trial in list(run.state.trials)[:2]:
            run.report(trial, loss=1.0)
            run.exit(trial)
        made.append(run.trial(2).config)
        assert [trial.trial_id for trial in run.state.trials] == ["ab_00000", "ab_00001", "ab_o0000", "ab_00002"]
        assert run.trial(3).index == 3 and run.plugins.source.all_created(run.state)
    assert made[0] == made[1] and made[0]["model"] == {"width": 16, "depth": 3} and 0 <= made[0]["x"] < 10


class Spaced(Proposer):
    """Proposes configs of `SPACE`, and remembers what it was told of."""

    told: tuple[Any, ...] = ()

    @property
    def total(self) -> int:
        return self.count

    def suggest(self, trial_id: str) -> Any:
        made = super().suggest(trial_id)
        return {**made, "model": {"width": 8}} if isinstance(made, dict) else made

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.told += (("result", trial_id),)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.told += (("complete", trial_id),)

    def learn_from(self, trial: Any) -> str | None:
        self.told += (("learned", trial.trial_id, trial.config["x"], trial.last_result["loss"]),)
        return None


def test_the_searcher_learns_of_an_added_trial_when_it_ends_and_of_no_fork_also_in_a_replay(tmp_path: Path) -> None:
    run = Steered(tmp_path / "e", plugins(1, SPACE, searcher=Spaced(1)), slots=4, class_api=True)
    run.turn()
    run.report(run.trial(), saves=True, loss=1.0)
    run.order("add", None, config={"x": 4})
    run.order("fork", 0, iteration=1, config={"x": 5})
    for trial in list(run.state.trials):
        run.report(trial, loss=trial.index)
        run.exit(trial)
    told = [("result", "ab_00000")] * 2 + [("complete", "ab_00000"), ("learned", "ab_o0000", 4, 1)]
    assert list(run.plugins.searcher.told) == told
    again = Steered(tmp_path / "again", plugins(1, SPACE, searcher=Spaced(1)), facts=run.facts, class_api=True)
    assert list(again.plugins.searcher.told) == told
    assert [each.config for each in again.state.trials] == [each.config for each in run.state.trials]


def test_an_order_after_the_search_has_ended_runs(run: Steered) -> None:
    for trial in list(run.state.trials):
        run.report(trial, saves=True, loss=1.0)
        run.exit(trial)
    assert not run.executor.running and run.state.search_ended is not None
    run.mailbox.put("late-order", b'{"order": "fork", "trial": "0", "iteration": 3}')
    assert run.loop.steering.brings_more() and not run.loop.steering.brings_more()
    run.turn()
    assert list(run.executor.running) == ["ab_o0000"]


def test_a_fork_whose_checkpoint_is_gone_fails_and_does_not_start_from_nothing(tmp_path: Path) -> None:
    run = begun(tmp_path / "e", slots=2)
    run.order("fork", 0, iteration=2)
    run.loop._parts.checkpoints.set_aside(run.trial().checkpoints[0], "damaged")
    run.report(run.trial(1), loss=1.0)
    run.exit(run.trial(1))
    fork = run.trial(2)
    assert fork.status == "ERROR" and fork.error is not None and "is gone" in fork.error.message
    assert len(run.executor.launched) == 2


def test_a_restarted_fork_starts_where_it_was_forked(run: Steered) -> None:
    run.order("fork", 0, iteration=2, config={"x": 5})
    fork = run.trial(2)
    run.report(fork, loss=1.0)
    run.exit(fork, status=1, next_turn=False)
    assert fork.status == "ERROR"
    run.loop._facts.add(ev.TrialReopened(fork.trial_id, anew=True))
    run.loop.endings.transitions.wait(fork)
    run.turn()
    job = run.executor.launched[-1].job
    assert (job.checkpoint, job.start_iteration, job.start_time_total_s) == (run.trial().checkpoints[0].ref, 2, 10.0)


def test_what_was_ordered_is_known_after_a_replay_and_from_a_snapshot(run: Steered) -> None:
    run.order("add", None, config={"x": 3})
    again = Steered(run.state.root.parent / "again", plugins(), facts=run.facts, slots=8, class_api=True)
    assert again.state.searched == 2 and again.state.made_for.keys() == run.state.made_for.keys()
    snapshot = type(run.state).from_snapshot(run.state.root, run.state.snapshot({}))
    assert snapshot.searched == 2 and snapshot.trial("ab_o0000").order == run.trial(2).order


# --- schedulers -------------------------------------------------------------------------------------------------


SCHEDULERS: dict[str, Any] = {
    "fifo": FIFOScheduler,
    "asha": lambda: AsyncHyperBandScheduler(metric="loss", mode="min", max_t=8, reduction_factor=2),
    "asha promotion": lambda: AsyncHyperBandScheduler(
        metric="loss", mode="min", max_t=8, reduction_factor=2, type="promotion"
    ),
    "hyperband": lambda: HyperBandScheduler(metric="loss", mode="min", max_t=8, reduction_factor=2),
    "resources": lambda: ResourceChangingScheduler(SCHEDULERS["hyperband"]()),  # which hands all on
    "median": lambda: MedianStoppingRule("training_iteration", "loss", "min", grace_period=2, min_samples_required=1),
    "pbt": lambda: PopulationBasedTraining(
        "training_iteration", "loss", "min", 4, hyperparam_mutations={"x": tune.uniform(0, 10)}
    ),
    "pbt synch": lambda: PopulationBasedTraining(
        "training_iteration", "loss", "min", 4, hyperparam_mutations={"x": tune.uniform(0, 10)}, synch=True
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_added_and_forked_trials_come_to_their_end_beside_a_scheduler(tmp_path: Path, name: str) -> None:
    """Every trial is trained up to iteration 8 at most, whatever the scheduler does meanwhile; a replay agrees."""
    run = Steered(
        tmp_path / "e",
        plugins(4, scheduler=SCHEDULERS[name](), stopper=tune.stopper.MaximumIterationStopper(8)),
        slots=3,
        class_api=True,
    )
    run.turn()
    ordered = False
    for _turn in range(200):
        for trial in [trial for trial in run.state.trials if trial.trial_id in run.executor.running]:
            answer = run.report(trial, saves=True, loss=trial.config["x"] / (trial.iteration + 1))
            if answer is not None and answer.then != "continue":
                run.exit(trial)
        if not ordered and run.trial().latest_checkpoint is not None and run.trial().iteration >= 3:
            ordered = True
            kept = run.trial().latest_checkpoint
            assert kept is not None
            run.order("add", None, config={"x": 0.5})
            run.order("fork", 0, iteration=kept.iteration, config={"x": 0.1})
        run.turn()
        if not run.executor.running and not run.loop._wakes():
            break
    assert ordered and all(trial.status == "TERMINATED" for trial in run.state.trials)
    added, fork = (trial for trial in run.state.trials if trial.order)
    assert fork.fork is not None and fork.iteration <= 8 and len(run.state.trials) == 6
    assert fork.iteration == 8 and added.iteration >= 4  # they are the best
    again = Steered(
        tmp_path / "again",
        plugins(4, scheduler=SCHEDULERS[name](), stopper=tune.stopper.MaximumIterationStopper(8)),
        facts=run.facts,
        class_api=True,
    )
    assert again.plugins.scheduler.get_state() == run.plugins.scheduler.get_state()


# --- searchers --------------------------------------------------------------------------------------------------


def searched(kind: str, count: int) -> Any:
    space = {"x": tune.uniform(0, 10), "y": tune.choice([1, 2])}
    if kind == "grid":
        space = {"x": tune.grid_search([1, 2, 3]), "y": tune.uniform(0, 1)}
    sampler = TPESampler(n_startup_trials=1, seed=3)
    algorithm = {"optuna": OptunaSearch(sampler=sampler), "ahead": OptunaSearch(sampler=sampler, ask_ahead=True)}
    samples = 1 if kind == "grid" else count
    found = as_searcher(algorithm.get(kind), space, num_samples=samples, metric="loss", mode="min", seed=1)
    return plugins(samples, space, searcher=found)


_actions = st.lists(st.sampled_from(["report", "report", "end", "add", "fork"]), max_size=14)


@pytest.mark.parametrize(
    ("kind", "count", "examples"), [("random", 4, 10), ("grid", 3, 10), ("optuna", 4, 10), ("ahead", 4, 10)]
)
def test_a_replay_of_any_beginning_goes_on_with_the_same_configs(kind: str, count: int, examples: int) -> None:
    """Whatever was ordered meanwhile, what the searcher suggests next is what it had suggested then."""

    @given(_actions, st.integers(0, 3))
    @settings(max_examples=examples, deadline=None)
    def lives(actions: list[str], which: int) -> None:
        with tempfile.TemporaryDirectory() as place:
            run = Steered(Path(place, "e"), searched(kind, count), slots=2, class_api=True)
            run.turn()
            for action in [*actions, *["end"] * 30]:
                act(run, action, which)
            made = [trial for trial in run.state.trials if not trial.order]
            assert len(made) == count and all(trial.is_finished() for trial in run.state.trials)
            assert [trial.index for trial in run.state.trials] == list(range(len(run.state.trials)))
            for position, fact in enumerate(run.facts):
                if isinstance(fact, ev.TrialCreated) and not fact.order and fact.index:
                    again = Steered(Path(place, f"{position}"), searched(kind, count), facts=run.facts[:position])
                    created = again.plugins.source.create(again.state)
                    assert isinstance(created, ev.TrialCreated)
                    assert (created.trial, bytes(created.config)) == (fact.trial, bytes(fact.config))

    lives()


def act(run: Steered, action: str, which: int) -> None:
    running = [trial for trial in run.state.trials if trial.trial_id in run.executor.running]
    saved = [trial for trial in run.state.trials if trial.latest_checkpoint is not None]
    if action == "add":
        run.order("add", None, config={})
    elif action == "fork" and saved:
        donor = saved[which % len(saved)]
        assert donor.latest_checkpoint is not None
        run.order("fork", donor.index, iteration=donor.latest_checkpoint.iteration, config={"y": 2})
    elif running and action in ("report", "end"):
        trial = running[which % len(running)]
        run.report(trial, saves=True, loss=float(trial.config["x"]) + trial.iteration)
        if action == "end":
            run.exit(trial)


def test_a_searcher_with_a_space_of_its_own_takes_whole_configs_only(tmp_path: Path) -> None:
    algorithm = OptunaSearch(space={"x": FloatDistribution(0, 1), "k": IntDistribution(1, 3)})
    space = {"epochs": 5}
    searcher = as_searcher(algorithm, space, num_samples=1, metric="loss", mode="min", seed=1)
    run = Steered(tmp_path / "e", plugins(1, space, searcher=searcher), slots=4)
    run.turn()
    said = run.said(run.order("add", None, config={"x": 0.3}))
    assert said == ("refused", "it has no k, which only OptunaSearch could draw")
    assert run.said(run.order("add", None, config={"x": 0.3, "k": 2}))[0] == "done"
    assert run.trial(1).config == {"epochs": 5, "x": 0.3, "k": 2}


def test_an_added_trial_beside_repeated_ones_is_one_repeat(tmp_path: Path) -> None:
    space = {"x": tune.uniform(0, 1)}
    searcher = as_searcher(Repeater(OptunaSearch(), 2), space, num_samples=2, metric="loss", mode="min", seed=1)
    run = Steered(tmp_path / "e", plugins(2, space, searcher=searcher), slots=4)
    run.turn()
    run.order("add", None, config={"x": 0.5})
    assert [trial.config["__trial_index__"] for trial in run.state.trials] == [0, 1, 0]


def test_a_fork_is_compared_only_above_where_it_began_also_by_a_scheduler_that_is_new(run: Steered) -> None:
    run.order("fork", 0, iteration=2, config={"x": 5})
    scheduler = AsyncHyperBandScheduler(metric="loss", mode="min", max_t=8, reduction_factor=2)
    stored._tell_scheduler(scheduler, run.state.trials)
    for iteration in (3, 4, 5):
        scheduler.on_trial_result(run.trial(2), {"training_iteration": iteration, "loss": 0.0})
    (bracket,) = scheduler.get_state()["recorded"]
    assert {height: list(known) for height, known in bracket.items()} == {1: [], 2: [], 4: ["ab_o0000"], 8: []}
    members = PopulationBasedTraining("time_total_s", "loss", "min", 4, hyperparam_mutations={"x": [1, 2]})
    stored._tell_scheduler(members, run.state.trials)
    assert members.get_state()["members"]["ab_o0000"]["perturbed_at"] == 10.0  # the trunk's time there
