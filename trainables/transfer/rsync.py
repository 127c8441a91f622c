"""Back end for another host, by rsync over ssh.

rsync writes under temporary names and renames, so that what has its remote name is whole. It is told names
through files with NULs between them, never through a shell, and never to follow or to make links.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from trainables import errors
from trainables.transfer import programs
from trainables.transfer.backend import (
    Backend,
    Can,
    Entry,
    Leftover,
    Names,
    Progress,
    PushRequest,
    check_name,
    checked_key,
    joined,
    unwatched,
)
from trainables.transfer.programs import Ended
from trainables.transfer.rsync_batches import batches
from trainables.transfer.rsync_output import PROGRESS_OPTIONS, ProgressWatch, Version, all_absent, listed, version_in
from trainables.transfer.ssh import Ssh, failure, parse

_FSYNC_SINCE = (3, 2, 4)
_OLDEST_HERE, _OLDEST_THERE = (3, 1, 0), (3, 0, 0)
_UNWRITABLE_HERE = re.compile(r"\[(?:receiver|generator)\].*(?:No space|quota|Permission denied|Read-only)", re.I)
_PARTIAL = re.compile(r"\.(.+)\.[A-Za-z0-9]{6}")
"""As rsync calls a file that is on its way; it removes them itself, unless the other host dies."""
_VANISHED = 24


class RsyncBackend(Backend):
    """The directory `user@host:/path` of another host.

    Args:
        uri: `user@host:/path`; a path without `/` at its start lies in the user's home. Directories that are missing
            are made.
        key: file of the private key; without it the ssh configuration says which.
        port: of the ssh server; without it the ssh configuration says which.
        ssh_config: a configuration file instead of the user's own.
        timeout_s: seconds without a byte after which an operation is given up; while known content is hashed, seconds
            without a sign of life from the host.

    Host keys are checked as the ssh configuration says, and nobody is asked for a password.
    """

    can = Can(exclusive=False, copy=False, rename=True)

    def __init__(
        self,
        uri: str,
        *,
        key: str | os.PathLike[str] | None = None,
        port: int | None = None,
        ssh_config: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        super().__init__(uri.rstrip("/") if not uri.endswith(":/") else uri[:-1])
        if port is not None and not 0 < port < 65536:
            raise errors.InvalidSettingError(f"{uri}: port {port!r} is none: a number from 1 to 65535")
        address = parse(uri)
        self._root = address.path
        self._place = f"{address.rsync}:{address.path}"
        self._timeout_s = timeout_s
        self._ssh = Ssh(
            address,
            key=_file(uri, "ssh_key", key),
            port=port,
            config=_file(uri, "ssh_config", ssh_config),
            timeout_s=timeout_s,
        )
        self._fsync: bool | None = None

    def check(self, timeout_s: float = 10.0) -> None:
        for program, package in (("rsync", "rsync"), ("ssh", "openssh-client")):
            if shutil.which(program) is None:
                raise errors.TransferError(f"{self.uri}: there is no {program} on this host: install it ({package})")
        here = version_in(programs.run(["rsync", "--version"], timeout_s=timeout_s).out)
        self._refuse_older(here, _OLDEST_HERE, "of this host")
        script = 'rsync --version || exit; mkdir -p -- "$1" && printf x >"$1/$2" && rm -f -- "$1/$2"'
        ended = self._ssh.run(script, self._root, check_name(), timeout_s=timeout_s)
        if ended.code != 0:
            raise failure(self.uri, "write there", ended)
        there = version_in(ended.out)
        self._refuse_older(there, _OLDEST_THERE, "over there")
        self._fsync = _can_fsync(here, there)

    def _refuse_older(self, version: Version | None, oldest: Version, whose: str) -> None:
        if version is None or version < oldest:
            wanted = ".".join(map(str, oldest))
            raise errors.TransferError(f"{self.uri}: the rsync {whose} is too old: install {wanted} or newer")

    def _push(self, request: PushRequest) -> None:
        source, prefix, names = request.source, request.prefix, request.names
        _checked(prefix, names)
        sizes = {name: _size(source, name) for name in names}
        if request.exclusive:
            taken = self._present(prefix, names)
            if taken:
                raise errors.ObjectExistsError(f"{self.url(joined(prefix, min(taken)))} is there already")
        for chunk, options in batches(prefix, names, request.same, sizes):
            self._send(source, prefix, chunk, options, request.progress)
            request.receipts.update(dict.fromkeys(chunk, ""))

    def fetch(self, prefix: str, target: Path, names: Names = None, *, progress: Progress = unwatched) -> None:
        _checked(prefix, names or ())
        if names is None:
            found, links = self._listed(prefix)
            if links:
                raise errors.TransferCorruptError(f"{self.url(min(links))} is a link: only plain files are fetched")
            names = [entry.key[len(prefix) + 1 if prefix else 0 :] for entry in found]
            if not names:
                raise errors.ObjectNotFoundError(f"{self.url(prefix)}: there is nothing")
        target.mkdir(parents=True, exist_ok=True)
        watch = ProgressWatch(progress)
        ended = self._rsync(
            ["--ignore-times", *PROGRESS_OPTIONS, self._source(), f"{os.path.abspath(target)}/"],
            [f"./{prefix}/./{name}" if prefix else f"./{name}" for name in names],
            watch,
        )
        if "skipping non-regular file" in watch.text:
            raise errors.TransferCorruptError(
                f"{self.url(prefix)}: a link, or no plain file: {watch.text.strip()[-300:]}"
            )
        if ended.code != 0:
            if all_absent(ended):
                raise errors.ObjectNotFoundError(f"{self.url(prefix)}: not everything is there ({ended.last_lines})")
            if _UNWRITABLE_HERE.search(ended.err):
                text = f"{self.uri}: could not write to {target} ({ended.last_lines})"
                raise errors.TransferError(text, errno=ended.errno)
            raise failure(self.uri, "fetch", ended)
        for name in names:
            path = target / name
            if path.is_symlink() or not path.is_file():
                raise errors.TransferCorruptError(f"{self.url(joined(prefix, name))} did not arrive as a plain file")

    def list(self, prefix: str = "") -> Iterator[Entry]:
        _checked(prefix)
        found, _ = self._listed(prefix)
        yield from found

    def leftovers(self, prefix: str) -> Sequence[Leftover]:
        found, full, directories = [], set(), set()
        for kind, _, key in self._all(checked_key(prefix)):
            directory, _, name = key.rpartition("/")
            full.add(directory)
            if kind == "d":
                directories.add(key)
            elif kind == "-" and (half := _PARTIAL.fullmatch(name)):
                found.append(Leftover(key, joined(directory, half[1])))
        empty = (key for key in directories - full if key.startswith(f"{prefix}/"))
        return found + [Leftover(f"{key}/") for key in sorted(empty)]

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> None:
        self.delete([leftover.key for leftover in leftovers if not leftover.key.endswith("/")])
        self._remove_empty([leftover.key.rstrip("/") for leftover in leftovers if leftover.key.endswith("/")])

    def exists(self, key: str) -> bool:
        return bool(self._present("", [checked_key(key)]))

    def delete(self, keys: Sequence[str]) -> None:
        _checked("", keys)
        if not keys:
            return
        self._each('[ -d "$1" ] || exit 0; cd "$1" && xargs -0 rm -f --', keys, "delete")
        # A directory goes with its last file, up to the one that all of them lay in.
        top = posixpath.commonpath([posixpath.dirname(key) for key in keys])
        empty = {top} - {""}
        for key in keys:
            above = posixpath.dirname(key)
            while above != top:
                empty.add(above)
                above = posixpath.dirname(above)
        self._remove_empty(empty)

    def _remove_empty(self, directories: Iterable[str]) -> None:
        deepest_first = sorted(directories, key=lambda name: (-name.count("/"), name))
        if deepest_first:
            script = '[ -d "$1" ] || exit 0; cd "$1" && { xargs -0 rmdir -- 2>/dev/null || :; }'
            self._each(script, deepest_first, "delete empty directories")

    def _delete_tree(self, prefix: str) -> None:
        self._each('[ -d "$1" ] || exit 0; cd "$1" && xargs -0 rm -rf --', [prefix], "delete")

    def _rename_tree(self, prefix: str, target: str) -> None:
        # An empty directory makes room; without -T, which not every mv has, one that is left would take the tree in.
        script = (
            'cd "$1" || exit 3; if [ -d "./$2" ]; then mkdir -p -- "./$4" && { rmdir -- "./$3" 2>/dev/null; '
            '[ ! -e "./$3" ] || exit 4; } && mv -- "./$2" "./$3"; else [ -d "./$3" ] || exit 3; fi'
        )
        above = posixpath.dirname(target) or "."
        ended = self._ssh.run(script, self._root, prefix, target, above, timeout_s=self._timeout_s)
        if ended.code == 3:
            raise errors.ObjectNotFoundError(f"there is nothing at {self.url(prefix)}")
        if ended.code == 4:
            raise errors.ObjectExistsError(f"there is something at {self.url(target)}")
        if ended.code != 0:
            raise failure(self.uri, "rename", ended)

    def renew(self) -> None:
        self._ssh.disconnect()
        self._fsync = None

    def close(self) -> None:
        self._ssh.disconnect()

    def _send(
        self, source: Path, prefix: str, names: Sequence[str], options: Sequence[str], progress: Progress
    ) -> None:
        there = posixpath.join(self._root, prefix)
        command = [*options, *PROGRESS_OPTIONS, "--copy-links", "--chmod=Du+rwx,Fu+rw"]
        # The remote shell reads this; everything else goes through rsync's own protocol.
        command.append(f"--rsync-path=mkdir -p -- {shlex.quote(there)} && rsync")
        if self._syncs():
            command.append("--fsync")
        command += [f"{os.path.abspath(source)}/", self._place.removesuffix(self._root) + there.rstrip("/") + "/"]
        ended = self._rsync(command, [f"./{name}" for name in names], ProgressWatch(progress))
        if ended.code == 0:
            return
        for name in names:
            _size(source, name)  # it may have vanished here meanwhile, which is no fault of the other host
        raise failure(self.uri, "push", ended)

    def _listed(self, prefix: str) -> tuple[Sequence[Entry], Sequence[str]]:
        """Files under a prefix, and the keys of links."""
        found, links = [], []
        start = f"{prefix}/" if prefix else ""
        for kind, size, key in self._all(prefix):
            if kind == "l":
                links.append(key)
            elif kind == "-" and key.startswith(start):
                found.append(Entry(key, size))
        return found, links

    def _all(self, prefix: str) -> Iterator[tuple[str, int, str]]:
        """Kind, size and key of everything under a prefix."""
        return self._list(["--recursive"], [f"./{prefix}" if prefix else "."])

    def _present(self, prefix: str, names: Sequence[str]) -> set[str]:
        """Those of the names that are remote files."""
        keys = {joined(prefix, name): name for name in names}
        found = self._list([], [f"./{key}" for key in keys])
        return {keys[key] for kind, _, key in found if kind == "-" and key in keys}

    def _list(self, options: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, int, str]]:
        ended = self._rsync([*options, "--list-only", self._source(), "."], names)
        if ended.code not in (0, _VANISHED) and not all_absent(ended):
            raise failure(self.uri, "list", ended)
        return listed(self.uri, ended.out)

    def _each(self, script: str, keys: Iterable[str], what: str) -> None:
        stdin = b"".join(f"./{key}\0".encode() for key in keys)
        ended = self._ssh.run(script, self._root, stdin=stdin, timeout_s=self._timeout_s)
        if ended.code != 0:
            raise failure(self.uri, what, ended)

    def _source(self) -> str:
        """The root as rsync reads from it: it takes patterns there, also without a shell."""
        head, path = self._place.removesuffix(self._root), self._root
        if any(character in path for character in "*?["):
            path = re.sub(r"([*?\[\\])", r"\\\1", path)
        return f"{head}{path.rstrip('/')}/"

    def _rsync(self, options: Sequence[str], names: Sequence[str], watch: ProgressWatch | None = None) -> Ended:
        command = ["env", "LC_ALL=C", "rsync", "--secluded-args", "--no-human-readable", "--from0", "--files-from=-"]
        command += [f"--timeout={max(1, int(self._timeout_s))}", "-e", self._ssh.as_option(min(self._timeout_s, 20))]
        return programs.run([*command, *options], stdin=b"".join(f"{name}\0".encode() for name in names), watch=watch)

    def _syncs(self) -> bool:
        """Whether both sides can be told to make a file durable before it gets its name."""
        if self._fsync is None:
            here = version_in(programs.run(["rsync", "--version"], timeout_s=self._timeout_s).out)
            ended = self._ssh.run("rsync --version", timeout_s=self._timeout_s)
            if ended.code != 0:
                raise failure(self.uri, "push", ended)
            self._fsync = _can_fsync(here, version_in(ended.out))
        return self._fsync


def _file(uri: str, name: str, path: str | os.PathLike[str] | None) -> Path | None:
    if path is None:
        return None
    found = Path(path).expanduser()
    if not found.is_file():
        raise errors.InvalidSettingError(f"{uri}: {name}={os.fspath(path)!r} is no file")
    return found.absolute()


def _size(source: Path, name: str) -> int:
    try:
        path = source / name
        if not path.is_file():
            raise FileNotFoundError("it is no file, or not there")
        return path.stat().st_size
    except OSError as error:
        raise errors.TransferError(f"{source / name} cannot be pushed: {error}") from error


def _checked(prefix: str, names: Iterable[str] = ()) -> None:
    """Refuse names that lead out of where they belong."""
    if prefix:
        checked_key(prefix)
    for name in names:
        checked_key(name)


def _can_fsync(*versions: Version | None) -> bool:
    return all(version is not None and version >= _FSYNC_SINCE for version in versions)
