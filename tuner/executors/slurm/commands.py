"""Slurm's commands for jobs: submit, look, end."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.clock import SystemClock
from tuner.error import SettingError, SlurmSilentError
from tuner.executors.slurm.asking import PATIENCE_S, SILENT, Patience, ask, run
from tuner.executors.slurm.partitions import check_limits, partitions, refusal

_FEW = 8
"""So many nodes are looked at for an address."""
ENDED = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT".split()
)
"""States of jobs that neither run nor come again."""
_NEVER = {
    "PartitionTimeLimit": "its partition does not allow that much time (time=)",
    "PartitionNodeLimit": "its partition does not allow so many nodes",
    "PartitionConfig": "no node of its partition has that many cpus, gpus or that much memory",
    "BadConstraints": "no node of its partition has what it asks for",
    "AccountNotAllowed": "its account may not use that partition (account=)",
    "QOSNotAllowed": "its QOS may not be used there",
    "InvalidAccount": "its account is not known (account=)",
    "InvalidQOS": "its QOS is not known",
    "JobHeldUser": "it is held: `scontrol release` lets it start",
    "JobHeldAdmin": "an administrator holds it",
    "MaxTimePerLimit": "an association or QOS does not allow that much time (time=)",
    "AssocMaxWallDurationPerJobLimit": "the account does not allow that much time (time=)",
    "QOSMaxWallDurationPerJobLimit": "the QOS does not allow that much time (time=)",
    "QOSMaxCpuPerJobLimit": "the QOS does not allow so many cpus",
    "QOSMaxNodePerJobLimit": "the QOS does not allow so many nodes",
    "QOSMaxGRESPerJob": "the QOS does not allow so many gpus",
}


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits, runs, or is about to end."""

    id: str
    """"12", or "12_3" of an array."""
    state: str
    """PENDING, RUNNING, COMPLETING, ..."""
    reason: str
    """Why it waits, in Slurm's word: Resources, Priority, ...; "None" when it does not."""
    end_time: float | None
    """When its time is over, in seconds since the epoch; None: it is not known."""

    @property
    def never(self) -> str:
        """Why it will not start as it is; "": it may."""
        return _NEVER.get(self.reason, "") if self.state == "PENDING" else ""


@dataclass(frozen=True, slots=True)
class WaitedJob:
    """How long a job has been in the queue."""

    id: str
    partition: str
    waited_s: float
    started: bool


def submit(script: str, *, count: int = 1, patience_s: float = PATIENCE_S) -> list[str]:
    """Submit a batch script, several times as one array; returns the ids, as `squeue -r` shows them.

    When it is not known whether Slurm has got it, it is not submitted twice.

    Raises SettingError for what Slurm refuses, SlurmSilentError when its controller does not answer for so long.
    """
    array = [f"--array=0-{count - 1}"] if count > 1 else []
    mark = "" if "#SBATCH --comment=" in script else f"tuner-{secrets.token_hex(6)}"
    marked = [f"--comment={mark}"] if mark else []
    patience = Patience(patience_s)
    while True:
        done = run("sbatch", "--parsable", *array, *marked, input=script)
        if done.returncode == 0:
            id = done.stdout.strip().splitlines()[-1].partition(";")[0]
            return [id] if count == 1 else [f"{id}_{task}" for task in range(count)]
        if not SILENT.search(done.stderr):
            raise refusal(script, done.stderr)
        patience.wait(done.stderr)
        if mark and (there := _marked(mark, patience)):
            return there


def test(script: str, *, patience_s: float = PATIENCE_S) -> None:
    """Ask whether Slurm would take that script. Raises as `submit`."""
    check_limits(script, partitions(patience_s=patience_s))
    patience = Patience(patience_s)
    while (done := run("sbatch", "--test-only", input=script)).returncode:
        if SILENT.search(done.stderr):
            patience.wait(done.stderr)
        elif "node configuration is not available" not in done.stderr or all(
            each.nodes_up == each.nodes for each in partitions(patience_s=patience_s)
        ):  # while nodes are down, it says so of jobs that it would take
            raise refusal(script, done.stderr)
        else:
            return


def queue(name: str, *, patience_s: float = PATIENCE_S) -> dict[str, QueuedJob]:
    """This user's jobs of that name that have not ended, by their ids."""
    rows = _rows(["squeue", f"--name={name}"], "%i|%T|%r|%e", patience_s)
    jobs = (QueuedJob(id, state, reason, float(end) if end.isdecimal() else None) for id, state, reason, end in rows)
    return {job.id: job for job in jobs if job.state not in ENDED}


