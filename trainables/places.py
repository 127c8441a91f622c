"""Whether a place that people write is on this machine."""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def is_elsewhere(place: str | os.PathLike[str]) -> bool:
    """Whether a place is no path of this machine: a URI of a bucket, or a host as rsync writes it.

    >>> is_elsewhere("s3://bucket/x"), is_elsewhere("me@host:/x"), is_elsewhere("file:///x"), is_elsewhere("a/b:c")
    (True, True, False, False)
    """
    text = os.fspath(place)
    if scheme := _SCHEME.match(text):
        return scheme[1].lower() != "file"
    return ":" in text.partition("/")[0] and not _DRIVE.match(text)


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
