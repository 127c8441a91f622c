"""Addresses of checkpoints within experiments: `EXPERIMENT@TAG` and `EXPERIMENT@TRIAL@ITERATION`.

Only an experiment's journal knows its tags, and only the driver's package reads that: who installs it, is asked. What
is a path, or a URI of something, is that: an address means something only where nothing has it for a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from trainables.places import is_elsewhere, is_host, split_query, trim_slash
from trainables.quick_dataclass import dataclass

_SELECTOR = re.compile(r"(?P<tag>[A-Za-z0-9._-]{1,60})|(?P<trial>[^/]+)@(?P<iteration>[0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Selector:
    """What stands behind the experiment: a tag, or a trial and an iteration."""

    tag: str = ""
    trial: str = ""
    iteration: int = 0

    @classmethod
    def read(cls, text: str) -> Selector | None:
        """
        >>> Selector.read("best"), Selector.read("3@40"), Selector.read("a/b")
        (Selector(tag='best', trial='', iteration=0), Selector(tag='', trial='3', iteration=40), None)
        """
        found = _SELECTOR.fullmatch(text)
        if found is None:
            return None
        return cls(tag=found["tag"]) if found["tag"] else cls(trial=found["trial"], iteration=int(found["iteration"]))

    def __str__(self) -> str:
        return self.tag or f"{self.trial}@{self.iteration}"


@dataclass(frozen=True, slots=True)
class CheckpointAddress:
    """What may be an address, and the directory in which it was given."""

    text: str
    given_in: str

    def anchored(self, place: str) -> str:
        """A part of it as it does not depend on where this process is now."""
        bare = not is_elsewhere(place) and "://" not in place and not place.startswith(("~", os.sep))
        return os.path.join(self.given_in, place) if bare else place

    def readings(self) -> Iterator[tuple[str, Selector]]:
        """(experiment, what of it), the longest name of an experiment first."""
        text, query = split_query(trim_slash(self.text))
        start = max(text.rfind("/"), text.find(":") if is_host(text) else -1) + 1
        at = len(text)
        while (at := text.rfind("@", start + 1, at)) > 0:
            if (selector := Selector.read(text[at + 1 :])) is not None:
                yield text[:at] + query, selector


def checkpoint_address(experiment: str, selector: Selector | str) -> str:
    """The address of a checkpoint of an experiment.

    >>> checkpoint_address("s3://bucket/run?region=eu-west-1", "3@40")
    's3://bucket/run@3@40?region=eu-west-1'
    """
    path, query = split_query(experiment)
    return f"{path}@{selector}{query}"


def address_in(place: str | os.PathLike[str]) -> CheckpointAddress | None:
    """A place as an address; None: it cannot be one. Nothing is looked at, so that it may be a path as well.

    >>> [experiment for experiment, _ in address_in("s3://bucket/run@3@40").readings()]
    ['s3://bucket/run@3', 's3://bucket/run']
    >>> address_in("me@host:/runs/first"), address_in("first/checkpoint_000010")
    (None, None)
    """
    text = os.fspath(place)
    if "@" not in text:
        return None
    address = CheckpointAddress(text, os.getcwd())
    return address if any(True for _ in address.readings()) else None
