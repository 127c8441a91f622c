"""What one experiment of the campaign is, and what happens to it: all of it drawn from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

SCHEDULERS = (
    "fifo", "asha", "asha_promotion", "hyperband", "median", "pbt", "pbt_synch", "pb2", "resources", "pruner",
)  # fmt: skip
CLONING = ("pbt", "pbt_synch", "pb2")
STOPPING = ("asha", "asha_promotion", "hyperband", "median", "pruner")
SEARCHERS = ("grid", "random", "optuna")
FUNCTION_SAVES = ("from_dict", "checkpoint_dir", "lent", "moved")
VICTIMS = ("driver", "trial", "server", "keeper", "uploader", "all")
SIGNALS = ("KILL", "TERM", "STOP")
REPLICAS = ("none", "directory", "s3", "rsync", "command")


@dataclass(frozen=True)
class Blow:
    """One signal to somebody, at a moment."""

    victim: str
    signal: str
    steps: int
    """So many more steps of training are waited for, or for the end..."""
    after_s: float
    """...then so long."""
    pause_s: float
    """After STOP: how long until CONT."""
    loses: bool
    """Should the driver die of it, its disk is gone too."""


@dataclass(frozen=True)
class Plan:
    """One experiment."""

    seed: int
    api: str
    how: str
    scheduler: str
    searcher: str
    trials: int
    iterations: int
    ends: str
    """Who ends a trial: "stop" (the setting), or "self"."""
    step_s: float
    save_every: int
    """0: never, for a class."""
    at_end: bool
    size: int
    files: int
    keep: int | None
    attr: str | None
    digits: int
    """Of the score: few of them make equal scores."""
    budget: bool
    per_trial: float
    """CPUs of a trial, of four."""
    max_failures: int
    replica: str
    keep_local: int | str
    again: bool
    """Whether the finished experiment is run once more, and nothing may change."""
    blows: list[Blow] = field(default_factory=list)

    def wanted(self, iteration: int, n: int, *, last: bool) -> bool:
        """Whether the settings ask for a checkpoint of that iteration; `n`: how the trainable itself counts it."""
        if self.api == "class":
            return (self.save_every > 0 and iteration % self.save_every == 0) or (last and self.at_end)
        return n % self.save_every == 0


def draw(seed: int, *, replicas: tuple[str, ...] = REPLICAS, small: bool = False) -> Plan:
    """The plan of a seed. `small`: one that takes a few seconds."""
    rng = random.Random(f"campaign:{seed}")
    scheduler = rng.choice(SCHEDULERS)
    api = rng.choice(("function", "class"))
    pauses = scheduler in (*CLONING, "asha_promotion", "hyperband", "median", "resources")
    replica = rng.choice(replicas)
    keep = rng.choice((None, 1, 1, 2, 3))
    save_every = rng.choice((1, 1, 2, 3) if api == "function" or pauses else (0, 1, 1, 2, 3))
    return Plan(
        seed=seed,
        api=api,
        how=rng.choice(FUNCTION_SAVES) if api == "function" else "class",
        scheduler=scheduler,
        searcher=_searcher(rng, scheduler),
        trials=rng.randint(4, 8) if scheduler in CLONING else rng.randint(1, 5 if small else 12),
        iterations=rng.randint(4, 6 if small else 12),
        ends="stop" if scheduler in CLONING else rng.choice(("stop", "self")),
        step_s=rng.choice((0.0, 0.01, 0.03)),
        save_every=save_every,
        at_end=api == "class" and rng.random() < 0.5,
        size=rng.choice((10, 1_000, 100_000, 100_000 if small else 2_000_000)),
        files=rng.choice((1, 1, 3, 20)),
        keep=keep,
        attr=rng.choice((None, "score", "max-score", "min-score")),
        digits=rng.choice((1, 6)),
        budget=rng.random() < 0.15,
        per_trial=rng.choice((1, 1, 2)),
        max_failures=rng.choice((-1, -1, -1, 0)),
        replica=replica,
        keep_local="all" if replica in ("none", "command") else rng.choice(("all", "all", 1, 2)),
        again=rng.random() < 0.3,
        blows=_blows(rng, replica, small),
    )


def _searcher(rng: random.Random, scheduler: str) -> str:
    return rng.choice([name for name in SEARCHERS if name != "optuna" or scheduler not in CLONING])


def _blows(rng: random.Random, replica: str, small: bool) -> list[Blow]:
    victims = [name for name in VICTIMS if name != "uploader" or replica != "none"]
    victims += ["driver"]
    if replica != "none":
        victims += ["uploader"]
    return [
        Blow(
            victim=rng.choice(victims),
            signal=rng.choice(("KILL", "KILL", "TERM", "STOP")),
            steps=rng.choice((0, rng.randint(0, 10), rng.randint(0, 60))),
            after_s=rng.choice((0.0, rng.uniform(0, 0.05), rng.uniform(0, 1.5))),
            pause_s=rng.choice((0.05, 0.5, 2.0 if not small else 0.5)),
            loses=replica != "none" and rng.random() < 0.4,
        )
        for _ in range(rng.randint(1, 2 if small else 4))
    ]


def with_cuts(plan: Plan) -> Plan:
    """The same, and each blow is a power cut."""
    return replace(plan, blows=[replace(blow, victim="power", signal="CUT") for blow in plan.blows])


def to_json(plan: Plan) -> dict[str, Any]:
    """What the script is given of it."""
    return {name: value for name, value in vars(plan).items() if name != "blows"}
