"""What a searcher hears of trials that it has not proposed: how they ended, once they have."""

from __future__ import annotations

from typing import Any

from trainables.quick_dataclass import dataclass
from tuner.driver.plugins.calling import call
from tuner.experiment.trial import Trial
from tuner.search import Searcher


@dataclass(frozen=True)
class EndedTrial:
    """A trial that has ended, without anything that goes on changing: a searcher may hold it until it has time."""

    trial_id: str
    config: dict[str, Any]
    last_result: dict[str, Any]
    status: str


def learn_of_ordered(searcher: Searcher, trial: Trial) -> None:
    """Tell a searcher of a trial that a user added, as of one of an earlier experiment, if it can learn from those.

    Not of a fork: its result is not what its config gives, for it began with another one.
    """
    if trial.forked or trial.status != Trial.TERMINATED or not trial.last_result:
        return
    ended = EndedTrial(trial.trial_id, trial.config, trial.last_result, trial.status)
    if searcher.learns:
        call(searcher, "learn_from", ended)
