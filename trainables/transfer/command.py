"""Back ends around a user's command template or function that copies directories.

`"aws s3 sync {source} {target}"` and `'rsync -savz -e "ssh -i key.pem" {source} {target}'` both work: source and
target are directories and end in `/`, so that contents go to contents (see `copying`).
"""

from __future__ import annotations

import re
import shlex
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainables.errors import InvalidAddressError, InvalidSettingError, TransferError
from trainables.transfer import programs
from trainables.transfer.backend import Can, checked_key
from trainables.transfer.copying import CopyingBackend
from trainables.transfer.deadline import Deadline, within
from trainables.validation import unknown_fields

DELETE_LIKE = """sh -c 'aws s3 rm "$0" && aws s3 rm --recursive "$0"' {target}"""
"""`aws s3 rm` alone removes a file, with --recursive only what is in a directory."""
_FIELD = re.compile(r"\{(source|target|options)\}")
_DELETING = re.compile(r"--(delete|del$|remove-source-files|remove$)")


class _DeletingBackend(CopyingBackend):
    """Copies somehow, and removes with a command, where there is one."""

    def __init__(
        self,
        copier: Any,
        uri: str,
        delete_template: str | None = None,
        *,
        options: str | Sequence[str] = (),
        timeout_s: float = 1800.0,
    ) -> None:
        super().__init__(uri)
        if uri.startswith("-"):
            raise InvalidAddressError(f"{uri!r} is no place: a command would take it for an option")
        self._deletes = delete_template
        self._delete = _taken_apart(delete_template, ("target",)) if delete_template is not None else None
        self._options = _words(options) if isinstance(options, str) else [str(word) for word in options]
        self._timeout_s = timeout_s
        self._copier = self._checked(copier)
        if self._delete is not None:
            self.can = Can(list=False, verify=False, exclusive=False, reuse=False, copy=False)

    @abstractmethod
    def _checked(self, copier: Any) -> Any:
        """What copies, made ready. Raises InvalidSettingError."""

    def _check_probe(self, deadline: Deadline) -> None:
        if self._delete is None:
            return
        self._remove(f"{self._probe_at}/file", deadline.left)
        try:
            left = self._fetched_probe(deadline)
        except TransferError:
            left = b""  # the directory went with its last file, and cannot be fetched
        if left:
            raise TransferError(
                f"{self.uri}: {self._deletes!r} did not remove a single file. It has to remove the file or the "
                f"directory {{target}}, like {DELETE_LIKE!r}: a manifest is removed before the files of its checkpoint"
            )

    def delete(self, keys: Sequence[str]) -> None:
        if self._delete is None:
            super().delete(keys)
            return
        for key in keys:
            self._remove(checked_key(key))

    def _remove(self, key: str, limit_s: float | None = None) -> None:
        assert self._delete is not None
        self._run(_filled(self._delete, {"target": self.url(key)}, self._options), "delete", limit_s)

    def _run(self, program: Sequence[str], what: str, limit_s: float | None = None) -> None:
        ended = programs.run(program, timeout_s=limit_s or self._timeout_s)
        if ended.code != 0 or ended.timed_out:
            said = f": {ended.last_lines}" if ended.last_lines else ""
            raise TransferError(
                f"{self.uri}: could not {what}: {shlex.join(program)} {ended.how}{said}",
                transient=ended.code not in (2, 126, 127),
                errno=ended.errno,
            )


class CommandBackend(_DeletingBackend):
    """Copies with a command.

    Args:
        copier: a command with `{source}` and `{target}`, and perhaps `{options}`. It is taken apart once, as a shell
            would, and each value stands in as it is: nothing of it is ever read by a shell of this host.
        uri: the place. What it means is the command's business.
        delete_template: a command with `{target}` that removes the file or directory of that name with all that is in
            it, and does not fail when there is none. Without it nothing is removed there.
        options: stands for `{options}` in both: a string, taken apart as a shell would, or a list of arguments.
        timeout_s: seconds after which a command and what it started is ended.

    Raises:
        InvalidSettingError: a field is missing or unknown, or the command would delete.
    """

    def _checked(self, copier: Any) -> list[str]:
        words = _taken_apart(copier, ("source", "target"))
        for word in words:
            if _DELETING.match(word):
                raise InvalidSettingError(
                    f"the sync command {copier!r} has {word}: a manifest is sent alone, after its checkpoint, and "
                    "that would remove the checkpoint again. Leave it out"
                )
        return words

    def _upload(self, local: str, remote: str, limit_s: float | None) -> None:
        self._run(self._filled({"source": local, "target": remote}), "push", limit_s)

    def _download(self, remote: str, local: str, limit_s: float | None) -> None:
        self._run(self._filled({"source": remote, "target": local}), "fetch", limit_s)

    def _filled(self, directories: Mapping[str, str]) -> list[str]:
        return _filled(self._copier, directories, self._options)


class FunctionBackend(_DeletingBackend):
    """Copies with a function `f(source, target)`, which raises when it cannot.

    Args:
        copier: called with two directories; one of them is below `uri`, and both end in `/`.
        uri: the place. What it means is the function's business.
        delete_template, options: as of a command.
        timeout_s: seconds after which the command that deletes is ended. The function itself is never interrupted.
    """

    def _checked(self, copier: Any) -> Callable[[str, str], object]:
        if not callable(copier):
            raise InvalidSettingError(f"{copier!r} cannot copy: a function f(source, target) is accepted")
        return copier  # type: ignore[no-any-return]

    def _upload(self, local: str, remote: str, limit_s: float | None) -> None:
        within(limit_s, lambda: self._call(local, remote), self.uri)

    def _download(self, remote: str, local: str, limit_s: float | None) -> None:
        within(limit_s, lambda: self._call(remote, local), self.uri)

    def _call(self, source: str, target: str) -> None:
        try:
            self._copier(source, target)
        except TransferError:
            raise
        except Exception as error:
            name = getattr(self._copier, "__name__", repr(self._copier))
            raise TransferError(
                f"{self.uri}: {name}({source!r}, {target!r}) raised {type(error).__name__}: {error}", transient=True
            ) from error


def _taken_apart(template: str, required: Sequence[str]) -> list[str]:
    words = _words(template)
    fields = [f"{{{name}}}" for name in (*required, "options")]
    if unknown := unknown_fields(template, fields):
        raise InvalidSettingError(
            f"the command {template!r} has {', '.join(unknown)}, which nothing fills in; fields are {', '.join(fields)}"
        )
    missing = [f"{{{name}}}" for name in required if not any(f"{{{name}}}" in word for word in words)]
    if missing:
        like = "aws s3 sync {source} {target}" if len(required) > 1 else DELETE_LIKE
        raise InvalidSettingError(f"the command {template!r} lacks {' and '.join(missing)}: write it like {like!r}")
    if _FIELD.search(words[0]):
        raise InvalidSettingError(f"the command {template!r} starts with a field: the program comes first")
    return words


def _filled(template: Sequence[str], values: Mapping[str, str], options: Sequence[str] = ()) -> list[str]:
    """The words of a command, with every field replaced once: what a value says is not looked at again."""
    fields = {**values, "options": shlex.join(options)}
    program: list[str] = []
    for word in template:
        if word == "{options}":
            program += options
        else:
            program.append(_FIELD.sub(lambda field: fields.get(field[1], field[0]), word))
    return program


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidSettingError(f"{text!r} cannot be read as a command: {error}") from error
