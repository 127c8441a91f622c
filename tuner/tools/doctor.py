"""What `tuner doctor` does: looks at this machine, at the nodes of a cluster, and at the place of the copies.

`examine` looks, `findings` judges: it gets facts and says, line by line, what is well and what to do.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.errors import TrainablesError
from trainables.places import is_elsewhere, is_host
from trainables.store import fs
from trainables.transfer.open import open_backend, shown
from tuner.error import ResourceError, SettingError, TuneError
from tuner.executors.base import Resources
from tuner.executors.local import LocalExecutor
from tuner.executors.pool import check_fits, check_fits_nodes, parse_resources
from tuner.executors.ray import connection
from tuner.executors.ray.leases import Shape, fitting, shape_of
from tuner.experiment.paths import as_local_path, cache_of, default_storage
from tuner.tools.cluster_nodes import ExaminedNode, look_at_nodes
from tuner.tools.machine import MachineFacts, TriedDirectory, distributions, look, nearest

USED = ("tuner", "ray", "torch", "numpy", "pandas", "cloudpickle", "optuna", "sklearn", "transformers", "lightning")
"""Packages whose versions are compared where they are installed here."""
ALIKE = {"tuner", "ray", "cloudpickle"}
"""Packages that drivers and nodes speak through."""

MB, GB = 10**6, 10**9
LEAST_DISK, LITTLE_DISK = 100 * MB, 5 * GB
LITTLE_SHM = 128 * 2**20
LEAST_FILES, LEAST_PROCESSES = 4096, 2048
CLOCK_S = 1.0
_SSH_S = 10.0


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


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The run that is to be checked.

    Args:
        storage_path: where results are to lie; None: the default. A URI is an `upload_dir`.
        upload_dir: where copies go.
        resources: what one trial asks for; None: it is not known.
        cluster: whether trials run on a Ray cluster.
        address, runtime_env, options: of `RayExecutor`.
        imports: packages that every node needs.
        ssh_key, ssh_port: of `SyncConfig`.
    """

    storage_path: str | None = None
    upload_dir: str | None = None
    resources: Any = None
    cluster: bool = False
    address: str | None = None
    runtime_env: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    imports: Sequence[str] = ()
    ssh_key: str | None = None
    ssh_port: int | None = None

    def places(self) -> tuple[Path, str | None]:
        """The directory of the results here, and the place of the copies. Raises SettingError."""
        if self.storage_path is not None and is_elsewhere(self.storage_path):
            if self.upload_dir is not None:
                raise SettingError("a storage path elsewhere and an upload_dir mean the same: give one of them")
            return cache_of(self.storage_path), self.storage_path
        storage = default_storage() if self.storage_path is None else as_local_path(self.storage_path)
        return storage, self.upload_dir


