"""What becomes of an experiment whose name a run is given that does not say so itself (`TUNE_EXISTING`)."""

from __future__ import annotations

from enum import Enum

from trainables.quick_dataclass import dataclass
from tuner import knobs
from tuner.error import refused


class Existing(Enum):
    """What becomes of the earlier experiment. Its checkpoints stay, whichever it is."""

    ERROR = "error"
    """It stays, and the run is refused."""
    ASIDE = "aside"
    """It is moved to `NAME.1`, or the next number that is free, and the run starts anew."""
    RESUME = "resume"
    """It goes on, as with `resume="AUTO"`."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """How a run relates to those of its name before it."""

    existing: Existing = Existing.ERROR
    number: int = 1
    """It is so manieth of its name, or of those of its trainable without a name, that its process starts."""
    note: str = ""
    """How the experiment that it continues was found, where the user gave no name; for the line that says so."""


_default = Existing.ERROR


def use(existing: Existing) -> None:
    """What holds from now on in this process where the environment says nothing."""
    global _default
    _default = existing


def is_ray_script() -> bool:
    """This process runs what was written for Ray: only such a one has another default."""
    return _default is not Existing.ERROR


def chosen() -> Existing:
    """What holds. Raises SettingError for a variable that says none of them."""
    word = knobs.existing()
    if word is None:
        return _default
    try:
        return Existing(word)
    except ValueError:
        raise refused("TUNE_EXISTING", word, f"accepted are {', '.join(each.value for each in Existing)}") from None
