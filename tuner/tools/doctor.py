"""What `tuner doctor` does: looks at this machine, at the nodes of a cluster, and at the place of the copies.

`tuner.tools.findings` judges what was seen.
"""

from __future__ import annotations

import ast
import contextlib
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.errors import TrainablesError
from trainables.places import is_elsewhere, is_host
from trainables.store import fs
from trainables.transfer.open import open_backend
from tuner.error import SettingError, TuneError
from tuner.executors.local.executor import LocalExecutor
from tuner.executors.ray import connection
from tuner.experiment.paths import as_local_path, cache_of, default_storage
from tuner.tools import findings
from tuner.tools.cluster_nodes import ExaminedNode, look_at_nodes
from tuner.tools.findings import CheckFinding, CheckState, ok, problem
from tuner.tools.machine import TriedDirectory, distributions, look, nearest
from tuner.tools.slurm_cluster import SlurmLook, examine_slurm

USED = ("tuner", "ray", "torch", "numpy", "pandas", "cloudpickle", "optuna", "sklearn", "transformers", "lightning")
"""Packages whose versions are compared where they are installed here."""
_SSH_S = 10.0


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The run that is to be checked.

    Args:
        storage_path: where results are to lie; None: the default. A URI is an `upload_dir`.
        upload_dir: where copies go.
        resources: what one trial asks for; None: it is not known.
        cluster: whether trials run on a Ray cluster.
        address, runtime_env, options: of `RayExecutor`.
        slurm: options of `SlurmExecutor`, where trials run in jobs of Slurm; None: they do not.
        wait_s: so long a job that looks at a node there may wait for its start.
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
    slurm: Mapping[str, Any] | None = None
    wait_s: float = 60.0
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
    yield from findings.machine("here", here, plan.imports)
    if plan.slurm is not None:
        yield from findings.rights("here", here, upload_dir)
        with _mark(storage, here.storage) as mark:
            there, copies = (place, upload_dir) if direct else (None, None)
            planned = SlurmLook(
                plan.slurm, plan.wait_s, plan.resources, storage, named, mark, there, plan.imports, copies
            )
            yield from examine_slurm(planned, here)
        return
    if not plan.cluster:
        yield from findings.resources(plan.resources, LocalExecutor().total())
        yield from findings.rights("here", here, upload_dir)
        return
    ours = False
    try:
        ours = connection.connect(plan.address, plan.options)
        with _mark(storage, here.storage) as mark:
            there = place if direct else None
            seen = look_at_nodes(storage, named, mark=mark, place=there, runtime_env=plan.runtime_env)
    except (TuneError, TrainablesError, ImportError) as error:
        yield problem("cluster", str(error))
        return
    finally:
        if ours:
            connection.load().shutdown()
    yield from findings.cluster_resources(plan.resources, [node.resources for node in seen])
    yield from findings.rights("here", here, upload_dir)
    others = [node for node in seen if not node.here]
    for node in others:
        yield from findings.of_node(node, here, plan.imports, upload_dir if direct else None)
    apart = [node for node in others if node.facts is not None and not node.facts.storage.mark]
    if others:
        yield findings.kept(storage, len(others), len(apart), upload_dir if direct else None)
    if not direct:
        for node in apart:
            yield _ssh(node, plan)


def _ssh(node: ExaminedNode, plan: PlannedRun) -> CheckFinding:
    assert node.facts is not None
    where = f"{node.facts.hostname} ({node.ip})"
    try:
        place = f"{node.ip}:{node.facts.storage.tried}"
        with open_backend(place, ssh_key=plan.ssh_key, ssh_port=plan.ssh_port) as backend:
            backend.check(_SSH_S)
    except (TrainablesError, ImportError) as error:
        key = " (and SyncConfig(ssh_key=...) where the key is not ssh's default)"
        remedy = f"let `ssh {node.ip}` work from here without a question{key}, and install rsync on both"
        asked = plan.ssh_key is not None or plan.ssh_port is not None
        without = "a run with that ssh_key or ssh_port does not start" if asked else "without, they go through Ray"
        said = f"checkpoints cannot be fetched by rsync over ssh: {(str(error).splitlines() or [repr(error)])[0]}"
        return CheckFinding(CheckState.PROBLEM if asked else CheckState.WARNING, where, said, f"{remedy}; {without}")
    return ok(where, "ssh and rsync reach it from here")


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
