"""`tuner report EXPERIMENT [-o FILE]`: one HTML page about an experiment, which needs no network."""

from __future__ import annotations

import argparse
from typing import Any

from tuner.analysis import ExperimentAnalysis
from tuner.cli import output, place
from tuner.experiment.paths import is_elsewhere


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("report", help="write one HTML page with plots of everything")
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument("-o", "--output", metavar="FILE", help="a path or a URI; default: report.html in the experiment")
    verb.add_argument("--metric", help="instead of the experiment's own")
    verb.add_argument("--mode", choices=("min", "max"), help="instead of the experiment's own")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    given = arguments.experiment
    found = ExperimentAnalysis(given if is_elsewhere(given) else place.experiment(given))
    output.say(found.report(arguments.output, metric=arguments.metric, mode=arguments.mode))
    return 0
