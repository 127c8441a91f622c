"""What `tuner doctor` says of what it has seen: facts of machines and nodes in, findings with what to do out."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trainables.places import is_host
from trainables.transfer.open import shown
from tuner.error import ResourceError
from tuner.executors.base import Resources
from tuner.executors.pool import Shape, check_fits, check_fits_nodes, fitting, shape_of
from tuner.progress.formatting import size
from tuner.resources import parse_resources
from tuner.tools.cluster_nodes import ExaminedNode
from tuner.tools.machine import MachineFacts, TriedDirectory

ALIKE = {"tuner", "ray", "cloudpickle"}
"""Packages that drivers and nodes speak through."""

MB, GB = 10**6, 10**9
LEAST_DISK, LITTLE_DISK = 100 * MB, 5 * GB
LITTLE_SHM = 128 * 2**20
LEAST_FILES, LEAST_PROCESSES = 4096, 2048
CLOCK_S = 1.0


class CheckState(enum.Enum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """A run works; something of it is slower, or may end badly later."""
    PROBLEM = "problem"
    """A run does not work like this."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One line."""

    state: CheckState
    where: str
    said: str
    todo: str = ""


ok, warning, problem = (partial(CheckFinding, state) for state in CheckState)


# --- one machine ------------------------------------------------------------------------------------------


def machine(where: str, facts: MachineFacts, imports: Sequence[str]) -> Iterator[CheckFinding]:
    """Versions, directories and limits of one machine."""
    there = [f"{name} {version}".strip() for name, version in facts.versions.items() if version is not None]
    yield ok(where, f"Python {facts.python}, {', '.join(there)}")
    for name in imports:
        if facts.versions.get(name, "") is None:
            yield problem(where, f"{name} cannot be imported", f"install it: pip install {name}")
    yield from _directory(where, "results", facts.storage, "choose another storage path, or change its owner")
    yield from _directory(where, "temporary files", facts.temporary, "set TMPDIR to a directory that can be written")
    if not facts.storage.problem:
        clones = "reflinks" if facts.storage.reflinks else "no reflinks: checkpoints that are lent are copied"
        if facts.storage.locks:
            yield ok(where, f"{facts.storage.tried} has file locks and {clones}")
        else:
            said = f"{facts.storage.tried} has no file locks, and {clones}"
            yield warning(where, said, "mount it with locks: two drivers must not own one experiment")
    if facts.memory is not None:
        yield ok(where, f"{size(facts.memory)} of memory are free")
    yield _limit(where, "open files", facts.files, LEAST_FILES, "-n")
    yield _limit(where, "processes", facts.processes, LEAST_PROCESSES, "-u")
    if facts.shm < LITTLE_SHM:
        todo = "a container gets more with --shm-size=2g: data loaders with workers need it, and so does Ray"
        yield warning(where, f"/dev/shm has {size(facts.shm)}", todo)
    else:
        yield ok(where, f"/dev/shm has {size(facts.shm)}")


def _directory(where: str, what: str, found: TriedDirectory, todo: str) -> Iterator[CheckFinding]:
    if found.problem:
        yield problem(where, f"{what}: {found.tried} cannot be written: {found.problem}", todo)
        return
    free = "" if found.free is None else f", {size(found.free)} free"
    said = f"{what}: {found.path} can be written{free}"
    more = "free some space, or choose another place"
    if found.free is not None and found.free < LEAST_DISK:
        yield problem(where, said, more)
    elif found.free is not None and found.free < LITTLE_DISK:
        yield warning(where, said, f"{more}: keep_checkpoints_num and checkpoint_budget bound what is kept")
    else:
        yield ok(where, said)


def _limit(where: str, what: str, limit: int, least: int, option: str) -> CheckFinding:
    if limit == -1 or limit >= least:
        return ok(where, f"{what}: {'no limit' if limit == -1 else f'up to {limit}'}")
    return warning(where, f"{what}: up to {limit}", f"raise it: ulimit {option} {4 * least}")


def resources(asked: Any, total: Resources) -> Iterator[CheckFinding]:
    """What there is, and whether what a trial asks for fits."""

    def at_once(amounts: Resources) -> int:
        check_fits(amounts, total)
        return fitting(total, shape_of(amounts))

    yield ok("here", f"resources: {_amounts(total)}")
    yield from _fits("here", asked, at_once, "change resources_per_trial")


def _fits(where: str, asked: Any, at_once: Callable[[Resources], int], todo: str) -> Iterator[CheckFinding]:
    """Whether what a trial asks for fits, and how often `at_once`; None is not known."""
    if asked is None:
        return
    try:
        amounts = parse_resources(asked)
        count = at_once(amounts)
    except ResourceError as error:
        yield problem(where, str(error), todo)
    else:
        yield ok(where, f"a trial asks for {_amounts(amounts)}: {count} at once")


# --- a cluster --------------------------------------------------------------------------------------------


