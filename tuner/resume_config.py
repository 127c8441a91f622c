"""`ResumeConfig`: a resume as three choices (current Ray's form of the resume words)."""

from __future__ import annotations

from enum import Enum

from trainables.quick_dataclass import dataclass
from tuner.error import SettingError
from tuner.experiment.resume import Base, Errored, Resume


class ResumeType(Enum):
    """What happens to a group of trials."""

    RESUME = "resume"
    """They go on from their newest checkpoint."""
    RESTART = "restart"
    """They begin anew."""
    SKIP = "skip"
    """They stay as they are."""


_ERRORED = {
    ResumeType.SKIP: Errored.SHOW,
    ResumeType.RESUME: Errored.CONTINUE,
    ResumeType.RESTART: Errored.RESTART,
}


@dataclass(frozen=True)
class ResumeConfig:
    """What a resume does with finished, unfinished and errored trials.

    Args:
        finished: SKIP; finished trials never run again.
        unfinished: RESUME (from their newest checkpoint) or SKIP.
        errored: SKIP (they are shown), RESUME, or RESTART (anew).

    Each is a `ResumeConfig.ResumeType`.

    Example:
        >>> tune.run(train, name="first", resume_config=ResumeConfig(errored=ResumeConfig.ResumeType.RESTART))
    """

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
    def choice(self) -> Resume:
        """The same as a resume word says it."""
        return Resume(Base.LOCAL, _ERRORED[self.errored], only_errored=self.unfinished is ResumeType.SKIP)


setattr(ResumeConfig, "ResumeType", ResumeType)  # noqa: B010 - Ray's spelling: ResumeConfig.ResumeType.SKIP
