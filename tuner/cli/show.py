"""`tuner show EXPERIMENT [TRIAL]`: the trials of an experiment, or all about one of them."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli import place, text
from tuner.error import SettingError

if TYPE_CHECKING:
    from tuner.experiment.state import ExperimentState
    from tuner.experiment.trial import Trial


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("show", help="show an experiment's trials, or one trial")
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, or a name under ~/tuner_results")
    verb.add_argument("trial", nargs="?", metavar="TRIAL", help="a trial's id, name or number")
    verb.add_argument("--metric", help="show this metric instead of the experiment's own")
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tuner.experiment.paths import ExperimentPaths
    from tuner.experiment.reader import load_state, read_settings

    path = place.experiment(arguments.experiment)
    state = load_state(ExperimentPaths(path))
    if arguments.trial is not None:
        facts = of_trial(_find(state, arguments.trial))
        print(text.as_json(facts) if arguments.json else _trial_text(facts))
        return 0
    settings = dict(read_settings(ExperimentPaths(path)))
    metric = arguments.metric or settings.get("metric")
    metrics = [metric] if isinstance(metric, str) else list(metric or ())
    rows = [_row(trial, metrics) for trial in state.trials]
    if arguments.json:
        print(text.as_json({"name": path.name, "path": str(path), "settings": settings, "trials": rows}))
    else:
        print(_experiment_text(path, state, rows, metrics))
    return 0


def of_trial(trial: Trial) -> dict[str, Any]:
    """All that is known of one trial, without unpickling anything."""
    from trainables import tagged

    error = trial.error
    return {
        "id": trial.trial_id,
        "name": trial.name,
        "status": trial.status,
        "iteration": trial.iteration,
        "path": trial.path,
        "config": tagged.loads(bytes(trial.raw_config)),
        "result": trial.last_result,
        "failures": trial.num_failures,
        "error": None if error is None else f"{error.type}: {error.message}",
        "traceback": "" if error is None else error.traceback,
        "checkpoints": [
            {"name": record.ref.name, "iteration": record.iteration, "bytes": record.bytes, "saved_at": record.saved_at}
            for record in trial.checkpoints
        ],
    }


def _find(state: ExperimentState, given: str) -> Trial:
    for trial in state.trials:
        if given in (trial.trial_id, trial.name, trial.dirname, str(trial.index)):
            return trial
    near = difflib.get_close_matches(given, [trial.trial_id for trial in state.trials])
    hint = f"; did you mean {near[0]}?" if near else f"; there are {len(state.trials)}, numbered from 0"
    raise SettingError(f"there is no trial {given!r}{hint}")


def _row(trial: Trial, metrics: list[str]) -> dict[str, Any]:
    from trainables.metrics import MISSING, lookup

    result = trial.last_result
    found = {metric: lookup(result, metric) for metric in metrics}
    return {
        "id": trial.trial_id,
        "status": trial.status,
        "iteration": trial.iteration,
        "params": trial.evaluated_params,
        "metrics": {metric: None if number is MISSING else number for metric, number in found.items()},
        "checkpoints": len(trial.checkpoints),
        "bytes": sum(record.bytes for record in trial.checkpoints),
        "error": None if trial.error is None else f"{trial.error.type}: {trial.error.message}",
    }


def _experiment_text(path: Path, state: ExperimentState, rows: list[dict[str, Any]], metrics: list[str]) -> str:
    header = ("trial", "status", "iteration", *metrics, "checkpoints", "params", "error")
    lines = (
        [row["id"], row["status"], row["iteration"], *row["metrics"].values(), row["checkpoints"], row["params"]]
        + [(row["error"] or "").split("\n")[0][:80]]
        for row in rows
    )
    counts = ", ".join(f"{number} {status.lower()}" for status, number in state.counts.items() if number)
    kept = f"{state.checkpoint_count} checkpoints kept, {text.size(state.checkpoint_bytes)}"
    return f"{path}\n{len(rows)} trials ({counts or 'none yet'}); {kept}\n\n{text.table(header, lines)}"


def _trial_text(facts: dict[str, Any]) -> str:
    lines = [f"{facts['name']}  {facts['status']}  iteration {facts['iteration']}", facts["path"], "", "config"]
    lines += [f"  {key} = {text.value(value)}" for key, value in facts["config"].items()]
    lines += ["", "last result"] + [f"  {key} = {text.value(value)}" for key, value in facts["result"].items()]
    lines += ["", "checkpoints"]
    lines += [f"  {item['name']}  {text.size(item['bytes'])}" for item in facts["checkpoints"]] or ["  none"]
    if facts["error"]:
        lines += ["", facts["traceback"].rstrip() or facts["error"]]
    return "\n".join(lines)
