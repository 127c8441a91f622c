"""`tuner export EXPERIMENT -o results.csv`: trials or results as one table, for other programs."""

from __future__ import annotations

import argparse
from typing import Any

from tuner.analysis import ExperimentAnalysis
from tuner.cli import output, place
from tuner.experiment.paths import is_elsewhere

DESCRIPTION = """\
Writes one table: a row for each trial (status, why it ended, config, last result), or with --results one for each
result. The suffix says how: .csv; .parquet (needs pyarrow); .jsonl, a JSON object on each line. Nested names are
joined by slashes; config keys begin with config/. Nothing of the experiment is changed or unpickled."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "export",
        help="write trials or results as CSV, Parquet or JSON lines",
        description=DESCRIPTION,
    )
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="a path or a URI that ends in .csv, .parquet or .jsonl"
    )
    verb.add_argument("--results", action="store_true", help="a row for each result, not only each trial's last")
    output.add_json(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tuner.analysis import export
    from tuner.analysis.file_target import put

    write = export.writer_for(arguments.output)
    given = arguments.experiment
    found = ExperimentAnalysis(given if is_elsewhere(given) else place.experiment(given))
    rows = export.of_results(found.trials) if arguments.results else export.of_trials(found.trials)
    written = put(arguments.output, write(rows))
    text = f"{written}: {output.counted(len(rows), 'result' if arguments.results else 'trial')}"
    output.told(arguments, text, path=str(written), rows=len(rows))
    return 0
