"""`tuner best EXPERIMENT [--copy-to DIR]`: the best trial's config, metrics and best checkpoint, which it can copy."""

from __future__ import annotations

import argparse
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.places import parent_and_name
from trainables.printable import one_line
from trainables.transfer.open import open_backend, shown
from tuner.analysis import ExperimentAnalysis, scopes
from tuner.analysis.reported import AUTOMATIC, check_reported, reported
from tuner.cli import output, place
from tuner.cli.trial_table import goal_of
from tuner.error import MetricMissingError, SettingError, TuneError
from tuner.experiment.outcome import outcome
from tuner.experiment.paths import is_elsewhere
from tuner.experiment.trial import Trial


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("best", help="the best trial's config, metrics and checkpoint")
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument("--metric", metavar="NAME", help="instead of the experiment's own")
    verb.add_argument("--mode", choices=("min", "max"), help="which of it is best")
    verb.add_argument(
        "--copy-to",
        metavar="DIR",
        help="copy its best checkpoint, every file verified, to a path or URI that is not there yet; with a slash at "
        "the end: under that",
    )
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    given = arguments.experiment
    found = ExperimentAnalysis(given if is_elsewhere(given) else place.experiment(given))
    metric, mode = _goal(found, arguments.metric, arguments.mode)
    trial = scopes.best(found.trials, metric, mode, "last")
    if trial is None:
        raise MetricMissingError(f"there is no best trial: {found.why_not(metric)}")
    checkpoint = _best_checkpoint(found, trial, metric, mode)
    facts = _facts(found, trial, metric, mode, checkpoint)
    if arguments.copy_to is not None:
        if checkpoint is None:
            raise TuneError(f"nothing is copied: trial {trial.index} has no checkpoint")
        facts["copied_to"] = _copied(checkpoint, arguments.copy_to)
    output.say(output.as_json(facts) if arguments.json else _text(facts))
    return 0


def _goal(found: ExperimentAnalysis, metric: str | None, mode: str | None) -> tuple[str, str]:
    goal = goal_of(found.settings, metric, mode)
    if not goal.metrics:
        names = ", ".join(reported(found.trials)) or "none yet"
        raise SettingError(
            f"best by which metric? This run had none: give --metric NAME --mode min, or max; reported: {names}"
        )
    name = goal.metrics[0]
    check_reported(name, found.trials)
    if goal.mode is None:
        raise SettingError(f"best {name} is which? Give --mode min or --mode max")
    return scopes.check(name, goal.mode)


def _best_checkpoint(found: ExperimentAnalysis, trial: Trial, metric: str, mode: str) -> Checkpoint | None:
    """By the metric; where no kept one's result has it, the latest."""
    best = found.get_best_checkpoint(trial, metric, mode) if trial.own_checkpoints else None
    return best if isinstance(best, Checkpoint) else trial.checkpoint


def _facts(
    found: ExperimentAnalysis, trial: Trial, metric: str, mode: str, checkpoint: Checkpoint | None
) -> dict[str, Any]:
    return {
        "index": trial.index,
        "id": trial.trial_id,
        "name": trial.name,
        "of": len(found.trials),
        "metric": metric,
        "mode": mode,
        "value": scopes.score(trial, metric, mode, "last"),
        "state": outcome(trial),
        "iteration": trial.iteration,
        "config": found.get_all_configs()[trial.path],
        "result": trial.last_result,
        "checkpoint": None if checkpoint is None else shown(_address(checkpoint)),
    }


def _address(checkpoint: Checkpoint) -> str:
    """A path, or a URI."""
    uri = checkpoint.uri
    return uri if uri is not None and is_elsewhere(uri) else str(checkpoint.path)


def _copied(checkpoint: Checkpoint, target: str) -> str:
    from tuner.tools.copy import copy_checkpoint

    above, name = parent_and_name(_address(checkpoint))
    into, new = place.target(target, name)
    with open_backend(above) as source, open_backend(into) as there:
        copy_checkpoint(source, name, there, new)
        return shown(there.url(new))


def _text(facts: dict[str, Any]) -> str:
    metric = f"{output.value(facts['metric'])} {output.value(facts['value'])}"
    of = f"the {'lowest' if facts['mode'] == 'min' else 'highest'} of {output.counted(facts['of'], 'trial')}"
    lines = [
        f"trial {facts['index']} ({output.value(facts['name'])}): {metric}, {of}",
        f"iteration {facts['iteration']}, {output.value(facts['state'])}",
    ]
    own = {name: value for name, value in facts["result"].items() if name not in AUTOMATIC}
    for title, values in (("config", facts["config"]), ("last result", own)):
        lines += ["", title, *(f"  {output.value(key)} = {_whole(value)}" for key, value in values.items())]
    lines += ["", "checkpoint", f"  {output.value(facts['checkpoint'] or 'none')}"]
    if "copied_to" in facts:
        lines += [f"  copied, every file verified, to {output.value(facts['copied_to'])}"]
    return "\n".join(lines)


def _whole(value: Any) -> str:
    """With all digits: a reader takes it from here."""
    return one_line(repr(value)) if isinstance(value, float) else output.value(value)
