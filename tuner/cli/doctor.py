"""`tuner doctor`: whether this machine, or a cluster, is ready for a long run, and what to do where it is not."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli import output
from tuner.cli import run as run_verb
from tuner.error import SettingError

if TYPE_CHECKING:
    from tuner.tools.doctor import PlannedRun

DESCRIPTION = """\
Looks at versions, disks, limits and resources of this machine and of every node of a Ray cluster, or of a job of Slurm
that it submits for that; at clocks, at ssh, and at the place of the copies, and says what to do. What it writes for
that it removes again, and its job ends; a directory for copies that is missing is made, as a run does. Exit status 0:
nothing is in the way of a run (there may be warnings); 1: something is; 2: the command is not accepted."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "doctor",
        help="check this machine, a cluster and a bucket before a long run",
        description=DESCRIPTION,
    )
    verb.add_argument(
        "subject",
        nargs="?",
        type=Path,
        metavar="SCRIPT.py|CONFIG.yaml",
        help="of the run: a script's imports are looked for everywhere, a config says the rest too",
    )
    run_verb.add_where(verb)
    verb.add_argument("--storage-path", metavar="P", help="where results are to lie; default: ~/tuner_results")
    verb.add_argument("--upload-dir", metavar="U", help="where copies are to go")
    verb.add_argument("--ssh-key", metavar="FILE", help="as in SyncConfig")
    verb.add_argument("--ssh-port", metavar="N", type=int, help="as in SyncConfig")
    what = "with --executor slurm: so long the job that looks at a node may wait for its start; default: 60"
    verb.add_argument("--wait", metavar="SECONDS", type=float, help=what)
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tuner.tools.doctor import examine
    from tuner.tools.findings import CheckState

    found = []
    for finding in examine(plan(arguments)):
        found.append(finding)
        if not arguments.json:
            todo = f"; {finding.todo}" if finding.todo else ""
            output.say(f"{finding.state.value:<7}  {output.value(f'{finding.where}: {finding.said}{todo}')}")
    count = {state: sum(finding.state is state for finding in found) for state in CheckState}
    if arguments.json:
        checks = [
            {"state": each.state.value, "where": each.where, "said": each.said, "todo": each.todo} for each in found
        ]
        output.say(
            output.as_json({"checks": checks, **{f"{state.value}s": count[state] for state in list(CheckState)[1:]}})
        )
    else:
        problems, warnings = count[CheckState.PROBLEM], count[CheckState.WARNING]
        output.say(f"{output.counted(problems, 'problem')}, {output.counted(warnings, 'warning')}")
    return 1 if count[CheckState.PROBLEM] else 0


def plan(arguments: argparse.Namespace) -> PlannedRun:
    """What the command line and the config say of the run. Raises SettingError."""
    from tuner.tools.doctor import PlannedRun, imports_of

    given: dict[str, Any] = {}
    subject = arguments.subject
    if arguments.address is not None and arguments.executor not in (None, "ray"):
        raise SettingError(f"--address {arguments.address} goes with --executor ray, and not with {arguments.executor}")
    executor: Any = arguments.executor
    said_executor: Any = None
    if subject is not None and subject.suffix in (".yaml", ".yml"):
        from tuner.cli.config_file import load

        described = load(subject)
        said = described.said
        given |= {
            "storage_path": said.get("storage_path"),
            "resources": said.get("resources_per_trial") or {"cpu": 1},
        }
        said_executor = said.get("executor")
        executor = said_executor if executor is None else executor
        file = said.get("trainable", "").rpartition(":")[0]
        places = (described.beside / file, Path(file))
        script = next((place for place in places if file.endswith(".py") and place.is_file()), None)
        given["imports"] = [] if script is None else imports_of(script)
    elif subject is not None:
        if subject.suffix != ".py":
            raise SettingError(f"{subject} is not accepted; accepted are a Python script and a config of `tuner run`")
        given["imports"] = imports_of(subject)
    below = executor if isinstance(executor, dict) else {executor: {}}
    if arguments.executor is not None and isinstance(said_executor, dict) and arguments.executor in said_executor:
        below = said_executor  # the options in the file hold
    if below.get("ray") is not None:
        given |= {key: value for key, value in below["ray"].items() if value is not None}
    given["cluster"] = arguments.address is not None or "ray" in below
    if "slurm" in below:
        given["slurm"] = below["slurm"] or {}
    if arguments.wait is not None:
        given["wait_s"] = arguments.wait
    for name in ("address", "storage_path", "upload_dir", "ssh_key", "ssh_port"):
        if getattr(arguments, name) is not None:
            given[name] = getattr(arguments, name)
    return PlannedRun(**given)
