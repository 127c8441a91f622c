"""`tuner report EXPERIMENT [-o FILE]`: the page of an experiment in one file, which needs no server and no network."""

from __future__ import annotations

import argparse
from typing import Any

from trainables.places import child_of, trim_slash
from tuner.analysis.file_target import page_at, put
from tuner.cli import output, place
from tuner.experiment.paths import is_elsewhere


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("report", help="write the page of `tuner ui` as one HTML file")
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument("-o", "--output", metavar="FILE", help="a path or a URI; default: report.html in the experiment")
    verb.add_argument("--metric", help="instead of the experiment's own")
    verb.add_argument("--mode", choices=("min", "max"), help="instead of the experiment's own")
    output.add_json(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tuner.ui import one_file

    given = trim_slash(arguments.experiment)
    found = given if is_elsewhere(given) else str(place.experiment(given))
    target = child_of(found, "report.html") if arguments.output is None else page_at(arguments.output)
    metrics, modes = ([each] if each else [] for each in (arguments.metric, arguments.mode))
    written = put(target, one_file.page(found, metrics, modes))
    output.told(arguments, written, path=written)
    return 0
