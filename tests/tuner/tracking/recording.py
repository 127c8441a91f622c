"""A tracker whose runs are files: one line for each result, and what it was told besides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.tracking.tracker import OpenRun, Row, RunEnding, TrackedRun, Tracker, files_of
from tuner.tracking.tracker_callback import TrackerCallback


class RecordingTracker(Tracker):
    """Its library writes every result at once, or only when a run is closed, as some do."""

    name = "recording"

    def __init__(self, place: Path, *, at_once: bool = True, says: bool = True) -> None:
        self.place, self.says = place, says
        self.keeps_at_once = at_once  # type: ignore[misc]
        self.down = False

    @property
    def destination(self) -> str:
        return str(self.place)

    def open(self, run: TrackedRun) -> OpenRun:
        self._check()
        self.place.mkdir(exist_ok=True)
        path = self.place / f"{run.key}.jsonl"
        known = [line["step"] for line in lines(path) if "step" in line]
        if not known:
            _append(path, {"name": run.name, "experiment": run.experiment, "config": dict(run.config)})
        reached = max([run.safe if not self.keeps_at_once else 0, *known]) if self.says else None
        return OpenRun(run, run.key, (path, []), reached)

    def send(self, run: OpenRun, rows: Sequence[Row]) -> None:
        path, held = run.handle
        for number, (step, result) in enumerate(rows):
            if number:
                self._check()  # it may go down in the middle
            line = {"step": step, **{key: result.get(key) for key in ("loss", "life")}}
            held.append(line)
            if self.keeps_at_once:
                _append(path, held.pop())
            run.given = step

    def update_config(self, run: OpenRun, config: Mapping[str, Any], iteration: int) -> None:
        _append(run.handle[0], {"changed": dict(config), "at": iteration})

    def save(self, run: OpenRun, directory: str, iteration: int) -> None:
        _append(run.handle[0], {"saved": iteration, "files": [name for _, name in files_of(directory)]})

    def close(self, run: OpenRun, ending: RunEnding) -> None:
        self._check()
        path, held = run.handle
        for line in held:
            _append(path, line)
        _append(path, {"ended": ending.value})

    def _check(self) -> None:
        if self.down:
            raise ConnectionError("no route to the tracker")


class RecordingCallback(TrackerCallback):
    def __init__(self, place: str, at_once: bool = True, **how: Any) -> None:
        super().__init__(**how)
        self.place, self.at_once = place, at_once

    def make_tracker(self) -> Tracker:
        return RecordingTracker(Path(self.place), at_once=self.at_once)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def steps(path: Path) -> list[int]:
    return [line["step"] for line in lines(path) if "step" in line]


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")
