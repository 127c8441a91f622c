"""Population based training: the worse trials go on as changed copies of the better ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from trainables.metrics import as_score, rank_of
from trainables.result_history import flatten
from trainables.validation import checked_names, flag
from tuner.error import SettingError, refused, require
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.base import Decision, Directive, Exploit, Reasoned, TrialView, Verdict
from tuner.schedulers.explore import Explorer, called, chance, check_mutations, completed
from tuner.schedulers.pbt_replay import PopulationBasedTrainingReplay as PopulationBasedTrainingReplay
from tuner.schedulers.population import ExploitStep, Member
from tuner.schedulers.progress import ProgressScheduler
from tuner.search.arguments import check_number, seed_or_none
from tuner.search.searcher import Metric

T = TypeVar("T", bound=TrialView)

LOGGED = 1000
"""So many exploits are kept for `policy`; the journal has all of them."""

Step = ExploitStep
"""The name by which experiments of 0.1.0 have it pickled."""


@checked_names
class PopulationBasedTraining(ProgressScheduler):
    """The worse trials of a population go on from checkpoints of the better ones, with a config changed a little.

    Every trial is a member of the population. At each interval a member among the best `quantile_fraction` is saved;
    one among the worst gets checkpoint and config of one of the best, drawn at random (exploit), and its config is
    changed (explore). NaN is worst. A trial without a checkpoint of its own, since it became a clone, is no donor;
    while none of the best has one, the worst ask again at their next result. If there are more trials than can run at
    once, each is paused at its intervals, and who has trained least goes on first.

    Args:
        time_attr: what progress is measured by.
        metric, mode: what is compared; None: the run's.
        perturbation_interval: how far apart the decisions about a trial are, in units of `time_attr`.
        burn_in_period: before so much of `time_attr` nothing is decided.
        hyperparam_mutations: what is changed, and how: name -> a list or `tune.choice` (the value becomes its
            neighbour), another domain (the value is multiplied by a factor and stays within the domain), a function
            (multiplied too, without bounds), or a dict of these. What a trial's config lacks of them at its creation is
            drawn from them.
        quantile_fraction: how large a part of the population is copied, and is replaced: 0 to 0.5.
        resample_probability: how often a value is drawn anew instead.
        perturbation_factors: numbers are multiplied by one of these. What is an int is rounded.
        custom_explore_fn: gets the changed config and returns the one that is used. Python's and numpy's global
            generators are seeded while it runs, and while a function of `hyperparam_mutations` does.
        log_config: keep what `policy` tells.
        require_attrs: the first result of a run has to have `time_attr` and metric. Later ones may lack them: they
            decide nothing.
        synch: trials wait at the end of an interval, saved, until all are there; then all are decided about at once.
        seed: of all that is drawn; None: the experiment's.

    Raises:
        SettingError: an argument out of its range; the message has its name and value.

    Example:
        >>> pbt = PopulationBasedTraining("training_iteration", "loss", "min", 5, hyperparam_mutations={"lr": [1, 2]})
        >>> pbt.debug_string()
        'PopulationBasedTraining: 0 checkpoints, 0 perturbs'

    Source: Jaderberg et al. 2017, "Population Based Training of Neural Networks", section 3, algorithm 1, with
    truncation selection; `synch` is its appendix A.1.
    """

    population = True
    _remembered = ("_seed", "_complete", "_added", "_next_sync", "_orders", "_log")

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        mutations = {} if hyperparam_mutations is None else hyperparam_mutations
        check_mutations(mutations)
        fits = custom_explore_fn is None or callable(custom_explore_fn)
        require(fits, "custom_explore_fn", custom_explore_fn, "it is a function of a config")
        if not mutations and custom_explore_fn is None:
            raise SettingError(
                f"hyperparam_mutations={hyperparam_mutations!r} and custom_explore_fn=None: {type(self).__name__} "
                "needs one of them, e.g. hyperparam_mutations={'lr': tune.loguniform(1e-4, 1e-1)}"
            )
        check_number("perturbation_interval", perturbation_interval, lambda n: 0 < n < math.inf, "a number above 0")
        check_number("burn_in_period", burn_in_period, lambda n: 0 <= n < math.inf, "a number from 0")
        check_number("quantile_fraction", quantile_fraction, lambda n: 0 <= n <= 0.5, "a number from 0 to 0.5")
        check_number("resample_probability", resample_probability, lambda n: 0 <= n <= 1, "a number from 0 to 1")
        self._interval, self._burn_in, self._fraction = perturbation_interval, burn_in_period, quantile_fraction
        self.changed_params = tuple(flatten(mutations))
        self._explorer = Explorer(mutations, resample_probability, _factors(perturbation_factors))
        self._custom_explore_fn = custom_explore_fn
        self.log_config = flag("log_config", log_config)
        self.require_attrs = flag("require_attrs", require_attrs)
        self._synch = flag("synch", synch)
        seed_or_none(seed)
        self._given_seed, self._seed = seed, seed or 0
        self._slots: int | None = None
        self._complete = False
        self._members: dict[str, Member] = {}
        self._added = self._num_checkpoints = self._num_perturbations = 0
        self._next_sync = max(perturbation_interval, burn_in_period)
        self._log: list[ExploitStep] = []

    def set_search_properties(self, metric: Metric, mode: Metric, **spec: Any) -> bool:
        """Take what the run was given; of `spec`: `seed`, and `slots`, how many trials can run at once."""
        if self._given_seed is None and spec.get("seed") is not None:
            self._seed = int(spec["seed"])
        self._slots = spec.get("slots", self._slots)
        return super().set_search_properties(metric, mode, **spec)

    def first_config(self, config: dict[str, Any]) -> dict[str, Any]:
        return completed(config, self._explorer.mutations, f"pbt {self._seed} first {self._added}")

    def on_trial_add(self, trial: TrialView) -> None:
        self._member(trial)

    def on_trial_fork(self, trial: TrialView, result: dict[str, Any]) -> None:
        member, time = self._member(trial), self._time(result)
        if time is not None:
            member.time = member.perturbed_at = time  # its first interval begins there

    def _member(self, trial: TrialView) -> Member:
        member = self._members.get(trial.trial_id)
        if member is None:  # new, or it had ended and is continued
            member = self._members[trial.trial_id] = Member(self._added, trial.config)
            self._added += 1
        member.config = trial.config
        return member

    def on_trial_start(self, trial: TrialView) -> None:
        self._member(trial).queues = False

    def on_trial_remove(self, trial: TrialView) -> None:
        self._members.pop(trial.trial_id, None)
        self._orders = [order for order in self._orders if order.trial_id != trial.trial_id]
        self._decide_if_all_wait()  # it may have been the one that the others waited for

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        member = self._member(trial)
        time, score = self._time(result), self._score(result)
        if time is None or score is None:
            return Decision.CONTINUE
        if time < member.time:  # its clock came with the donor's checkpoint
            member.perturbed_at = min(member.perturbed_at, time)
        member.time = time
        member.iteration = int(result.get("training_iteration", member.iteration + 1))
        if time < (self._next_sync if self._synch else max(self._burn_in, member.perturbed_at + self._interval)):
            return Decision.CONTINUE
        member.score = score
        self._recorded(trial.trial_id, member)
        if not self._synch:
            return self._decide(trial.trial_id, member)
        if member.arrived is None:
            member.arrived = member.iteration
        self._decide_if_all_wait()
        return Reasoned(Decision.PAUSE, self._reason(ReasonKind.WAITS, score))

    def on_checkpoint(self, trial: TrialView, iteration: int) -> None:
        member = self._members.get(trial.trial_id)
        if member is not None and iteration > member.born:
            member.saved = max(iteration, member.saved or 0)
            self._decide_if_all_wait()

    def _decide(self, trial_id: str, member: Member) -> Verdict | Reasoned:
        lower, upper = self._quantiles()
        crowded = self._is_crowded()
        if trial_id in lower:
            donor = self._draw_donor(upper)
            if donor is None and not crowded:
                return Decision.CONTINUE
            if donor is not None:
                # Where nobody waits it has its place again at once.
                member.perturbed_at, member.queues = member.time, crowded
                return self._exploit(trial_id, member, donor)
        member.perturbed_at, member.queues = member.time, crowded
        saves = trial_id in upper
        self._num_checkpoints += saves
        if crowded:
            return Reasoned(Decision.PAUSE, self._reason(ReasonKind.WAITS, member.score))
        return Decision.SAVE if saves else Decision.CONTINUE

    def _is_crowded(self) -> bool:
        """Whether there are members that cannot run because others do."""
        full = self._slots is not None and len(self._members) > self._slots
        return full or any(member.queues for member in self._members.values())

    def _decide_if_all_wait(self) -> None:
        """synch: when the last one is there, and saved, the worse ones are told to go on as clones."""
        members = self._members
        if self._synch and self._complete and members and all(member.waits for member in members.values()):
            self._decide_about_all()

    def on_search_end(self) -> None:
        self._complete = True
        self._decide_if_all_wait()

    def on_idle(self) -> None:
        if self._synch and self._members:  # the others can be waited for no longer
            self._decide_about_all()

    def _decide_about_all(self) -> None:
        members = self._members
        lower, upper = self._quantiles()
        self._num_checkpoints += len(upper)
        for trial_id in lower:
            donor = self._draw_donor(upper)
            if donor is not None:
                self._orders = [*self._orders, Directive(trial_id, self._exploit(trial_id, members[trial_id], donor))]
        # Who is behind the first one catches up; if nobody is, a whole interval follows.
        times = [member.time for member in members.values()]
        self._next_sync = max(self._next_sync + self._interval, max(times))
        if min(times) >= self._next_sync:
            self._next_sync = max(times) + self._interval
        for member in members.values():
            member.perturbed_at = member.time
            if member.time < self._next_sync:
                member.arrived = None

    def _standing(self, kind: ReasonKind, trial_id: str) -> Reason:
        """Where a member stands among those that have a score."""
        ranks = [rank_of(member.score) for member in self._members.values() if member.score is not None]
        score = self._members[trial_id].score
        rank = None if score is None else sorted(ranks, reverse=True).index(rank_of(score)) + 1
        return self._reason(kind, score, rank=rank, of=len(ranks))

    def _quantiles(self) -> tuple[list[str], list[str]]:
        """The worst and the best of those that have a score, each from the worst on; both empty for fewer than two."""
        scores = {trial_id: member.score for trial_id, member in self._members.items() if member.score is not None}
        latest_first = sorted(scores, key=lambda trial_id: -self._members[trial_id].number)
        ranked = sorted(latest_first, key=lambda trial_id: rank_of(scores[trial_id]))
        count = min(math.ceil(len(ranked) * self._fraction), len(ranked) // 2)
        best = ranked[len(ranked) - count :]
        return ranked[:count], [trial_id for trial_id in best if not math.isnan(scores[trial_id])]

    def _draw_donor(self, upper: Sequence[str]) -> str | None:
        able = [trial_id for trial_id in upper if self._members[trial_id].saved is not None]
        return able[int(chance(self._key, "donor") * len(able))] if able else None

    @property
    def _key(self) -> str:
        """Of what the next exploit draws."""
        return f"pbt {self._seed} {self._num_perturbations}"

    def _exploit(self, trial_id: str, member: Member, donor_id: str) -> Exploit:
        donor = self._members[donor_id]
        assert donor.saved is not None
        config = self._explored(trial_id, donor_id)
        if self._custom_explore_fn is not None:
            config = called(self._custom_explore_fn, config, self._key)
        self._num_perturbations += 1
        trained = donor.saved + donor.ahead
        if self.log_config:
            step = ExploitStep(trial_id, donor_id, member.iteration, trained, donor.config, config)
            self._log = [*self._log[1 - LOGGED :], step]
        # A result without the metric is not told, but its checkpoint is.
        member.config, member.born, member.saved = config, max(member.iteration, member.saved or 0), None
        member.ahead = trained - member.born
        return Exploit(donor_id, config, self._standing(ReasonKind.EXPLOIT, trial_id))

    # What another model of the population changes (PB2).

    def _explored(self, trial_id: str, donor_id: str) -> dict[str, Any]:
        """The config with which a trial goes on as a clone of the donor."""
        return self._explorer.explored(self._members[donor_id].config, self._key)

    def _recorded(self, trial_id: str, member: Member) -> None:
        """A score at the end of an interval was written down."""

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        """Who has trained least; with `synch` only those that have not reached the end of the interval."""
        members = self._members
        able = [trial for trial in pending if (found := members.get(trial.trial_id)) is None or not found.waits]
        return min(able, key=lambda t: members[t.trial_id].time if t.trial_id in members else 0.0, default=None)

    def policy(self, trial_id: str) -> list[tuple[str, str, int, int, dict[str, Any], dict[str, Any]]]:
        """How a trial's config came about: the exploits on the way to its weights, oldest first.

        Each is (trial, donor, the trial's iteration, for how many iterations the donor's weights were trained, the
        donor's config, the new config): a line of Ray's `pbt_policy_<trial>.txt` if written as JSON, which
        `PopulationBasedTrainingReplay` reads. Of the last 1000 exploits; empty with `log_config=False`.
        """
        found: list[ExploitStep] = []
        for step in reversed(self._log):
            if step.trial == trial_id:
                found.append(step)
                trial_id = step.donor
        return [(s.trial, s.donor, s.iteration, s.donor_iteration, s.donor_config, s.config) for s in reversed(found)]

    def debug_string(self) -> str:
        return f"{type(self).__name__}: {self._num_checkpoints} checkpoints, {self._num_perturbations} perturbs"

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {
            "checkpoints": self._num_checkpoints,
            "perturbations": self._num_perturbations,
            "members": {trial_id: vars(member).copy() for trial_id, member in self._members.items()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._num_checkpoints, self._num_perturbations = state["checkpoints"], state["perturbations"]
        self._members = {trial_id: Member(**fields) for trial_id, fields in state["members"].items()}


def _factors(given: Any) -> tuple[float, ...]:
    numbers = tuple(map(as_score, given)) if isinstance(given, list | tuple) else ()
    factors = tuple(number for number in numbers if number is not None and 0 < number < math.inf)
    if not factors or len(factors) < len(numbers):
        raise refused("perturbation_factors", given, "accepted: numbers above 0, e.g. (1.2, 0.8)")
    return factors