def ended(id: str, *, patience_s: float = PATIENCE_S) -> tuple[str, int] | None:
    """(state, exit status; 128 + the signal) of a job that has ended; None: it has not, or Slurm knows it no more."""
    said = ask(["scontrol", "-o", "show", "job", id], patience_s, unknown="")
    state = re.search(r"\bJobState=(\w+)", said)
    status = re.search(r"\bExitCode=(\d+):(\d+)", said)
    if state is None or state[1] not in ENDED:
        return None
    code, signal = (int(status[1]), int(status[2])) if status else (0, 0)
    return state[1], 128 + signal if signal else code


def cancel(ids: Sequence[str], *, patience_s: float = PATIENCE_S) -> None:
    """End them; those that are gone are no error."""
    if ids:
        ask(["scancel", *ids], patience_s, unknown="")


def cancel_named(name: str, *, patience_s: float = PATIENCE_S) -> None:
    """End this user's jobs of that name, whatever their state is."""
    ask(["scancel", f"--name={name}", f"--user={os.getuid()}"], patience_s, unknown="")


def requeue(id: str, *, patience_s: float = PATIENCE_S) -> None:
    """Let a job that runs wait in the queue again, with the same id. Raises TuneError when Slurm does not do it."""
    ask(["scontrol", "requeue", id], patience_s)


def waited(*, patience_s: float = PATIENCE_S) -> list[WaitedJob]:
    """How long this user's last jobs have waited, those that wait still too; the newest first.

    Of the last week where the cluster keeps accounts, else of the last minutes.
    """
    now = SystemClock().time()
    found: dict[str, tuple[float, WaitedJob]] = {}
    rows = _rows(["squeue"], "%i|%P|%V|%S|%T", patience_s) + _accounted()
    for id, partition, submitted, started, state in rows:
        if submitted.isdecimal():
            begun = started.isdecimal() and state != "PENDING"
            if begun or state == "PENDING":
                end = float(started) if begun else now
                waited = WaitedJob(id, partition, max(end - float(submitted), 0.0), begun)
                found.setdefault(id, (float(submitted), waited))
    return [job for _, job in sorted(found.values(), key=lambda each: -each[0])]


def _accounted() -> list[list[str]]:
    """The same fields from the accounts; none where there are none."""
    form = "--format=JobID,Partition,Submit,Start,State"
    command = ["sacct", "--allocations", "--noheader", "--parsable2", f"--user={os.getuid()}"]
    try:
        done = run(*command, "--starttime=now-7days", form)
    except SettingError:
        return []  # not every cluster has it
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return [fields for line in lines if len(fields := line.strip().split("|")) == 5]


def controller_address(*, patience_s: float = PATIENCE_S) -> str:
    """The IP address of Slurm's controller; that of a node where the controller is this machine to itself.

    Raises SettingError when its name means none.
    """
    said = ask(["scontrol", "show", "config"], patience_s)
    match = re.search(r"^SlurmctldHost\[0\]\s*=\s*([^\s(]+)(?:\(([^)\s]+)\))?", said, re.MULTILINE)
    if match is None:
        raise SettingError("`scontrol show config` names no controller; say listen=<address of this host>")
    host = match[2] or match[1]
    try:
        found = _address_of(host)
    except OSError as error:
        raise SettingError(
            f"Slurm's controller {host} has no address here ({error}); say listen=<this host's>"
        ) from error
    if not ipaddress.ip_address(found).is_loopback:
        return found
    for node in ask(["sinfo", "--noheader", "--Node", "-o", "%o"], patience_s).split()[:_FEW]:
        with contextlib.suppress(OSError):
            if not ipaddress.ip_address(of_node := _address_of(node)).is_loopback:
                return of_node  # nobody there reaches this machine by its loopback
    return found


def _address_of(host: str) -> str:
    return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


def _rows(command: Sequence[str], form: str, patience_s: float) -> list[list[str]]:
    """Fields of this user's jobs; by the user, for the controller then sends no others."""
    more = ["--noheader", "--array", "--states=all", f"--user={os.getuid()}", "-o", form]
    lines = ask([*command, *more], patience_s).splitlines()
    wanted = form.count("|") + 1
    return [fields for line in lines if len(fields := line.strip().split("|")) == wanted]


def _marked(mark: str, patience: Patience) -> list[str]:
    """Ids of the jobs that were submitted with a comment."""
    while True:
        try:
            return [id for id, comment in _rows(["squeue"], "%i|%k", 0.0) if comment == mark]
        except SlurmSilentError as error:
            patience.wait(str(error))
