"""`ExperimentReader`: all that can be known of an experiment which somebody else runs, or nobody, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from trainables.errors import CheckpointError
from trainables.store.verify import problems
from tuner.analysis import ExperimentAnalysis
from tuner.clock import SystemClock
from tuner.error import SettingError
from tuner.experiment.history import History
from tuner.experiment.journal import read_journal
from tuner.experiment.liveness import last_driver
from tuner.experiment.order_records import OrderRecord
from tuner.experiment.paths import ExperimentPaths, is_elsewhere
from tuner.experiment.reader import load_state, read_settings, replay
from tuner.experiment.replacing import standing
from tuner.experiment.trial import Trial
from tuner.experiment.trials import find_trial
from tuner.inspection.journal_view import journal_view

TrialName = Trial | str | int
"""A trial, or its trial_id, name or number from 0."""


class ExperimentReader(ExperimentAnalysis):
    """The trials, results, lineage and notes of an experiment as they were when it was opened; its driver, orders,
    checkpoints and changes as they are when they are asked for.

    They are dicts, lists, texts and numbers, as JSON has them, but for results, which are frames too. Nothing is
    unpickled. Of a URI the journal is brought here each time. What cannot be read of a journal is logged as a warning;
    a fact that does not fit to those before it is an ExperimentDamagedError.
    """

    @property
    def driver(self) -> str:
        """What has become of its last driver: "running (pid 71 on host)", "killed (...)", "ended"."""
        with self._journal() as paths:
            return str(last_driver(paths, SystemClock().time()))

    @property
    def orders(self) -> dict[str, dict[str, Any]]:
        """What was ordered, by id, oldest first.

        Each has "order" (as it was given), "at" (seconds since the epoch), "state" ("taken", "done", "refused"), "why",
        and "answered_at" (None: not yet).
        """
        return {order_id: _plain(record) for order_id, record in self._order_records().items()}

    @property
    def settings_changed(self) -> dict[str, dict[str, Any]]:
        """Settings that users have changed, by name: "value", "was" (what the script said then) and "at"."""
        fields = ("value", "was", "at")
        with self._journal() as paths:
            changed = load_state(paths).changed
        return {name: {field: getattr(change, field) for field in fields} for name, change in changed.items()}

    @property
    def notes(self) -> list[dict[str, Any]]:
        """What users said of trials, oldest first: "trial" (id), "at", "text"."""
        told = [(trial.trial_id, note) for trial in self.trials for note in trial.notes]
        told.sort(key=lambda pair: pair[1].at)
        return [{"trial": trial_id, "at": note.at, "text": note.text} for trial_id, note in told]

    @property
    def tags(self) -> dict[str, str]:
        """Tag -> the checkpoint that has it, TRIAL_ID@ITERATION."""
        kept = [(trial.trial_id, record) for trial in self.trials for record in trial.checkpoints]
        return {tag: f"{trial_id}@{record.iteration}" for trial_id, record in kept for tag in record.tags}

    def changes(self, since: int = 0) -> Iterator[dict[str, Any]]:
        """The facts of the journal after one, oldest first, as plain values with their number "n" and their "kind".

        Args:
            since: the number of the last fact that is known; 0: none. What was dropped of a long history is left out.
        """
        with self._journal(history=True) as paths:
            paths = standing(paths)
            for fact in History(paths, read_journal(paths)).facts():
                if fact.seq > since:
                    yield {"n": fact.seq, **msgspec.json.decode(fact.body)}

    def checkpoints(self, trial: TrialName | None = None, *, verify: bool = False) -> list[dict[str, Any]]:
        """Every checkpoint that is kept, and those that went, as far back as the history is recorded, with the reasons.

        Args:
            trial: only its own; None: those of all trials.
            verify: hash every file of those that are kept, fetched where they are elsewhere.

        Returns:
            By trial, then the oldest first, dicts as `tuner.inspection.checkpoints.rows_of` has them: "trial",
            "index", "address", "name", "iteration", "bytes", "saved_at", "fate", "why", "for", "at", "here", "copies",
            "pinned", "tags", "metrics"; and "verified" (None: it was not looked at), "problem" (what was found, or "").

        Example:
            >>> for row in experiment.checkpoints(3):
            ...     print(row["address"], row["fate"], row["why"])
            ab12_00003@10 deleted ['best:2:loss']
            ab12_00003@20 kept ['best:2:loss', 'latest']
        """
        from tuner.inspection.checkpoints import rows_of
        from tuner.retention.explain import Chronicle

        with self._journal(history=True) as paths:
            replayed = replay(paths, read_journal(standing(paths)), Chronicle)
            settings, state = read_settings(paths), replayed.made.state
        wanted = None if trial is None else [self.named_trial(trial, state.trials)]
        rows = rows_of(replayed.made, settings, wanted)
        found = {(one.trial_id, record.ref.name): (one, record) for one in state.trials for record in one.checkpoints}
        for row in rows:
            held = found.get((row["trial"], row["name"]))
            row["verified"], row["problem"] = None, ""
            if verify and held is not None:
                if is_elsewhere(self.experiment_path):
                    held[0].__dict__["origin"] = self.experiment_path
                row["problem"] = _problem(*held)
                row["verified"] = not row["problem"]
        return rows

    def lineage(self) -> list[dict[str, Any]]:
        """Each time that a trial went on: exploits, forks, restarts, retries and pauses, by trial, oldest first.

        Returns dicts as `tuner.inspection.lineage.edges_of` has them: "kind", "trial", "iteration", "reached", "from",
        "checkpoint", "from_iteration", "changed", "at", "why", "order".
        """
        from tuner.inspection.lineage import edges_of

        return edges_of(self.trials, self._order_records())

    def diff(self, a: TrialName, b: TrialName, *, ignore: Sequence[str] = ()) -> dict[str, Any]:
        """In what two trials differ: config, last result, state.

        Args:
            ignore: names that do not count, as in a shell: "*_seconds".

        Returns:
            "same", "a" and "b" (ids), and "differences": dicts with "section" ("config", "last result", "state"),
            "name", "a", "b" and "largest" (of numbers: by how much they differ).
        """
        from tuner.inspection.trial_diff import trial_rows

        one, other = self.named_trial(a), self.named_trial(b)
        rows = [row.as_dict() for row in trial_rows(one, other, ignore)]
        return {"same": not rows, "a": one.trial_id, "b": other.trial_id, "differences": rows}

    def named_trial(self, given: TrialName, trials: Sequence[Trial] | None = None) -> Trial:
        """The trial of that id, name, directory's name or number. Raises SettingError."""
        trials = self.trials if trials is None else trials
        wanted = given.trial_id if isinstance(given, Trial) else str(given)
        found = find_trial(trials, wanted)
        if found is None:
            raise SettingError(f"there is no trial {wanted!r}; there are {len(trials)}, numbered from 0")
        return found

    def _order_records(self) -> dict[str, OrderRecord]:
        with self._journal() as paths:
            return load_state(paths).orders

    @contextmanager
    def _journal(self, *, history: bool = False) -> Iterator[ExperimentPaths]:
        with journal_view(self.experiment_path, history=history) as (paths, _):
            yield paths


def _plain(record: OrderRecord) -> dict[str, Any]:
    told: dict[str, Any] = {"order": msgspec.json.decode(record.order), "at": record.at, "state": record.state}
    return told | {"why": record.why, "answered_at": record.answered_at}


def _problem(trial: Trial, record: Any) -> str:
    """What is wrong with the files of a checkpoint; "": nothing."""
    try:
        checkpoint = trial.open_checkpoint(record)
        if checkpoint.local_path is None:
            checkpoint.fetched()
            return ""
        found = problems(trial.directory / record.ref.name)
    except (CheckpointError, OSError) as error:
        return str(error)
    return found[0] if found else ""
