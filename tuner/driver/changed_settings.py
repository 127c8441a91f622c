"""Orders that change a setting of the run, or what a trial gets; and what of that holds after a resume.

A value holds over resumes as long as the script says what it said when the order was given. A script that says
something else now is the newer word, and takes the change back for good.
"""

from __future__ import annotations

import math

from tuner.driver.endings import Endings
from tuner.driver.parts import LoopParts
from tuner.driver.plugins import PluginSet
from tuner.driver.plugins.calling import label
from tuner.error import OrderError, ResourceError
from tuner.executors.base import Resources
from tuner.experiment import events as ev
from tuner.experiment.outcome import outcome
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.orders.order import SetOrder, short
from tuner.orders.pins import Effect
from tuner.orders.settable import MAX_CONCURRENT, NUM_SAMPLES, TIME_BUDGET, said_by
from tuner.resources import parse_resources
from tuner.spec import Spec

Value = int | float | None


def value_of(name: str, spec: Spec, state: ExperimentState) -> Value:
    """What holds: what a user set, unless the script says something else than it did then."""
    said, change = said_by(spec, name), state.changed.get(name)
    return said if change is None or change.was != said else change.value


def take_up(
    spec: Spec, state: ExperimentState, plugins: PluginSet, now: float
) -> tuple[list[ev.SettingChanged], list[str]]:
    """At a resume: have the changes hold that do; returns what takes the others back, and a line for each change."""
    facts, lines = [], []
    for name, change in sorted(state.changed.items()):
        said = said_by(spec, name)
        if change.was == said:
            lines.append(
                f"{name}={short(change.value)} holds, as `tuner set` said; the script says {short(said)}, as then"
            )
        else:
            facts.append(ev.SettingChanged(name, said, said, now))
            lines.append(
                f"{name}={short(said)} holds, which the script says now: that is newer than "
                f"{short(change.value)}, which `tuner set` said when the script said {short(change.was)}"
            )
    number = value_of(NUM_SAMPLES, spec, state)
    if number != plugins.source.num_samples and not plugins.source.set_num_samples(int(number or -1)):
        lines.append(f"num_samples={number} has no effect: {label(plugins.searcher)} counts its trials by itself")
    return facts, lines


def take_limits(parts: LoopParts) -> None:
    """Have the loop go by what holds."""
    parts.limits.wished = value_of(MAX_CONCURRENT, parts.plan.spec, parts.state) or math.inf
    parts.limits.at_once = parts.executor.max_concurrent or parts.limits.wished
    parts.limits.time_budget_s = value_of(TIME_BUDGET, parts.plan.spec, parts.state)


class ChangedSettings:
    """Carries out `set`; raises OrderError for what has no effect here."""

    def __init__(self, parts: LoopParts, endings: Endings) -> None:
        self._parts, self._endings = parts, endings
        self._wishes: dict[str, dict[str, float]] = {}
        """Trial -> what it is to get once it has paused."""

    # --- the run --------------------------------------------------------------------------------------------

    def set(self, order_id: str, order: SetOrder) -> Effect | None:
        """Change a setting of the run; None: the fact that says so is the answer."""
        name, value, parts = order.name, order.value, self._parts
        before = value_of(name, parts.plan.spec, parts.state)
        if value == before:
            return lambda: (True, f"{name}={short(value)} already")
        said = self._said_of(name, value)
        fact = ev.SettingChanged(
            name,
            value,
            said_by(parts.plan.spec, name),
            parts.clock.time(),
            total=self._total() if name == NUM_SAMPLES else None,
            order=order_id,
            why="; ".join([f"{name}={short(value)}, was {short(before)}", *said, *self._held_back(name)]),
        )
        parts.facts.add(fact)
        take_limits(parts)
        if name == TIME_BUDGET:
            parts.set_budget()
        return None

    def _said_of(self, name: str, value: Value) -> list[str]:
        """Check that a value can have an effect, and say which, where that is not plain."""
        if name == NUM_SAMPLES:
            assert isinstance(value, int)
            return self._resize(value)
        if name == MAX_CONCURRENT:
            return self._at_once(value)
        spent = self._parts.clock.monotonic() - self._parts.limits.began
        return [f"{spent:.0f} s have passed: the run ends now"] if value is not None and value <= spent else []

    def _resize(self, number: int) -> list[str]:
        source, state = self._parts.plugins.source, self._parts.state
        if source.stopped and not 0 < number <= state.searched:
            raise OrderError("no trial is created any more: a stopper, or `tuner stop EXPERIMENT all`, has ended that")
        if not source.set_num_samples(number):
            raise OrderError(
                f"{label(self._parts.plugins.searcher)} counts its trials by itself, and cannot change their number "
                "(its set_num_samples returned False)"
            )
        total, there = source.total_samples, state.searched
        said = [f"{total} trials in all"] if total not in (-1, number) else []
        return [*said, f"the {there} that are there stay"] if 0 <= total < there else said

    def _total(self) -> int | None:
        total = self._parts.plugins.source.total_samples
        return None if total < 0 else total

    def _at_once(self, number: Value) -> list[str]:
        parts = self._parts
        if parts.executor.max_concurrent is not None:
            few = parts.executor.max_concurrent
            raise OrderError(f"this executor runs {few} at a time, whatever max_concurrent is")
        limit = getattr(parts.plugins.searcher, "max_concurrent", None)
        if isinstance(limit, int) and 0 < limit < (number or math.inf):
            return [f"but the searcher has no more than {limit} unfinished trials at a time"]
        running = len(parts.attempts.running)
        return [f"{running} run: no other begins before there are fewer"] if number and number < running else []

    def _held_back(self, name: str) -> list[str]:
        """Why it has no effect in this life of a driver."""
        if self._endings.halting:
            return ["the run is ending: it holds from its next start on"]
        if name == NUM_SAMPLES and self._parts.plan.only is not None:
            return ["only trials that failed run now: it holds from the next start on"]
        return []

    # --- a trial --------------------------------------------------------------------------------------------

    def reallocate(self, trial: Trial, order: SetOrder) -> Effect:
        """A trial gets other resources: one that runs pauses with a checkpoint first, and goes on with those."""
        if trial.is_finished():
            raise OrderError(f"{trial.name} has ended: {outcome(trial)}")
        wish = self._checked({**self._wishes.get(trial.trial_id, self._has(trial)), **order.value})
        self._wishes[trial.trial_id] = wish

        def is_there() -> tuple[bool, str] | None:
            if trial.is_finished():
                self._wishes.pop(trial.trial_id, None)
                return False, f"it ended first: {outcome(trial)}"
            wish = self._wishes.get(trial.trial_id)  # None: an order that was given later has settled it
            run = self._parts.attempts.running.get(trial.trial_id)
            if run is not None and wish is not None and run.resources != wish:
                run.reallocates = True
                return None
            if wish is not None and wish != self._has(trial):
                self._endings.transitions.reallocate(trial, wish)
            self._wishes.pop(trial.trial_id, None)
            return True, f"it gets {', '.join(f'{name}={amount:g}' for name, amount in self._has(trial).items())}"

        return is_there

    def _has(self, trial: Trial) -> dict[str, float]:
        return dict(trial.resources or self._parts.state.usual_resources)

    def _checked(self, wish: Resources) -> dict[str, float]:
        """What can be given here. Raises OrderError, which names what there is."""
        try:
            asked = parse_resources(dict(wish))
            self._parts.plugins.fits(asked)
        except ResourceError as error:
            raise OrderError(str(error)) from None
        return asked
