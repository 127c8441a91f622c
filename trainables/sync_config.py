"""`SyncConfig`: settings of the replica of an experiment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from trainables import validation as check
from trainables.errors import InvalidSettingError
from trainables.masking import MASK
from trainables.places import is_host
from trainables.quick_dataclass import dataclass
from trainables.validation import Config, checked_names, invalid, optional, parse_bytes, setting

_PLACE = 'None, or a URI or path like "s3://bucket/path"'
_port = partial(check.whole_number, least=1, most=65535, accepted="None, or a number from 1 to 65535")


def _syncer(name: str, value: Any) -> Any:
    accepted = '"auto", None, a command with {source} and {target}, a function (source, target), or a Syncer'
    if value is None or value == "auto" or callable(value) or callable(getattr(value, "sync_up", None)):
        return value
    if not isinstance(value, str):
        raise invalid(name, value, accepted)
    return _template(name, value, accepted, ("{source}", "{target}"))


def _delete_template(name: str, value: Any) -> Any:
    return check.text_or_none(name, value) and _template(name, value, "a command with {target}", ("{target}",))


def _template(name: str, template: str, accepted: str, needed: Sequence[str]) -> str:
    fields = (*needed, "{options}")
    if unknown := check.unknown_fields(template, fields):
        said = f"fields are {', '.join(fields)} (unknown: {', '.join(unknown)})"
        raise invalid(name, template, f"{accepted}; {said}")
    if missing := [field for field in needed if field not in template]:
        raise invalid(name, template, f"{accepted} (missing: {', '.join(missing)})")
    return template


def _excludes(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple | set | frozenset) or not all(isinstance(item, str) for item in value):
        raise invalid(name, value, 'None, or a list of patterns like ["*.tmp"]')
    return tuple(value)


def _options(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise invalid(name, value, "a text, as a shell would split it")
    return value


def _s3_extra_args(name: str, value: Any) -> dict[str, Any]:
    from trainables.transfer.s3_extra_args import checked_extra_args

    return checked_extra_args(name, value)


def _keep_local(name: str, value: Any) -> Any:
    if value == "all":
        return value
    return check.whole_number(name, value, least=1, accepted='"all", or a whole number >= 1')


@checked_names
@dataclass(repr=False)
class SyncConfig(Config):
    """Where copies of the experiment go.

    Args:
        upload_dir: a bucket ("s3://..."), a shared directory or a host; None: nowhere.
        syncer: "auto" (by the form of `upload_dir`), None (no syncing), a command with {source} and {target},
            a function (source, target), or a `Syncer`.
        sync_on_checkpoint: queue an upload at every checkpoint, and not only every `sync_period`.
        sync_period: seconds between two uploads of what is not a checkpoint.
        sync_timeout: seconds without progress after which one operation is given up, and how long the end waits.
        sync_artifacts: upload the other files of a trial's directory too.
        sync_artifacts_on_checkpoint: upload them at every checkpoint.
        excludes: patterns of artifacts that are not copied. None: all are.
        delete_template: a command with {target} that deletes there what a command or a function has copied. None:
            what such has copied stays there.
        options: what stands for {options} in the commands, as a shell would split it.
        ssh_key, ssh_port: of a host; None: as the user's ssh configuration says.
        keep_local: how many checkpoints of each trial stay on this machine once they are in the copy too, the newest of
            those that are kept; "all": every one.
        s3_extra_args: of an S3 bucket: arguments of each upload, as boto3's `ExtraArgs` has them, for example
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/mine"}; None: none. They are stored with the
            experiment.
        max_backlog: bytes, or a text like "10GB": a trial waits with its next checkpoint while more than that of it is
            still to be copied.
        max_backlog_s: the same, while its oldest checkpoint waits longer than so many seconds.

    Example:
        >>> SyncConfig(upload_dir="s3://my-bucket/runs", keep_local=1).keep_local
        1
    """

    upload_dir: str | os.PathLike[str] | None = setting(partial(check.path_or_none, accepted=_PLACE))
    syncer: Any = setting(_syncer, "auto")
    sync_on_checkpoint: bool = setting(check.flag, True)
    sync_period: float = setting(partial(check.seconds, zero=True), 300)
    sync_timeout: float = setting(partial(check.seconds, zero=False), 1800)
    sync_artifacts: bool = setting(check.flag, False)
    sync_artifacts_on_checkpoint: bool = setting(check.flag, True)
    excludes: Sequence[str] | None = setting(optional(_excludes))
    delete_template: str | None = setting(optional(_delete_template))
    options: str = setting(_options, "")
    ssh_key: str | os.PathLike[str] | None = setting(
        partial(check.path_or_none, accepted="None, or the path of a private key")
    )
    ssh_port: int | None = setting(optional(_port))
    keep_local: int | str = setting(_keep_local, "all")
    s3_extra_args: Mapping[str, Any] | None = setting(optional(_s3_extra_args))
    max_backlog: int | str = setting(lambda name, value: parse_bytes(value, name=name), "10GB")
    max_backlog_s: float = setting(partial(check.seconds, zero=False), 86400)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_place()
        self._check_used()

    @property
    def backlog_bytes(self) -> int:
        """`max_backlog` as the number that it is after construction."""
        return int(self.max_backlog)

    @property
    def local_copies(self) -> int | None:
        """`keep_local` as a number; None: all stay."""
        return None if self.keep_local == "all" else int(self.keep_local)

    def place(self) -> dict[str, Any]:
        """What `trainables.transfer.open.open_backend` takes."""
        assert self.upload_dir is not None
        return {
            "place": os.fspath(self.upload_dir),
            "syncer": self.syncer,
            "delete_template": self.delete_template,
            "options": self.options,
            "ssh_key": None if self.ssh_key is None else os.fspath(self.ssh_key),
            "ssh_port": self.ssh_port,
            "s3_extra_args": self.s3_extra_args,
        }

    def _check_place(self) -> None:
        """Refuse what would be taken for something else, and secrets: settings are kept with the experiment."""
        if self.upload_dir is None:
            return
        from trainables.transfer.open import secret_in, shown

        place = os.fspath(self.upload_dir)
        accepted = 'a bucket ("s3://bucket/path"), a host ("user@host:/path"), or a directory'
        if belongs := secret_in(place):
            told = shown(place) if "://" in place else MASK + place[place.index("@") :]
            raise InvalidSettingError(
                f"SyncConfig: upload_dir={told!r} is not accepted with a password in it, which would be stored with "
                f"the experiment and its copies; put that into the environment ({belongs}). Accepted: {accepted}"
            )
        if place.startswith("-"):
            raise invalid("SyncConfig: upload_dir", place, f"{accepted}; one whose name starts with - is ./{place}")
        if self.syncer == "auto" and is_host(place):
            from trainables.transfer.ssh import is_address

            if not is_address(place):
                told = f"{accepted}; a directory with a colon in its name is ./{place}"
                raise invalid("SyncConfig: upload_dir", place, told)

    def _is_s3(self) -> bool:
        from trainables.transfer.s3_address import is_s3

        return self.syncer == "auto" and self.upload_dir is not None and is_s3(self.upload_dir)

    def _check_used(self) -> None:
        """Refuse what would be ignored."""
        if self.delete_template is not None and self.syncer in (None, "auto"):
            raise invalid("SyncConfig: delete_template", self.delete_template, "None, unless syncer is given")
        commands = [text for text in (self.syncer, self.delete_template) if isinstance(text, str)]
        if self.options and not any("{options}" in text for text in commands):
            raise invalid("SyncConfig: options", self.options, "'', unless a command has {options}")
        if self.upload_dir is None:
            return
        if self.s3_extra_args is not None and not self._is_s3():
            accepted = "None, unless upload_dir is a bucket of S3 (s3://...) and syncer is not given"
            raise invalid("SyncConfig: s3_extra_args", self.s3_extra_args, accepted)
        if self.syncer == "auto" and is_host(self.upload_dir):
            return
        for name in ("ssh_key", "ssh_port"):
            if getattr(self, name) is not None:
                accepted = "None, unless upload_dir is a host, like user@host:/path, and syncer is not given"
                raise invalid(f"SyncConfig: {name}", getattr(self, name), accepted)
