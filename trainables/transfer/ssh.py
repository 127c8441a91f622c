"""ssh connections to a host, and the meaning of their failures.

Host keys are checked as the user's own ssh configuration says, and nobody is ever asked for a password. One
connection is shared by all that is done within a few seconds, unless the user's configuration shares its own.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
from dataclasses import dataclass
from pathlib import Path

from trainables.errors import AccessRefusedError, InvalidAddressError, StoreMissingError, TransferError
from trainables.store import owned_directory
from trainables.store.owned_directory import OwnedDirectory
from trainables.transfer import programs
from trainables.transfer.programs import Ended

_ADDRESS = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.+-]*)@)?(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(?:%\w+)?\])"
    r":(?P<path>.*)",
    re.DOTALL,
)
_LONGEST_SOCKET = 90
"""A socket's path must fit into 108 bytes, and ssh puts 17 more behind this one while it makes it."""
_SHARED_S = 20
"""Seconds that an unused connection is kept: also how long it outlives a process that was killed."""


@dataclass(frozen=True, slots=True)
class Address:
    """`user@host:path`, taken apart."""

    user: str
    """Empty: whom the ssh configuration names."""
    host: str
    """As rsync wants it: an IPv6 address stands in brackets."""
    path: str
    """Absolute, or under the user's home there; then it starts with `./`."""

    @property
    def login(self) -> str:
        """As ssh wants it."""
        host = self.host.strip("[]")
        return f"{self.user}@{host}" if self.user else host

    @property
    def rsync(self) -> str:
        """What rsync wants before the colon."""
        return f"{self.user}@{self.host}" if self.user else self.host


def is_address(uri: str) -> bool:
    """Whether that may be a place on a host; whether it is written out is seen when it is opened."""
    return _ADDRESS.fullmatch(uri) is not None


def parse(uri: str) -> Address:
    """Take `user@host:/path` apart. Raises InvalidAddressError that says what is accepted."""
    found = _ADDRESS.fullmatch(uri)
    path = found["path"] if found else ""
    if found is None or "\0" in path or path.startswith(":"):
        raise InvalidAddressError(
            f'{uri!r} is no place for rsync; accepted: "user@host:/path", "host:/path" or "host:path"'
        )
    if path == "~" or path.startswith("~/"):
        path = path[2:]
    elif path.startswith("~"):
        raise InvalidAddressError(f"{uri!r}: write the home of another user out; only ~/ is understood")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidAddressError(f"{uri!r} has '..' in it: write the path out")
    return Address(found["user"] or "", found["host"], ("/" if path.startswith("/") else "./") + "/".join(parts))


class Ssh:
    """Runs commands on one host, as one user.

    Args:
        timeout_s: seconds of silence after which a connection is given up, about.
    """

    def __init__(
        self,
        address: Address,
        *,
        key: Path | None = None,
        port: int | None = None,
        config: Path | None = None,
        timeout_s: float,
    ) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._directory: OwnedDirectory | None = None
        self._shares: bool | None = None
        self._base = ["-o", "BatchMode=yes", "-o", "ClearAllForwardings=yes"]
        # A connection that was cut is noticed by ssh: rsync fills buffers and believes that it is being heard.
        self._base += ["-o", f"ServerAliveInterval={max(1, int(timeout_s / 4))}", "-o", "ServerAliveCountMax=3"]
        if config is not None:
            self._base += ["-F", os.fspath(config)]
        if key is not None:
            self._base += ["-i", os.fspath(key), "-o", "IdentitiesOnly=yes"]
        if port is not None:
            self._base += ["-p", str(port)]

    def command(self, connect_s: float) -> list[str]:
        """ssh with its options, up to the host.

        Args:
            connect_s: seconds after which a host that does not answer is given up.
        """
        return ["ssh", *self._base, "-o", f"ConnectTimeout={max(1, int(connect_s))}", *self._sharing()]

    def as_option(self, connect_s: float) -> str:
        """The same as one string, as rsync's `-e` takes it apart: quotes, doubled inside."""
        return " ".join("'" + word.replace("'", "''") + "'" for word in self.command(connect_s))

    def run(self, script: str, *arguments: str, stdin: bytes = b"", timeout_s: float) -> Ended:
        """Run a POSIX script on the host, whatever the user's login shell is; arguments are `$1` and so on."""
        there = " ".join(["exec sh -c", *(shlex.quote(word) for word in (script, "sh", *arguments))])
        connect_s = max(1.0, timeout_s - 1.5)  # ssh says better than we can what it was waiting for
        program = [*self.command(connect_s), "--", self.address.login, there]
        return programs.run(program, stdin=stdin, timeout_s=timeout_s)

    def disconnect(self) -> None:
        """End the shared connection; the next use makes a new one."""
        with self._lock:
            directory, self._directory, self._shares = self._directory, None, None
        if directory is None:
            return
        socket = directory.path / "s"
        if socket.exists():
            over = ["ssh", *self._base, "-o", f"ControlPath={socket}", "-O", "exit", "--", self.address.login]
            programs.run(over, timeout_s=5)
        directory.remove()

    def _sharing(self) -> list[str]:
        with self._lock:
            if self._shares is None:
                self._shares = not self._user_shares()
            if not self._shares:
                return []
            if self._directory is None:
                self._directory = owned_directory.make(owned_directory.SSH_PREFIX)
            socket = self._directory.path / "s"
        if len(os.fsencode(socket)) > _LONGEST_SOCKET:
            return ["-o", "ControlPath=none"]
        return ["-o", "ControlMaster=auto", "-o", f"ControlPath={socket}", "-o", f"ControlPersist={_SHARED_S}"]

    def _user_shares(self) -> bool:
        """Whether the user's configuration shares connections to that host: perhaps one that was opened by hand."""
        found = programs.run(["ssh", *self._base, "-G", "--", self.address.login], timeout_s=10)
        settings = dict(line.partition(" ")[::2] for line in found.out.decode("utf-8", "replace").splitlines())
        return settings.get("controlpath", "none") != "none"


