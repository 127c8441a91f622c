"""Parsing of storage locations: local path, bucket URI, or host, and its parent directory."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


_KERNELS = frozenset(
    "bpf binfmt_misc cgroup cgroup2 configfs debugfs devpts efivarfs fusectl mqueue nsfs proc pstore securityfs "
    "selinuxfs sysfs tracefs".split()
)
"""Filesystems in which the kernel shows what it knows; nobody's files can be kept there."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def kernels_filesystem(path: str | os.PathLike[str]) -> str | None:
    """The type of the filesystem that a path of this machine is on, if files cannot be kept in that: "proc", "sysfs".

    >>> kernels_filesystem("/proc/self/mine"), kernels_filesystem("/")
    ('proc', None)
    """
    whole = os.path.realpath(path)
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    best, found = "", None
    for line in mounts:
        fields, _, kind = line.partition(" - ")
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields.split(" ")[4])
        if len(point) >= len(best) and (whole == point or whole.startswith(point.rstrip("/") + "/")):
            best, found = point, kind.split(" ")[0]
    return found if found in _KERNELS else None


def is_elsewhere(place: str | os.PathLike[str]) -> bool:
    """Whether a place is no path of this machine: a URI of a bucket, or a host as rsync writes it.

    >>> is_elsewhere("s3://bucket/x"), is_elsewhere("me@host:/x"), is_elsewhere("file:///x"), is_elsewhere("a/b:c")
    (True, True, False, False)
    """
    text = os.fspath(place)
    if scheme := _SCHEME.match(text):
        return scheme[1].lower() != "file"
    return ":" in text.partition("/")[0] and not _DRIVE.match(text)


def is_host(place: str | os.PathLike[str]) -> bool:
    """Whether a place is on a host, as rsync writes it.

    >>> is_host("me@host:/x"), is_host("s3://bucket/x"), is_host("/x")
    (True, False, False)
    """
    return is_elsewhere(place) and not _SCHEME.match(os.fspath(place))


def parent_and_name(place: str | os.PathLike[str]) -> tuple[str, str]:
    """A place as the place above it and a name; the latter is empty where there is nothing above.

    >>> parent_and_name("s3://bucket/runs/mine/"), parent_and_name("s3://bucket"), parent_and_name("me@host:/runs")
    (('s3://bucket/runs', 'mine'), ('s3://bucket', ''), ('me@host:/', 'runs'))
    >>> parent_and_name("/mnt")
    ('/', 'mnt')
    """
    text = os.fspath(place)
    whole = text.rstrip("/")
    above, slash, name = whole.rpartition("/")
    if not slash or above.endswith("/") or name in (".", ".."):
        return text, ""
    return (f"{above}/" if above.endswith(":") or not above else above), name
