"""What is asked of Slurm for each job of a run, checked before anything is submitted.

Only `setup` is shell text; all else stands in #SBATCH lines, and can hold no more than `[A-Za-z0-9._:=,@/-]`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.errors import InvalidSettingError
from trainables.validation import seconds, unknown_name, whole_number
from tuner.error import SettingError, refused

SAFE = re.compile(r"[A-Za-z0-9._:=,@/-]+")
SAFE_SAID = 'a text of letters, digits and ". _ : = , @ / -"'

DEFAULT_TIME = "02:00:00"
"""Of jobs where nobody says it."""

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_TIME_SAID = 'a text as sbatch takes it: "90" (minutes), "02:00:00", "1-12:00:00" (in YAML within quotes)'
_MEM = re.compile(r"[0-9]+[KMGT]?")
_GPUS = re.compile(r"(?:[A-Za-z0-9._-]+:)?[0-9]+")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_INTERFACE = re.compile(r"[A-Za-z0-9._-]{1,253}")
_FIELDS = {
    "partition": "partition",
    "time": "time",
    "gpus_per_node": "gpus-per-node",
    "cpus_per_task": "cpus-per-task",
    "mem": "mem",
    "account": "account",
}
_OWN = {
    **dict.fromkeys(("job-name", "output", "error", "open-mode", "parsable", "test-only", "wait", "hold", "wrap"), ""),
    **dict.fromkeys(("no-requeue", "signal", "ntasks", "ntasks-per-node", "input", "chdir", "export"), ""),
    "array": "; SlurmExecutor(array=...) says whether jobs are submitted as an array",
}
"""Options of sbatch that the executor gives itself, and what to say besides."""


def parse_time(text: str) -> float | None:
    """Seconds of a time as sbatch takes it and Slurm's commands print it; None: no limit, or it is not one.

    >>> parse_time("90"), parse_time("02:00:00"), parse_time("1-12"), parse_time("1:30"), parse_time("infinite")
    (5400.0, 7200.0, 129600.0, 90.0, None)
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, *parts = (None if part is None else int(part) for part in match.groups())
    given = [part for part in parts if part is not None]
    if days is not None:  # days-hours, days-hours:minutes, days-hours:minutes:seconds
        hours, minutes, secs = (*given, 0, 0)[:3]
    elif len(given) == 3:
        hours, minutes, secs = given
    else:  # minutes, minutes:seconds
        hours, minutes, secs = (0, *given, 0)[:3]
    return float(((days or 0) * 24 + hours) * 3600 + minutes * 60 + secs)


