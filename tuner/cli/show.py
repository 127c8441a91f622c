"""`tuner show EXPERIMENT [TRIAL]`: the trials of an experiment, or all about one of them."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from typing import Any

from trainables import tagged
from trainables.metrics import MISSING, lookup
from tuner.cli import output, place
from tuner.error import SettingError
from tuner.experiment import driver_log
from tuner.experiment.driver_log import Warned
from tuner.experiment.hostile import noted
from tuner.experiment.journal import JournalContents
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_with_journal, read_settings, replay
from tuner.experiment.replacing import standing
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord

SHOWN = 200
"""Characters of the last warning."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("show", help="show an experiment's trials, or one trial")
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument("trial", nargs="?", metavar="TRIAL", help="a trial's id, name or number")
    verb.add_argument("--metric", help="show this metric instead of the experiment's own")
    verb.add_argument("--why", action="store_true", help="of a trial: why each checkpoint stays or went")
    verb.add_argument("--warnings", action="store_true", help="what its drivers warned of, line by line")
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.why and arguments.trial is None:
        raise SettingError("--why explains the checkpoints of one trial: tuner show EXPERIMENT TRIAL --why")
    if arguments.warnings and arguments.trial is not None:
        raise SettingError("--warnings shows what a whole experiment warned of: tuner show EXPERIMENT --warnings")
    problems: list[str] = []
    with place.fact_log(arguments.experiment, history=arguments.why, log=arguments.trial is None) as (paths, address):
        warned = driver_log.read(standing(paths))
        state, journal = load_with_journal(paths, problems)
        settings = dict(read_settings(paths))
        trial = None if arguments.trial is None else _find(state, arguments.trial)
        explained = why(trial, paths, journal, settings) if trial is not None and arguments.why else {}
    output.complain("show", *problems, *journal.damaged, *journal.notes, *explained.pop("notes", ()))
    if trial is not None:
        facts = of_trial(trial, address, settings) | explained
        output.say(output.as_json(facts) if arguments.json else _trial_text(facts))
        return 1 if problems else 0
    if arguments.warnings and not arguments.json:
        output.say("\n".join(map(str, warned)) or "no warnings")
        return 0
    metric = arguments.metric or settings.get("metric")
    metrics = [metric] if isinstance(metric, str) else list(metric or ())
    rows = [_row(trial, metrics, problems) for trial in state.trials]
    copies = copies_of(state, settings, paths.root.name)
    if arguments.json:
        facts = {"name": paths.root.name, "path": address, "settings": settings, "trials": rows}
        facts |= {"copies": copies, "warnings": len(warned)}
        if arguments.warnings:
            facts["warned"] = [{"at": one.at, "level": one.level, "text": one.text} for one in warned]
        output.say(output.as_json(facts))
    else:
        output.say(
            _experiment_text(address, state, rows, metrics, [*map(_copy_text, copies), *_warned_text(warned, address)])
        )
    return 1 if problems else 0