def cluster_resources(asked: Any, nodes: Sequence[Resources]) -> Iterator[CheckFinding]:
    """What the nodes have, and whether what a trial asks for fits on one."""
    for amounts, count in _counted(nodes):
        yield ok("cluster", f"{count} node{'s' * (count > 1)} with {_amounts(amounts)}")
    room = partial(check_fits_nodes, nodes=nodes)
    yield from _fits("cluster", asked, room, "change resources_per_trial, or add a node")


def _counted(nodes: Sequence[Resources]) -> list[tuple[dict[str, float], int]]:
    """(what a node has, how many have that); memory is the least of them: no two have the same."""
    alike: dict[Shape, list[Resources]] = {}
    for node in nodes:
        alike.setdefault(shape_of({name: amount for name, amount in node.items() if name != "memory"}), []).append(node)
    return [
        ({**dict(shape), "memory": min(node.get("memory", 0.0) for node in found)}, len(found))
        for shape, found in alike.items()
    ]


def job_resources(where: str, asked: Any, found: Resources) -> Iterator[CheckFinding]:
    """What a job has on a node, and whether what a trial asks for fits."""
    yield ok(where, f"it gets {_amounts(found)}")

    def at_once(amounts: Resources) -> int:
        return fitting(found, shape_of(amounts))

    if asked is None or at_once(amounts := parse_resources(asked)):
        yield from _fits(where, asked, at_once, "")
    else:
        yield problem(where, f"a trial asks for {_amounts(amounts)}", "let jobs ask for more, or trials for less")


def of_node(
    node: ExaminedNode,
    here: MachineFacts,
    imports: Sequence[str],
    upload_dir: str | None,
    otherwise: str = "with RayExecutor(runtime_env=...)",
) -> Iterator[CheckFinding]:
    """What there is to say of another node; packages that differ can also be had `otherwise`."""
    if node.facts is None:
        todo = (
            "install tuner there, the same version as here" if "No module named" in node.problem else "see Ray's logs"
        )
        yield problem(node.ip, f"it cannot be looked at: {node.problem}", todo)
        return
    facts, where = node.facts, f"{node.facts.hostname} ({node.ip})"
    yield from machine(where, facts, imports)
    yield from _versions(where, here, facts, imports, otherwise)
    if math.isinf(node.uncertain_s):
        pass  # it could not be asked for the time
    elif abs(node.clock_s) - node.uncertain_s > CLOCK_S:
        said = f"its clock is {abs(node.clock_s):.1f} s {'ahead of' if node.clock_s > 0 else 'behind'} the one here"
        yield warning(where, said, "have both set by NTP, e.g. chrony: times of results will not agree")
    else:
        yield ok(where, f"its clock is the one here, within {abs(node.clock_s) + node.uncertain_s:.1f} s")
    yield from rights(where, facts, upload_dir)


def _versions(
    where: str, here: MachineFacts, there: MachineFacts, imports: Sequence[str], otherwise: str
) -> Iterator[CheckFinding]:
    if here.python.rpartition(".")[0] != there.python.rpartition(".")[0]:
        said = f"Python {there.python}, here {here.python}"
        yield problem(where, said, "use the same version: functions are shipped as its bytecode")
    differ = False
    for name, version in here.versions.items():
        other = there.versions.get(name)
        if version is None or version == other or (other is None and name in imports):
            continue  # or said already
        differ = True
        said = f"{name} {other}, here {version}" if other is not None else f"no {name}, here is {version or 'one'}"
        state = CheckState.PROBLEM if name in ALIKE else CheckState.WARNING
        wanted = f"{name}=={version}" if version else name
        yield CheckFinding(state, where, said, f"install the same there ({wanted}), or {otherwise}")
    if not differ:
        yield ok(where, "its packages are those of here")


def kept(storage: Path, others: int, apart: int, upload_dir: str | None) -> CheckFinding:
    """Where checkpoints will lie."""
    if not apart:
        return ok("cluster", f"every node sees {storage}: checkpoints lie there, and are not copied")
    own = "no other node sees" if apart == others else f"{apart} of {others} other nodes do not see"
    if upload_dir is not None:
        said = f"{own} {storage}: each keeps its own, and copies checkpoints to {shown(upload_dir)}"
    else:
        said = f"{own} {storage}: checkpoints are copied to the driver's disk as they are saved"
    return ok("cluster", said)


def rights(where: str, facts: MachineFacts, upload_dir: str | None) -> Iterator[CheckFinding]:
    if upload_dir is None:
        return
    place, state, todo = shown(upload_dir), CheckState.PROBLEM, "mend the rights, or the credentials"
    if where != "here" and is_host(upload_dir):
        state, todo = CheckState.WARNING, "let ssh work from there too; without, copies go through the driver"
    failed = [(what, problem) for what, problem in facts.rights if problem]
    for what, problem in failed:
        yield CheckFinding(state, where, f"{place}: cannot {what}: {problem}", todo)
    if not failed:
        done = ", ".join(what for what, _ in facts.rights)
        yield ok(where, f"{place}: {done}")


def _amounts(amounts: Mapping[str, float]) -> str:
    shown_as: Mapping[str, Callable[[float], str]] = {"memory": size}
    return ", ".join(
        f"{shown_as.get(name, '{:g}'.format)(amount)} {name}" for name, amount in amounts.items() if amount
    )
