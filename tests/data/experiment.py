"""An experiment of which samples are stored: the call that made it, and the call that continues it.

A sample is continued as its user would continue it, with the same call again. So an entry stays as it is as long as
there is a sample of it: another call is another entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tuner as tune
from tests.data import trained

SEED = 7
Settings = Callable[[Path], dict[str, Any]]


def space() -> dict[str, Any]:
    return {"x": tune.uniform(0, 1)}


@dataclass(frozen=True)
class Experiment:
    """One call of `tune.run`, and how its driver was killed before the sample was stored."""

    name: str
    holds: str
    """What it is a sample of."""
    settings: Settings
    """Arguments of `tune.run`, made anew for each call; given the directory that holds everything of the sample."""
    trainable: Any = trained.walk
    config: Callable[[], Any] = space
    killed: tuple[Any, ...] = ()
    """One entry per life, none for one that ended by itself. Killed with SIGKILL: at a share of the facts of an
    uninterrupted run; ("facts", n) or ("copied", n), with the n-th fact, or the n-th of that kind; ("before", function
    of `fs`, n) or ("after", ...), at the n-th checkpoint. ("interrupt", n) is a Ctrl-C with the n-th fact. Not killed:
    ("whole",); and what happens between two lives, ("damage",) to a trial's newest checkpoint. A dict at the end holds
    more arguments of that one call."""
    compacts: bool = False
    """Its journal was compacted again and again; what a snapshot replaced is gone with "gone"."""
    packs: bool = False
    """What a snapshot replaced was packed into the history at once."""
    replica: str = ""
    """"directory" or "s3": where copies go."""
    alike: bool = True
    """An interrupted run ends as an uninterrupted one; else only with as many trials, of the same statuses."""
    executor: str | None = "inline"
    restores: bool = False
    """It is continued with `Tuner.restore`, from nothing but what is stored."""
    environment: dict[str, str] = field(default_factory=dict)

    def call(self, place: Path, replica: str | None = None, **more: Any) -> dict[str, Any]:
        """The arguments of `tune.run` beside the trainable."""
        settings: dict[str, Any] = {
            "name": self.name, "config": self.config(), "storage_path": place / "storage", "seed": SEED, "verbose": 0,
            "resume": "AUTO", "raise_on_failed_trial": False, "executor": self.executor, "takeover": True,
            "metric": "score", "mode": "max", **self.settings(place),
        }  # fmt: skip
        if replica is not None:
            settings["sync_config"] = tune.SyncConfig(upload_dir=replica, **settings.pop("sync", {}))
        return settings | more


def fixed(**settings: Any) -> Settings:
    return lambda place: dict(settings)
