"""`tuner run CONFIG.yaml [--executor ray] [--set key=value ...]`: run the experiment that a file describes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.cli import output
from tuner.error import SettingError, TrialsFailedError


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("run", help="run the experiment that a YAML file describes")
    verb.add_argument("config", metavar="CONFIG.yaml", type=Path)
    add_set(verb)
    add_where(verb)
    add_hooks(verb)
    verb.set_defaults(run=run)


def add_where(verb: argparse.ArgumentParser) -> None:
    """The options that say where trials run."""
    verb.add_argument("--executor", choices=("local", "inline", "ray"), help="where trials run; ray: on a Ray cluster")
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

    return execute(load(arguments.config, [*where(arguments), *arguments.changes]), hooks(arguments))


def execute(described: Any, hooks: Mapping[str, str]) -> int:
    """Run what a config describes; say where it lies and what came out best. 1 when trials failed."""
    from tuner.cli.config_file import KeepConfig
    from tuner.run import run as tune_run

    settings = {**described.arguments(), **hooks}
    settings["callbacks"] = [*settings.get("callbacks", ()), KeepConfig(described)]
    failed: TrialsFailedError | None = None
    try:
        analysis = tune_run(described.load_trainable(), **settings)
    except TrialsFailedError as error:
        failed, analysis = error, error.analysis
    if described.said.get("verbose") != 0:
        _say(analysis, described)
    if failed is not None:
        output.say(f"tuner: {failed}", sys.stderr)
        return 1
    return 0


def _say(analysis: Any, described: Any) -> None:
    output.say(f"experiment       {described.directory()}")
    metric, mode = described.said.get("metric"), described.said.get("mode") or "max"
    if not isinstance(metric, str):
        return
    best = analysis.get_best_trial(metric, mode)
    if best is None:
        return
    output.say(f"best trial       {best.name} (by its last {metric})")
    output.say(f"best config      {output.value(best.config)}")
    checkpoint = analysis.get_best_checkpoint(best, metric, mode)
    if checkpoint is not None:
        output.say(f"best checkpoint  {checkpoint.path}")