@dataclass(frozen=True)
class BatchOptions:
    """What every job asks for.

    Args:
        partition: where jobs run; None: Slurm's default. Several, with commas: the first that has room.
        time: of one job, as sbatch takes it, "02:00:00"; None: the partition's default.
        gpus_per_node: a number, or with a type, "a100:2".
        cpus_per_task: of each node.
        mem: of each node, as sbatch takes it: "16G"; "4000" are megabytes, "0" all of the node's.
        account: who is charged.
        sbatch: further options of sbatch by their long names, `{"qos": "high", "nodes": 2, "exclusive": True}`.
        setup: shell text that runs first, on the first node of the job: `"module load cuda"`.

    Raises SettingError, which names the value and what is accepted.

    Example:
        >>> BatchOptions(partition="gpu", time="02:00:00", gpus_per_node=2).lines()
        ['--partition=gpu', '--time=02:00:00', '--gpus-per-node=2']
    """

    partition: str | None = None
    time: str | None = None
    gpus_per_node: int | str | None = None
    cpus_per_task: int | None = None
    mem: str | None = None
    account: str | None = None
    sbatch: Mapping[str, Any] = field(default_factory=dict)
    setup: str = ""

    def __post_init__(self) -> None:
        for name in ("partition", "account"):
            _check_text(name, getattr(self, name))
        time = self.time
        if time is not None and not (isinstance(time, str) and SAFE.fullmatch(time) and parse_time(time)):
            raise refused("time", self.time, f"accepted is {_TIME_SAID}")
        if self.mem is not None and (not isinstance(self.mem, str) or not _MEM.fullmatch(self.mem)):
            raise refused(
                "mem", self.mem, 'accepted is a text as sbatch takes it: "16G", "4000M" ("4000" are megabytes)'
            )
        if self.gpus_per_node is not None:
            self._check_gpus()
        if self.cpus_per_task is not None:
            _whole("cpus_per_task", self.cpus_per_task, least=1)
        if not isinstance(self.setup, str) or "\0" in self.setup:
            raise refused("setup", self.setup, 'accepted is shell text: "module load cuda"')
        self._check_sbatch()

    @property
    def seconds(self) -> float | None:
        """The time of a job; None: it is not known here."""
        return None if self.time is None else parse_time(self.time)

    @property
    def nodes(self) -> int:
        """Of each job."""
        return int(self.sbatch.get("nodes", 1))

    @property
    def gpus(self) -> int | None:
        """Of each node; None: it is not said."""
        return None if self.gpus_per_node is None else int(str(self.gpus_per_node).rpartition(":")[2])

    def lines(self) -> list[str]:
        """The options of sbatch."""
        given = {option: getattr(self, name) for name, option in _FIELDS.items() if getattr(self, name) is not None}
        lines = [f"--{option}={value}" for option, value in given.items()]
        for option, value in self.sbatch.items():
            lines.append(f"--{option}" if value is True else f"--{option}={value}")
        return lines

    def _check_gpus(self) -> None:
        given = self.gpus_per_node
        if isinstance(given, str) and _GPUS.fullmatch(given):
            return
        _whole("gpus_per_node", given, least=0, accepted='a whole number >= 0, or one with a type, "a100:2"')

    def _check_sbatch(self) -> None:
        if not isinstance(self.sbatch, Mapping):
            raise refused("sbatch", self.sbatch, 'accepted is a dict of options of sbatch: {"qos": "high", "nodes": 2}')
        for option, value in self.sbatch.items():
            if not isinstance(option, str) or not _OPTION.fullmatch(option):
                raise refused("sbatch", option, 'accepted are long names of options of sbatch without "--": "qos"')
            if option in _OWN:
                raise SettingError(f"sbatch={{{option!r}: ...}} is not accepted: the executor says that{_OWN[option]}")
            if option in _FIELDS.values():
                name = next(name for name, known in _FIELDS.items() if known == option)
                raise SettingError(f"sbatch={{{option!r}: ...}} is not accepted: say {name}={value!r}")
            if value is True:
                continue
            if isinstance(value, bool) or not isinstance(value, str | int | float) or not SAFE.fullmatch(str(value)):
                said = f"accepted are {SAFE_SAID}, a number, and True for an option without a value"
                raise refused(f"sbatch[{option!r}]", value, said)
            if option == "nodes":
                _whole("sbatch['nodes']", value, least=1)


def check_jobs(*, jobs: Any, array: Any, listen: Any, reconnect_s: Any) -> None:
    """Check what else SlurmExecutor is given. Raises SettingError."""
    _whole("jobs", jobs, least=1)
    if not isinstance(array, bool):
        raise refused("array", array, "accepted are True and False")
    if listen is not None and (not isinstance(listen, str) or not _is_host(listen)):
        said = 'accepted are None, and an IP address, host name or network interface of this host: "10.0.0.1", "eth0"'
        raise refused("listen", listen, said)
    try:
        seconds("reconnect_s", reconnect_s, zero=True)
    except InvalidSettingError as error:
        raise SettingError(str(error)) from None


def from_mapping(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of SlurmExecutor as a config file says them. Raises SettingError for a name that there is not."""
    accepted = [*BatchOptions.__dataclass_fields__, "jobs", "array", "listen", "reconnect_s"]
    for name in given:
        if name not in accepted:
            raise SettingError(unknown_name("option of executor: slurm:", str(name), accepted))
    return dict(given)


def options_of(given: Mapping[str, Any]) -> BatchOptions:
    """What SlurmExecutor's jobs ask for, from its arguments. Raises SettingError."""
    names = BatchOptions.__dataclass_fields__
    return BatchOptions(**({"time": DEFAULT_TIME} | {key: value for key, value in given.items() if key in names}))


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return bool(_INTERFACE.fullmatch(text))
    return True


def _check_text(name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not SAFE.fullmatch(value)):
        raise refused(name, value, f"accepted is {SAFE_SAID}")


def _whole(name: str, value: Any, *, least: int, accepted: str | None = None) -> None:
    try:
        whole_number(name, value, least=least, accepted=accepted)
    except InvalidSettingError as error:
        raise SettingError(str(error)) from None
