"""`tuner run CONFIG.yaml [--executor ray|slurm] [--set key=value ...]`: run the experiment that a file describes."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tuner.cli import output
from tuner.error import SettingError, TrialsFailedError


class _Schema(argparse.Action):
    """Prints and ends, as `--help` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from tuner.cli.config_schema import schema

        output.say(json.dumps(schema(), indent=2))
        parser.exit()


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("run", help="run the experiment that a YAML file describes")
    verb.add_argument("config", metavar="CONFIG.yaml", type=Path)
    verb.add_argument("--schema", action=_Schema, nargs=0, help="print the JSON Schema of such files, for editors")
    add_set(verb)
    add_where(verb)
    add_hooks(verb)
    what = "run the driver itself as a job of Slurm, which waits in the queue again before its end"
    verb.add_argument("--submit", action="store_true", help=what)
    verb.add_argument(
        "--driver",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="with --submit: an option of the driver's own job: --driver time=1-00:00:00 --driver partition=cpu",
    )
    output.add_json(verb, "print what came of it for programs; what it says meanwhile goes to standard error")
    verb.set_defaults(run=run)


def add_where(verb: argparse.ArgumentParser) -> None:
    """The options that say where trials run."""
    verb.add_argument(
        "--executor",
        choices=("local", "inline", "ray", "slurm"),
        help="where trials run: ray: on a Ray cluster; slurm: in jobs",
    )
    verb.add_argument("--address", metavar="IP:PORT", help="of the Ray cluster; default: the one that runs here")


def where(arguments: argparse.Namespace) -> list[str]:
    """These options, as `--set` says the same. Raises SettingError."""
    executor, address = arguments.executor, arguments.address
    if address is None:
        return [] if executor is None else [f"executor={executor}"]
    if executor not in (None, "ray"):
        raise SettingError(f"--address {address} goes with --executor ray, and not with {executor}")
    return [f"executor={json.dumps({'ray': {'address': address}})}"]


def add_hooks(verb: argparse.ArgumentParser) -> None:
    """The options that say who is told of the run: no file says so, for a command from a file would run at a resume."""
    what = "a command for the shell or an http(s) URL, told as JSON when"
    verb.add_argument("--on-end", metavar="HOOK", help=f"{what} the run has ended")
    verb.add_argument("--on-failure", metavar="HOOK", help=f"{what} a trial has failed for good")


def hooks(arguments: argparse.Namespace) -> dict[str, str]:
    """These options, as arguments of `tune.run`."""
    given = {"on_end": arguments.on_end, "on_failure": arguments.on_failure}
    return {name: hook for name, hook in given.items() if hook is not None}


def add_set(verb: argparse.ArgumentParser) -> None:
    """The option that changes single settings."""
    verb.add_argument(
        "--set",
        action="append",
        default=[],
        dest="changes",
        metavar="KEY=VALUE",
        help="change one setting: --set num_samples=50 --set param_space.lr.loguniform=[1e-4,1e-1]; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    from tuner.cli.config_file import load

    described = load(arguments.config, [*where(arguments), *arguments.changes])
    if arguments.submit:
        from tuner.cli.submitting import submit

        return submit(described, hooks(arguments), arguments.driver, as_json=arguments.json)
    if arguments.driver:
        raise SettingError(f"--driver {arguments.driver[0]} goes with --submit, which is not there")
    return execute(described, hooks(arguments), as_json=arguments.json)


def execute(described: Any, hooks: Mapping[str, str], *, as_json: bool = False, **instead: Any) -> int:
    """Run what a config describes; say where it lies and what came out best. 1 when trials failed.

    A SIGTERM after the run has ended does not change that status.

    `instead` are arguments of `tune.run` in place of what the config says; callbacks come on top.
    """
    from tuner.cli.config_file import KeepConfig
    from tuner.cli.notices import Notices
    from tuner.run import run as tune_run

    more = instead.pop("callbacks", ())
    settings = {**described.arguments(), **hooks, **instead}
    failed: TrialsFailedError | None = None
    with Notices() as notices:
        settings["callbacks"] = [*settings.get("callbacks", ()), *more, KeepConfig(described), notices]
        try:
            with aside(as_json):
                analysis = tune_run(described.load_trainable(), **settings)
        except TrialsFailedError as error:
            failed, analysis = error, error.analysis
        if as_json:
            output.say(output.as_json(came_of(analysis, described.directory())))
        elif described.said.get("verbose") != 0:
            _say(analysis, described)
        if failed is not None:
            output.say(f"tuner: {failed}", sys.stderr)
    return 0 if failed is None else 1


def aside(as_json: bool) -> AbstractContextManager[object]:
    """Whatever is printed meanwhile is not for the program that reads the answer."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def came_of(analysis: Any, directory: Path) -> dict[str, Any]:
    """What came of a run, for programs."""
    trials = analysis.trials
    told: dict[str, Any] = {"path": str(directory), "trials": len(trials), "best": None}
    told["failed"] = [trial.trial_id for trial in trials if trial.status == trial.ERROR]
    metric, mode = analysis.default_metric, analysis.default_mode or "max"
    best = analysis.get_best_trial(metric, mode) if isinstance(metric, str) else None
    if best is not None:
        checkpoint = analysis.get_best_checkpoint(best, metric, mode)
        told["best"] = {
            "trial": best.trial_id,
            "index": best.index,
            "config": analysis.get_best_config(metric, mode),
            "metric": metric,
            "value": best.last_result.get(metric),
            "checkpoint": None if checkpoint is None else checkpoint.path,
        }
    return told


def _say(analysis: Any, described: Any) -> None:
    output.say(f"experiment       {described.directory()}")
    metric, mode = described.said.get("metric"), described.said.get("mode") or "max"
    if not isinstance(metric, str):
        return
    best = analysis.get_best_trial(metric, mode)
    if best is None:
        return
    output.say(f"best trial       {best.name} (by its last {metric})")
    output.say(f"best config      {output.value(analysis.get_best_config(metric, mode))}")
    checkpoint = analysis.get_best_checkpoint(best, metric, mode)
    if checkpoint is not None:
        output.say(f"best checkpoint  {checkpoint.path}")
