"""`tuner resume EXPERIMENT`: continue an experiment where it stopped."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tuner.cli import output, place
from tuner.cli import run as run_verb
from tuner.error import SettingError
from tuner.experiment.continuing import how_to_continue, starter_of
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("resume", help="continue an experiment where it stopped")
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, or a name under ~/tuner_results")
    verb.add_argument("--trainable", metavar="MODULE:NAME", help="needed for one that a Python script started")
    errored = verb.add_mutually_exclusive_group()
    errored.add_argument("--errored", action="store_true", help="continue errored trials as well")
    errored.add_argument("--restart-errored", action="store_true", help="run errored trials anew")
    run_verb.add_set(verb)
    run_verb.add_where(verb)
    run_verb.add_hooks(verb)
    output.add_json(verb, "print what came of it for programs; what it says meanwhile goes to standard error")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    return life(arguments)()


def life(arguments: argparse.Namespace) -> Callable[[], int]:
    """What continues the experiment in this process. Raises SettingError where that cannot be, and nothing was done."""
    path = place.experiment(arguments.experiment)
    kept = ExperimentPaths(path).config_yaml
    if arguments.trainable is None and kept.exists():
        return partial(_from_config, kept, path, arguments)
    if arguments.trainable is None:
        how = how_to_continue(path, starter_of(ExperimentPaths(path), read_settings(ExperimentPaths(path))))
        raise SettingError(
            f"{path} was not started by `tuner run`: continue it in its script ({how}), or name the trainable with "
            "--trainable module:function or --trainable path/file.py:function"
        )
    if arguments.changes or run_verb.where(arguments) or run_verb.hooks(arguments):
        raise SettingError(
            "--set, --executor, --address, --on-end and --on-failure are for an experiment that `tuner run` started; "
            "this one was not"
        )
    from tuner.cli.load_object import load_object

    return partial(_from_trainable, path, load_object(arguments.trainable, Path.cwd()), arguments)


def plain_life(experiment: str, trainable: str | None) -> Callable[[], int]:
    """The same for an experiment of which nothing is changed."""
    nothing: dict[str, Any] = dict.fromkeys(("executor", "address", "on_end", "on_failure"))
    nothing |= {"errored": False, "restart_errored": False, "changes": [], "json": False}
    return life(argparse.Namespace(experiment=experiment, trainable=trainable, **nothing))


def _from_config(kept: Path, path: Path, arguments: argparse.Namespace) -> int:
    from tuner.cli.config_file import load

    word = "LOCAL"
    if arguments.errored or arguments.restart_errored:
        word += "+ERRORED" if arguments.errored else "+RESTART_ERRORED"
    described = load(kept, [*run_verb.where(arguments), *arguments.changes])
    # Where it lies now counts: it may have been moved since.
    moved = {"name": path.name, "storage_path": str(path.parent), "resume": word, "overwrite": False}
    return run_verb.execute(
        replace(described, said={**described.said, **moved}), run_verb.hooks(arguments), as_json=arguments.json
    )


def _from_trainable(path: Path, trainable: Any, arguments: argparse.Namespace) -> int:
    from tuner.tuner import Tuner

    restored = Tuner.restore(
        str(path),
        trainable,
        resume_errored=arguments.errored,
        restart_errored=arguments.restart_errored,
    )
    with run_verb.aside(arguments.json):
        grid = restored.fit()
    if arguments.json:
        from tuner.analysis import ExperimentAnalysis

        output.say(output.as_json(run_verb.came_of(ExperimentAnalysis(path), path)))
    else:
        output.say(f"experiment       {path}")
    return 1 if grid.num_errors else 0
