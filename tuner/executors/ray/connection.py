"""Ray itself: found or named as missing, connected to once, and asked for its nodes."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from trainables.validation import unknown_name
from tuner import knobs
from tuner.error import SettingError
from tuner.executors.base import Resources

_ANSWER_S = 10.0
_NAMES = {"cpu": "CPU", "gpu": "GPU"}
_OURS = {ray: ours for ours, ray in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster that lives."""

    id: str
    ip: str
    resources: Resources


def load() -> Any:
    """The module `ray`, whole, also where `tuner.compat` has put something in its place. Raises MissingExtraError."""
    try:
        import ray

        if (become_ray := getattr(type(ray), "become_ray", None)) is not None:
            become_ray(ray)
    except ImportError as error:
        raise MissingExtraError(
            f"executor='ray' needs Ray, which is not installed ({error}): {how_to_install('ray')}"
        ) from error
    return ray


def check_environment(runtime_env: Mapping[str, Any] | None, options: Mapping[str, Any]) -> None:
    """Raise SettingError for a `runtime_env` that Ray would refuse later, or ignore in parts."""
    ray = load()
    for_all = options.get("runtime_env")
    _check_keys(runtime_env or {}, "RayExecutor(runtime_env=...)")
    _check_keys(for_all if isinstance(for_all, Mapping) else {}, "RayExecutor(options={'runtime_env': ...})")
    try:
        ray.remote(num_cpus=0, runtime_env=dict(runtime_env or {}))(check_environment)  # begins nothing
    except (TypeError, ValueError, OSError) as error:
        raise SettingError(f"RayExecutor(runtime_env={runtime_env!r}) is not accepted: {_first_line(error)}") from error


def _check_keys(environment: Mapping[str, Any], of: str) -> None:
    """Raise SettingError for a key that is not Ray's: it would say nothing of it. Keys of plugins are theirs."""
    from ray.runtime_env import RuntimeEnv

    accepted = {name for name in RuntimeEnv.known_fields if not name.startswith("_")} | {"nsight", "rocprof_sys"}
    for name in environment:
        if name not in accepted | set(RuntimeEnv.known_fields) and not knobs.ray_plugins():
            raise SettingError(unknown_name(f"key of {of}", name, accepted))


def connect(address: str | None, options: Mapping[str, Any]) -> bool:
    """Connect this process to a running cluster, unless it is connected. True: we did, and are to disconnect.

    Raises MissingExtraError, SettingError when there is no cluster.
    """
    ray = load()
    if ray.is_initialized():
        return False
    where = f"at {address!r}" if address else "to be found from here"
    try:
        _check_answers(address)
        ray.init(
            address=address or "auto",
            **{"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True, **options},
        )
    except OSError as error:
        raise SettingError(
            f"executor='ray': there is no Ray cluster {where}: start one with `ray start --head`, or give "
            f"RayExecutor(address='<ip>:<port>') ({_first_line(error)})"
        ) from error
    except (RuntimeError, ValueError) as error:  # an option, another version, ...
        raise SettingError(
            f"executor='ray': Ray does not connect to the cluster {where}: {_first_line(error)}"
        ) from error
    return True


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else repr(error)


def _check_answers(address: str | None) -> None:
    """Raise OSError where nobody listens: Ray would try for many minutes."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()


def nodes() -> list[Node]:
    """The nodes that live, with what each has in all."""
    ray = load()
    return [
        Node(str(found["NodeID"]), str(found["NodeManagerAddress"]), from_ray(found["Resources"]))
        for found in ray.nodes()
        if found["Alive"]
    ]


def draining() -> set[str]:
    """Ids of nodes that are to go away."""
    from ray._private import state

    return set(state.state.get_draining_nodes())


def is_alive(id: str) -> bool:
    """Whether that node lives."""
    return any(node.id == id for node in nodes())


def from_ray(resources: Mapping[str, float]) -> dict[str, float]:
    """Amounts under our names; what Ray adds for itself is left out."""
    return {
        _OURS.get(name, name): float(amount)
        for name, amount in resources.items()
        if not name.startswith(("node:", "object_store_memory", "accelerator_type:"))
    }


def to_ray(resources: Resources) -> dict[str, float]:
    """A request as Ray takes it."""
    return {_NAMES.get(name, name): amount for name, amount in resources.items() if amount}


def own_address() -> str:
    """The address of this node, as the cluster knows it."""
    return str(load().util.get_node_ip_address())
