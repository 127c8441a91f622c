"""Where things lie in an experiment, and what a name may look like. The only place that knows file names."""

from __future__ import annotations

import re
from os import PathLike, fsencode, fspath
from pathlib import Path
from typing import Any, overload
from urllib.parse import unquote, urlsplit

from blake3 import blake3

from trainables import knobs as knobs_below
from trainables.places import is_elsewhere as is_elsewhere
from trainables.places import trim_slash
from trainables.transfer.open import shown
from tuner import knobs
from tuner.error import SettingError

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_SEGMENT = re.compile(r"(\d{6,})-(\d{6,})\.jsonl")
_SNAPSHOT = re.compile(r"snapshot-(\d{6,})-(\d{8,})\.json")
_GENERATION = re.compile(r"(\d{6,})\.json")
_PACK = re.compile(r"(\d{6,})-(\d{8,})-(\d{8,})\.jsonl\.gz")
_CHECKPOINT = re.compile(r"checkpoint_\d+(?:-(\d+)\.(\d+))?(?:\.\d+)?")

EXPERIMENT_NAME = 120
"""Characters of an experiment's name."""


class _FileName:
    """A file of that name in a trial's directory: made when it is asked for, since nobody asks for all of them."""

    def __init__(self, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, paths: None, owner: type[TrialPaths]) -> _FileName: ...
    @overload
    def __get__(self, paths: TrialPaths, owner: type[TrialPaths]) -> Path: ...
    def __get__(self, paths: TrialPaths | None, owner: type[TrialPaths]) -> Path | _FileName:
        return self if paths is None else paths.root / self.name


class TrialPaths:
    """What a trial's directory holds, besides its checkpoints."""

    trial_json = _FileName("trial.json")
    params_json = _FileName("params.json")
    exact_params_json = _FileName(".params.json")
    result_json = _FileName("result.json")
    progress_csv = _FileName("progress.csv")
    error_txt = _FileName("error.txt")
    error_recovered_txt = _FileName("error_recovered.txt")
    stdout = _FileName("stdout")
    stderr = _FileName("stderr")

    def __init__(self, root: Path) -> None:
        self.root = root

    def tracked(self, by: str) -> Path:
        """What was sent to a tracker."""
        return self.root / f"tracked.{by}.json"


class ExperimentPaths:
    """What an experiment's directory holds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.experiment_json = root / "experiment.json"
        self.generations = root / "generations"
        self.journal = root / "journal"
        self.history = self.journal / "history"
        self.blobs = root / "blobs"
        self.driver_log = root / "driver.log"
        self.older_driver_log = root / "driver.log.1"
        self.lock = self.generations / "lock"
        self.session_json = self.generations / "session.json"
        self.moving = root / ".moving"
        self.replaced = root / ".replaced"
        self.set_aside = root / ".set-aside"
        self.taking_over = root / ".taking-over"
        self.moving_aside = root / ".moving-aside"
        self.orders = root / "orders"
        self.config_yaml = root / "config.yaml"

    @property
    def driver_logs(self) -> tuple[Path, Path]:
        """Both files of warnings, the older one first."""
        return self.older_driver_log, self.driver_log

    def generation(self, number: int) -> Path:
        """The record of one driver's life."""
        return self.generations / f"{number:06d}.json"

    def heartbeats(self, number: int) -> Path:
        """In a replica: the owner's signs of life, and whether it has given the experiment up."""
        return self.generations / heartbeat_name(number)

    def processes(self, number: int) -> Path:
        """Pids and start times of what that driver started, one per line."""
        return self.generations / f"{number:06d}.processes"

    def segment(self, generation: int, number: int) -> Path:
        return self.journal / f"{generation:06d}-{number:06d}.jsonl"

    def snapshot(self, generation: int, seq: int) -> Path:
        return self.journal / f"snapshot-{generation:06d}-{seq:08d}.json"

    def pack(self, generation: int, first: int, last: int) -> Path:
        """What that generation packed of the history: facts `first` to `last`."""
        return self.history / f"{generation:06d}-{first:08d}-{last:08d}.jsonl.gz"


_TRIAL_FILES = frozenset(file.name for file in vars(TrialPaths).values() if isinstance(file, _FileName))


def is_trial_file(name: str) -> bool:
    """Whether the name is that of a file which the loggers write into a trial's directory."""
    return name in _TRIAL_FILES or name.startswith(("events.out.tfevents", "tracked."))


