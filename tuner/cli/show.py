"""`tuner show EXPERIMENT [TRIAL]`: the trials of an experiment, or all about one of them, or about EXPERIMENT@TAG."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainables.places import child_of, parent_and_name
from tuner.addresses import checkpoint_at
from tuner.analysis.goal import Goal, goal_of
from tuner.analysis.reported import check_reported
from tuner.cli import checkpoint_page, lineage_page, open_orders, output, place, trial_page, trial_table
from tuner.cli.trial_page import of_trial, why
from tuner.cli.trial_table import Choice, arranged, fill_constants, fill_donors, row_of
from tuner.clock import SystemClock
from tuner.error import SettingError
from tuner.experiment import driver_log, run_state
from tuner.experiment.continuing import how_to_continue, starter_of
from tuner.experiment.driver_log import Warned
from tuner.experiment.forks import lines_of
from tuner.experiment.liveness import LastDriver, Liveness, last_driver
from tuner.experiment.outcome import WORDS
from tuner.experiment.paths import is_elsewhere
from tuner.experiment.reader import load_with_journal, read_settings
from tuner.experiment.replacing import standing
from tuner.experiment.state import ExperimentState
from tuner.inspection.checkpoints import sites
from tuner.orders.order import short
from tuner.progress.trial_rows import cut

SHOWN = 200
"""Characters of the last warning, and of the error that ended the driver."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "show", help="show an experiment's trials, one trial, or one checkpoint"
    )
    verb.add_argument(
        "experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results; or EXPERIMENT@TAG"
    )
    verb.add_argument("trial", nargs="?", metavar="TRIAL", help="a trial's id, name or number")
    verb.add_argument("--metric", metavar="NAME", help="show and sort by this metric instead of the experiment's own")
    verb.add_argument("--mode", choices=("min", "max"), help="which of it is best")
    verb.add_argument("--sort", metavar="COLUMN", help="number, time, a parameter, ...: the smallest first")
    verb.add_argument("--reverse", action="store_true", help="the other way round")
    verb.add_argument("--limit", metavar="N", type=int, help="so many trials at most")
    verb.add_argument(
        "--status",
        metavar="STATE",
        action="append",
        default=[],
        help=f"only these: {', '.join(WORDS.values())}; may be given several times",
    )
    verb.add_argument("--why", action="store_true", help="of a trial: why each checkpoint stays or went")
    verb.add_argument("--warnings", action="store_true", help="what its drivers warned of, line by line")
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.why and arguments.trial is None:
        raise SettingError("--why explains the checkpoints of one trial: tuner show EXPERIMENT TRIAL --why")
    if arguments.warnings and arguments.trial is not None:
        raise SettingError("--warnings shows what a whole experiment warned of: tuner show EXPERIMENT --warnings")
    if arguments.trial is None and (found := checkpoint_at(arguments.experiment)) is not None:
        told = checkpoint_page.of_checkpoint(found)
        text = output.wrapped(checkpoint_page.text_of(told), output.terminal_width())
        output.say(output.as_json(told) if arguments.json else text)
        return 0
    choice = Choice(arguments.sort, arguments.reverse, arguments.limit, arguments.status)
    problems: list[str] = []
    with place.fact_log(arguments.experiment, history=arguments.why, log=arguments.trial is None) as (paths, address):
        warned = [line for line in driver_log.read(standing(paths)) if line.is_warning]
        state, journal = load_with_journal(paths, problems)
        settings = dict(read_settings(paths))
        driver = last_driver(paths, SystemClock().time())
        resume = how_to_continue(address, starter_of(paths, settings))
        trial = None if arguments.trial is None else place.trial(state.trials, arguments.trial)
        explained = why(trial, paths, journal, settings) if trial is not None and arguments.why else {}
    output.complain("show", *problems, *journal.damaged, *journal.notes, *explained.pop("notes", ()))
    if trial is not None:
        facts = of_trial(trial, state.trials, address, settings) | {"forked": lines_of(state.trials, trial)} | explained
        facts |= lineage_page.lineage_of(state, trial)
        text = trial_page.text_of(facts, lineage_page.lines_of(facts, state))
        page = "" if arguments.json else output.wrapped(text, output.terminal_width())
        output.say(page or output.as_json(facts))
    elif arguments.warnings and not arguments.json:
        output.say("\n".join(map(str, warned)) or "no warnings")
        return 0
    else:
        _show_trials(arguments, _Seen(address, state, settings, driver, warned, resume), choice, problems)
    return 1 if problems else 0