def copies_of(state: ExperimentState, settings: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Per place that copies go to: what it holds and what it lacks, as far as the journal knows."""
    kept = [record for trial in state.trials for record in trial.checkpoints]
    told = settings.get("upload_dir")
    places = {f"{told.rstrip('/')}/{name}"} if told else set()
    places |= {site for record in kept for site in _copies(record, settings)}
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


def _copies(record: CheckpointRecord, settings: Mapping[str, Any]) -> list[str]:
    """Where a checkpoint is too; at the copies of an experiment that this one continues only if it is nowhere else."""
    own = [site for site in record.copies if site not in settings.get("inherited_copies", ())]
    return own if own or record.here else record.copies


def of_trial(trial: Trial, address: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known of one trial, without unpickling anything."""
    error = trial.error
    return {
        "id": trial.trial_id,
        "name": trial.name,
        "status": trial.status,
        "iteration": trial.iteration,
        "path": f"{address}/{trial.dirname}",
        "config": tagged.loads(bytes(trial.raw_config)),
        "result": trial.last_result,
        "failures": trial.num_failures,
        "reason": None if trial.end_reason is None else str(trial.end_reason),
        "error": None if error is None else f"{error.type}: {error.message}",
        "traceback": "" if error is None else error.traceback,
        "clones": [
            {
                "iteration": clone.iteration,
                "donor": clone.donor.trial_id,
                "checkpoint": clone.donor.name,
                "changed": {key: list(values) for key, values in clone.changed.items()},
            }
            for clone in trial.clones
        ],
        "checkpoints": [
            {
                "name": record.ref.name,
                "iteration": record.iteration,
                "bytes": record.bytes,
                "saved_at": record.saved_at,
                "copies": _copies(record, settings),
                "here": record.here,
            }
            for record in trial.checkpoints
        ],
    }


def why(trial: Trial, paths: ExperimentPaths, journal: JournalContents, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What became of each checkpoint, by which rule: the facts of journal and history, replayed."""
    from tuner.retention.explain import Chronicle, explain
    from tuner.retention.rules import policy_of_settings, rule_of

    replayed = replay(paths, journal, Chronicle)
    policy, others = policy_of_settings(settings)
    rules = [rule_of(policy), *others] if others else [rule_of(policy)]
    told = explain(replayed.made, trial, policy)
    for one in told:
        if one["fate"] == "kept" and not one["why"]:
            one["why"] = list(others)  # a policy of a user's own: it is not asked here
    return {
        "retention": " or ".join(rules),
        "why": told,
        "unknown": replayed.made.unknown(trial),
        "recorded_since": replayed.since,
        "notes": replayed.notes,
    }


def _find(state: ExperimentState, given: str) -> Trial:
    for trial in state.trials:
        if given in (trial.trial_id, trial.name, trial.dirname, str(trial.index)):
            return trial
    near = difflib.get_close_matches(given, [trial.trial_id for trial in state.trials])
    hint = f"; did you mean {near[0]}?" if near else f"; there are {len(state.trials)}, numbered from 0"
    raise SettingError(f"there is no trial {given!r}{hint}")


def _row(trial: Trial, metrics: list[str], problems: list[str]) -> dict[str, Any]:
    result: Mapping[str, Any] = {}
    params: Any = None
    before = len(problems)
    with noted(f"the config of trial {trial.trial_id}", problems):
        params = trial.evaluated_params
    with noted(f"the result of trial {trial.trial_id}", problems):
        result = dict(trial.last_result)
    output.complain("show", *problems[before:])
    found = {metric: lookup(result, metric) for metric in metrics}
    return {
        "id": trial.trial_id,
        "status": trial.status,
        "iteration": trial.iteration,
        "params": params,
        "metrics": {metric: None if number is MISSING else number for metric, number in found.items()},
        "checkpoints": len(trial.checkpoints),
        "bytes": sum(record.bytes for record in trial.checkpoints),
        "error": None if trial.error is None else f"{trial.error.type}: {trial.error.message}",
    }


def _experiment_text(
    address: str,
    state: ExperimentState,
    rows: list[dict[str, Any]],
    metrics: list[str],
    notes: list[str],
) -> str:
    header = ("trial", "status", "iteration", *metrics, "checkpoints", "params", "error")
    lines = (
        [row["id"], row["status"], row["iteration"], *row["metrics"].values(), row["checkpoints"], row["params"]]
        + [(row["error"] or "").split("\n")[0][:80]]
        for row in rows
    )
    shown = output.table(header, lines, width=output.terminal_width(), first=("trial", "status", "iteration", *metrics))
    counts = ", ".join(f"{number} {status.lower()}" for status, number in state.counts.items() if number)
    kept = f"{output.counted(state.checkpoint_count, 'checkpoint')} kept, {output.size(state.checkpoint_bytes)}"
    told = "".join(f"{note}\n" for note in notes)
    trials = f"{output.counted(len(rows), 'trial')} ({counts or 'none yet'})"
    return f"{output.value(address)}\n{trials}; {kept}\n{told}\n{shown}"


def _copy_text(copy: dict[str, Any]) -> str:
    line = f"copies at {output.value(copy['place'])}: {output.counted(copy['checkpoints'], 'checkpoint')}"
    if copy["newest_saved_at"] is not None:
        line += f", the newest saved {output.time(copy['newest_saved_at'])}"
    if not copy["lacking"]:
        return f"{line}; nothing is waiting"
    return f"{line}; {copy['lacking']} not there ({output.size(copy['lacking_bytes'])})"


def _warned_text(warned: list[Warned], address: str) -> list[str]:
    """How many warnings there are, and the last of them."""
    if not warned:
        return []
    number = output.counted(len(warned), "warning")
    last = output.value(f"{warned[-1].at}: {warned[-1].text[:SHOWN]}")
    return [f"{number} (`tuner show {output.value(address)} --warnings`), the last at {last}"]


def _trial_text(facts: dict[str, Any]) -> str:
    lines = [
        f"{output.value(facts['name'])}  {facts['status']}  iteration {facts['iteration']}",
        output.value(facts["path"]),
    ]
    lines += [f"ended: {output.value(facts['reason'])}"] if facts["reason"] else []
    lines += ["", "config"]
    lines += [f"  {output.value(key)} = {output.value(value)}" for key, value in facts["config"].items()]
    lines += ["", "last result"] + [
        f"  {output.value(key)} = {output.value(value)}" for key, value in facts["result"].items()
    ]
    if facts["clones"]:
        lines += ["", "lineage"] + [_clone_text(item) for item in facts["clones"]]
    lines += ["", "checkpoints"]
    if "why" in facts:
        lines += _why_lines(facts)
    else:
        lines += [_checkpoint_text(item) for item in facts["checkpoints"]] or ["  none"]
    if facts["error"]:
        lines += ["", facts["traceback"].rstrip() or facts["error"]]
    return "\n".join(lines)


def _clone_text(item: dict[str, Any]) -> str:
    changed = ", ".join(
        f"{output.value(key)}: {output.value(before)} -> {output.value(after)}"
        for key, (before, after) in item["changed"].items()
    )
    start = f"{output.value(item['donor'])}/{output.value(item['checkpoint'])}"
    return f"  at iteration {item['iteration']} from {start}  {changed or 'the same config'}"


def _checkpoint_text(item: dict[str, Any]) -> str:
    where = "" if item["here"] else "  not here"
    copies = "".join(f"  at {output.value(place)}" for place in item["copies"])
    return f"  {output.value(item['name'])}  {output.size(item['bytes'])}{where}{copies}"


def _why_lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"  kept are {facts['retention']}, and always the latest"] + [_why_text(item) for item in facts["why"]]
    if facts["unknown"]:
        since = facts["recorded_since"]
        before = "" if since is None else f" before {output.time(since)}"
        lines.append(f"  {facts['unknown']} more were saved and deleted: not recorded{before}")
    return lines if len(lines) > 1 else ["  none"]


def _why_text(item: dict[str, Any]) -> str:
    scores = "".join(f"  {output.value(name)}={output.value(score)}" for name, score in item["metrics"].items())
    rules = ", ".join(output.value(rule) for rule in item["why"])
    if item["fate"] == "kept":
        told = f"kept: {rules or 'it is to go at the next save'}"
    elif item["fate"] == "deleted":
        told = f"deleted: {f'not kept by {rules}' if rules else 'the rule was not written down'}"
    else:
        told = f"set aside: {rules}"
    if item["for"] is not None:
        told += f", for {output.value(item['for'])}, saved {output.time(item['at'])}"
    return f"  {output.value(item['name'])}  {output.size(item['bytes'])}{scores}  {told}"
