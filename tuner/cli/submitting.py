"""`tuner run CONFIG.yaml --executor slurm --submit`: the driver itself as a job of Slurm.

What is run, and the job's batch script, lie in the experiment's directory. What the job does is in `driver_job`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from trainables.store import fs
from tuner.cli import output
from tuner.cli.config_file import Described, check, found_again
from tuner.error import ExperimentExistsError, SettingError
from tuner.executors.slurm import commands
from tuner.executors.slurm.batch_options import BatchOptions, from_mapping, options_of
from tuner.executors.slurm.batch_script import script
from tuner.executors.slurm.meeting import DIRECTORY
from tuner.experiment.generations import read_records
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment

SIGNAL = "USR2"
"""What the driver gets before its job's end; others end a run in order, and it is not continued."""
_BEFORE_S = 120
"""So long before it, or a quarter of the job's time, where that is less."""
_LEAST_S = 15

_INHERITED = ("partition", "account", "time", "setup")
_INHERITED_SBATCH = ("qos", "reservation", "clusters")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_TEXTS = ("partition", "time", "mem", "account", "setup")
_ACCEPTED = (*_TEXTS, "cpus_per_task", "sbatch.OPTION")


@dataclass(frozen=True)
class Submission:
    """What a driver's job runs."""

    said: dict[str, Any]
    """Of the config, checked; paths are whole."""
    beside: str
    """The directory of the config."""
    generation: int
    """The highest that the experiment had when it was submitted: from a later one on the job continues its own run."""

    def described(self, root: Path) -> Described:
        """The experiment as this life of the driver runs it. Raises SettingError."""
        said = dict(self.said)
        if highest(root) > self.generation:
            said |= {"resume": "AUTO", "overwrite": False}
        return check(said, source=str(submission_file(root)), directory=Path(self.beside))


def submission_file(root: Path) -> Path:
    """Where what is submitted of the experiment at `root` is kept."""
    return root / DIRECTORY / "submitted.json"


def script_file(root: Path) -> Path:
    """The batch script of its driver."""
    return root / DIRECTORY / "driver.sh"


def keep(root: Path, submission: Submission, text: str) -> None:
    """Write down what the driver's job runs, and how it is submitted."""
    fs.make_dirs(root)
    if not fs.is_dir(root / DIRECTORY):
        fs.mkdir(root / DIRECTORY, 0o700)
    fs.replace_file(submission_file(root), msgspec.json.encode(submission))
    fs.replace_file(script_file(root), text.encode())


def highest(root: Path) -> int:
    """The newest generation of an experiment; 0: it has none."""
    records = read_records(ExperimentPaths(root))
    return records[-1].generation if records else 0


def submit(described: Described, hooks: Mapping[str, str], changes: Sequence[str], *, as_json: bool = False) -> int:
    """Submit the driver of what a config describes, and say how to follow it.

    Args:
        hooks: `--on-end` and `--on-failure`.
        changes: options of the driver's own job, as `--driver` gives them.
        as_json: say it for programs: its job, directory and output.

    Raises SettingError for what cannot be submitted, or what Slurm refuses; ExperimentExistsError.
    """
    executor = described.said.get("executor")
    given: Any = {"slurm": {}} if executor == "slurm" else executor
    if not isinstance(given, dict) or "slurm" not in given:
        raise SettingError(f"--submit goes with --executor slurm, and not with executor={executor!r}")
    described.arguments()
    root = described.directory().absolute()
    _check_free(described, root)
    jobs = options_of(from_mapping(given["slurm"] or {}))
    driver = driver_options(jobs, changes)
    said = {**described.said, "name": root.name, "storage_path": str(root.parent)}
    if "trainable" in said:
        said["trainable"] = found_again(said["trainable"], described.beside)
    name = f"tuner-driver-{_UNSAFE.sub('_', root.name)}-{blake3(str(root).encode()).hexdigest()[:8]}"
    if there := commands.queue(name):
        raise SettingError(
            f"job {next(iter(there))} is the driver of {root} already ({next(iter(there.values())).state}); "
            f"`scancel {next(iter(there))}` ends it in order"
        )
    place = root / DIRECTORY
    command = [sys.executable, "-u", "-m", "tuner.cli.driver_job", str(root)]
    command += [word for hook, text in hooks.items() for word in (f"--{hook.replace('_', '-')}", text)]
    before_s = before_end_s(driver)
    text = script(driver, name=name, output=place / "driver-%j.out", command=command, signal=SIGNAL, signal_s=before_s)
    commands.test(text)
    commands.test(script(jobs, name=name, output=Path("/dev/null"), command=["true"]))
    keep(root, Submission(said, str(described.beside), highest(root)), text)
    (id,) = commands.submit(text)
    _say(id, root, as_json=as_json)
    return 0


def _say(id: str, root: Path, *, as_json: bool) -> None:
    printed = root / DIRECTORY / f"driver-{id}.out"
    if as_json:
        output.say(output.as_json({"job": id, "path": str(root), "output": str(printed)}))
        return
    output.say(f"job {id} is the driver of {root}")
    output.say(f"to follow it     tail -F {printed}, or tuner watch {root}")
    output.say(f"to end it        scancel {id}; what its trials have come to is saved")
    output.say("to go on         the same command with --set resume=AUTO")


def before_end_s(driver: BatchOptions) -> int:
    """So long before its end the driver is told."""
    return _BEFORE_S if driver.seconds is None else max(_LEAST_S, min(_BEFORE_S, int(driver.seconds / 4)))


def driver_options(jobs: BatchOptions, changes: Sequence[str]) -> BatchOptions:
    """What the driver's own job asks for: as the trials' jobs, but for what a driver does not need.

    >>> driver_options(BatchOptions(partition="gpu", gpus_per_node=4), ["time=1-00:00:00", "partition=cpu"]).lines()
    ['--partition=cpu', '--time=1-00:00:00', '--cpus-per-task=1', '--requeue']
    """
    given: dict[str, Any] = {name: getattr(jobs, name) for name in _INHERITED}
    given["cpus_per_task"] = 1
    more = {option: jobs.sbatch[option] for option in _INHERITED_SBATCH if option in jobs.sbatch}
    for change in changes:
        key, equals, value = change.partition("=")
        if equals and key.startswith("sbatch.") and key != "sbatch.nodes":
            more[key.removeprefix("sbatch.")] = value or True
        elif equals and key in _TEXTS:
            given[key] = value
        elif equals and key == "cpus_per_task" and value.isdecimal():
            given[key] = int(value)
        else:
            raise SettingError(f"--driver {change!r} is not accepted; accepted is KEY=VALUE, KEY of {_listed()}")
    return BatchOptions(**given, sbatch={**more, "requeue": True})


def _listed() -> str:
    return ", ".join(_ACCEPTED)


def _check_free(described: Described, root: Path) -> None:
    """What the job would find only when it starts."""
    said = described.said
    if is_experiment(ExperimentPaths(root)) and not said.get("resume") and not said.get("overwrite"):
        raise ExperimentExistsError(f"{root} exists: --set resume=AUTO continues it, --set overwrite=true replaces it")
    if ".py:" in (named := str(said.get("trainable", ""))):
        file = Path(found_again(named, described.beside).rpartition(":")[0])
        if not file.is_file():
            raise SettingError(f"trainable={named!r}: there is no file {file}")
