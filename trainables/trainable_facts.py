"""What a class trainable has besides setup, steps and saves: its counts, its trial, its logger, exports."""

from __future__ import annotations

import copy
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from trainables.absent import SaysInstead
from trainables.automatic import EPISODES_TOTAL, NODE_IP, PID, TIME_THIS_ITER_S, TIMESTEPS_TOTAL, AutomaticKeys
from trainables.bundles import TrialResources
from trainables.job import Job
from trainables.store import fs

_COPIED = "SyncConfig(upload_dir=...) copies checkpoints, from outside of the trainable"
_DEBUG = ("trial_id", "date", "timestamp", "pid", "hostname", "node_ip", "config")


class ExportFormat:
    """Names for what `export_model` may be asked for; a trainable's `_export_model` knows what they mean."""

    CHECKPOINT = "checkpoint"
    MODEL = "model"
    ONNX = "onnx"
    H5 = "h5"

    @staticmethod
    def validate(formats: Sequence[str]) -> None:
        """Raise ValueError for a name that is none of these."""
        known = (ExportFormat.CHECKPOINT, ExportFormat.MODEL, ExportFormat.ONNX, ExportFormat.H5)
        for each in formats:
            if each.strip().lower() not in known:
                raise ValueError(f"export format {each!r} is not accepted; accepted are {', '.join(known)}")


