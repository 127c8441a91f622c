"""`result.json` and `params.json`: a trial's whole history and its config, as tagged JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from trainables import tagged
from trainables.errors import MetricError
from trainables.result_history import missing_row, read_line, write_line
from trainables.store import fs
from tuner.experiment.paths import TrialPaths
from tuner.experiment.standing import StandingResult
from tuner.experiment.trial import Trial
from tuner.logger.rows import RowFile, RowLogger


class JsonLoggerCallback(RowLogger):
    """Writes every result as one line of `result.json`, and the config into `params.json`.

    Read back with `trainables.result_history.read_history`, values are what they were. `json.loads`,
    `pandas.read_json(..., lines=True)` and `jq` read it too: NaN and the infinities are written as Python writes them.
    """

    def log_trial_start(self, trial: Trial) -> None:
        path = TrialPaths(trial.directory).params_json
        try:
            fs.make_dirs(trial.directory)
            fs.write_file(path, _config(trial), fsync=False)
        except OSError as error:
            self._complain(path, error)

    def _path(self, trial: Trial) -> Path:
        return TrialPaths(trial.directory).result_json

    def _row(self, file: RowFile, trial: Trial, result: dict[str, Any]) -> bytes | None:
        try:
            return write_line(result)
        except MetricError:  # only from a callback that put it there: report() refuses it
            return write_line({key: writable(value) for key, value in result.items()})

    def _complete(self, trial: Trial, standing: StandingResult) -> list[int]:
        params = TrialPaths(trial.directory).params_json
        if not fs.exists(params) or fs.read_file(params) != _config(trial):
            fs.replace_file(params, _config(trial))
        path = self._path(trial)
        data = fs.read_file(path) if fs.exists(path) else b""
        *lines, rest = data.split(b"\n")
        read = [(_iteration(line), line) for line in lines]
        rows = {reached: line for reached, line in read if reached is not None and _stands(reached, line, standing)}
        known = {
            iteration: write_line(tagged.loads(bytes(raw))).rstrip(b"\n")
            for iteration, raw in standing.results.items()
            if iteration not in rows
        }
        missing = standing.gaps({*rows, *known}, trial.iteration)
        known.update((iteration, write_line(missing_row(iteration)).rstrip(b"\n")) for iteration in missing)
        if rest or known or len(rows) < len(lines):
            rows.update(known)
            fs.replace_file(path, b"".join(line + b"\n" for _, line in sorted(rows.items())))
        return missing

    def _end(self, data: bytes, iteration: int) -> int:
        end = data.rfind(b"\n") + 1
        while end:
            start = data.rfind(b"\n", 0, end - 1) + 1
            reached = _iteration(data[start:end])
            if reached is not None and reached <= iteration:
                break
            end = start
        return end


def _config(trial: Trial) -> bytes:
    config = orjson.loads(bytes(trial.raw_config))  # tags and names of blobs as they are, nothing is unpickled
    return orjson.dumps(config, option=orjson.OPT_INDENT_2)


def _iteration(line: bytes) -> int | None:
    try:
        reached = read_line(line)["training_iteration"]
    except (ValueError, KeyError, TypeError):
        return None  # a damaged line at the end of a file goes too
    return reached if isinstance(reached, int) else None


def _stands(iteration: int, line: bytes, standing: StandingResult) -> bool:
    """Whether a row is none of an attempt whose results are void; the last one may say `done` before the journal."""
    if iteration <= standing.doubtful_after:
        return True
    raw = standing.results.get(iteration)
    return raw is not None and {**read_line(line), "done": None} == {**tagged.loads(bytes(raw)), "done": None}


def writable(value: Any) -> Any:
    try:
        tagged.dumps(value)
    except MetricError:
        return repr(value)
    return value
