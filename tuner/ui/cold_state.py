"""The state of an experiment with very many trials, for a reader: those that have ended lie compressed.

The same facts are applied by the same code as in a run. A trial that a fact is about, or that somebody asks for, is a
`Trial` again, until `cool` puts it back.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from trainables.decoding import decode, decoder
from tuner.experiment import events as ev
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.state import ExperimentState, Snapshot
from tuner.experiment.trial import Trial
from tuner.experiment.trials import Trials

_LEVEL = 1
_WINDOW = -12
"""What zlib calls a window of 4 kB without a head: a trial is smaller than that."""
_MEMORY = 4
_EXAMPLE = 4096
"""Bytes of a trial after which the others are written: they differ in little."""


class RawSnapshot(Snapshot, omit_defaults=True):
    """A snapshot whose trials are read one by one."""

    trials: list[msgspec.Raw] = []  # type: ignore[assignment]

    def without(self) -> Snapshot:
        """All but the trials."""
        return Snapshot(**{name: getattr(self, name) for name in self.__struct_fields__ if name != "trials"})


_decode_trial = decoder(Trial)


class ColdTrials(dict[str, Trial]):
    """Trials by id, of which most lie compressed; asking for one makes it."""

    def __init__(self, usual: dict[str, float]) -> None:
        super().__init__()
        self._cold: dict[str, bytes] = {}
        self._example = b""
        self.root = Path()
        self._usual = usual

    def __missing__(self, trial_id: str) -> Trial:
        trial = _decode_trial(self._unpacked(self._cold[trial_id]))
        trial.__dict__.update(home=self.root, usual=self._usual)
        return trial

    def get(self, trial_id: str, default: Any = None) -> Any:
        return self[trial_id] if trial_id in self else default

    def __contains__(self, trial_id: object) -> bool:
        return super().__contains__(trial_id) or trial_id in self._cold

    def warm(self, trial_id: str) -> Trial:
        """The trial, to be changed: it stays in memory. Raises KeyError."""
        if not super().__contains__(trial_id):
            self[trial_id] = self[trial_id]
            del self._cold[trial_id]
        return self[trial_id]

    def cooled(self, trial_id: str) -> bool:
        return trial_id in self._cold

    def cool(self, trial_id: str) -> None:
        """Compress it."""
        trial = super().pop(trial_id, None)
        if trial is not None:
            self._cold[trial_id] = self._packed(msgspec.json.encode(trial))

    def shared(self, ids: Iterable[str]) -> ColdTrials:
        """These trials as they are, whatever becomes of them here."""
        made = ColdTrials(self._usual)
        made.root, made._example = self.root, self._example
        for trial_id in ids:
            packed = self._cold.get(trial_id)
            if packed is not None:
                made._cold[trial_id] = packed
            elif super().__contains__(trial_id):
                made._cold[trial_id] = made._packed(msgspec.json.encode(self[trial_id]))
        return made

    def _packed(self, data: bytes) -> bytes:
        if not self._example:
            self._example = data[-_EXAMPLE:]
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zdict=self._example)
        return packer.compress(data) + packer.flush()

    def _unpacked(self, data: bytes) -> bytes:
        return zlib.decompressobj(_WINDOW, zdict=self._example).decompress(data)


class ColdState(ExperimentState):
    """`ExperimentState` of which the trials that have ended take a tenth of the memory.

    `trials` goes through those that have not ended, and finds any by its id; all are in the table beside this.

    Args:
        root: the experiment's directory.
        snapshot: what it begins with.
    """

    def __init__(self, root: Path, snapshot: RawSnapshot | None = None) -> None:
        super().__init__(root, None if snapshot is None else snapshot.without())
        self._cold = ColdTrials(self.usual_resources)
        self._cold.root = root
        self._by_id = self._cold
        self.trials = Trials(self._cold, self._order)
        self.seq = 0
        """The number of the fact that is applied."""
        self.touched: dict[str, int] = {}
        """Trials that facts were about since somebody looked, and the last such fact."""

    @classmethod
    def of(cls, root: Path, trials: ColdTrials, whole: Snapshot) -> ColdState:
        """One with these trials, which have names that experiments have.

        Args:
            whole: the rest, as it was.
        """
        made = cls(root)
        made._cold = made._by_id = trials
        made.trials = Trials(trials, made._order)
        made.orders, made.changed, made._saves = whole.orders, whole.changed, whole.saves
        made.search_ended, made.run_ended = whole.search_ended, whole.run_ended
        made.plugins, made.generation = whole.plugins, whole.generation
        return made

    def keep_warm(self, trial_id: str) -> Trial:
        """A trial that has not ended, among those that have not."""
        trial = self._cold.warm(trial_id)
        trial.__dict__["left"] = self.run_ended
        if not any(one is trial for one in self._order):
            self._order.append(trial)
        return trial

    def read_trial(self, raw: msgspec.Raw) -> Trial:
        """A trial of the snapshot, in its turn. Raises what `hostile.UNREADABLE` names."""
        trial = _decode_trial(raw)
        self._take_in(trial)
        self.pinned |= {(trial.trial_id, record.order) for record in trial.checkpoints if record.pinned}
        self._cold[trial.trial_id] = trial
        if trial.order:
            self.made_for[trial.order] = trial
        if not trial.is_finished():
            trial.__dict__["left"] = self.run_ended
            self._order.append(trial)
        return trial

    def shared_trials(self, ids: Iterable[str]) -> ColdTrials:
        """These of its trials, for a state of another moment."""
        return self._cold.shared(ids)

    def sort(self) -> None:
        """Have those that have not ended in order of creation."""
        self._order[:] = sorted(self.unfinished, key=lambda trial: trial.index)

    @property
    def unfinished(self) -> list[Trial]:
        """Those that have not ended, in order of creation."""
        return [trial for trial in self._order if not trial.is_finished()]

    def trial(self, trial_id: str) -> Trial:
        """One that a fact has created. Raises ExperimentDamagedError where none has."""
        if trial_id in self._cold:
            return self._cold[trial_id]
        return super().trial(trial_id)

    def has(self, trial_id: str) -> bool:
        return trial_id in self._cold

    def apply(self, fact: ev.AnyFact) -> None:
        """Add one fact; the trials that it is about are in `touched`."""
        for trial_id in abouts(fact):
            if trial_id in self._cold:
                self._cold.warm(trial_id)
            self.touched[trial_id] = self.seq
        super().apply(fact)
        if isinstance(fact, ev.TrialReopened):
            again = self._cold[fact.trial]
            if again not in self._order:
                self._order.append(again)
                self._order.sort(key=lambda trial: trial.index)

    def cool(self, trials: Iterable[str]) -> None:
        """Put away those of these that have ended."""
        put_away = False
        for trial_id in trials:
            if trial_id in self._cold and not self._cold.cooled(trial_id) and self._cold[trial_id].is_finished():
                self._cold.cool(trial_id)
                put_away = True
        if put_away:
            self._order[:] = self.unfinished


def abouts(fact: ev.AnyFact) -> Iterator[str]:
    """The trials that a fact changes."""
    trial = getattr(fact, "trial", None)
    if isinstance(trial, str):
        yield trial
    ref = getattr(fact, "ref", None)
    if ref is not None and not isinstance(trial, str):
        yield ref.trial_id


def read_snapshot(root: Path, body: bytes | None, problems: list[str]) -> tuple[ColdState, list[msgspec.Raw]]:
    """The state without its trials, and those as they stand in the snapshot; what cannot be read is a problem."""
    if body is None:
        return ColdState(root), []
    try:
        raw = decode(body, RawSnapshot)
        return ColdState(root, raw), raw.trials
    except UNREADABLE as error:
        problems.append(f"the snapshot cannot be used: {said(error)}")
        return ColdState(root), []


def raw_name(raw: msgspec.Raw) -> tuple[str, int]:
    """(id, number) of a trial that cannot be read, as far as these can."""
    with contextlib.suppress(*UNREADABLE):
        found = msgspec.json.decode(raw)
        return str(found["trial_id"]), int(found.get("index", -1))
    return "", -1
