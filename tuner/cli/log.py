"""`tuner log EXPERIMENT [TRIAL]`: its history as people read it: starts, ends, exploits, failures, orders."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from trainables.wire import CheckpointRef
from tuner.cli import output, place
from tuner.cli.lineage_page import changed_text
from tuner.cli.show import forked_from
from tuner.experiment import events as ev
from tuner.experiment.forks import is_reuse
from tuner.experiment.generations import read_records
from tuner.experiment.history import History
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.outcome import ENDS, headline
from tuner.experiment.reader import load_with_journal, read_settings
from tuner.experiment.replacing import standing
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial_records import Clone
from tuner.experiment.trials import find_trial
from tuner.orders.order import in_words, short

DESCRIPTION = """\
Prints what has happened, oldest first, with its time: drivers, trials and why they ended, attempts that failed, who
went on from whose checkpoint, and what users ordered and noted. Results and saves are left out: `tuner show` and
`tuner show EXPERIMENT TRIAL --why` have them."""

LEAST = 20
"""Characters of what happened in a line, however narrow the terminal is."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "log",
        help="the history: starts, ends, exploits, failures, orders",
        description=DESCRIPTION,
    )
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument("trial", nargs="?", metavar="TRIAL", help="only of this one: its id, name or number")
    output.add_json(verb, "for programs: every fact as the journal has it, results and saves too, one on each line")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    problems: list[str] = []
    with place.fact_log(arguments.experiment, history=True) as (paths, _):
        state, journal = load_with_journal(paths, problems)
        wanted = None if arguments.trial is None else place.trial(state.trials, arguments.trial).trial_id
        history = History(standing(paths), journal)
        if not history.is_whole and not arguments.json:
            since = "" if history.since is None else f" before {output.time(history.since)}"
            output.say(f"... what was{since} is not recorded any more")
        if arguments.json:
            for fact in history.facts():
                told = {"n": fact.seq, **msgspec.json.decode(fact.body)}
                if wanted is None or wanted in _abouts(told):
                    output.say(json.dumps(told))
            output.complain("log", *problems, *journal.damaged, *history.notes)
            return 1 if problems else 0
        width = output.terminal_width()
        for line in forked_from(read_settings(paths)):
            output.say(line)
        for line in lines_of(history, state, wanted):
            output.say(line if width is None else broken(line, width))
    output.complain("log", *problems, *journal.damaged, *history.notes)
    return 1 if problems else 0


def _abouts(fact: dict[str, Any]) -> list[Any]:
    """The trials that a fact, as JSON has it, is about."""
    ref = fact.get("ref")
    return [fact.get("trial"), ref.get("trial_id") if isinstance(ref, dict) else None]


def broken(line: str, width: int) -> str:
    """A line for a terminal: what does not fit stands below, behind the time."""
    when, gap, told = line.partition("  ")
    room = max(width - len(when) - len(gap), LEAST)
    return when + gap + f"\n{' ' * len(when + gap)}".join(textwrap.wrap(told, room, break_on_hyphens=False) or [""])


def lines_of(history: History, state: ExperimentState, wanted: str | None = None) -> Iterator[str]:
    """A line per fact that people want to know of.

    Args:
        wanted: a trial's id: only what is about it; None: all.
    """
    orders: dict[str, tuple[str, str | None]] = {}
    since = {record.generation: record.since for record in read_records(history.paths)}
    began: float | None = None  # when the driver did, whose first facts tell no time
    for recorded in history.facts():
        try:
            fact = ev.decode(recorded.body)
            told = _told(fact, _Called(state), orders)
        except UNREADABLE:
            continue  # whoever read the journal has named it
        if isinstance(fact, ev.GenerationStarted):
            began = since.get(fact.generation)
        if told is None or (wanted is not None and wanted not in (told[1], _donor(fact))):
            continue
        at = max((time for time in (recorded.at, began) if time is not None), default=None)
        when = "-" if at is None else output.time(at)
        yield f"{when}  {output.value(told[0])}"


def _donor(fact: ev.AnyFact) -> str | None:
    """The trial whose checkpoint another one goes on from."""
    match fact:
        case ev.TrialCreated(fork=Clone(donor=ref)) | ev.Exploited(checkpoint=ref):
            return ref.trial_id
    return None


