"""`tuner best EXPERIMENT [--copy-to DIR]`: the best trial's config, metrics and best checkpoint, which it can copy."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from trainables.checkpoint import Checkpoint
from trainables.metrics import rank_of, score_of
from trainables.places import parent_and_name
from trainables.printable import one_line
from trainables.transfer.open import open_backend, shown
from tuner.analysis import ExperimentAnalysis, scopes
from tuner.analysis.goal import goal_of
from tuner.analysis.loaded import config_of
from tuner.analysis.reported import AUTOMATIC, check_reported, reported
from tuner.cli import output, place
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
        "--scope",
        metavar="SCOPE",
        default="last",
        help="by which of a trial's results: last (the default), all (its best), avg, or last-5-avg with any number",
    )
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
    scopes.check(metric, mode, arguments.scope)
    trial = scopes.best(found.trials, metric, mode, arguments.scope)
    if trial is None:
        raise MetricMissingError(f"there is no best trial: {found.why_not(metric)}")
    checkpoint = _best_checkpoint(found, trial, metric, mode)
    facts = _facts(found, trial, _BestBy(metric, mode, arguments.scope), checkpoint)
    if arguments.metric is None:
        facts |= _front(found)
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
    best = found.get_best_checkpoint(trial, metric, mode) if trial.ranked_checkpoints else None
    return best if isinstance(best, Checkpoint) else trial.checkpoint


class _BestBy(NamedTuple):
    """What is best, and by which of a trial's results."""

    metric: str
    mode: str
    scope: str

    def score(self, trial: Trial) -> float:
        found = scopes.score(trial, *self)
        assert found is not None  # it is the best, so that it has one
        return found


def _facts(found: ExperimentAnalysis, trial: Trial, wanted: _BestBy, checkpoint: Checkpoint | None) -> dict[str, Any]:
    return {
        "index": trial.index,
        "id": trial.trial_id,
        "name": trial.name,
        "of": len(found.trials),
        **wanted._asdict(),
        "value": wanted.score(trial),
        "state": outcome(trial),
        "iteration": trial.iteration,
        "config": config_of(trial, scopes.scored_at(trial, *wanted)),
        "result": trial.last_result,
        "checkpoint": None if checkpoint is None else shown(_address(checkpoint)),
        "better_before": _better_before(found.trials, wanted, wanted.score(trial)),
    }


def _better_before(trials: Sequence[Trial], wanted: _BestBy, value: float) -> dict[str, Any] | None:
    """The best of all results, where one that is no trial's last beats the last ones; the best checkpoint of it."""
    if wanted.scope != "last":
        return None
    any_result = wanted._replace(scope="all")
    trial = scopes.best(trials, *any_result)
    if trial is None or rank_of(any_result.score(trial), wanted.mode) <= rank_of(value, wanted.mode):
        return None
    better: dict[str, Any] = {"index": trial.index, "value": any_result.score(trial), "checkpoint": None}
    kept = [(score_of(record.metrics, wanted.metric), record) for record in trial.ranked_checkpoints]
    ranked = [(rank_of(score, wanted.mode), score, record) for score, record in kept if score is not None]
    best = max(ranked, key=lambda each: each[0], default=None)
    if best is not None and best[0] > rank_of(value, wanted.mode):
        better["checkpoint"] = {"name": best[2].ref.name, "value": best[1]}
    return better


def _front(found: ExperimentAnalysis) -> dict[str, Any]:
    """Of a run with several metrics: the trials that none beats in all of them; {}: it has one."""
    goal = goal_of(found.settings, None, None)
    if len(goal.metrics) < 2:
        return {}
    front = [
        {"index": each.index, "id": each.trial_id} | {name: score_of(each.last_result, name) for name in goal.metrics}
        for each in found.best_trials
    ]
    return {"objectives": list(goal.metrics), "front": front}


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
    rank = "lowest" if facts["mode"] == "min" else "highest"
    of = f"by {_by(facts['scope'])} the {rank} of {output.counted(facts['of'], 'trial')}"
    lines = [
        f"trial {facts['index']} ({output.value(facts['name'])}): {metric}, {of}",
        f"iteration {facts['iteration']}, {output.value(facts['state'])}",
    ]
    if (better := facts["better_before"]) is not None:
        lines += [_better_text(facts["metric"], better)]
    own = {name: value for name, value in facts["result"].items() if name not in AUTOMATIC}
    for title, values in (("config", facts["config"]), ("last result", own)):
        lines += ["", title, *(f"  {output.value(key)} = {_whole(value)}" for key, value in values.items())]
    lines += ["", "checkpoint", f"  {output.value(facts['checkpoint'] or 'none')}"]
    if "front" in facts:
        count = output.counted(len(facts["front"]), "trial")
        lines += ["", f"none beats {count} in all of {', '.join(map(output.value, facts['objectives']))}"]
        for each in facts["front"]:
            values = ", ".join(f"{output.value(name)} {output.value(each[name])}" for name in facts["objectives"])
            lines += [f"  trial {each['index']}: {values}"]
    if "copied_to" in facts:
        lines += [f"  copied, every file verified, to {output.value(facts['copied_to'])}"]
    return "\n".join(lines)


def _by(scope: str) -> str:
    few = scope.removeprefix("last-").removesuffix("-avg")
    words = {"last": "its last result", "all": "its best result", "avg": "the mean of its results"}
    return words.get(scope, f"the mean of its last {few} results")


def _better_text(metric: str, better: dict[str, Any]) -> str:
    saved = better["checkpoint"]
    kept = "no better checkpoint is kept"
    if saved is not None:
        kept = f"its {saved['name']} is kept, with {output.value(saved['value'])}"
    said = f"better before: {metric} {output.value(better['value'])} in trial {better['index']}"
    return output.value(f"{said}, {kept}; --scope all goes by the best result")


def _whole(value: Any) -> str:
    """With all digits: a reader takes it from here."""
    return one_line(repr(value)) if isinstance(value, float) else output.value(value)
