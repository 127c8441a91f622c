"""`tuner logs EXPERIMENT [TRIAL] [-f]`: what trials printed, and what their drivers warned of."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.places import is_elsewhere
from trainables.store.manifest import stays_inside
from tuner.cli import output, place
from tuner.cli.tail import Tail
from tuner.clock import SystemClock
from tuner.error import SettingError
from tuner.experiment import run_state
from tuner.experiment.liveness import LastDriver, Liveness, last_driver
from tuner.experiment.outcome import outcome
from tuner.experiment.paths import ExperimentPaths, TrialPaths
from tuner.experiment.reader import load_with_journal, read_settings
from tuner.experiment.replacing import standing
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial

DESCRIPTION = """\
Prints what a trial printed (standard output, then standard error and its error), and what the driver warned of it. Of
a whole experiment: the driver's warnings and the last lines of each trial."""
LAST = 10
"""Lines of each file of a whole experiment."""
LOOK_S, LOOK_ELSEWHERE_S = 0.25, 10.0
"""Seconds between two looks with -f, at least."""
USUAL = ("stdout", "stderr")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[mK]")


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "logs",
        help="what a trial printed, and what the driver warned of",
        description=DESCRIPTION,
    )
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument("trial", nargs="?", metavar="TRIAL", help="a trial's id, name or number")
    verb.add_argument("-f", "--follow", action="store_true", help="go on until the trial, or the run, has ended")
    verb.add_argument(
        "-n", "--lines", type=int, metavar="N", help=f"the last N of each file; without TRIAL {LAST}, else all"
    )
    output.add_json(verb, "for programs: an object on each line, with the file and its line")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    lines, wanted = arguments.lines, arguments.trial
    if lines is not None and lines < 0:
        raise SettingError(f"--lines={lines} is not accepted; accepted are 0, 1, 2, ...")
    kind = _JsonPrinter if arguments.json else _Printer
    printer = kind(None if lines is None and wanted is not None else LAST if lines is None else lines)
    least = LOOK_ELSEWHERE_S if is_elsewhere(arguments.experiment) else LOOK_S
    while True:
        began = time.monotonic()
        with _opened(arguments.experiment, wanted) as look:
            end = look.end if arguments.follow else ""
            for source in look.sources():
                printer.show(source, last=end is not None)
        if end is None:
            time.sleep(max(least, 5 * (time.monotonic() - began)))  # a large journal takes long to read
            continue
        if end:
            output.complain("logs", end)
        elif not printer.anything:
            output.complain("logs", look.nothing)
        return 0


@dataclass(frozen=True, slots=True)
class _Source:
    """One file, and what stands before its lines."""

    key: str
    path: Path
    label: str
    about: tuple[str, ...] = ()
    """Only lines that name one of these."""
    first: bool = False
    """What stands first needs no heading."""


@dataclass(frozen=True)
class _Look:
    """An experiment as it is now. What is read of its files after this look has all that was printed before it."""

    paths: ExperimentPaths
    state: ExperimentState
    driver: LastDriver
    files: Sequence[str]
    trial: Trial | None

    @property
    def end(self) -> str | None:
        """Why nothing more is printed; None: more may come."""
        if self.trial is not None and self.trial.is_finished():
            return f"trial {self.trial.index} has ended: {outcome(self.trial)}"
        runs = self.driver.liveness is Liveness.RUNNING
        if runs or (self.driver.liveness is Liveness.UNKNOWN and self.state.run_ended is None):
            return None
        return f"the run has ended: {run_state.text(self.driver, self.state.run_ended)}"

    @property
    def nothing(self) -> str:
        """What is said when there is not a line."""
        trials = self.state.trials if self.trial is None else [self.trial]
        kept = any((trial.directory / name).exists() for trial in trials for name in self.files)
        who = "no trial has" if self.trial is None else f"trial {self.trial.index} has not"
        if kept or not any(trial.attempt for trial in trials):
            return f"{who} printed anything"
        return f'what was printed is not here: executor="inline" prints where the run was started ({who} files of it)'

    def sources(self) -> Iterator[_Source]:
        """In the order in which they are shown."""
        logs = standing(self.paths).driver_logs
        if self.trial is None:
            yield from (_Source(file.name, file, "driver") for file in logs)
            for trial in self.state.trials:
                for name, usual in zip(self.files, USUAL, strict=False):
                    label = f"trial {trial.index}{' stderr' * (usual == 'stderr')}"
                    yield _Source(f"{trial.dirname}/{name}", trial.directory / name, label)
            return
        for name in dict.fromkeys((*self.files, TrialPaths(self.trial.directory).error_txt.name)):
            yield _Source(name, self.trial.directory / name, f"==> {name} <==", first=name == self.files[0])
        about = (self.trial.name, self.trial.trial_id)
        yield from (_Source(file.name, file, "==> driver.log <==", about) for file in logs)


class _Printer:
    """Prints what is new in files.

    Args:
        lines: so many of the last ones that are there at the first look; None: all.
    """

    def __init__(self, lines: int | None) -> None:
        self.anything = False
        self._lines = lines
        self._tails: dict[str, Tail] = {}
        self._heading = ""

    def show(self, source: _Source, *, last: bool) -> None:
        """`last`: nothing more is written; half a line is shown too."""
        tail = self._tails.setdefault(source.key, Tail(self._lines))
        for line in tail.read(source.path, last=last):
            if source.about and not any(name in line for name in source.about):
                continue
            text = output.value(_COLOUR.sub("", line).expandtabs())
            if source.label.startswith("==>"):
                if source.label != self._heading and (self._heading or not source.first):
                    output.say(("\n" if self.anything else "") + source.label)
                self._heading = source.label
            else:
                text = f"{source.label} | {text}"
            output.say(text)
            self.anything = True


class _JsonPrinter(_Printer):
    """The same for programs."""

    def show(self, source: _Source, *, last: bool) -> None:
        tail = self._tails.setdefault(source.key, Tail(self._lines))
        for line in tail.read(source.path, last=last):
            if not source.about or any(name in line for name in source.about):
                output.say(json.dumps({"file": source.key, "line": line}))
                self.anything = True


@contextmanager
def _opened(given: str, wanted: str | None) -> Iterator[_Look]:
    with _paths(given, wanted) as paths:
        state, _ = load_with_journal(paths, [])
        driver = last_driver(paths, SystemClock().time())
        trial = None if wanted is None else place.trial(state.trials, wanted)
        yield _Look(paths, state, driver, _files(read_settings(paths)), trial)


@contextmanager
def _paths(given: str, wanted: str | None) -> Iterator[ExperimentPaths]:
    if not is_elsewhere(given):
        yield ExperimentPaths(place.experiment(given))
        return
    from tuner.syncer import views

    def printed(paths: ExperimentPaths, state: ExperimentState, there: Collection[str]) -> Collection[str]:
        trials = state.trials if wanted is None else [place.trial(state.trials, wanted)]
        files = [*_files(read_settings(paths)), TrialPaths(paths.root).error_txt.name]
        return [file.name for file in paths.driver_logs] + [f"{one.dirname}/{name}" for one in trials for name in files]

    with views.view(given, printed) as paths:
        yield paths


def _files(settings: dict[str, Any]) -> Sequence[str]:
    """The files that trials print to, within their directories: `log_to_file`."""
    given = settings.get("log_files")
    named = [name for name in given or () if isinstance(name, str) and stays_inside(name)]
    return list(dict.fromkeys(named)) if named else USUAL
