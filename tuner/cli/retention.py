"""`tuner retention EXPERIMENT --policy latest:3`: what another policy would have kept. Nothing is touched."""

from __future__ import annotations

import argparse
from typing import Any

from trainables.config import CheckpointConfig
from trainables.store.retention import ranking_metrics
from tuner.analysis.reported import check_reported, reported
from tuner.cli import output, place
from tuner.experiment.reader import load_with_journal, read_settings, replay
from tuner.experiment.trial_records import CheckpointRecord


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("retention", help="what another retention policy would have kept")
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument(
        "--policy",
        action="append",
        required=True,
        metavar="POLICY",
        help="latest:3, best:2:auc, best:2:min-loss, every:10, every:600s, pinned:10,100, pareto:acc,min-latency, all; "
        "given several times, what one of them keeps is kept",
    )
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tuner.retention.explain import Chronicle, would_keep
    from tuner.retention.rules import policy_of
    from tuner.retention.trial_retention import TrialRetention

    policies = [policy_of(given) for given in arguments.policy]
    retention = TrialRetention(CheckpointConfig(keep=policies))
    problems: list[str] = []
    with place.fact_log(arguments.experiment, history=True) as (paths, address):
        settings = read_settings(paths)
        state, contents = load_with_journal(paths, problems)
        replayed = None if problems else replay(paths, contents, Chronicle)
    notes = [] if replayed is None else replayed.notes
    output.complain("retention", *problems, *contents.damaged, *contents.notes, *notes)
    if replayed is None:
        return 1
    known = reported(state.trials)
    for names in dict.fromkeys(names for policy in policies for names in ranking_metrics(policy)):
        if not any(name in known for name in names):
            check_reported(names[-1], state.trials)
    chronicle = replayed.made
    kept = would_keep(chronicle.steps, retention)
    rows = [
        {
            "id": trial.trial_id,
            "saved": trial.saves,
            "unknown": chronicle.unknown(trial),
            "kept": _of(trial.checkpoints),
            "would_keep": _of(kept.get(trial.trial_id, [])),
        }
        for trial in chronicle.state.trials
    ]
    answer = {"path": address, "policy": retention.rule, "now": settings.get("retention"), "trials": rows}
    answer["recorded_since"] = replayed.since
    output.say(output.as_json(answer) if arguments.json else _text(answer))
    return 0


def _of(records: list[CheckpointRecord]) -> list[dict[str, Any]]:
    return [{"name": record.ref.name, "iteration": record.iteration, "bytes": record.bytes} for record in records]


def _text(answer: dict[str, Any]) -> str:
    rows = answer["trials"]
    lines = ((row["id"], _amount(row["kept"]), _amount(row["would_keep"]), _names(row)) for row in rows)
    shown = output.table(
        ("trial", "kept", "would be", "which"), lines, width=output.terminal_width(), first=("trial", "would be")
    )
    whole = {name: _amount([one for row in rows for one in row[name]]) for name in ("kept", "would_keep")}
    told = [
        f"{output.value(answer['path'])}",
        f"kept: {whole['kept']}" + (f"  by {' or '.join(answer['now'])}" if answer["now"] else ""),
        f"with {answer['policy']}: {whole['would_keep']}, the latest of each trial among them",
    ]
    unknown = sum(row["unknown"] for row in rows)
    if unknown:
        since = answer["recorded_since"]
        before = "" if since is None else f" before {output.time(since)}"
        told.append(
            f"{unknown} more were saved and deleted: not recorded{before}, and whether they would have been kept is "
            "not known"
        )
    return "\n".join([*told, "", shown])


def _amount(checkpoints: list[dict[str, Any]]) -> str:
    return f"{len(checkpoints)} ({output.size(sum(one['bytes'] for one in checkpoints))})"


def _names(row: dict[str, Any]) -> str:
    """Those that would be there; with + what is gone, and without what only is there now."""
    now = {one["name"] for one in row["kept"]}
    then = [one["name"] for one in row["would_keep"]]
    gone = [f"-{one['name']}" for one in row["kept"] if one["name"] not in then]
    return " ".join([name if name in now else f"+{name}" for name in then] + gone) or "none"
