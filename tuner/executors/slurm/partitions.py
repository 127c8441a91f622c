"""What a Slurm cluster has, and why it refuses a job, in words that say what it takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.error import SettingError, TuneError
from tuner.executors.slurm.asking import NO_CLUSTER, PATIENCE_S, ask, shortened
from tuner.executors.slurm.batch_options import parse_time


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition, as `sinfo` shows it."""

    name: str
    up: bool
    default: bool
    longest_s: float
    """The time limit of its jobs; infinite where there is none."""
    default_s: float | None
    """The time of jobs that ask for none; None: as long as they may."""
    nodes: int
    nodes_up: int
    """Of them, those that run jobs or can."""
    cpus: int
    """Of its largest node, as the others."""
    memory_mb: int
    gpus: int


def partitions(*, patience_s: float = PATIENCE_S) -> list[SlurmPartition]:
    """All that this user sees. Raises SettingError where there is no Slurm."""
    found: dict[str, SlurmPartition] = {}
    # Nodes that are alike have one line.
    lines = ask(["sinfo", "--noheader", "--all", "-o", "%R|%P|%a|%l|%L|%F|%c|%m|%G"], patience_s).splitlines()
    for line in lines:
        name, starred, state, longest, default, nodes, cpus, memory, gres = line.strip().split("|")
        active, idle, _, total = (_number(part) for part in nodes.split("/"))
        before = found.get(name)
        longest_s = parse_time(longest)
        found[name] = SlurmPartition(
            name=name,
            up=state == "up",
            default=starred.endswith("*"),
            longest_s=float("inf") if longest_s is None else longest_s,
            default_s=parse_time(default),
            nodes=total + (before.nodes if before else 0),
            nodes_up=active + idle + (before.nodes_up if before else 0),
            cpus=max(_number(cpus), before.cpus if before else 0),
            memory_mb=max(_number(memory), before.memory_mb if before else 0),
            gpus=max(_gpus(gres), before.gpus if before else 0),
        )
    return list(found.values())


def _option(script: str, name: str) -> str | None:
    match = re.search(rf"^#SBATCH --{name}=(\S+)$", script, re.MULTILINE)
    return match[1] if match else None


def _partition_of(script: str, there: Sequence[SlurmPartition]) -> SlurmPartition | None:
    name = _option(script, "partition")
    return next((each for each in there if (each.name == name if name else each.default)), None)


def check_limits(script: str, there: Sequence[SlurmPartition]) -> None:
    """What many clusters take, and never start. Raises SettingError."""
    asked, name = _option(script, "time"), _option(script, "partition")
    listed = ", ".join(f"{each.name} (up to {shown_time(each.longest_s)})" for each in there)
    if name and not {*name.split(",")} <= {each.name for each in there}:
        raise SettingError(f"partition={name!r} is not accepted; there are {listed or 'none'}")
    partition = _partition_of(script, there)
    if partition is None:
        return
    if asked and (seconds := parse_time(asked)) is not None and seconds > partition.longest_s:
        raise SettingError(
            f"time={asked!r} is not accepted; partition {partition.name} allows up to {shown_time(partition.longest_s)}"
            f"; there are {listed}"
        )
    cpus = _option(script, "cpus-per-task")
    if cpus and int(cpus) > partition.cpus:
        raise SettingError(
            f"cpus_per_task={cpus} is not accepted; nodes of partition {partition.name} have {partition.cpus} cpus"
        )


def refusal(script: str, said: str) -> TuneError:
    """What sbatch says, and what is accepted."""
    if NO_CLUSTER.search(said):
        return SettingError(f"this machine knows no Slurm cluster: {shortened(said)}; start the run on a login node")
    hint = ""
    try:
        there = partitions(patience_s=0.0)
    except TuneError:
        there = []
    partition = _partition_of(script, there)
    if "partition" in said and there:
        hint = f"; partition={_option(script, 'partition')!r}, and there are {', '.join(each.name for each in there)}"
    elif "time limit" in said and partition is not None:  # of an association, where its own is larger
        longest = shown_time(partition.longest_s)
        hint = f"; time={_option(script, 'time')!r}, and partition {partition.name} allows up to {longest}"
    elif "onfiguration" in said and partition is not None:
        hint = (
            f"; the largest node of partition {partition.name} has {partition.cpus} cpus, {partition.gpus} gpus and "
            f"{partition.memory_mb} MB"
        )
    elif "account" in said.lower():
        hint = f"; account={_option(script, 'account')!r}; `sacctmgr show associations user=$USER` lists yours"
    return SettingError(f"Slurm does not take the job: {shortened(said)}{hint}")


def shown_time(seconds: float) -> str:
    """A time as sbatch takes it.

    >>> shown_time(93780.0)
    '1-02:03:00'
    """
    if seconds == float("inf"):
        return "any time"
    days, rest = divmod(int(seconds), 86400)
    return f"{days}-" * bool(days) + f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def _number(said: str) -> int:
    """The beginning of "4000", "2+" or "1.5K"."""
    match = re.match(r"(\d+(?:\.\d+)?)([KM]?)", said)
    return int(float(match[1]) * {"": 1, "K": 1000, "M": 1000000}[match[2]]) if match else 0


def _gpus(gres: str) -> int:
    return sum(int(count) for count in re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", gres))