_NOT_WORTH_IT = {1, 2, 3, 4, 5, 6, 126, 127}
"""Exit statuses of rsync and of shells that are the same at the next try: usage, versions, a missing program."""

_MEANINGS: tuple[tuple[str, type[TransferError], bool, str], ...] = (
    (
        r"host key verification failed|host identification has changed",
        AccessRefusedError,
        False,
        "its host key is unknown, or not the known one: connect once by hand ({login}), compare the key that is shown, "
        "and accept it into known_hosts",
    ),
    (
        r"permission denied \((?!13\))|too many authentication failures|no supported authentication|bad permissions",
        AccessRefusedError,
        False,
        "it refused the key: put a key that it accepts into the ssh configuration, or name its file in the sync "
        "settings; `ssh {login}` must work without a question",
    ),
    (
        r"could not resolve hostname",
        StoreMissingError,
        True,
        "there is no host of that name: correct it, or add it to the ssh configuration",
    ),
    (
        r"rsync: (command )?not found|rsync: no such file|command not found",
        TransferError,
        False,
        "rsync is not installed on that host: install it (apt-get install rsync)",
    ),
    (
        r"no space left on device|disk quota exceeded",
        TransferError,
        True,  # retention frees remote space too
        "its disk is full: make room there, or let retention keep less",
    ),
    (r"read-only file system", TransferError, False, "its file system is read-only: choose another directory"),
    (
        r"permission denied",
        AccessRefusedError,
        False,
        "that user may not write there: choose another directory, or change its owner",
    ),
    # Last: a pipe breaks also because of any of the above.
    (
        r"connection refused|no route to host|network is unreachable|connect to host|timed out|connection reset|"
        r"connection closed|closed by|broken pipe|banner exchange|not responding|io timeout",
        StoreMissingError,
        True,
        "it does not answer: look whether it is up, and whether address and port are right",
    ),
)


def failure(uri: str, what: str, ended: Ended) -> TransferError:
    """The error for a program that failed to do `what`, with the cause and what can be done."""
    said = f" ({ended.last_lines})" if ended.last_lines else ""
    for pattern, kind, transient, meaning in _MEANINGS:
        if re.search(pattern, ended.err, re.IGNORECASE):
            login = parse(uri).login
            text = f"{uri}: could not {what}: {meaning.format(login=login)}{said}"
            return kind(text, transient=transient, errno=ended.errno)
    if ended.timed_out:
        return StoreMissingError(f"{uri}: could not {what}: it did not answer in time{said}", transient=True)
    again = ended.code not in _NOT_WORTH_IT
    return TransferError(f"{uri}: could not {what}: {ended.how}{said}", transient=again, errno=ended.errno)
