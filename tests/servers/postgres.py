"""PostgreSQL on a free port of 127.0.0.1, with a data directory of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import serving


def programs() -> Path | None:
    """The directory of its programs; None: it is not installed."""
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return places[-1] if places else None


@contextmanager
def postgres(data: Path) -> Iterator[str]:
    """The URL of a fresh database, as SQLAlchemy and psycopg take it."""
    bin_ = programs()
    assert bin_ is not None
    data.mkdir()
    become: list[str] = []
    if os.getuid() == 0:  # it does not run as root
        nobody = pwd.getpwnam("nobody")
        os.chown(data, nobody.pw_uid, nobody.pw_gid)
        become = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    subprocess.run(
        [*become, bin_ / "initdb", "-D", data, "-U", "tuner", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8"],
        check=True,
        capture_output=True,
        cwd="/",
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"]
    with serving([*become, bin_ / "postgres", "-D", data, "-p", str(port), *settings], "ready to accept connections"):
        yield f"postgresql+psycopg://tuner@127.0.0.1:{port}/postgres"