@dataclass(frozen=True)
class _Seen:
    """What was read of an experiment."""

    address: str
    state: ExperimentState
    settings: dict[str, Any]
    driver: LastDriver
    warned: list[Warned]
    resume: str
    """The call that continues it."""

    @property
    def name(self) -> str:
        return parent_and_name(self.address)[1]

    @property
    def error(self) -> str | None:
        """What ended its last driver, if that was an error."""
        ended = self.state.run_ended == "failed" or self.state.run_ended is None
        if self.driver.liveness is not Liveness.ENDED or not ended:
            return None
        return driver_log.what_ended(self.warned, self.driver.record.since if self.driver.record else 0.0)


def _show_trials(arguments: argparse.Namespace, seen: _Seen, choice: Choice, problems: list[str]) -> None:
    goal, known = goal_of(seen.settings, arguments.metric, arguments.mode), len(problems)
    if arguments.metric is not None:
        check_reported(arguments.metric, seen.state.trials)
    note = run_state.note(seen.driver, seen.state.run_ended)
    every = [row_of(trial, goal.metrics, problems, note) for trial in seen.state.trials]
    fill_constants(every, seen.state.trials, problems)
    fill_donors(every, seen.state.trials)
    output.complain("show", *problems[known:])
    matching = arranged(every, goal, choice)
    rows = matching[: choice.limit]
    copies = copies_of(seen.state, seen.settings, seen.name)
    if not arguments.json:
        given = arguments.experiment
        named = seen.address if is_elsewhere(given) else min(given, seen.address, key=len)
        told = [
            *forked_from(seen.settings),
            *run_state.to_go_on(seen.driver, seen.state.run_ended, seen.resume, saved=seen.state.checkpoint_count > 0),
            *map(_copy_text, copies),
            *_changed(seen.state),
            *checkpoint_page.tags_text(checkpoint_page.tags_of(seen.state)),
            *open_orders.lines_of(seen.address, seen.state),
            *_warned_text(seen.warned, named),
            *_order_text(goal, choice),
        ]
        table = trial_table.text_of(rows, goal, len(matching) - len(rows), output.terminal_width())
        output.say("\n".join([*_head(seen), *told, "", *(table or ["no trials of that state"] * bool(every))]))
        return
    facts: dict[str, Any] = {"name": seen.name, "path": seen.address, "settings": seen.settings, "copies": copies}
    facts |= {"trials": [{key: row[key] for key in row.keys() - {"result"}} for row in rows]}
    facts |= {"warnings": len(seen.warned), "state": run_state.text(seen.driver, seen.state.run_ended)}
    facts |= {"error": seen.error}
    facts |= {"set": {name: {"value": one.value, "was": one.was} for name, one in seen.state.changed.items()}}
    facts |= {"tags": checkpoint_page.tags_of(seen.state)}
    if arguments.warnings:
        facts["warned"] = [{"at": one.at, "level": one.level, "text": one.text} for one in seen.warned]
    output.say(output.as_json(facts))