class _Called:
    """How things are called in a line."""

    def __init__(self, state: ExperimentState) -> None:
        self._state = state

    def trial(self, trial_id: str) -> str:
        found = self._state.trials.get(trial_id)
        return trial_id if found is None else f"trial {found.index}"

    def find(self, given: str) -> str | None:
        """A trial's id, as somebody called it."""
        found = find_trial(self._state.trials, given)
        return None if found is None else found.trial_id

    def reuses(self, fact: ev.AttemptEnded) -> bool:
        found = self._state.trials.get(fact.trial)
        return found is not None and is_reuse(found, fact.attempt)

    def made(self, fact: ev.Exploited) -> Clone | None:
        """What became of a trial by it."""
        trial = self._state.trials.get(fact.trial)
        clones = [] if trial is None else trial.clones
        return next((one for one in clones if (one.iteration, one.donor) == (fact.iteration, fact.checkpoint)), None)

    def clone(self, clone: Clone) -> str:
        """A donor's checkpoint, and what was changed of its config's keys."""
        changed = f": {changed_text(clone.changed)}" if clone.changed else ""
        return f"{self.checkpoint(clone.donor)} ({clone.donor.trial_id}){changed}"

    def checkpoint(self, ref: CheckpointRef) -> str:
        return f"{self.trial(ref.trial_id)}@{ref.iteration}"


def _told(fact: ev.AnyFact, names: _Called, orders: dict[str, tuple[str, str | None]]) -> tuple[str, str | None] | None:
    """A line, and the id of the trial that it is about; None: nobody wants to know."""
    match fact:
        case ev.GenerationStarted():
            return f"driver {fact.generation} began", None
        case ev.TrialCreated():
            config = output.value(msgspec.json.decode(fact.evaluated)) if fact.evaluated != ev.NO_RAW else ""
            made = f"created: {config}" if fact.fork is None else f"forked from {names.clone(fact.fork)}"
            return f"trial {fact.index} ({fact.trial}) {made}", fact.trial
        case ev.AttemptStarted():
            if fact.reused is not None:
                return f"{names.trial(fact.trial)}: attempt {fact.attempt} reuses {fact.reused}", fact.trial
            of = "anew" if fact.checkpoint is None else f"from {names.checkpoint(fact.checkpoint)}"
            return (
                (f"{names.trial(fact.trial)}: attempt {fact.attempt}, {of}", fact.trial) if fact.attempt > 1 else None
            )
        case ev.Exploited():
            donor = names.clone(names.made(fact) or Clone(fact.iteration, fact.checkpoint))
            return f"{names.trial(fact.trial)} goes on at {fact.iteration} as a clone of {donor}", fact.trial
        case ev.Reallocated():
            return f"{names.trial(fact.trial)} gets {output.value(fact.resources)}", fact.trial
        case ev.RolledBack():
            return f"{names.trial(fact.trial)} goes back to iteration {fact.iteration}", fact.trial
        case ev.AttemptEnded(why="halted") if names.reuses(fact):
            return None  # what it began is said
        case ev.AttemptEnded():
            error = "" if fact.error is None else f": {headline(fact.error)}"
            return f"{names.trial(fact.trial)}: attempt {fact.attempt} {fact.why}{error}", fact.trial
        case ev.TrialEnded():
            why = "" if fact.reason is None else str(fact.reason)
            ended = f"ended: {why}" if fact.status == "TERMINATED" else why or "failed"
            return f"{names.trial(fact.trial)} {ended}", fact.trial
        case ev.TrialReopened():
            return f"{names.trial(fact.trial)} is tried again{', anew' if fact.anew else ''}", fact.trial
        case ev.CheckpointSetAside():
            return f"{names.checkpoint(fact.ref)} was set aside: {fact.problem}", fact.ref.trial_id
        case ev.SearchEnded():
            return "no more trials are made", None
        case ev.RunEnded():
            return f"the driver ended: {ENDS.get(fact.why, fact.why)}", None
        case _:
            return _of_users(fact, names, orders)


def _of_users(
    fact: ev.AnyFact, names: _Called, orders: dict[str, tuple[str, str | None]]
) -> tuple[str, str | None] | None:
    """What users ordered; results and saves are none of that."""
    match fact:
        case ev.OrderTaken():
            orders[fact.id] = _ordered(fact, names)
            return f"you: {orders[fact.id][0]}", orders[fact.id][1]
        case ev.OrderAnswered():
            said, about = orders.get(fact.id, (f"order {fact.id}", None))
            return f"{said}: {'done' if fact.done else 'refused'}{', ' if fact.why else ''}{fact.why}", about
        case ev.TrialNoted():
            return f"{names.trial(fact.trial)}, note: {fact.text}", fact.trial
        case ev.CheckpointPinned():
            tag = f" as {fact.tag!r}" if fact.tag else ""
            return f"{names.checkpoint(fact.ref)} {'pinned' if fact.pinned else 'unpinned'}{tag}", fact.ref.trial_id
        case ev.SettingChanged():
            return fact.why or f"{fact.name}={short(fact.value)}, as the script says now", None
        case _:
            return None


def _ordered(fact: ev.OrderTaken, names: _Called) -> tuple[str, str | None]:
    order = msgspec.json.decode(fact.order)
    if not isinstance(order, dict):
        return "an order that is none", None
    given = str(order.get("trial") or "")
    found = names.find(given) if given else None
    return in_words(order if found is None else {**order, "trial": names.trial(found)}), found
