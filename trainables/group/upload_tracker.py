"""What ranks copy to the replica themselves, as their leader sees it: the driver waits for all of a save."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainables import wire
from trainables.group.merging import Part
from trainables.group.rank_messages import RankUploaded, Upload
from trainables.runtime.saving import Staged
from trainables.wire import CheckpointRef


@dataclass(slots=True)
class Saved:
    """What came of the save of a result."""

    number: int
    """The group's number of it."""
    staged: Staged | None = None
    parts: Mapping[int, Part] = field(default_factory=dict)
    """What of it is whose, by rank."""

    @property
    def ref(self) -> CheckpointRef | None:
        """The checkpoint, where ranks copy it; None: there is none, or they do not."""
        return self.staged.ref if self.staged is not None and self.staged.uploading else None

    def uploads(self) -> dict[int, Upload]:
        """What each rank copies of it."""
        if self.ref is None:
            return {}
        return {rank: Upload(self.number, self.ref.name, part) for rank, part in self.parts.items()}


class UploadTracker:
    """Knows which ranks still copy something of which save.

    Args:
        tell: called once no rank copies anything of a save any more.
    """

    def __init__(self, tell: Callable[[wire.SaveUploaded], None]) -> None:
        self._tell = tell
        self._saves: dict[int, _Save] = {}

    def __bool__(self) -> bool:
        return bool(self._saves)

    def begin(self, save: int, ref: CheckpointRef, ranks: set[int]) -> None:
        """These ranks were asked to copy what they have of a save."""
        self._saves[save] = _Save(ref, ranks)
        self._look(save)

    def heard(self, rank: int, label: str, message: RankUploaded) -> None:
        """A rank copies nothing of a save any more; `label` is what people know it by."""
        save = self._saves.get(message.save)
        if save is not None and rank in save.waits:
            save.waits.discard(rank)
            save.sent.update(message.sent)
            if message.problem:
                save.problems.append(f"{label}: {message.problem}")
            self._look(message.save)

    def gone(self, rank: int) -> None:
        """Its process is dead, and copies nothing."""
        for save in list(self._saves):
            self.heard(rank, "", RankUploaded(save, {}))

    def _look(self, number: int) -> None:
        save = self._saves[number]
        if not save.waits:
            del self._saves[number]
            self._tell(wire.SaveUploaded(save.ref, save.sent, "; ".join(save.problems)))


@dataclass(slots=True)
class _Save:
    ref: CheckpointRef
    waits: set[int]
    """Ranks that have not said that they are done."""
    sent: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
