"""The class API: a trainable with `setup`, `step`, `save_checkpoint` and `load_checkpoint`."""

from __future__ import annotations

import inspect
import os
import reprlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainables.addresses import address_in
from trainables.automatic import AutomaticKeys
from trainables.checkpoint import DICT_FILE, Checkpoint, TrainingResult
from trainables.checkpoint_facts import METADATA_FILE
from trainables.checkpoint_files import as_local_path
from trainables.errors import CheckpointError, CheckpointNotFoundError, InvalidSettingError, MetricError
from trainables.job import Job
from trainables.places import is_elsewhere
from trainables.plain_metrics import no_metrics, plain_metrics
from trainables.store import file_tree, fs, staging
from trainables.store.manifest import MANIFEST_NAME
from trainables.trainable_facts import TrainableFacts, copied

NOTE = "trainable"
"""Key of what a save has to remember, in the manifest of a published one, else in the checkpoint's metadata."""


class Trainable(TrainableFacts):
    """Base of class trainables. In a trial the driver calls the methods; alone, `train`, `save` and `restore` do.

    Args:
        config: The trial's configuration; `setup` gets a deep copy of it.
        logger_creator: Called with the config; what it returns is told of each result (`on_result`), closed by `stop`,
            and asked for its `logdir`. Without it, a temporary directory is made when `logdir` is asked for outside a
            trial.
        storage: Has no effect.

    Example:
        >>> class Counter(Trainable):
        ...     def setup(self, config):
        ...         self.x = config["start"]
        ...     def step(self):
        ...         self.x += 1
        ...         return {"x": self.x}
        >>> Counter({"start": 4}).train()["x"]
        5
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        logger_creator: Callable[[dict[str, Any]], Any] | None = None,
        storage: Any = None,
    ) -> None:
        job, keys = _Host.take()
        self.config: dict[str, Any] = dict(config or {})
        self._job = job
        self._keys = keys or AutomaticKeys()
        self._own_logdir: str | None = None
        self._last_result: dict[str, Any] | None = None
        self._result_logger: Any = None
        self._create_logger(logger_creator)
        self.setup(copied(self.config))

    # ------------------------------------------------------------ what users write

    def setup(self, config: dict[str, Any]) -> None:
        """Get ready: called once, before anything else."""

    def step(self) -> dict[str, Any]:
        """Train a little and return a result. `done=True` in it ends the trial, `should_checkpoint=True` saves."""
        raise NotImplementedError(f"{type(self).__name__} needs a method step() that returns a dict of metrics")

    def save_checkpoint(self, checkpoint_dir: str) -> str | dict[str, Any] | None:
        """Save into `checkpoint_dir`, which is fresh and empty.

        Returns:
            The directory or None, and `load_checkpoint` gets the directory where the files then are; a path in it, and
            it gets that path; a dict, which is pickled, and it gets the dict.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method save_checkpoint(checkpoint_dir)")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Continue from what `save_checkpoint` returned; a directory is to be read only."""
        raise NotImplementedError(f"{type(self).__name__} has no method load_checkpoint(checkpoint)")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take another config without a new object, and return True; what was trained before is to be forgotten.

        With `reuse_actors=True` a trial's process goes on so with the next attempt, of this trial or of another, and
        `setup` is not called again. `config`, `logdir`, `trial_id` and the iteration are those of the next attempt
        already; its checkpoint, if it has one, is loaded afterwards. What is not True has a fresh process started.
        """
        return False

    def cleanup(self) -> None:
        """Give back what `setup` took: called once, when the object is needed no more."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with each complete result, in the trial's process, to log it in ways of your own.

        Unless it is overridden, the logger of `logger_creator` is told of it.
        """
        if self._result_logger is not None and hasattr(self._result_logger, "on_result"):
            self._result_logger.on_result(result)

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """Resources of a trial when `tune.run` names none; None for one CPU."""
        return None

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """A hint for people whose trial does not fit."""
        return ""

    # ------------------------------------------------------------ what drives it

    def train(self) -> dict[str, Any]:
        """Run one `step` and return its result with the automatic keys; outside a trial with the config too.

        Raises MetricError when the step returns no dict, or one with a value that cannot be written down.
        """
        self._keys.start_step()
        result = self.step()
        if not isinstance(result, Mapping):
            raise MetricError(no_metrics(type(self), result))
        complete = self._last_result = self._keys.complete(plain_metrics(result))
        if self._job is None:
            complete["config"] = self.config
        self.log_result(complete)
        return complete

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> TrainingResult:
        """Save into a directory, by default a new one in `logdir`; return its path, for `restore`.

        In a trial a new one is temporary, and gone with the run: what is to stay is reported.
        """
        if checkpoint_dir is None:
            place = None if self._job is not None else self.logdir  # the trial's own holds what is published, only
            if place is not None:
                fs.make_dirs(place)
            directory = Path(tempfile.mkdtemp(prefix=f"checkpoint_{self.iteration:06d}-", dir=place))
        else:
            directory = Path(os.path.abspath(checkpoint_dir))
            fs.make_dirs(directory)
        Checkpoint(directory).update_metadata(write_save(self, directory))
        return TrainingResult(str(directory), self._last_result or {})

    def restore(self, checkpoint_path: str | os.PathLike[str] | Checkpoint, checkpoint_node_ip: Any = None) -> None:
        """Continue from a checkpoint: what `save` returned, one that a trial published, or a `Checkpoint`.

        A path may also be that of a file which `save_checkpoint` returned. In a trial the count of iterations goes on:
        it is the driver's. `checkpoint_node_ip` is Ray's and has no effect.

        Raises CheckpointNotFoundError when there is none.
        """
        with save_of(checkpoint_path).as_directory() as directory:
            note = load_save(self, Path(directory))
        if self._job is None:
            self._keys = AutomaticKeys(
                trial_id=self.trial_id, iteration=note.get("iteration", 0), time_total_s=note.get("time_total_s", 0.0)
            )
            self._keys.totals.update(note.get("totals", {}))

    def save_to_object(self) -> bytes:
        """What `save` writes, as bytes for `restore_from_object`."""
        with tempfile.TemporaryDirectory(prefix="checkpoint_") as directory:
            return self.save(directory).checkpoint.to_bytes()

    def restore_from_object(self, obj: bytes) -> None:
        """Continue from what `save_to_object` returned."""
        self.restore(Checkpoint.from_bytes(obj))

    def reset(
        self,
        new_config: dict[str, Any],
        logger_creator: Callable[[dict[str, Any]], Any] | None = None,
        storage: Any = None,
    ) -> bool:
        """Start over with another config (and logger), where `reset_config` can; `config` is new when that is called.

        Returns whether it was done; if not, the object has its configuration still.
        """
        before, self.config = self.config, new_config
        if not self.reset_config(new_config):
            self.config = before
            return False
        self._keys = AutomaticKeys(trial_id=self.trial_id)
        self._last_result = None
        if logger_creator is not None:
            self._close_logger()
            self._create_logger(logger_creator)
        return True

    def stop(self) -> None:
        """End: closes the logger of `logger_creator` and calls `cleanup`."""
        self._close_logger()
        self.cleanup()


def saves(kind: type[Trainable]) -> bool:
    """Whether a class can save at all."""
    return kind.save_checkpoint is not Trainable.save_checkpoint


def resets(kind: type[Trainable]) -> bool:
    """Whether a class may take another config without a new object; a function that is simulated as one may not."""
    return getattr(kind, "reset_config", Trainable.reset_config) is not Trainable.reset_config


def check_class(kind: type[Trainable]) -> None:
    """Raise InvalidSettingError, which names class and method, for one whose trials could not run or not continue."""
    name = kind.__name__
    if kind.step is Trainable.step and hasattr(kind, "_train"):
        raise InvalidSettingError(
            f"trainable {name} has a method _train(), which Ray has not called since 0.8.7: it is step() now; "
            "_setup(), _save(), _restore() and _stop() are setup(), save_checkpoint(), load_checkpoint() and cleanup()"
        )
    if kind.step is Trainable.step:
        raise InvalidSettingError(f"trainable {name} has no method step(), which returns a dict of metrics")
    if saves(kind) and kind.load_checkpoint is Trainable.load_checkpoint:
        raise InvalidSettingError(
            f"trainable {name} has a method save_checkpoint() and no load_checkpoint(checkpoint): "
            "a trial that is interrupted could not continue from what it saved"
        )
    try:
        inspect.signature(kind).bind({})
    except TypeError as error:
        raise InvalidSettingError(
            f"{name}.__init__() cannot be called with a config alone ({error}): define setup(config) instead of it"
        ) from None


def make(kind: type[Trainable], job: Job, keys: AutomaticKeys) -> Trainable:
    """The trainable of a trial. Raises InvalidSettingError for one that is not set up."""
    _Host.waiting = (job, keys)
    try:
        made = kind(job.config)
    finally:
        _Host.waiting = None
    if not hasattr(made, "_keys"):
        raise InvalidSettingError(
            f"{kind.__name__}.__init__() does not call super().__init__(config): call it, or define setup(config) "
            "instead of __init__"
        )
    return made


def save_of(given: str | os.PathLike[str] | Checkpoint) -> Checkpoint:
    """The checkpoint of a save, from its path, URI or address in an experiment, or the path of a file in it."""
    if isinstance(given, Checkpoint) or is_elsewhere(given):
        return given if isinstance(given, Checkpoint) else Checkpoint(given)
    path = as_local_path(given)
    for directory in path.parents if path.is_file() else ():
        if fs.exists(directory / MANIFEST_NAME) or fs.exists(directory / METADATA_FILE):
            return Checkpoint(directory)
    if not path.is_dir() and address_in(given) is None:
        raise CheckpointNotFoundError(f"there is no checkpoint directory {path}")
    return Checkpoint(path if path.is_dir() else given)


def take_over(trainable: Trainable, job: Job, keys: AutomaticKeys) -> bool:
    """Have a trainable that has run a trial go on as another one's; False: it cannot."""
    trainable._job, trainable._keys, trainable.config = job, keys, dict(job.config)
    trainable._last_result = None
    return bool(trainable.reset_config(copied(trainable.config)))


