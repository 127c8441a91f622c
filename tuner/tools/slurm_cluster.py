"""What `tuner doctor --executor slurm` looks at: partitions, the queue, and a job's node, by a job that probes it."""

from __future__ import annotations

import contextlib
import json
import math
import queue
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from trainables.net.listener import Listener
from trainables.store import fs
from tuner.clock import SystemClock
from tuner.error import SettingError, TuneError
from tuner.executors.slurm import commands
from tuner.executors.slurm.agent_listener import address_of, routing_to
from tuner.executors.slurm.batch_options import BatchOptions, from_mapping, options_of
from tuner.executors.slurm.batch_script import script
from tuner.executors.slurm.job_shape import JobShape
from tuner.executors.slurm.partitions import SlurmPartition, partitions, shown_time
from tuner.progress.formatting import size
from tuner.resources import parse_resources
from tuner.tools import findings
from tuner.tools.cluster_nodes import ExaminedNode
from tuner.tools.findings import CheckFinding, ok, problem, warning
from tuner.tools.machine import MachineFacts, nearest
from tuner.tools.slurm_probe import ProbedJob, read

_PROBE_TIME_S = 300
_LOOK_S = 0.5
_ASKED = 5
_FEW = 20
"""So many jobs, and partitions, are looked at."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came from one node of the probe."""

    probed: ProbedJob
    ip: str
    clock_s: float = 0.0
    uncertain_s: float = math.inf


class _Doctor(Listener):
    """Where probes come to."""

    def __init__(self, ip: str) -> None:
        self.answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        super().__init__(ip, self._hear, name="tuner-doctor")

    def _hear(self, sock: socket.socket, ip: str) -> None:
        with sock, contextlib.suppress(ValueError, KeyError, TypeError):  # one that does not talk as a probe does
            self.answers.put(_heard(sock, ip))


def _heard(sock: socket.socket, ip: str) -> _Answer:
    """What a probe tells, and how far its clock is ahead: the fastest of some answers says most."""
    clock, best = SystemClock(), (0.0, math.inf)
    sock.settimeout(10.0)
    with sock.makefile("rb") as lines:
        probed = read(json.loads(lines.readline()))
        for _ in range(_ASKED):
            before, start = clock.time(), clock.monotonic()
            sock.sendall(b"?")
            there = float(json.loads(lines.readline()))
            took = clock.monotonic() - start
            if took / 2 < best[1]:
                best = (there - before - took / 2, took / 2)
    return _Answer(probed, ip, *best)


@dataclass(frozen=True, slots=True)
class SlurmLook:
    """What is to be looked at.

    Args:
        given: options of `SlurmExecutor`.
        wait_s: so long the job that looks may wait for its start.
        resources: what one trial asks for; None: it is not known.
        storage, packages, mark, place: see `machine.look`.
        imports, upload_dir: see `PlannedRun`.
    """

    given: Mapping[str, Any]
    wait_s: float
    resources: Any
    storage: Path
    packages: Mapping[str, str]
    mark: str
    place: Mapping[str, Any] | None
    imports: Sequence[str]
    upload_dir: str | None

    @property
    def listen(self) -> str | None:
        return self.given.get("listen")


def examine_slurm(look: SlurmLook, here: MachineFacts) -> Iterator[CheckFinding]:
    """Look, and say what was found. Raises SettingError for options that are not accepted."""
    options = options_of(from_mapping(look.given))
    shape = JobShape(options)
    if look.resources is not None:
        shape.grow(parse_resources(look.resources), lambda asked: None)
    try:
        yield from _of_partitions(partitions(), options)
        commands.test(_script(options, shape, "tuner-doctor", Path("/dev/null"), ["true"]))
        yield ok("slurm", "takes such jobs")
        yield from _of_queue(commands.waited()[:_FEW])
        found = _probe(look, options, shape)
    except TuneError as error:
        yield problem("slurm", str(error))
        return
    if isinstance(found, CheckFinding):
        yield found
        return
    for answer in found:
        yield from _of_job(answer, here, look)
    apart = [answer for answer in found if not answer.probed.facts.storage.mark]
    for answer in apart:
        yield problem(
            f"job {answer.probed.id}",
            f"{answer.probed.hostname} has a directory of its own at {look.storage}, and not the one here",
            "choose a storage path on a file system that all nodes share",
        )
    if not apart:
        yield ok("slurm", f"jobs see {look.storage}: checkpoints lie there, and are not copied")


def _of_partitions(there: Sequence[SlurmPartition], options: BatchOptions) -> Iterator[CheckFinding]:
    chosen = None if options.partition is None else options.partition.split(",")
    shown = [each for each in there if (each.default if chosen is None else each.name in chosen)]
    for each in shown:
        default = "" if each.default_s is None else f", {shown_time(each.default_s)} when none is asked for"
        said = (
            f"partition {each.name}: {each.nodes_up} of {each.nodes} nodes are up; the largest has {each.cpus} cpus, "
            f"{each.gpus} gpus, {size(each.memory_mb * 2**20)}; jobs may take {shown_time(each.longest_s)}{default}"
        )
        if not each.up:
            yield problem("slurm", f"{said}; it is down", "choose another one: partition=")
        elif not each.nodes_up:
            yield warning("slurm", said, "jobs wait until nodes come up")
        else:
            yield ok("slurm", said)
    others = [each.name for each in there if each not in shown]
    if others:
        more = f" and {len(others) - _FEW} more" if len(others) > _FEW else ""
        yield ok("slurm", f"there are also the partitions {', '.join(others[:_FEW])}{more}")


