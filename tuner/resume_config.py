"""`ResumeConfig`: a resume as three choices (current Ray's form of the resume words)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tuner.error import SettingError


class ResumeType(Enum):
    """What happens to a group of trials."""

    RESUME = "resume"
    """They go on from their newest checkpoint."""
    RESTART = "restart"
    """They begin anew."""
    SKIP = "skip"
    """They stay as they are."""


@dataclass(frozen=True)
class ResumeConfig:
    """What a resume does with finished, unfinished and errored trials."""

    finished: ResumeType = ResumeType.SKIP
    unfinished: ResumeType = ResumeType.RESUME
    errored: ResumeType = ResumeType.SKIP

    def __post_init__(self) -> None:
        if self.finished is not ResumeType.SKIP:
            raise SettingError(
                f"finished={self.finished!r} is not accepted; accepted is SKIP: finished trials never run again"
            )
        if self.unfinished is ResumeType.RESTART:
            raise SettingError(
                "unfinished=RESTART is not accepted; accepted are RESUME and SKIP (use overwrite=True to start over)"
            )

    @property
    def word(self) -> str:
        """The resume word that says the same."""
        only = self.unfinished is ResumeType.SKIP
        if self.errored is ResumeType.SKIP:
            return "LOCAL"
        word = "RESTART_ERRORED" if self.errored is ResumeType.RESTART else "ERRORED"
        return f"LOCAL+{word}{'_ONLY' if only else ''}"


setattr(ResumeConfig, "ResumeType", ResumeType)  # noqa: B010 - Ray's spelling: ResumeConfig.ResumeType.SKIP
