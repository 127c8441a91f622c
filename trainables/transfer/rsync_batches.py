"""Batches of files for one call of rsync each, with its options."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

_CHUNK = 1024 * 1024 * 1024
"""Bytes that one rsync is given to push: a second try leaves out the chunks that have arrived."""
_HASHING_S = 24 * 3600
"""Seconds without a byte while known content is compared: as long as the largest takes to be read remotely."""
_LINK_DESTS = 20
"""So many directories of known content rsync takes at once."""


def batches(
    prefix: str, names: Sequence[str], same: Mapping[str, str], sizes: Mapping[str, int]
) -> Iterator[tuple[Sequence[str], list[str]]]:
    """Names of files with the options to push them with; `same` as in `Backend.push`."""
    known, new = _split(names, same)
    # Remote content is compared by checksum before it is linked; what is new is sent without looking.
    # Neither side says a word while it hashes; that the host is gone is noticed by ssh.
    for bases, chunk in known:
        links = (posixpath.relpath(f"/{base}", f"/{prefix}") for base in bases)
        yield chunk, ["--checksum", f"--timeout={_HASHING_S}", *(f"--link-dest={link}" for link in links)]
    for chunk in _chunks(new, sizes):
        yield chunk, ["--ignore-times"]


def _split(names: Sequence[str], same: Mapping[str, str]) -> tuple[list[tuple[list[str], list[str]]], list[str]]:
    """Names whose content the place has under the same name in another directory, in groups with those
    directories; and the others."""
    bases: dict[str, list[str]] = {}
    new = []
    for name in names:
        key = same.get(name, "")
        if key == name or key.endswith(f"/{name}"):
            bases.setdefault(key[: -len(name)].rstrip("/"), []).append(name)
        else:
            new.append(name)
    grouped = []
    found = sorted(bases)
    for start in range(0, len(found), _LINK_DESTS):
        some = found[start : start + _LINK_DESTS]
        grouped.append((some, [name for base in some for name in bases[base]]))
    return grouped, new


def _chunks(names: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for name in names:
        if chunk and size + sizes[name] > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(name)
        size += sizes[name]
    if chunk:
        yield chunk
