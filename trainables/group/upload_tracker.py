"""What ranks copy to the replica themselves, as their leader sees it: the driver waits for all of a save."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainables.group.merging import Part
from trainables.group.rank_messages import RankUploaded, Upload
from trainables.runtime.saving import Staged
from trainables.wire import CheckpointRef, SaveUploaded


@dataclass(slots=True)
class GroupSave:
    """The save of a result of the group, while its ranks copy it."""

    number: int
    """The group's number of it."""
    staged: Staged | None = None
    parts: Mapping[int, Part] = field(default_factory=dict)
    """What of it is whose, by rank."""
    waits: set[int] = field(default_factory=set)
    """Ranks that have not said that they are done."""
    sent: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

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

    def __init__(self, tell: Callable[[SaveUploaded], None]) -> None:
        self._tell = tell
        self._saves: dict[int, GroupSave] = {}

    def __bool__(self) -> bool:
        return bool(self._saves)

    def begin(self, save: GroupSave, ranks: set[int]) -> None:
        """These ranks were asked to copy what they have of a save."""
        self._saves[save.number], save.waits = save, ranks
        self._look(save)

    def heard(self, rank: int, label: str, message: RankUploaded) -> None:
        """A rank copies nothing of a save any more; `label` is what people know it by."""
        save = self._saves.get(message.save)
        if save is not None and rank in save.waits:
            save.waits.discard(rank)
            save.sent.update(message.sent)
            if message.problem:
                save.problems.append(f"{label}: {message.problem}")
            self._look(save)

    def gone(self, rank: int) -> None:
        """Its process is dead, and copies nothing."""
        for save in list(self._saves):
            self.heard(rank, "", RankUploaded(save, {}))

    def _look(self, save: GroupSave) -> None:
        if not save.waits and save.ref is not None:
            del self._saves[save.number]
            self._tell(SaveUploaded(save.ref, save.sent, "; ".join(save.problems)))
