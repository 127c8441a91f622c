"""What the scheduler ordered for trials that wait, as long as it has not happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.driver.plugins.calling import call, label
from tuner.error import ResourceError
from tuner.executors.base import Resources
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason
from tuner.experiment.trial import Trial
from tuner.resources import parse_resources
from tuner.schedulers import TrialScheduler
from tuner.schedulers.base import Directive, Exploit, Reallocate, Verdict, split

_FULFILLS: dict[type, Any] = {ev.Exploited: Exploit, ev.Reallocated: Reallocate, ev.TrialEnded: object}
"""Fact -> the directive that is done with it, whoever gave it."""


class Directives:
    """Takes directives from the scheduler and holds them until a fact says that they are done.

    Args:
        fits: raises ResourceError for resources that no trial can ever have here.
    """

    def __init__(self, scheduler: TrialScheduler, fits: Callable[[Resources], object]) -> None:
        self.noted: dict[str, Directive] = {}
        self._scheduler, self._fits = scheduler, fits
        self._commanded: set[str] = set()
        """Trials whose directive is a user's: nothing that the scheduler orders replaces it."""
        self.news = False
        """Something was collected that nobody has looked at."""

    def collect(self) -> bool:
        """Take what the scheduler has ordered since the last time; asked after every other call to it."""
        ordered = call(self._scheduler, "orders")
        if not ordered:
            return False
        for directive in ordered:
            if directive.trial_id not in self._commanded:
                self.noted[directive.trial_id] = directive
        self.news = True
        return True

    def note(self, trial: Trial, what: Verdict, reason: Reason | None) -> None:
        """Hold what was decided on a result; what is noted already comes first, but for resources."""
        noted = self.noted.get(trial.trial_id)
        if noted is None or (isinstance(noted.what, Reallocate) and isinstance(what, Reallocate)):
            self.noted[trial.trial_id] = Directive(trial.trial_id, what, reason)

    def command(self, directive: Directive) -> None:
        """Hold what a user has ordered."""
        self.noted[directive.trial_id] = directive
        self._commanded.add(directive.trial_id)

    def done(self, fact: ev.AnyFact) -> None:
        """A directive is not held any longer than until this."""
        if isinstance(fact, (ev.Exploited, ev.Reallocated, ev.TrialEnded)):
            noted = self.noted.get(fact.trial)
            if noted is not None and isinstance(noted.what, _FULFILLS[type(fact)]):
                del self.noted[fact.trial]

    def why(self, directive: Directive, iteration: int) -> Reason | None:
        """Why the scheduler ordered it."""
        name = label(self._scheduler)
        said = split(directive.what, name, iteration)[1]
        return said if directive.reason is None else directive.reason.filled(name, iteration)

    def granted(self, trial: Trial, wanted: Reallocate) -> dict[str, float]:
        """What a trial gets from now on. Raises ResourceError, with the scheduler's name, if that can never run."""
        try:
            amounts = parse_resources(wanted.resources)
            self._fits(amounts)
        except ResourceError as error:
            self.noted.pop(trial.trial_id, None)  # a resume with a scheduler that is mended is not to find it noted
            name = type(self._scheduler).__name__
            raise ResourceError(f"{name} gives {trial.name} {wanted.resources!r}: {error}") from error
        return amounts
