"""`result.json` and `params.json`: a trial's whole history and its config, as plain JSON for other tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables import tagged
from trainables.errors import MetricError
from trainables.plain_json import plain, plain_text
from trainables.result_history import missing_row, read_line, write_line
from trainables.store import fs
from tuner.experiment.paths import TrialPaths
from tuner.experiment.standing import StandingResult
from tuner.experiment.trial import Trial
from tuner.logger.rows import RowFile, RowLogger


class JsonLoggerCallback(RowLogger):
    """Writes every result as one line of `result.json`, and the config into `params.json`.

    `json.loads`, `pandas.read_json(..., lines=True)` and `jq` read both: arrays, tuples and sets are lists, numpy's
    numbers are numbers, what JSON has not is text, and NaN and the infinities are written as Python writes them. The
    exact values are in the journal; a config that `params.json` cannot hold exactly is in `.params.json` as well.
    """

    def log_trial_start(self, trial: Trial) -> None:
        path = TrialPaths(trial.directory).params_json
        try:
            fs.make_dirs(trial.directory)
            for path, data in _params(trial):
                if data is None:
                    fs.remove_quietly(path)
                else:
                    fs.write_file(path, data, fsync=False)
        except OSError as error:
            self._complain(path, error)

    def _path(self, trial: Trial) -> Path:
        return TrialPaths(trial.directory).result_json

    def _row(self, file: RowFile, trial: Trial, result: dict[str, Any]) -> bytes | None:
        return write_line(result)

    def _complete(self, trial: Trial, standing: StandingResult) -> list[int]:
        for params, wanted in _params(trial):
            if wanted is None:
                fs.remove_quietly(params)
            elif not fs.exists(params) or fs.read_file(params) != wanted:
                fs.replace_file(params, wanted)
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


def _params(trial: Trial) -> Iterator[tuple[Path, bytes | None]]:
    """The files of the config, and what they hold; None: nothing. Nothing is unpickled, and no blob is opened."""
    paths, raw = TrialPaths(trial.directory), bytes(trial.raw_config)
    yield paths.params_json, plain_text(tagged.loads(raw), indent=2)
    yield paths.exact_params_json, raw if b'"$":' in raw else None


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
    if raw is None:
        return False
    return {**plain(read_line(line)), "done": None} == {**plain(tagged.loads(bytes(raw))), "done": None}


def writable(value: Any) -> Any:
    try:
        tagged.dumps(value)
    except MetricError:
        return repr(value)
    return value
