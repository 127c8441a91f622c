"""A whole script, run without a kill, then killed and started again until it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from trainables.starting import start_process
from tuner.error import SettingError
from tuner.tools.prove import run_records
from tuner.tools.prove.run_records import KillPoint
from tuner.tools.prove.run_watch import ProofPlan
from tuner.tools.prove.verdict import Verdict, before_kills, judge

SHOWN_LINES = 25


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

    Raises SettingError when there is no such file.
    """
    if not script.is_file():
        raise SettingError(f"{script} is not there, or is no file")

    def run(name: str, points: Sequence[KillPoint] = ()) -> Path:
        target = place / name
        target.mkdir()
        ProofPlan(seed, concurrent, points).write(target)
        bootstrap = [sys.executable, "-m", "tuner.tools.prove.bootstrap", str(target.absolute())]
        _run([*bootstrap, str(script), *arguments], target, say)
        return target

    try:
        say("running without a kill")
        whole = run("whole")
        early = before_kills(whole)
        if early is not None:
            return early
        points = run_records.points(run_records.of_place(whole), kills=kills, seed=seed)
        told = ", ".join(f"trial {point.trial} at iteration {point.iteration}" for point in points)
        say(f"running again, to be killed at: {told}")
        killed = run("killed", points)

        def control() -> Path:
            say("something differs; running without a kill once more, to see whether the script repeats itself")
            return run("again")

        return judge(whole, killed, ignore=ignore, control=control)
    except _ScriptFailed as error:
        return Verdict(False, str(error))


def _run(command: Sequence[str], place: Path, say: Callable[[str], None]) -> None:
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
            status = process.wait()
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


def _kills(place: Path) -> int:
    return sum(len(trial.kills) for trials in run_records.of_place(place).values() for trial in trials.values())