def forked_from(settings: Mapping[str, Any]) -> list[str]:
    """A line on the experiment from whose checkpoint this one was made; none: it was not."""
    lineage = settings.get("forked_from")
    if not isinstance(lineage, dict):
        return []
    config = lineage.get("config")
    changes = ", ".join(f"{key}={value}" for key, value in config.items()) if isinstance(config, dict) else ""
    of = f"{lineage.get('experiment')}: {lineage.get('trial')}@{lineage.get('iteration')}"
    return [output.value(f"forked from {of}{' with ' if changes else ''}{changes}")]


def _head(seen: _Seen) -> list[str]:
    state = seen.state
    counts = ", ".join(f"{number} {WORDS[status]}" for status, number in state.counts.items() if number)
    kept = f"{output.counted(state.checkpoint_count, 'checkpoint')} kept, {output.size(state.checkpoint_bytes)}"
    trials = f"{_number(seen)} ({counts or 'none yet'})"
    how = run_state.text(seen.driver, state.run_ended)
    if seen.error is None:
        return [output.value(seen.address), f"{how}; {trials}; {kept}"]
    return [output.value(seen.address), output.value(f"{how}: {cut(seen.error, SHOWN)}"), f"{trials}; {kept}"]


def _number(seen: _Seen) -> str:
    """Of trials; while the run is not finished, of how many."""
    made, planned = len(seen.state.trials), seen.state.planned(seen.settings.get("trials_in_all"))
    if seen.state.run_ended == "finished" or planned is None or planned <= made:
        return output.counted(made, "trial")
    return f"{made:,} of {output.counted(planned, 'trial')}"


def _changed(state: ExperimentState) -> list[str]:
    """One line, or none: the settings that a user has changed."""
    told = [
        f"{name}={short(change.value)} (the script says {short(change.was)})" for name, change in state.changed.items()
    ]
    return [f"set: {', '.join(told)}"] if told else []


def _order_text(goal: Goal, choice: Choice) -> list[str]:
    """How the rows are sorted, where a reader might take it for something else."""
    if choice.sort is not None or not goal.metrics or goal.mode is not None:
        return []
    return [f"the smallest {output.value(goal.metrics[0])} first; --mode max: the greatest"]


def copies_of(state: ExperimentState, settings: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Per place that copies go to: what it holds and what it lacks, as far as the journal knows."""
    kept = [record for trial in state.trials for record in trial.checkpoints]
    told = settings.get("upload_dir")
    places = {child_of(told, name)} if told else set()
    places |= {site for record in kept for site in sites(record, settings)}
    rows = []
    for site in sorted(places):
        there = [record for record in kept if site in record.copies]
        lacking = [record for record in kept if site not in record.copies]
        rows.append(
            {
                "place": site,
                "checkpoints": len(there),
                "lacking": len(lacking),
                "lacking_bytes": sum(record.bytes for record in lacking),
                "newest_saved_at": max((record.saved_at for record in there), default=None),
            }
        )
    return rows


def _copy_text(copy: dict[str, Any]) -> str:
    line = f"copies at {output.value(copy['place'])}: {output.counted(copy['checkpoints'], 'checkpoint')}"
    if copy["newest_saved_at"] is not None:
        line += f", the newest saved {output.time(copy['newest_saved_at'])}"
    if not copy["lacking"]:
        return f"{line}; nothing is waiting"
    return f"{line}; {copy['lacking']} not there ({output.size(copy['lacking_bytes'])})"


def _warned_text(warned: list[Warned], named: str) -> list[str]:
    """How many warnings there are, and the last of them, cut to the terminal; what ended a driver is said apart."""
    warned = [one for one in warned if not one.ended]
    if not warned:
        return []
    number = output.counted(len(warned), "warning")
    width = output.terminal_width() or SHOWN
    said = f"  {output.value(warned[-1].text[: SHOWN + 1])}"
    return [
        f"{number} (`tuner show {output.value(named)} --warnings`), the last at {_to_the_second(warned[-1].at)}:",
        cut(said, min(SHOWN, width)),
    ]


def _to_the_second(at: str) -> str:
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):  # the file was edited
        return output.value(at)