def imports_of(script: Path) -> list[str]:
    """The packages that a script imports and that do not lie beside it. Raises SettingError."""
    try:
        tree = ast.parse(script.read_text("utf-8"), str(script))
    except OSError as error:
        raise SettingError(f"{script} cannot be read: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise SettingError(f"{script} is no Python script: {error}") from error
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found[node.module.partition(".")[0]] = None
    beside = {path.stem for path in script.resolve().parent.iterdir() if path.suffix == ".py" or path.is_dir()}
    return [name for name in found if name not in sys.stdlib_module_names and name not in beside]


def examine(plan: PlannedRun) -> Iterator[CheckFinding]:
    """Look, and say what was found, as it is found. Raises SettingError for what cannot be meant."""
    storage, upload_dir = plan.places()
    place = None
    if upload_dir is not None:
        keys = {"ssh_key": plan.ssh_key, "ssh_port": plan.ssh_port} if is_host(upload_dir) else {}
        place = {"place": upload_dir, **keys}
    # Nodes copy there themselves; a directory may be this machine's alone.
    direct = upload_dir is not None and is_elsewhere(upload_dir)
    wanted = dict.fromkeys((*USED, *plan.imports))
    named = distributions(wanted)
    here = look(storage, named, place=place)
    yield from machine("here", here, plan.imports)
    if not plan.cluster:
        yield from resources(plan.resources, LocalExecutor().total())
        yield from _rights("here", here, upload_dir)
        return
    ours = False
    try:
        ours = connection.connect(plan.address, plan.options)
        with _mark(storage, here.storage) as mark:
            there = place if direct else None
            seen = look_at_nodes(storage, named, mark=mark, place=there, runtime_env=plan.runtime_env)
    except (TuneError, TrainablesError, ImportError) as error:
        yield CheckFinding(CheckState.PROBLEM, "cluster", str(error))
        return
    finally:
        if ours:
            connection.load().shutdown()
    yield from cluster_resources(plan.resources, [node.resources for node in seen])
    yield from _rights("here", here, upload_dir)
    others = [node for node in seen if not node.here]
    for node in others:
        yield from of_node(node, here, plan.imports, upload_dir if direct else None)
    apart = [node for node in others if node.facts is not None and not node.facts.storage.mark]
    if others:
        yield _kept(storage, len(others), len(apart), upload_dir if direct else None)
    if not direct:
        for node in apart:
            yield _ssh(node, plan)


# --- one machine ------------------------------------------------------------------------------------------


def machine(where: str, facts: MachineFacts, imports: Sequence[str]) -> Iterator[CheckFinding]:
    """Versions, directories and limits of one machine."""
    there = [f"{name} {version}".strip() for name, version in facts.versions.items() if version is not None]
    yield CheckFinding(CheckState.OK, where, f"Python {facts.python}, {', '.join(there)}")
    for name in imports:
        if facts.versions.get(name, "") is None:
            yield CheckFinding(
                CheckState.PROBLEM, where, f"{name} cannot be imported", f"install it: pip install {name}"
            )
    yield from _directory(where, "results", facts.storage, "choose another storage path, or change its owner")
    yield from _directory(where, "temporary files", facts.temporary, "set TMPDIR to a directory that can be written")
    if not facts.storage.problem:
        clones = "reflinks" if facts.storage.reflinks else "no reflinks: checkpoints that are lent are copied"
        if facts.storage.locks:
            yield CheckFinding(CheckState.OK, where, f"{facts.storage.tried} has file locks and {clones}")
        else:
            said = f"{facts.storage.tried} has no file locks, and {clones}"
            yield CheckFinding(
                CheckState.WARNING, where, said, "mount it with locks: two drivers must not own one experiment"
            )
    if facts.memory is not None:
        yield CheckFinding(CheckState.OK, where, f"{_size(facts.memory)} of memory are free")
    yield _limit(where, "open files", facts.files, LEAST_FILES, "-n")
    yield _limit(where, "processes", facts.processes, LEAST_PROCESSES, "-u")
    if facts.shm < LITTLE_SHM:
        todo = "a container gets more with --shm-size=2g: data loaders with workers need it, and so does Ray"
        yield CheckFinding(CheckState.WARNING, where, f"/dev/shm has {_size(facts.shm)}", todo)
    else:
        yield CheckFinding(CheckState.OK, where, f"/dev/shm has {_size(facts.shm)}")


def _directory(where: str, what: str, found: TriedDirectory, todo: str) -> Iterator[CheckFinding]:
    if found.problem:
        yield CheckFinding(CheckState.PROBLEM, where, f"{what}: {found.tried} cannot be written: {found.problem}", todo)
        return
    free = "" if found.free is None else f", {_size(found.free)} free"
    said = f"{what}: {found.path} can be written{free}"
    more = "free some space, or choose another place"
    if found.free is not None and found.free < LEAST_DISK:
        yield CheckFinding(CheckState.PROBLEM, where, said, more)
    elif found.free is not None and found.free < LITTLE_DISK:
        yield CheckFinding(
            CheckState.WARNING, where, said, f"{more}: keep_checkpoints_num and checkpoint_budget bound what is kept"
        )
    else:
        yield CheckFinding(CheckState.OK, where, said)


def _limit(where: str, what: str, limit: int, least: int, option: str) -> CheckFinding:
    if limit == -1 or limit >= least:
        return CheckFinding(CheckState.OK, where, f"{what}: {'no limit' if limit == -1 else f'up to {limit}'}")
    return CheckFinding(CheckState.WARNING, where, f"{what}: up to {limit}", f"raise it: ulimit {option} {4 * least}")


def resources(asked: Any, total: Resources) -> Iterator[CheckFinding]:
    """What there is, and whether what a trial asks for fits."""
    yield CheckFinding(CheckState.OK, "here", f"resources: {_amounts(total)}")
    if asked is None:
        return
    try:
        amounts = parse_resources(asked)
        check_fits(amounts, total)
    except ResourceError as error:
        yield CheckFinding(CheckState.PROBLEM, "here", str(error), "change resources_per_trial")
    else:
        yield CheckFinding(
            CheckState.OK, "here", f"a trial asks for {_amounts(amounts)}: {fitting(total, shape_of(amounts))} at once"
        )


# --- a cluster --------------------------------------------------------------------------------------------


def cluster_resources(asked: Any, nodes: Sequence[Resources]) -> Iterator[CheckFinding]:
    """What the nodes have, and whether what a trial asks for fits on one."""
    for amounts, count in _counted(nodes):
        yield CheckFinding(CheckState.OK, "cluster", f"{count} node{'s' * (count > 1)} with {_amounts(amounts)}")
    if asked is None:
        return
    try:
        amounts = parse_resources(asked)
        room = check_fits_nodes(amounts, nodes)
    except ResourceError as error:
        yield CheckFinding(CheckState.PROBLEM, "cluster", str(error), "change resources_per_trial, or add a node")
    else:
        yield CheckFinding(CheckState.OK, "cluster", f"a trial asks for {_amounts(amounts)}: {room} at once")


def _counted(nodes: Sequence[Resources]) -> list[tuple[dict[str, float], int]]:
    """(what a node has, how many have that); memory is the least of them: no two have the same."""
    alike: dict[Shape, list[Resources]] = {}
    for node in nodes:
        alike.setdefault(shape_of({name: amount for name, amount in node.items() if name != "memory"}), []).append(node)
    return [
        ({**dict(shape), "memory": min(node.get("memory", 0.0) for node in found)}, len(found))
        for shape, found in alike.items()
    ]


def of_node(
    node: ExaminedNode, here: MachineFacts, imports: Sequence[str], upload_dir: str | None
) -> Iterator[CheckFinding]:
    """What there is to say of another node."""
    if node.facts is None:
        todo = (
            "install tuner there, the same version as here" if "No module named" in node.problem else "see Ray's logs"
        )
        yield CheckFinding(CheckState.PROBLEM, node.ip, f"it cannot be looked at: {node.problem}", todo)
        return
    facts, where = node.facts, f"{node.facts.hostname} ({node.ip})"
    yield from machine(where, facts, imports)
    yield from _versions(where, here, facts, imports)
    if abs(node.clock_s) - node.uncertain_s > CLOCK_S:
        said = f"its clock is {abs(node.clock_s):.1f} s {'ahead of' if node.clock_s > 0 else 'behind'} the one here"
        yield CheckFinding(
            CheckState.WARNING, where, said, "have both set by NTP, e.g. chrony: times of results will not agree"
        )
    else:
        yield CheckFinding(
            CheckState.OK, where, f"its clock is the one here, within {abs(node.clock_s) + node.uncertain_s:.1f} s"
        )
    yield from _rights(where, facts, upload_dir)


def _versions(where: str, here: MachineFacts, there: MachineFacts, imports: Sequence[str]) -> Iterator[CheckFinding]:
    if here.python.rpartition(".")[0] != there.python.rpartition(".")[0]:
        said = f"Python {there.python}, here {here.python}"
        yield CheckFinding(
            CheckState.PROBLEM, where, said, "use the same version: functions are shipped as its bytecode"
        )
    differ = False
    for name, version in here.versions.items():
        other = there.versions.get(name)
        if version is None or version == other or (other is None and name in imports):
            continue  # or said already
        differ = True
        said = f"{name} {other}, here {version}" if other is not None else f"no {name}, here is {version or 'one'}"
        state = CheckState.PROBLEM if name in ALIKE else CheckState.WARNING
        wanted = f"{name}=={version}" if version else name
        yield CheckFinding(
            state, where, said, f"install the same there ({wanted}), or with RayExecutor(runtime_env=...)"
        )
    if not differ:
        yield CheckFinding(CheckState.OK, where, "its packages are those of here")


def _kept(storage: Path, others: int, apart: int, upload_dir: str | None) -> CheckFinding:
    """Where checkpoints will lie."""
    if not apart:
        return CheckFinding(
            CheckState.OK, "cluster", f"every node sees {storage}: checkpoints lie there, and are not copied"
        )
    own = "no other node sees" if apart == others else f"{apart} of {others} other nodes do not see"
    if upload_dir is not None:
        said = f"{own} {storage}: each keeps its own, and copies checkpoints to {shown(upload_dir)}"
    else:
        said = f"{own} {storage}: checkpoints are copied to the driver's disk as they are saved"
    return CheckFinding(CheckState.OK, "cluster", said)


def _ssh(node: ExaminedNode, plan: PlannedRun) -> CheckFinding:
    assert node.facts is not None
    where = f"{node.facts.hostname} ({node.ip})"
    try:
        backend = open_backend(f"{node.ip}:{node.facts.storage.tried}", ssh_key=plan.ssh_key, ssh_port=plan.ssh_port)
        try:
            backend.check(_SSH_S)
        finally:
            backend.close()
    except (TrainablesError, ImportError) as error:
        key = " (and SyncConfig(ssh_key=...) where the key is not ssh's default)"
        remedy = f"let `ssh {node.ip}` work from here without a question{key}, and install rsync on both"
        asked = plan.ssh_key is not None or plan.ssh_port is not None
        without = "a run with that ssh_key or ssh_port does not start" if asked else "without, they go through Ray"
        said = f"checkpoints cannot be fetched by rsync over ssh: {(str(error).splitlines() or [repr(error)])[0]}"
        return CheckFinding(CheckState.PROBLEM if asked else CheckState.WARNING, where, said, f"{remedy}; {without}")
    return CheckFinding(CheckState.OK, where, "ssh and rsync reach it from here")


def _rights(where: str, facts: MachineFacts, upload_dir: str | None) -> Iterator[CheckFinding]:
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
        yield CheckFinding(CheckState.OK, where, f"{place}: {done}")


@contextlib.contextmanager
def _mark(storage: Path, tried: TriedDirectory) -> Iterator[str]:
    """A file on the driver's disk for the time of the look: who sees it shares that disk."""
    name = f".check-{secrets.token_hex(8)}"
    if tried.problem:
        yield ""
        return
    path = nearest(storage) / name
    fs.write_file(path, b"", fsync=True)
    try:
        yield name
    finally:
        fs.remove_quietly(path)


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def _amounts(amounts: Mapping[str, float]) -> str:
    shown_as: Mapping[str, Callable[[float], str]] = {"memory": _size}
    return ", ".join(
        f"{shown_as.get(name, '{:g}'.format)(amount)} {name}" for name, amount in amounts.items() if amount
    )
