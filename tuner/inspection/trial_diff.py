"""In what two trials differ: config, last result, state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainables import automatic, tagged
from trainables.result_history import flatten
from tuner.experiment.outcome import word
from tuner.experiment.trial import Trial
from tuner.inspection.differences import differences, ignored

AUTOMATIC = {*automatic.AutomaticKeys().complete({}), automatic.SHOULD_CHECKPOINT} - {automatic.TRAINING_ITERATION}
"""Keys of a result that are another in every run."""


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One thing that differs: of a trial with both values, of a file in words."""

    section: str
    name: str
    values: Sequence[Any] = ()
    text: str = ""
    largest: float | None = field(default=None)

    def as_dict(self) -> dict[str, Any]:
        """ "section", "name", "largest", and "a" and "b" or "text"."""
        told = {"text": self.text} if self.text else {"a": self.values[0], "b": self.values[1]}
        return {"section": self.section, "name": self.name, "largest": self.largest, **told}


def trial_rows(one: Trial, other: Trial, ignore: Sequence[str] = ()) -> Iterator[DiffRow]:
    """What differs, in the order of the first: "config", "last result", "state". Nothing is unpickled.

    Args:
        ignore: names that do not count, as in a shell: "*_seconds".
    """
    configs = [_flat(tagged.loads(bytes(trial.raw_config))) for trial in (one, other)]
    yield from _unlike("config", configs[0], configs[1], ignore)
    metrics = [
        {key: value for key, value in _flat(trial.last_result).items() if key not in AUTOMATIC and key != "config"}
        for trial in (one, other)
    ]
    yield from _unlike("last result", metrics[0], metrics[1], ignore)
    if one.status != other.status:
        yield DiffRow("state", "status", (word(one), word(other)))


def _flat(given: Any) -> Mapping[str, Any]:
    return flatten(given) if isinstance(given, Mapping) else {}


def _unlike(section: str, one: Mapping[str, Any], other: Mapping[str, Any], ignore: Sequence[str]) -> Iterator[DiffRow]:
    for key in dict.fromkeys([*one, *other]):
        if ignored(key, ignore):
            continue
        if key not in one or key not in other:
            yield DiffRow(section, key, (one.get(key, "(absent)"), other.get(key, "(absent)")))
        elif found := list(differences(one[key], other[key])):
            yield DiffRow(section, key, (one[key], other[key]), largest=found[0].largest)
