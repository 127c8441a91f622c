"""Factory of back ends: from `upload_dir` and `syncer` to the back end that they mean."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trainables.errors import InvalidAddressError, InvalidSettingError
from trainables.extras import how_to_install
from trainables.places import kernels_filesystem, split_query, without_password
from trainables.transfer.backend import Backend
from trainables.transfer.s3_address import SCHEMES, S3Address, shown_query

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HALF_SCHEME = re.compile(r"(s3|s3a|s3n|gs|gcs|az|abfs|abfss|file|memory)(?::(?!//)|//)", re.IGNORECASE)
_WEB = [
    (re.compile(r"(?P<bucket>[^./]+)\.s3[.-][^/]*amazonaws\.com(?P<path>/.*)?"), "s3"),
    (re.compile(r"s3[.-][^/]*amazonaws\.com/(?P<bucket>[^/]+)(?P<path>/.*)?"), "s3"),
    (re.compile(r"storage\.(?:googleapis|cloud\.google)\.com/(?P<bucket>[^/]+)(?P<path>/.*)?"), "gs"),
    (re.compile(r"(?P<bucket>[^./]+)\.storage\.googleapis\.com(?P<path>/.*)?"), "gs"),
    (re.compile(r"[^./]+\.blob\.core\.windows\.net/(?P<bucket>[^/]+)(?P<path>/.*)?"), "az"),
]
"""Web addresses of buckets."""
_LOGIN = re.compile(r"[^/@:]+:[^/@]*@")
"""user:password@host, which ssh does not know."""
_SECRET = re.compile(
    r"(?:^|[&;?])(?:[^=&;]*[_.-])?(?:[a-z]*key|[a-z]*token|sas|sig|auth|[a-z]*secret|pass[a-z]*|pwd?|[a-z]*credentials?"
    r"|[a-z]*signature)=|[&?]endpoint_override=[^&]*(?:@|%40)",
    re.IGNORECASE,
)
"""A secret in a query."""
_ENVIRONMENT = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS",
    "azure": "AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
}
"""Extra -> the variables that its library reads."""

EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}
"""Scheme -> the extra that it needs."""
_OURS = {*EXTRAS, "s3a", "s3n", "file", "local", "memory"}


def open_backend(
    place: str,
    *,
    syncer: Any = "auto",
    delete_template: str | None = None,
    options: str = "",
    ssh_key: str | None = None,
    ssh_port: int | None = None,
    s3_extra_args: Mapping[str, Any] | None = None,
) -> Backend:
    """The back end for a place. Nothing is connected to yet: `check` does that.

    Args:
        place: "s3://bucket/path", "gs://...", "az://...", "file://...", "memory://..." or another scheme that fsspec
            knows; "user@host:/path"; or a directory. Credentials and endpoints come from the environment; an S3 server
            may be named as well: "s3://bucket/path?endpoint_override=http://host:9000".
        syncer: "auto": by the form of `place`; a command with {source} and {target}, a function (source, target), or a
            `Syncer` copy to whatever `place` means to them.
        delete_template: of a command or a function.
        options: of a command or a function's delete_template.
        ssh_key, ssh_port: of a host.
        s3_extra_args: of each upload to S3; without effect for other places.

    Raises:
        InvalidAddressError: the scheme is not known, or the place cannot be meant.
        MissingExtraError: the library that it needs is not installed.
    """
    place = os.fspath(place)
    if not place:
        raise InvalidAddressError("the place of the copies is empty: a URI, a host or a directory is expected")
    if syncer is not None and syncer != "auto":
        return _users(place, syncer, delete_template=delete_template, options=options)
    check_scheme(place)
    if (found := _SCHEME.match(place)) is not None:
        return _by_scheme(found[1].lower(), place, s3_extra_args or {})
    if ":" in place.partition("/")[0]:  # as rsync and scp tell a host from a path
        from trainables.transfer.rsync import RsyncBackend

        return RsyncBackend(place, key=ssh_key, port=ssh_port)
    return _directory(place, place)


def check_scheme(place: str) -> None:
    """Raise InvalidAddressError for a scheme that nothing here knows. Nothing is opened."""
    if meant := _meant(place):
        raise InvalidAddressError(f"{shown(place)!r} is not accepted; {meant}")
    found = _SCHEME.match(place)
    if found is None:
        return
    check_query(place)
    if found[1].lower() in _OURS:
        return
    known = _known_to_fsspec()
    if found[1].lower() not in known:
        raise InvalidAddressError(_unknown(found[1].lower(), place, known))


def check_query(place: str) -> None:
    """Raise InvalidAddressError for what no back end reads: a query, unless it names an S3 server, and a password."""
    scheme = _SCHEME.match(place)
    name = "" if scheme is None else scheme[1]
    if name in SCHEMES:
        S3Address.parse(_written_out(place))
    elif name in (*EXTRAS, "memory"):
        if without_password(place) != place:
            raise InvalidAddressError(
                f"{shown(place)}: passwords in an address are not read, and would be printed; "
                "put them into the environment"
            )
        if query := split_query(place)[1]:
            parameter = query[1:].partition("=")[0]
            belongs = _ENVIRONMENT.get(EXTRAS.get(name, ""), "")
            raise InvalidAddressError(
                f"{shown(place)}: the query parameter {parameter!r} is not accepted: {name}:// addresses have no query"
                + (f"; put options and credentials into the environment ({belongs})" if belongs else "")
            )


def shown(place: str) -> str:
    """A place as it may be printed and stored: without a password and a query, except one that names an S3 server.

    >>> shown("sftp://me:secret@host/path?token=abc"), shown("s3://bucket/runs?region=eu-west-1")
    ('sftp://me@host/path', 's3://bucket/runs?region=eu-west-1')
    """
    path, query = split_query(without_password(place))
    scheme = _SCHEME.match(place)
    return path + shown_query(path, query) if scheme is not None and scheme[1].lower() in SCHEMES else path


def secret_in(place: str) -> str:
    """Where the password in a place belongs, in words; nothing when there is none in it.

    >>> secret_in("s3://bucket/path?secret=abc"), secret_in("s3://bucket/path?versions=3")
    ('AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE', '')
    """
    found = _SCHEME.match(place)
    if found is None:
        return "your ssh configuration and agent" if _LOGIN.match(place) else ""
    if without_password(place) == place and not _SECRET.search(split_query(place)[1]):
        return ""
    scheme = found[1].lower()
    return _ENVIRONMENT.get(EXTRAS.get(scheme.replace("s3a", "s3").replace("s3n", "s3"), ""), "") or (
        f"FSSPEC_{re.sub('[^A-Z0-9]', '_', scheme.upper())}_PASSWORD, as fsspec reads it"
    )


def _meant(place: str) -> str:
    """What should have been written instead of that place, where that can be told; else nothing."""
    plain = shown(place)
    if found := _HALF_SCHEME.match(plain):
        name, path = found[1], plain[found.end() :].lstrip("/")
        a_host = found[0] == f"{name.lower()}:"
        host = f" (or, for a host of that name, user@{plain})" if a_host else ""
        slash = "/" if name.lower() == "file" else ""
        return f"write {name.lower()}://{slash}{path or 'bucket/path'}{host}"
    if found := _SCHEME.match(plain):
        if found[1] != found[1].lower() and found[1].lower() in _OURS:
            return f"write {found[1].lower()}{plain[len(found[1]) :]}"
        if found[1].lower() in ("http", "https"):
            for pattern, scheme in _WEB:
                if web := pattern.fullmatch(plain.partition("://")[2]):
                    return f"write {scheme}://{web['bucket']}{(web['path'] or '').rstrip('/')}"
            return "nothing can be written to a web address: write s3://, gs:// or az:// with the bucket's name"
    return ""


def _users(place: str, syncer: Any, *, delete_template: str | None, options: str) -> Backend:
    if isinstance(syncer, str):
        from trainables.transfer.command import CommandBackend

        return CommandBackend(syncer, place, delete_template, options=options)
    if callable(getattr(syncer, "sync_up", None)):
        from trainables.transfer.user import SyncerBackend

        if delete_template is not None:
            raise InvalidSettingError(
                f"delete_template={delete_template!r} goes with a command or a function, and syncer is {syncer!r}: a "
                "Syncer has its own delete()"
            )
        return SyncerBackend(syncer, place)
    if callable(syncer):
        from trainables.transfer.command import FunctionBackend

        return FunctionBackend(syncer, place, delete_template, options=options)
    accepted = '"auto", a command with {source} and {target}, a function (source, target), or a Syncer'
    raise InvalidSettingError(f"syncer={syncer!r} is not accepted; accepted: {accepted}")


def _by_scheme(scheme: str, place: str, s3_extra_args: Mapping[str, Any]) -> Backend:
    match scheme:
        case "s3" | "s3a" | "s3n":
            from trainables.transfer.s3 import S3Backend

            return S3Backend(place, s3_extra_args)
        case "gs" | "gcs":
            from trainables.transfer.gcs import GcsBackend

            return GcsBackend(_plain(place))
        case "az" | "abfs" | "abfss":
            from trainables.transfer.azure import AzureBackend

            return AzureBackend(_plain(place))
        case "file" | "local":
            return _directory(_file_path(place), place)
        case "memory":
            from trainables.transfer.fsspec import MemoryBackend

            return MemoryBackend(_plain(place))
    from trainables.transfer.fsspec import FsspecBackend

    return FsspecBackend(place, shown=shown(place))


def _directory(path: str, uri: str) -> Backend:
    from trainables.transfer.local import LocalBackend

    expanded = os.path.expanduser(path)
    if kind := kernels_filesystem(expanded):
        raise InvalidAddressError(
            f"{path!r} is not accepted: {kind} is the kernel's own filesystem, and keeps no files; "
            "give a directory on a disk"
        )
    return LocalBackend(Path(expanded), uri if uri != path else expanded)


def _file_path(place: str) -> str:
    host, _, path = place.partition("://")[2].partition("/")
    if host not in ("", "localhost"):
        raise InvalidAddressError(f"{place!r} names the host {host!r}: write file:///path, or {host}:/path for rsync")
    return unquote(f"/{path}")


def _plain(place: str) -> str:
    """The place, if it says where and nothing else."""
    if not place.partition("://")[2].strip("/"):
        raise InvalidAddressError(f"{place!r} does not say where: scheme://bucket/path is expected")
    return _written_out(place)


def _written_out(place: str) -> str:
    """The place, if every part of its path is a name: a store takes '..' for one."""
    bucket, _, path = split_query(place)[0].partition("://")[2].partition("/")
    parts = path.strip("/").split("/")
    if {".", ".."} & {bucket, *parts}:
        raise InvalidAddressError(f"{shown(place)!r} has '.' or '..' in it: write the path out")
    if "" in parts[1:]:
        raise InvalidAddressError(f"{shown(place)!r} has '//' in its path, an empty name, which is not accepted")
    return place


def _known_to_fsspec() -> set[str]:
    try:
        from fsspec.registry import known_implementations, registry
    except ImportError:
        return set()
    return set(known_implementations) | set(registry)


def _unknown(scheme: str, place: str, known: set[str]) -> str:
    ours = ", ".join(f"{name}:// (tuner[{extra}])" for name, extra in EXTRAS.items() if name not in ("gcs", "abfss"))
    others = ", ".join(sorted(known - set(EXTRAS))) if known else f"those of fsspec ({how_to_install('fsspec')})"
    return (
        f"{shown(place)}: the scheme {scheme!r} is not known. Known: {ours}, file://, user@host:/path, a directory, "
        f"and, where its package is installed, {others}"
    )
