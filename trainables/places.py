"""Parsing of storage locations: local path, bucket URI, or host, and its parent directory."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")
NO_PASSWORD = re.compile(r"(?:[^:@/?]*@)?(?:\[[^\]@/?]*\]|[^:@/?\[]*)(?::\d{1,5})?(?=[/?]|$)")
"""The part of a URI before its path: an optional user, a host, an optional port."""


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


def split_query(place: str | os.PathLike[str]) -> tuple[str, str]:
    """Split a URI before the question mark of its query. A local path and a host have no query.

    >>> split_query("s3://bucket/runs?region=eu-west-1"), split_query("/mnt/what?/x")
    (('s3://bucket/runs', '?region=eu-west-1'), ('/mnt/what?/x', ''))
    """
    text = os.fspath(place)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text, ""
    at = text.find("?", scheme.end())
    if at >= 0 and "@" not in text[:at] and not NO_PASSWORD.match(text, scheme.end()):
        at = text.find("?", text.rfind("@") + 1)  # a question mark before it belongs to the password
    return (text, "") if at < 0 else (text[:at], text[at:])


def without_password(place: str) -> str:
    """A URI without the password of its user.

    A password may hold any character. So it ends at the last `@`: too much is removed rather than too little.

    >>> without_password("sftp://me:sec/ret@host/path"), without_password("s3://bucket/a:b@c")
    ('sftp://me@host/path', 's3://bucket/a:b@c')
    """
    scheme = _SCHEME.match(place)
    if scheme is None or NO_PASSWORD.match(place, scheme.end()):
        return place
    path, query = split_query(place)
    user, at, rest = path[scheme.end() :].rpartition("@")
    return f"{scheme[0]}{user.partition(':')[0]}@{rest}{query}" if at else place


def trim_slash(place: str | os.PathLike[str]) -> str:
    """A location without slashes at the end of its path, which a query may follow.

    >>> trim_slash("s3://bucket/runs/?region=eu-west-1")
    's3://bucket/runs?region=eu-west-1'
    """
    path, query = split_query(place)
    return path.rstrip("/") + query


def child_of(place: str | os.PathLike[str], name: str) -> str:
    """The address of a name below a location. The query of a location stays at the end.

    >>> child_of("s3://bucket/runs?region=eu-west-1", "mine"), child_of("/mnt/runs", "mine")
    ('s3://bucket/runs/mine?region=eu-west-1', '/mnt/runs/mine')
    """
    path, query = split_query(place)
    return f"{path.rstrip('/')}/{name}{query}"


def parent_and_name(place: str | os.PathLike[str]) -> tuple[str, str]:
    """A place as the place above it and a name; the latter is empty where there is nothing above.

    >>> parent_and_name("s3://bucket/runs/mine/"), parent_and_name("s3://bucket"), parent_and_name("me@host:/runs")
    (('s3://bucket/runs', 'mine'), ('s3://bucket', ''), ('me@host:/', 'runs'))
    >>> parent_and_name("/mnt"), parent_and_name("s3://bucket/runs?region=eu-west-1")
    (('/', 'mnt'), ('s3://bucket?region=eu-west-1', 'runs'))
    """
    path, query = split_query(place)
    above, slash, name = path.rstrip("/").rpartition("/")
    if not slash or above.endswith("/") or name in (".", ".."):
        return os.fspath(place), ""
    return (f"{above}/" if above.endswith(":") or not above else above) + query, name
