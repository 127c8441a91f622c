"""A whole script, run without a kill, then killed and started again until it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from trainables.starting import start_process
from tuner.error import SettingError
from tuner.progress.task_bar import TaskBar
from tuner.tools.prove import run_records
from tuner.tools.prove.run_records import KillPoint
from tuner.tools.prove.run_watch import ProofPlan
from tuner.tools.prove.verdict import Verdict, before_kills, judge

SHOWN_LINES = 25
LOOK_S = 1.0
NAMES = {"whole": "without a kill", "killed": "with kills", "again": "once more"}
"""What the runs of a proof are called, by their directories."""


class _ScriptFailed(Exception):
    """It ended with a status that is not 0, and nobody had killed it."""


def prove_script(
    script: Path,
    arguments: Sequence[str],
    *,
    place: Path,
    kills: int,
    seed: int,
    concurrent: int = 1,
    ignore: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
    work: TaskBar | None = None,
) -> Verdict:
    """Run a script that calls `tune.run` without a kill, then with kills, and compare.

    Args:
        script, arguments: run as `python script arguments...`, in this directory and with this environment.
        place: an empty directory: results go there, whatever the script says, and what it printed.
        kills: how often the whole run is killed with SIGKILL, at reports drawn from the seed.
        seed: of the kills, and of experiments for which the script has none.
        concurrent: trials at once. With one the order of results is the same in all runs, and with it what schedulers
            and searchers decide.
        ignore: names of metrics and of values in checkpoints that do not count; patterns as in a shell.
        say: told how it goes, line by line.
        work: shows how many results there are already, above which the lines are said.

    Raises SettingError when there is no such file.
    """
    if not script.is_file():
        raise SettingError(f"{script} is not there, or is no file")

    bar = work or TaskBar("", "")

    def tell(line: str) -> None:
        bar.aside(say, line)

    def run(name: str, points: Sequence[KillPoint] = (), results: int | None = None) -> Path:
        bar.stage(f"proving: {NAMES[name]}", results)
        target = place / name
        target.mkdir()
        ProofPlan(seed, concurrent, points).write(target)
        bootstrap = [sys.executable, "-m", "tuner.tools.prove.bootstrap", str(target.absolute())]
        _run([*bootstrap, str(script), *arguments], target, tell, bar)
        return target

    try:
        tell("running without a kill")
        whole = run("whole")
        early = before_kills(whole)
        if early is not None:
            return early
        points = run_records.points(run_records.of_place(whole), kills=kills, seed=seed)
        told = ", ".join(f"trial {point.trial} at iteration {point.iteration}" for point in points)
        tell(f"running again, to be killed at: {told}")
        results = _results(whole)
        killed = run("killed", points, results)

        def control() -> Path:
            tell("something differs; running without a kill once more, to see whether the script repeats itself")
            return run("again", results=results)

        return judge(whole, killed, ignore=ignore, control=control)
    except _ScriptFailed as error:
        return Verdict(False, str(error))


def _run(command: Sequence[str], place: Path, say: Callable[[str], None], work: TaskBar) -> None:
    """Start the script until a start ends without having been killed. Raises _ScriptFailed when that is not well."""
    starts = 0
    while True:
        before = _kills(place)
        starts += 1
        output = place / f"output-{starts}"
        with output.open("wb") as file:
            process = start_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us, and we pass it on
                what="the script",
            )
        try:
            status = _waited(process, place, work)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if _kills(place) > before:
            say("killed, and started again")
            continue
        if status:
            lines = output.read_text(errors="replace").rstrip().splitlines()[-SHOWN_LINES:]
            when = f" after {before} kills" if before else " without any kill"
            ended = f"by signal {-status}" if status < 0 else f"with status {status}"
            shown = "\n".join(f"    {line}" for line in lines)
            raise _ScriptFailed(f"the script ended {ended}{when}; it printed last:\n{shown}")
        return


def _waited(process: subprocess.Popen[bytes], place: Path, work: TaskBar) -> int:
    """The status that it ends with; how far it has come is shown meanwhile."""
    while True:
        try:
            return process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ValueError):  # a line is being written
                work.at(_results(place))


def _results(place: Path) -> int:
    """How many results stand."""
    return sum(len(trial.results) for trials in run_records.of_place(place).values() for trial in trials.values())


def _kills(place: Path) -> int:
    return sum(len(trial.kills) for trials in run_records.of_place(place).values() for trial in trials.values())