class TrainableFacts(SaysInstead):
    """The part of `Trainable` that tells of it, and what programs for Ray call beside the life of a trial."""

    config: dict[str, Any]
    _job: Job | None
    _keys: AutomaticKeys
    _own_logdir: str | None
    _last_result: dict[str, Any] | None
    _result_logger: Any
    train: Callable[[], dict[str, Any]]

    _instead: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("remote_checkpoint_dir", "storage_client", "sync_function_tpl", "custom_syncer", "sync_timeout"), _COPIED
        ),
        **dict.fromkeys(("sync_num_retries", "sync_sleep_time"), _COPIED),
        "delete_checkpoint": "shutil.rmtree(path) of what save() returned; what a trial publishes is kept by retention",
        "build_config": "trainables.torch.TorchTrainer starts the workers of a trial",
    }

    @property
    def iteration(self) -> int:
        """Results so far."""
        return self._keys.iteration

    @property
    def training_iteration(self) -> int:
        """Results so far, in all attempts."""
        return self._keys.iteration

    @property
    def logdir(self) -> str:
        """The trial's directory; outside a trial a temporary one, which goes with this object."""
        if self._job is not None:
            return str(self._job.directory)
        if self._own_logdir is None:
            self._own_logdir = tempfile.mkdtemp(prefix=f"{type(self).__name__}_")
            weakref.finalize(self, _remove_own, self._own_logdir, os.getpid())
        return self._own_logdir

    @property
    def trial_id(self) -> str:
        """The trial's id; "default" outside a trial."""
        return "default" if self._job is None else self._job.trial_id

    @property
    def trial_name(self) -> str:
        """The trial's name; "default" outside a trial."""
        return "default" if self._job is None else self._job.trial_name

    @property
    def trial_resources(self) -> TrialResources:
        """What the trial was given."""
        return TrialResources({} if self._job is None else self._job.resources or {})

    def get_config(self) -> dict[str, Any]:
        """The config."""
        return self.config

    def get_current_ip_pid(self) -> tuple[str, int]:
        """Where this runs."""
        return self._keys.constant[NODE_IP], self._keys.constant[PID]

    def get_current_ip(self) -> str:
        """Where this runs, as Ray 1.13 asks for it."""
        return self.get_current_ip_pid()[0]

    def get_state(self) -> dict[str, Any]:
        """The counts and the last result."""
        return {
            "iteration": self.iteration,
            "timesteps_total": self._timesteps_total,
            "time_total": self._time_total,
            "episodes_total": self._episodes_total,
            "last_result": self._last_result,
        }

    def get_auto_filled_metrics(
        self,
        now: datetime | None = None,
        time_this_iter: float | None = None,
        timestamp: int | None = None,
        debug_metrics_only: bool = False,
    ) -> dict[str, Any]:
        """The automatic keys that a result of this moment would have, and the config; nothing is counted up.

        Args:
            now: the wall clock.
            time_this_iter: seconds that the iteration took.
            timestamp: seconds since the epoch, instead of `now`'s.
            debug_metrics_only: only those that need no iteration.
        """
        keys = {TIME_THIS_ITER_S: time_this_iter, **self._keys.at(now), "config": self.config}
        if timestamp is not None:
            keys["timestamp"] = timestamp
        return {key: keys[key] for key in _DEBUG} if debug_metrics_only else keys

    def is_actor(self) -> bool:
        """False: a trial is a process."""
        return False

    @property
    def uses_cloud_checkpointing(self) -> bool:
        """False: copies are made from outside of the trainable."""
        return False

    def train_buffered(self, buffer_time_s: float, max_buffer_length: int = 1000) -> list[dict[str, Any]]:
        """Results of `train`, at least one, until a time is over, there are so many, or one asks for a save or ends."""
        until = time.monotonic() + buffer_time_s
        results = [self.train()]
        while len(results) < max_buffer_length and time.monotonic() < until:
            if results[-1].get("done") or results[-1].get("should_checkpoint"):
                break
            results.append(self.train())
        return results

    def export_model(self, export_formats: str | Sequence[str], export_dir: str | None = None) -> Any:
        """Have `_export_model` export into a directory, by default `logdir`; returns what it does."""
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, export_dir or self.logdir)

    def _export_model(self, export_formats: list[str], export_dir: str) -> Any:
        """Override it: write the model in these formats into the directory, and return {format: path}."""
        return {}

    def _create_logger(self, creator: Callable[[dict[str, Any]], Any] | None) -> None:
        if creator is not None:
            self._result_logger = creator(self.config)
            self._own_logdir = getattr(self._result_logger, "logdir", None)

    def _close_logger(self) -> None:
        logger, self._result_logger = self._result_logger, None
        for each in ("flush", "close"):
            if hasattr(logger, each):
                getattr(logger, each)()

    # ------------------------------------------------------------ without a promise in Ray, and in many programs

    @property
    def _iteration(self) -> int:
        return self._keys.iteration

    @_iteration.setter
    def _iteration(self, iteration: int) -> None:
        if self._job is None:  # in a trial the driver's count holds, and goes on
            self._keys.iteration = iteration

    @property
    def _time_total(self) -> float:
        return self._keys.time_total_s

    @_time_total.setter
    def _time_total(self, seconds: float) -> None:
        if self._job is None:
            self._keys.time_total_s = seconds

    @property
    def _timesteps_total(self) -> float | None:
        return self._keys.totals.get(TIMESTEPS_TOTAL)

    @_timesteps_total.setter
    def _timesteps_total(self, count: float | None) -> None:
        self._keys.totals[TIMESTEPS_TOTAL] = count or 0

    @property
    def _episodes_total(self) -> float | None:
        return self._keys.totals.get(EPISODES_TOTAL)

    @_episodes_total.setter
    def _episodes_total(self, count: float | None) -> None:
        self._keys.totals[EPISODES_TOTAL] = count or 0

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What Ray keeps under these names, unless a subclass keeps something else there."""
            if name in _KEPT and "_keys" in self.__dict__:
                return _KEPT[name](self)
            return super().__getattr__(name)


_KEPT: dict[str, Callable[[TrainableFacts], Any]] = {
    "_iterations_since_restore": lambda self: self._keys.since_restore,
    "_time_since_restore": lambda self: self._keys.time_since_restore,
    "_restored": lambda self: self._keys.iteration > self._keys.since_restore,
    "_logdir": lambda self: self.logdir,
    "_local_ip": lambda self: self.get_current_ip(),
}


def _remove_own(directory: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child has only a copy of the object
        fs.remove_quietly(directory)


def copied(config: dict[str, Any]) -> dict[str, Any]:
    """Copy a config for the user's methods, which may change it."""
    try:
        return copy.deepcopy(config)
    except Exception:  # a user's container that can only be pickled, like a dict whose __getattr__ raises KeyError
        import cloudpickle

        made: dict[str, Any] = cloudpickle.loads(cloudpickle.dumps(config))
        return made
