"""One trial, as the facts about it add up. Only `ExperimentState` changes it; everybody else reads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec

from trainables import tagged
from trainables.checkpoint import Checkpoint
from trainables.errors import MetricError
from trainables.metrics import as_score
from trainables.places import child_of
from trainables.result_history import flatten
from trainables.wire import CheckpointRef
from tuner.error import SerializationError
from tuner.experiment.blobs import Blobs, speak_of
from tuner.experiment.events import NO_RAW, ErrorInfo
from tuner.experiment.order_records import Note
from tuner.experiment.ray_trial import RayTrial, TrialType
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.reused import Reused
from tuner.experiment.trial_records import CheckpointRecord, Clone, Rest, Summary, add_to_summary

log = logging.getLogger(__name__)


class Trial(RayTrial, msgspec.Struct, metaclass=TrialType, eq=False, dict=True, omit_defaults=True):
    """One config run by one trainable."""

    PENDING: ClassVar[str] = "PENDING"
    RUNNING: ClassVar[str] = "RUNNING"
    PAUSED: ClassVar[str] = "PAUSED"
    TERMINATED: ClassVar[str] = "TERMINATED"
    ERROR: ClassVar[str] = "ERROR"

    trial_id: str
    index: int
    trainable_name: str
    name: str
    dirname: str
    raw_config: msgspec.Raw
    raw_evaluated: msgspec.Raw = NO_RAW
    experiment_tag: str = ""
    resources: dict[str, float] | None = None
    status: str = "PENDING"
    iteration: int = 0
    raw_result: msgspec.Raw = NO_RAW
    summary: Summary = {}
    raw_summary: msgspec.Raw = NO_RAW
    """The summary of a finished trial, as JSON: a tenth of the memory."""
    checkpoints: list[CheckpointRecord] = []
    """Those that are kept, oldest first."""
    forgotten: list[CheckpointRef] = []
    """Let go, and not yet known to be deleted."""
    unsaved: dict[int, tuple[msgspec.Raw, Summary]] = {}
    """Results whose checkpoint is on its way, by iteration."""
    attempt: int = 0
    attempt_generation: int = 0
    lineage: list[tuple[int, int]] = []
    """(generation, attempt) of every attempt since the trial last started anew or became a clone, oldest first."""
    ranked_since: tuple[int, int] = (0, 0)
    """(generation, attempt) of the first attempt since the trial last started anew, if it had saved before that."""
    started_from: CheckpointRef | None = None
    next_start: CheckpointRef | None = None
    """The donor's checkpoint that a clone's next attempt starts from."""
    clone_iteration: int = 0
    """A clone's own count when it was made."""
    clones: list[Clone] = []
    """Whose checkpoints it went on from, oldest first."""
    past_clones: int = 0
    """How many of these were made before it last started anew."""
    saves: int = 0
    """Checkpoints published in all its life."""
    save_failures: int = 0
    """Saves in a row that did not reach the disk."""
    save_error: str = ""
    """Why the last one of these did not."""
    save_due: int = 0
    """The iteration of the newest save that was asked for and is not durable; 0: there is none."""
    told: int = 0
    """The highest iteration that searcher, scheduler and stoppers were told of."""
    told_then: str = "continue"
    """What was decided then."""
    told_reason: Reason | None = None
    """Why, where that was not to go on."""
    end_reason: Reason | None = None
    """Why it has ended; None: it has not, or an older version did not record it."""
    num_failures: int = 0
    failures_in_row: int = 0
    """Attempts that failed since its last result that was new."""
    num_lost: int = 0
    error: ErrorInfo | None = None
    started_at: float | None = None
    ended_at: float | None = None
    held: bool = False
    """A user lets it wait: nobody chooses it until it is told to go."""
    notes: list[Note] = []
    """What users said of it, oldest first."""
    order: str = ""
    """The id of the order that it was made for; "": the searcher proposed it."""
    fork_seed: int = -1
    """Of a trial that began at another one's checkpoint by a user's order: the number that its seed is made of."""
    reused: Reused | None = None
    """The trial of an earlier experiment whose results and checkpoint it began with."""
    rests: list[Rest] = []
    """When it did not run since it first did, oldest first."""

    # --- what users read -------------------------------------------------------------------------

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config. What is large is read from the experiment's blobs when asked for.

        What neither JSON nor its tags can hold (a class, a function, an object) is unpickled from them, which runs its
        code: a warning says so, once per experiment, where another process wrote it.
        """
        cached = self.__dict__.get("config")
        if cached is None:
            cached = self.__dict__["config"] = self.read_config(bytes(self.raw_config))
        return cast("dict[str, Any]", cached)

    def read_config(self, raw: bytes) -> Any:
        """Read a config of this trial from tagged JSON, as `config` does."""
        placed = "home" in self.__dict__ or "root" in self.__dict__
        blobs = Blobs(self.directory.parent / "blobs") if placed else None
        try:
            return tagged.loads(raw, blobs=blobs, unpickled=self._unpickled)
        except MetricError as error:  # of the same text for all that is written down; it begins with the key
            raise SerializationError(f"{self.name}: config value {error}") from error.__cause__

    def release(self) -> None:
        """Give up what was read of a large config; it is read again when it is asked for."""
        if tagged.NAMED.search(bytes(self.raw_config)):
            self.__dict__.pop("config", None)

    def _unpickled(self, ref: tagged.BlobRef) -> None:
        root = self.directory.parent
        if speak_of(root):
            log.warning(
                "%s: config of %s: %s is unpickled, which runs its code; open only experiments that you trust",
                root,
                self.name,
                ref.label,
            )

    @property
    def evaluated_params(self) -> dict[str, Any]:
        """Only the searched keys of the config, flat ("model/lr"), and those that cloning changed; as they are now."""
        loaded = tagged.loads(bytes(self.raw_evaluated))
        if not isinstance(loaded, dict):
            return {}
        if self.clones:
            config = flatten(tagged.loads(bytes(self.raw_config)))
            changed = (key for key in config if any(clone.changes(key) for clone in self.clones))
            loaded = {key: config.get(key, loaded.get(key)) for key in dict.fromkeys([*loaded, *changed])}
        return loaded

    @property
    def last_result(self) -> dict[str, Any]:
        """The newest result that stands; empty before the first. `done` is True of a trial that came to a good end."""
        cached = self.__dict__.get("last_result")
        if cached is None:
            loaded = tagged.loads(bytes(self.raw_result))
            cached = loaded if isinstance(loaded, dict) else {}
            if self.status == Trial.TERMINATED and cached.get("done") is False:
                cached["done"] = True  # its function returned after that result
            if not self.is_finished():  # a finished trial keeps only the bytes
                self.__dict__["last_result"] = cached
        return cast("dict[str, Any]", cached)

    @property
    def last_heard_of(self) -> float:
        """When its newest result came, in seconds since the epoch; 0 if that does not say it."""
        at = as_score(self.last_result.get("timestamp"))
        return at if at is not None and isfinite(at) else 0.0

    @property
    def path(self) -> str:
        """The trial's directory."""
        return str(self.directory)

    logdir = local_path = path

    @property
    def directory(self) -> Path:
        """The trial's own directory, which holds its checkpoints and files."""
        found: Path | None = self.__dict__.get("root")
        if found is None:
            found = self.__dict__["home"] / self.dirname
            if not self.is_finished():  # hundreds of bytes, which are asked for with each result
                self.__dict__["root"] = found
        return cast(Path, found)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The latest checkpoint, or None."""
        record = self.latest_checkpoint
        return None if record is None else self.open_checkpoint(record)

    @property
    def own_checkpoints(self) -> list[CheckpointRecord]:
        """Checkpoints since the trial last started anew or became a clone, from which it may go on; oldest first."""
        return [record for record in self.checkpoints if self.lineage and record.order[:2] >= self.lineage[0]]

    @property
    def ranked_checkpoints(self) -> list[CheckpointRecord]:
        """Checkpoints since the trial last started anew, the best among them, also of before it became a clone."""
        return [record for record in self.checkpoints if record.order[:2] >= self.ranked_since]

    @property
    def latest_checkpoint(self) -> CheckpointRecord | None:
        """What is recorded of the newest checkpoint that is kept; None: there is none."""
        return self.checkpoints[-1] if self.checkpoints else None

    def open_checkpoint(self, record: CheckpointRecord) -> Checkpoint:
        """A checkpoint that is kept: here where it is here, else where there is a copy, fetched when it is used."""
        path = self.directory / record.ref.name
        origin: str | None = self.__dict__.get("origin")
        places = (
            list(reversed(record.copies)) if origin is None else [origin]
        )  # the newest first: older ones may have moved
        if not places or path.is_dir():
            return Checkpoint(path)
        return Checkpoint.from_uri(child_of(places[0], f"{self.dirname}/{record.ref.name}"), digest=record.digest)

    @property
    def metric_summary(self) -> Mapping[str, tuple[float, ...]]:
        """metric -> (min, max, sum, count) of its numeric top-level metrics."""
        return {key: tuple(entry) for key, entry in self._summary().items() if entry}

    @property
    def unsummed_metrics(self) -> set[str]:
        """Metrics that only the history can tell about: they were infinite once."""
        return {key for key, entry in self._summary().items() if not entry}

    def _summary(self) -> Summary:
        """The summary, wherever it is: of a finished trial it is made of its JSON."""
        frozen: Summary = self.summary or msgspec.json.decode(self.raw_summary) or {}
        return frozen

    @property
    def error_file(self) -> str | None:
        """The path of error.txt, which has a failed trial's traceback; None: there is none."""
        file = self.directory / "error.txt"
        return str(file) if self.error is not None and file.exists() else None

    def is_finished(self) -> bool:
        """True for TERMINATED and ERROR."""
        return self.status in ("TERMINATED", "ERROR")

    @property
    def waits(self) -> bool:
        """It has not ended, does not run, and no user holds it."""
        return self.status in (self.PENDING, self.PAUSED) and not self.held

    @property
    def forked(self) -> bool:
        """It began at another trial's checkpoint, by a user's order: the first of `clones`."""
        return self.fork_seed >= 0

    @property
    def fork(self) -> Clone | None:
        """Where it began, if that was at another trial's checkpoint: results up to there are that trial's."""
        return self.clones[0] if self.forked else None

    @property
    def seed_index(self) -> int:
        """The number that its seed is made of: a fork draws what the trial had drawn that it goes on from."""
        return self.fork_seed if self.forked else self.index

    @property
    def is_stopped(self) -> bool:
        """It was told to stop, and nothing that was to be saved then is missing: it never trains again."""
        decided = self.told_then == "stop" and self.iteration == self.told and bool(self.lineage)
        return decided and not self.save_due

    @property
    def is_paused_by_order(self) -> bool:
        """What it was told last is to pause, and by a user: the scheduler is not told of that."""
        reason = self.told_reason
        return self.told_then == "pause" and reason is not None and reason.kind is ReasonKind.ORDER

    @property
    def is_behind(self) -> bool:
        """It was told to stop or to pause at a result that does not stand any more, or whose save is missing.

        It trains up to there again before anything that follows from that result happens to it.
        """
        if self.told_then == "continue" or self.next_start is not None:
            return False
        return self.iteration < self.told or bool(self.save_due)

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """Ray's name: {metric: {"min": .., "max": .., "avg": ..}}."""
        return {
            key: {"min": low, "max": high, "avg": total / count}
            for key, (low, high, total, count) in self.metric_summary.items()
        }

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Trial({self.name}, {self.status}, iteration {self.iteration})"

    def _repr_html_(self) -> str:
        """For a notebook."""
        from trainables import html_tables

        record = self.latest_checkpoint
        found: dict[str, Any] = {
            "status": self.status,
            "error": None if self.error is None else f"{self.error.type}: {self.error.message}",
            "ended": None if self.end_reason is None else str(self.end_reason),
            "metrics": html_tables.told(self.last_result) or None,
            "config": self.evaluated_params or flatten(tagged.loads(bytes(self.raw_config)) or {}),
            "checkpoint": None if record is None else record.ref.name,
            "path": self.path,
        }
        return html_tables.facts(f"Trial {self.index}: {self.name}", found)

    # --- what `ExperimentState` notes ----------------------------------------------------------------

    def rest(self, why: str, at: float | None) -> None:
        """It does not run from now on, or from when it was last heard of."""
        ran_since = (self.rests[-1].until if self.rests else self.started_at) or 0.0
        since = max(self.last_heard_of if at is None else at, ran_since)
        self.rests = [*self.rests, Rest(why, since, self.iteration, unseen=at is None)]

    def rested(self, at: float, iteration: int) -> None:
        """The rest that goes on, if one does, ends."""
        if self.rests and self.rests[-1].until is None:
            self.rests[-1].until, self.rests[-1].iteration = at, iteration

    def catch_up(self, iteration: int, raw: msgspec.Raw) -> None:
        """A checkpoint that was found is ahead of the results: the end of the journal was lost with some of them."""
        metrics = tagged.loads(bytes(raw)) or {}
        if iteration > self.iteration + 1:
            self.summary = {key: [] for key in self.summary}  # those between are in the history, if anywhere
        else:
            self.summary = dict(self.summary)
        add_to_summary(self.summary, metrics)
        self.iteration, self.raw_result = iteration, raw
        self.__dict__["last_result"] = metrics
