"""`Result`: metrics, checkpoints and error of one trial, also read back from its directory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainables import tagged
from trainables.absent import SaysInstead
from trainables.arrow_filesystem import filesystem_of
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError, InvalidSettingError, MetricError, TrainablesError
from trainables.metrics import MISSING, lookup, nearest_keys, score_of
from trainables.places import child_of, is_elsewhere, parent_and_name, trim_slash
from trainables.quick_dataclass import dataclass
from trainables.result_history import (
    EXACT_PARAMS_FILE,
    PARAMS_FILE,
    RESULT_FILE,
    flatten,
    frame,
    read_history,
    read_line,
)
from trainables.store import fs, verify
from trainables.store.manifest import Manifest, digest
from trainables.store.retention import rank_key
from trainables.user_frames import last_said

if TYPE_CHECKING:
    import pandas
    from pyarrow.fs import FileSystem

_ERROR_FILE = "error.txt"
_FILES = (RESULT_FILE, PARAMS_FILE, EXACT_PARAMS_FILE, _ERROR_FILE)
_OCCURRED = re.compile(r"^Failure # \d+ \(occurred at (.{19})\)$", re.MULTILINE)


class Result(SaysInstead):
    """The outcome of one trial.

    Args:
        metrics: its last result, with the config under "config".
        checkpoint: the latest one that is kept, or None.
        error: why it failed, or None.
        path: its directory.
        end_reason: why it ended, as a sentence ("returned", "stop: loss 0.1 <= 0.2"), or what ended the run before it
            ("stopped by you", "time budget spent"); None: it runs, or that is not known, as of one read by `from_path`.
        config: its resolved config, or a function that gets it when it is asked for; None: what `metrics` has under
            "config".
        best_checkpoints: (checkpoint, the result it belongs to), worst to best: exactly the best N.

    Example:
        >>> result = tune.Tuner(train, param_space={"lr": tune.loguniform(1e-4, 1e-1)}).fit()[0]
        >>> result.metrics["loss"], result.config["lr"], result.metrics_dataframe["loss"].min()
    """

    _instead: ClassVar[Mapping[str, str]] = {
        "return_value": "metrics: a dict that the training function returns is its last result"
    }

    def __init__(
        self,
        *,
        metrics: Mapping[str, Any] | None = None,
        checkpoint: Checkpoint | None = None,
        error: BaseException | None = None,
        path: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
        best_checkpoints: Sequence[tuple[Checkpoint, dict[str, Any]]] = (),
        metrics_dataframe: pandas.DataFrame | Callable[[], pandas.DataFrame] | None = None,
        end_reason: str | None = None,
    ) -> None:
        self.metrics = None if metrics is None else dict(metrics)
        self.checkpoint = checkpoint
        self.error = error
        self.end_reason = end_reason
        self.path = None if path is None else os.fspath(path)
        self.best_checkpoints = list(best_checkpoints)
        self._config = config
        self._frame = metrics_dataframe
        self._frame_given = metrics_dataframe is not None

    @property
    def config(self) -> dict[str, Any] | None:
        """The resolved config. Of a run's results it is the trial's, and may be unpickled: see `Trial.config`."""
        if callable(self._config):
            self._config = self._config()
        found = (self.metrics or {}).get("config") if self._config is None else self._config
        return dict(found) if isinstance(found, Mapping) else None

    @property
    def metrics_dataframe(self) -> pandas.DataFrame | None:
        """All results, one row each, nested keys as columns "a/b"; read from the trial's directory when asked for."""
        if callable(self._frame):
            self._frame = self._frame()
        if self._frame is None and self.path is not None:
            self._frame = frame(read_history(Path(self.path) / RESULT_FILE))
        return self._frame

    @property
    def log_dir(self) -> Path | None:
        """Its directory, as Ray 2.0 to 2.6 have it; `path` is the same as text."""
        return None if self.path is None else Path(self.path)

    @property
    def filesystem(self) -> FileSystem:
        """What `path` lies on, as an object of pyarrow. Raises MissingExtraError without pyarrow."""
        return filesystem_of(self.path)

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """The best of `best_checkpoints` by another metric; of equals the earlier, NaN only where nothing else is.

        Raises CheckpointNotFoundError if there is none, MetricError if none has the metric.
        """
        if mode not in ("min", "max"):
            raise InvalidSettingError(f"mode={mode!r} is not accepted; accepted are 'min' and 'max'")
        if not self.best_checkpoints:
            raise CheckpointNotFoundError(f"there is no checkpoint in {self.path}")
        scored = [
            (rank_key(score, "max" if mode == "max" else "min", (0, 0, int(_iteration(metrics)))), made)
            for made, metrics in self.best_checkpoints
            if (score := score_of(metrics, metric)) is not None
        ]
        if not scored:
            sample = self.best_checkpoints[-1][1]
            is_there = lookup(sample, metric) is not MISSING
            raise MetricError(
                f"{metric!r} is not a number in any checkpoint's result"
                if is_there
                else f"no checkpoint's result has {metric!r}; reported, nearest first: "
                + ", ".join(nearest_keys(sample, metric))
            )
        return max(scored, key=lambda pair: pair[0])[1]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: None = None) -> Result:
        """The result that lies in a trial's directory, here or elsewhere ("s3://..."). Nothing in it is executed.

        Of its config what was pickled stays closed; what is large is read from the experiment that the directory lies
        in, where that is here.

        Raises FileNotFoundError if there is no such directory, TransferError.
        """
        if is_elsewhere(path):
            return cls._from_elsewhere(trim_slash(path))
        directory = Path(Checkpoint(path).path)  # takes file:// and ~ as every path does
        if not directory.is_dir():
            raise FileNotFoundError(f"there is no trial's directory {directory}")
        found = [(Checkpoint(each.path), each.manifest) for each in verify.list_checkpoints(directory)]
        return cls._read(directory, found)

    @classmethod
    def _from_elsewhere(cls, uri: str) -> Result:
        """Its small files are brought into the cache now, checkpoints when they are used."""
        from trainables.transfer import remote_checkpoints
        from trainables.transfer.cached import locked_cache
        from trainables.transfer.open import open_backend, shown

        place, name = parent_and_name(uri)
        with open_backend(place) as backend:
            there = backend.children(name)
            small = [file for file in _FILES if file in there]
            listing = remote_checkpoints.listed(backend, name).complete
            if not small and not listing:
                raise FileNotFoundError(f"there is no trial's directory {shown(uri)}")
            found = [
                (Checkpoint.from_uri(child_of(place, each.key), digest=each.digest), each.manifest) for each in listing
            ]
            with locked_cache(f"trials/{digest(uri.encode())}") as directory:
                for file in _FILES:
                    fs.remove_quietly(directory / file)
                for file in small:
                    backend.fetch(name, directory, [file])
                return cls._read(directory, found)

    @classmethod
    def _read(cls, directory: Path, published: Sequence[tuple[Checkpoint, Manifest]]) -> Result:
        history = read_history(directory / RESULT_FILE)
        config = _read_config(directory)
        remote_checkpoints = [(made, tagged.loads(bytes(content.metrics)) or {}) for made, content in published]
        return cls(
            metrics={**history[-1], "config": config} if history else {"config": config},
            checkpoint=remote_checkpoints[-1][0] if remote_checkpoints else None,
            error=_read_error(directory, history),
            path=directory,
            config=config,
            best_checkpoints=remote_checkpoints,
        )

    def __getstate__(self) -> dict[str, Any]:
        keeps_frame = self._frame_given or self.path is None  # else it is read again when asked for
        frame_kept = self.metrics_dataframe if keeps_frame else None
        return {**self.__dict__, "_config": self.config, "_frame": frame_kept}

    def __repr__(self) -> str:
        shown = {key: value for key, value in (self.metrics or {}).items() if key != "config"}
        lines = [f"metrics={shown}", f"path={self.path!r}", f"checkpoint={self.checkpoint!r}"]
        if self.end_reason is not None:
            lines.insert(1, f"end_reason={self.end_reason!r}")
        if self.error is not None:
            lines.insert(0, f"error={type(self.error).__name__}({str(self.error)!r})")
        return f"{type(self).__name__}(\n  " + ",\n  ".join(lines) + "\n)"

    def _repr_html_(self) -> str:
        """For a notebook."""
        from trainables import html_tables

        found: dict[str, Any] = {
            "error": None if self.error is None else f"{type(self.error).__name__}: {self.error}",
            "metrics": html_tables.told(self.metrics),
            "ended": self.end_reason,
            "config": flatten(self.config or {}),
            "checkpoint": None if self.checkpoint is None else repr(self.checkpoint),
            "path": self.path,
        }
        return html_tables.facts(type(self).__name__, found)


