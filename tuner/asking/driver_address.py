"""Where the driver of a session is found: it writes that down beside the records of generations, and callers knock.

Nothing that is read there is trusted: at the other end of the socket has to be a process of the same user; on another
host one that has the key which stands there, for this user only.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import msgspec

from trainables.decoding import decode
from trainables.store import fs
from tuner.asking.caller_door import CallerDoor, LocalCallerDoor, RemoteCallerDoor
from tuner.asking.listening import HINT
from tuner.error import OwnedElsewhereError
from tuner.executors.callers.caller_words import LetIn
from tuner.executors.callers.doors import Doors, peer_of, reachable
from tuner.experiment.generations import GenerationRecord, read_records
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import Identity, Processes

MODULE = "tuner.asking.driver_process"
"""What the process of such a driver runs."""


class DriverAddress(msgspec.Struct, frozen=True):
    """What a driver says of itself."""

    owner: Identity
    door: str
    """The path of its socket."""
    root: str = ""
    """The experiment's directory, as the driver sees it."""
    far: tuple[str, int] | None = None
    """(ip, port) for callers of other hosts; None: they are not let in."""
    key: str = ""
    """Who has it is let in there."""


def write_address(paths: ExperimentPaths, doors: Doors) -> None:
    """Say where this process is found. It owns the experiment. Only this user can read the file: a key is in it."""
    far = doors.far
    said = DriverAddress(
        Processes().me(),
        os.fspath(doors.path),
        os.fspath(paths.root),
        None if far is None else (far.ip, far.port),
        "" if far is None else far.key.hex(),
    )
    fresh = paths.session_json.with_suffix(".tmp")
    fs.remove_quietly(fresh)  # of one that was killed over it; its mode would stay
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(said))
    fs.rename(fresh, paths.session_json)


def read_address(paths: ExperimentPaths) -> DriverAddress | None:
    """What the newest driver of a session has said of itself; None: there was none, or it is another user's."""
    try:
        return decode(fs.read_file(paths.session_json), DriverAddress)
    except (FileNotFoundError, NotADirectoryError, PermissionError, msgspec.DecodeError):
        return None


def knock(paths: ExperimentPaths) -> CallerDoor | None:
    """The door of the driver that has the experiment's session; None: there is none, or it does not open any more.

    Raises OwnedElsewhereError where it sees the experiment at another path.
    """
    address = read_address(paths)
    if address is None:
        return None
    door = (_near(address) if is_near(address.owner) else None) or _far(address)
    if door is None or not isinstance(door.hear(), LetIn):
        if door is not None:
            door.close()
        return None
    if not _is_same(address.root, paths):
        door.close()
        raise OwnedElsewhereError(
            f"the session of {paths.root} is driven on {address.owner.host}, where its path is {address.root}, "
            "which is not that directory here: open it with one storage_path, of a directory that both hosts share"
        )
    return door


def _is_same(root: str, paths: ExperimentPaths) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(root, paths.root)
    return False


def _near(address: DriverAddress) -> CallerDoor | None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(OSError):  # it is gone, or it ends
        with reachable(Path(address.door)) as path:
            sock.connect(path)
        if peer_of(sock)[1] in (0, os.geteuid()):
            return LocalCallerDoor(sock)
    sock.close()
    return None


def _far(address: DriverAddress) -> CallerDoor | None:
    if address.far is None:
        return None
    with contextlib.suppress(OSError):
        return RemoteCallerDoor(address.far, bytes.fromhex(address.key))
    return None


def owner_of(paths: ExperimentPaths) -> GenerationRecord | None:
    """Who has the experiment, by the newest record; None: nobody."""
    records = read_records(paths)
    return None if not records or records[-1].released else records[-1]


def is_session_driver(owner: Identity) -> bool:
    """Whether it lives here and is the driver of a session: it opens its door soon, or is about to end."""
    processes = Processes()
    if not processes.sees(owner) or not processes.lives(owner):
        return False
    try:
        command = Path(f"/proc/{owner.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return MODULE.encode() in command or not any(command)  # that of one that is ending is empty


def is_gone(owner: Identity) -> bool:
    """Whether it was a process of this host, and lives no more: the next driver takes over."""
    processes = Processes()
    return processes.sees(owner) and not processes.lives(owner)


def is_near(owner: Identity) -> bool:
    """Whether it is, or was, a process of this host."""
    me = Processes().me()
    return (owner.host, owner.boot) == (me.host, me.boot)


def is_elsewhere(owner: GenerationRecord, paths: ExperimentPaths) -> bool:
    """Whether it may be the driver of a session on another host, which lets callers of this one in, soon or now."""
    if is_near(owner.owner) or owner_of(paths) != owner:
        return False
    address = read_address(paths)
    return address is None or address.owner != owner.owner or address.far is not None


def elsewhere_of(
    owner: GenerationRecord | None, paths: ExperimentPaths, error: OwnedElsewhereError
) -> OwnedElsewhereError:
    """The error where another driver has the experiment: it names the host that callers join on."""
    if owner is None or is_near(owner.owner):
        return error
    address = read_address(paths)
    if address is not None and address.owner == owner.owner and address.far is not None:
        why = "it does not answer at {}:{} from here".format(*address.far)
    else:
        why = HINT
    return OwnedElsewhereError(
        f"the driver of {paths.root} lives on {owner.owner.host} (pid {owner.owner.pid}): open the session there. "
        f"This is {socket.gethostname()}; {why}"
    )
