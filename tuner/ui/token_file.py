"""The user's token, in a file that nobody else reads, so that a page survives the restart of its server."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import stat
from pathlib import Path

from tuner import knobs

log = logging.getLogger(__name__)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,128}")


def token_file() -> Path:
    """Where it lies."""
    return Path(knobs.state_dir()).expanduser() / "tuner" / "ui-token"


def user_token() -> str:
    """The token of this user, the same each time; where no file can keep it, one for this process."""
    path = token_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _read(path) or _made(path)
    except OSError as error:
        log.warning("%s cannot keep the token (%s): it is another one at the next start", path, error.strerror)
        return secrets.token_urlsafe(32)


def _read(path: Path) -> str | None:
    """None: it is not there, or others could have read or written it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        _aside(path)
        return None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        found = file.read(200) if stat.S_ISREG(status.st_mode) else b""
    token = found.decode("latin-1").strip()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or _TOKEN.fullmatch(token) is None:
        _aside(path)
        return None
    return token


def _aside(path: Path) -> None:
    log.warning("%s is not this user's alone, or no token: another one is made", path)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _made(path: Path) -> str:
    """A new one. Of two servers that start at once one is first, and the other one takes its token."""
    token = secrets.token_urlsafe(32)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(token.encode() + b"\n")
        with contextlib.suppress(FileExistsError):
            os.link(staged, path)
    finally:
        staged.unlink()
    return _read(path) or token