def _of_queue(jobs: Sequence[commands.WaitedJob]) -> Iterator[CheckFinding]:
    started = [job.waited_s for job in jobs if job.started]
    waiting = [job.waited_s for job in jobs if not job.started]
    if started:
        said = f"your last {len(started)} jobs" if len(started) > 1 else "your last job"
        most = f", at most {max(started):.0f} s" if len(started) > 1 else ""
        yield ok("slurm", f"{said} waited {median(started):.0f} s in the queue{most}")
    if waiting:
        many = f"{len(waiting)} jobs" if len(waiting) > 1 else "a job"
        yield ok("slurm", f"{many} of yours waits now, for {max(waiting):.0f} s")


def _probe(look: SlurmLook, options: BatchOptions, shape: JobShape) -> list[_Answer] | CheckFinding:
    """Have a job look at each of its nodes; what else there is to say when it could not."""
    try:
        ip = routing_to(commands.controller_address()) if look.listen is None else address_of(look.listen)
        doctor = _Doctor(ip)
    except OSError as error:
        raise SettingError(f"listen={look.listen!r}: nobody can listen there: {error}") from error
    directory = nearest(look.storage) / f".check-{secrets.token_hex(8)}"
    name = f"tuner-doctor-{secrets.token_hex(6)}"
    try:
        fs.mkdir(directory, 0o700)
        asked = {"storage": str(look.storage), "packages": dict(look.packages), "mark": look.mark, "place": look.place}
        told = {**asked, "address": [doctor.ip, doctor.port], "key": doctor.key.hex()}
        (directory / "probe.json").write_text(json.dumps(told), "utf-8")  # the directory is this user's alone
        short = options.seconds is None or options.seconds > _PROBE_TIME_S
        command = [sys.executable, "-m", "tuner.tools.slurm_probe", str(directory / "probe.json")]
        brief = replace(options, time=shown_time(_PROBE_TIME_S)) if short else options
        (id,) = commands.submit(_script(brief, shape, name, directory / "%j.out", command))
        return _answers(doctor, id, name, directory, options.nodes, look.wait_s)
    finally:
        doctor.close()
        with contextlib.suppress(TuneError):
            commands.cancel_named(name, patience_s=10.0)
        fs.remove_quietly(directory)


def _script(options: BatchOptions, shape: JobShape, name: str, output: Path, command: Sequence[str]) -> str:
    cpus, gpus = shape.cpus, shape.gpus
    return script(options, name=name, output=output, command=command, cpus=cpus, gpus=gpus, signal_s=0)


def _answers(
    doctor: _Doctor, id: str, name: str, directory: Path, nodes: int, patience_s: float
) -> list[_Answer] | CheckFinding:
    clock = SystemClock()
    end = clock.monotonic() + patience_s
    found: list[_Answer] = []
    while len(found) < nodes:
        with contextlib.suppress(queue.Empty):
            found.append(doctor.answers.get(timeout=_LOOK_S))
            continue
        beside = [read(json.loads(path.read_text("utf-8"))) for path in directory.glob("*.seen")]
        if beside:
            unreached = [_Answer(probed, "") for probed in beside]
            if len(found) + len(unreached) >= nodes:
                return found + unreached
        there = commands.queue(name).get(id)
        if there is None:
            with contextlib.suppress(queue.Empty):  # it may have been heard meanwhile
                while True:
                    found.append(doctor.answers.get_nowait())
            return found if len(found) >= nodes else _ended(id, directory)
        if there.never:
            return problem("slurm", f"job {id} will not start: {there.never}", "change the options of the executor")
        if clock.monotonic() > end and there.state == "PENDING":
            said = f"job {id} has not started in {patience_s:.0f} s ({there.reason}), and is cancelled"
            return warning("slurm", said, "what a job gets is not known: again with a longer --wait")
        if clock.monotonic() > end + patience_s + _PROBE_TIME_S / 5:
            return problem("slurm", f"job {id} runs, and says nothing", "look at its node")
    return found


def _ended(id: str, directory: Path) -> CheckFinding:
    state, status = commands.ended(id) or ("gone", 0)
    said = [line for path in directory.glob("*.out") for line in path.read_text("utf-8", "replace").splitlines()]
    where = f"job {id}"
    if not said and status:
        return problem(
            where,
            f"it has ended ({state}, exit status {status}) and left nothing in {directory.parent}",
            "choose a storage path that jobs see, on a file system that all nodes share; Python has to lie on one too",
        )
    last = said[-1] if said else "it has printed nothing"
    return problem(where, f"it has ended ({state}, exit status {status}): {last}", "see to it that Python starts there")


def _of_job(answer: _Answer, here: MachineFacts, look: SlurmLook) -> Iterator[CheckFinding]:
    probed = answer.probed
    where = f"job {probed.id} on {probed.hostname}"
    resources = dict(probed.resources)
    yield from findings.job_resources(where, look.resources, resources)
    if probed.problem:
        todo = "let nodes connect to this host, or say with listen= at which interface they can"
        yield problem(where, f"it does not reach this host: {probed.problem}", todo)
    else:
        yield ok(where, "it reaches this host")
    node = ExaminedNode(
        ip=answer.ip or probed.hostname,
        resources=resources,
        here=False,
        facts=probed.facts,
        clock_s=answer.clock_s,
        uncertain_s=answer.uncertain_s,
    )
    yield from findings.of_node(node, here, look.imports, look.upload_dir, otherwise="in setup=")