def write_save(trainable: Trainable, directory: Path) -> dict[str, Any]:
    """Have a trainable save into `directory`; return what has to be noted with it."""
    returned = trainable.save_checkpoint(str(directory))
    keys = trainable._keys
    note: dict[str, Any] = {"iteration": keys.iteration, "time_total_s": keys.time_total_s}
    if keys.totals:
        note["totals"] = keys.totals
    if isinstance(returned, Mapping):
        Checkpoint.from_dict(returned)._materialize(directory)
        note["kind"] = "dict"
    elif returned is None:
        note["kind"] = "directory"
    elif isinstance(returned, (str, os.PathLike)):
        note |= _note_of_path(Path(os.path.abspath(returned)), directory)
    else:
        raise CheckpointError(
            f"{type(trainable).__name__}.save_checkpoint() returned {reprlib.repr(returned)} "
            f"({type(returned).__name__}); accepted are the directory it was given, a path in it, a dict, or None"
        )
    return {NOTE: note}


def _note_of_path(returned: Path, directory: Path) -> dict[str, Any]:
    inside, outer = os.path.realpath(returned), os.path.realpath(directory)
    if inside == outer:
        return {"kind": "directory"}
    if inside.startswith(outer + os.sep):
        return {"kind": "path", "path": os.path.relpath(inside, outer)}
    if returned.is_dir():  # the user's own: it is lent
        staging.copy_tree(file_tree.scan(returned, follow=True), directory)
        return {"kind": "directory"}
    if not returned.is_file():
        raise CheckpointError(f"save_checkpoint() returned {str(returned)!r}, and there is nothing of that name")
    fs.copy_file(returned, directory / returned.name)
    return {"kind": "path", "path": returned.name}


def note_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """What was noted with a save; {}: nothing."""
    manifest = checkpoint.manifest
    note: dict[str, Any] = (manifest.extra if manifest is not None else {}).get(NOTE) or {}
    return note or checkpoint.get_metadata().get(NOTE) or {}


def load_save(trainable: Trainable, directory: Path) -> dict[str, Any]:
    """Give a trainable back what it saved; return what was noted with it."""
    checkpoint = Checkpoint(directory)
    note = note_of(checkpoint)
    kind = note.get("kind", "dict" if (directory / DICT_FILE).exists() else "directory")
    with checkpoint.as_directory() as path:
        if kind == "dict":
            trainable.load_checkpoint(checkpoint.to_dict())
        elif kind == "path":
            trainable.load_checkpoint(os.path.join(path, note["path"]))
        else:
            trainable.load_checkpoint(path)
    return note


class _Host:
    """Hands the trial to the Trainable that is made for it, and to no other that user code may make."""

    waiting: tuple[Job, AutomaticKeys] | None = None

    @classmethod
    def take(cls) -> tuple[Job | None, AutomaticKeys | None]:
        taken, cls.waiting = cls.waiting, None
        return taken or (None, None)