def _iteration(metrics: Mapping[str, Any]) -> float:
    return score_of(metrics, "training_iteration") or 0


@dataclass(frozen=True)
class _Blobs:
    """What is large in a config, beside the trial's directory."""

    directory: Path

    def get(self, hash: str) -> bytes:
        body = fs.read_file(self.directory / os.path.basename(hash))
        if digest(body) != hash:
            raise OSError(f"{self.directory / hash} is not what was stored")
        return body


def _read_config(directory: Path) -> Any:
    """The config as it was given, where that is stored; else as `params.json` has it."""
    for name in (EXACT_PARAMS_FILE, PARAMS_FILE):
        if not (directory / name).is_file() or not (params := (directory / name).read_bytes()):
            continue
        try:
            return tagged.loads(params, blobs=_Blobs(directory.parent / "blobs"), pickles=False)
        except OSError:
            return tagged.loads(params)  # the directory was copied alone, or its experiment is damaged
        except ValueError:
            return read_line(params)  # plain JSON with NaN in it
    return {}


def _read_error(directory: Path, history: Sequence[Mapping[str, Any]]) -> BaseException | None:
    """The last failure, unless results came after it."""
    file = directory / _ERROR_FILE
    try:
        text = file.read_text("utf-8", "replace")
    except FileNotFoundError:
        return None
    occurred, reported = _OCCURRED.findall(text), history[-1].get("date") if history else ""
    failed = occurred[-1].replace(" ", "_").replace(":", "-") if occurred else ""
    if failed and isinstance(reported, str) and failed != reported:
        later = reported > failed  # both by the clock of the run: a copy of the files has other times
    else:
        later = bool(history) and (directory / RESULT_FILE).stat().st_mtime_ns > file.stat().st_mtime_ns
    if later:
        return None
    last = text.rsplit("Failure # ", 1)[-1].partition("\n")[2].strip()
    error = TrainablesError(last_said(last) or "the trial failed")
    error.add_note(last)
    return error
