"""`PlannedTrial`: a trial that a search algorithm has made, before the run makes one of its own of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trainables.quick_dataclass import dataclass
from tuner.error import require


def generate_id() -> str:
    """Eight characters that no other trial has."""
    return uuid.uuid4().hex[:8]


@dataclass(slots=True)
class PlannedTrial:
    """What `Trial(trainable_name, config=...)` makes: its config counts, and what results are told under.

    Resources, stop criteria, checkpoints and names are the run's: `arguments` are taken, and have no effect.
    """

    trainable_name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    trial_id: str = field(default_factory=generate_id)
    evaluated_params: dict[str, Any] = field(default_factory=dict)
    experiment_tag: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    status: str = "PENDING"

    @classmethod
    def of(
        cls, trainable_name: str = "", *, config: Any = None, trial_id: Any = None, **arguments: Any
    ) -> PlannedTrial:
        """From Ray's arguments of a trial."""
        require(isinstance(trainable_name, str), "trainable_name", trainable_name, "it is the name of a trainable")
        require(config is None or isinstance(config, Mapping), "config", config, "it is a dict")
        own = {name: arguments.pop(name) for name in ("evaluated_params", "experiment_tag") if arguments.get(name)}
        made = cls(trainable_name, dict(config or {}), arguments=arguments, **own)
        if trial_id is not None:
            made.trial_id = str(trial_id)
        return made

    def is_finished(self) -> bool:
        """False: it is still to run."""
        return False

    def __str__(self) -> str:
        return f"{self.trainable_name}_{self.trial_id}"