def is_history(key: str) -> bool:
    """Whether a path within an experiment is of its history: what snapshots replaced, and no resume reads."""
    return key.startswith("journal/history/")


def heartbeat_name(generation: int) -> str:
    """The file of an owner's heartbeats in a replica."""
    return f"{generation:06d}.beat"


def parse_segment(name: str) -> tuple[int, int] | None:
    """(generation, number) of a segment's file name, or None."""
    return _numbers(_SEGMENT, name)


def parse_snapshot(name: str) -> tuple[int, int] | None:
    """(generation, sequence number) of a snapshot's file name, or None."""
    return _numbers(_SNAPSHOT, name)


def parse_pack(name: str) -> tuple[int, int, int] | None:
    """(generation that packed it, first fact, last fact) of a pack's file name, or None."""
    match = _PACK.fullmatch(name)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def parse_generation(name: str) -> int | None:
    """The number of a generation's record, or None."""
    match = _GENERATION.fullmatch(name)
    return int(match[1]) if match else None


def parse_checkpoint(name: str) -> tuple[int, int] | None:
    """(generation, attempt) of a checkpoint's name, in which the first of the first is not named; or None."""
    match = _CHECKPOINT.fullmatch(name)
    return (int(match[1] or 1), int(match[2] or 1)) if match else None


def _numbers(pattern: re.Pattern[str], name: str) -> tuple[int, int] | None:
    match = pattern.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def check_experiment_name(name: Any) -> str:
    """Raise SettingError for a name that not every system and bucket takes for a directory as it is."""
    near = safe_name(name, limit=EXPERIMENT_NAME) if isinstance(name, str) else ""
    if not near or near != name:
        raise SettingError(
            f"name={name!r} is not accepted; accepted are at most {EXPERIMENT_NAME} characters of A-Z a-z 0-9 _ . -, "
            f"the first neither . nor -{f'; {near!r} is' if near and name else ''}"
        )
    return near


def safe_name(text: str, limit: int = 60) -> str:
    """`text` as a file name of at most `limit` characters of A-Z a-z 0-9 _ . -

    What is too long ends in a hash of the whole text, so that two long names that differ at their ends stay two.
    """
    name = _UNSAFE.sub("_", text)
    if name.startswith((".", "-")):
        name = "_" + name[1:]  # neither hidden, nor `..`, nor an option of some command
    if len(name) > limit:
        digest = blake3(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"{name[: limit - 9]}-{digest}"
    return name or "_"


def default_storage() -> Path:
    """Where experiments go when no `storage_path` is given: TUNE_RESULT_DIR, else ~/tuner_results."""
    return as_local_path(knobs.result_dir() or "~/tuner_results")


def cache_of(uri: str) -> Path:
    """The directory in which the local copy of what belongs to a URI lies."""
    place = trim_slash(shown(uri))
    digest = blake3(place.encode("utf-8", "surrogatepass")).hexdigest()[:8]  # s3://a/b and s3://a_b are two places
    return Path(knobs_below.cache_dir()).expanduser().absolute() / f"{safe_name(place, limit=71)}-{digest}"


def as_local_path(place: str | PathLike[str]) -> Path:
    """The absolute path of a local directory: a path, one with ~, or file://... Raises SettingError for all else."""
    text: Any = fspath(place) if isinstance(place, PathLike) else place
    if not isinstance(text, str):
        raise SettingError(f"the path {place!r} is not accepted; accepted are a path, one with ~, and file:///...")
    if not text:
        raise SettingError("an empty string is no directory; give a path, or None for the default")
    if scheme := _SCHEME.match(text):
        uri = urlsplit(text)
        if scheme[1].lower() != "file" or uri.netloc not in ("", "localhost"):
            raise SettingError(f"{text!r} is not on this machine; a local path or file:///... is accepted here")
        text = unquote(uri.path)
    elif _DRIVE.match(text):
        raise SettingError(f"{text!r} is a Windows path, and this is another system")
    if "\0" in text:
        raise SettingError(f"{text!r} holds a NUL character")
    try:
        fsencode(text)
    except UnicodeEncodeError as error:
        raise SettingError(f"{text!r} is no file name: {error.reason} (character {error.start})") from None
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # ~someone who does not exist
        raise SettingError(f"{text!r}: {error}") from error
