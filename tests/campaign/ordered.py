"""A campaign of orders: random ones to an experiment whose driver is killed again and again, then judged by hand.

`python ordered.py --kills 1000` runs it by itself and prints how many kills, orders and broken rules there were.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from orders_by_hand import judge

from tests.soak.counts import count
from tuner.error import ExperimentNotFoundError, OrderError
from tuner.orders.giving import give
from tuner.orders.mailbox import Mailbox

HERE = Path(__file__).parent
TRIALS, ITERATIONS = 4, 40
_WEIGHTS = {
    "note": 4, "pause": 4, "go": 6, "save": 4, "pin": 3, "unpin": 1, "tag": 3, "retry": 1, "add": 1, "fork": 2,
    "set": 2, "stop": 0.1,
}  # fmt: skip
MOST_NEW = 4
LAST_LIVES = 6
"""So many lives that nobody kills are enough to answer everything."""
PATIENCE_S = 120.0


@dataclass
class Ordered:
    """One experiment, and what was asked of it."""

    seed: int
    base: Path
    given: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Order's id -> the order that was given first under it."""
    done: int = 0
    """Orders that were not refused."""
    kills: int = 0
    lives: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.base / "results" / "e"

    @property
    def books(self) -> list[Path]:
        return sorted((self.base / "books").iterdir())


class Zygote:
    """The process that starts lives; end it with `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "ordered_script.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        )

    def begin(self, job: dict[str, Any]) -> int:
        """Start a life; returns its pid."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._hear()["pid"])

    def end(self) -> int:
        """Wait until it is over; returns its status, negative for the signal that killed it."""
        return int(self._hear()["status"])

    def is_over(self) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], PATIENCE_S)[0]
        assert ready, "a life hangs"
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def perform(seed: int, base: Path, zygote: Zygote, *, kills: int, executor: str = "local") -> Ordered:
    """Live and be killed so many times, then live to the end; what is wrong stands in `flags`."""
    rng = random.Random(f"ordered:{seed}")
    ordered = Ordered(seed, base)
    for name in ("tokens", "books", "results"):
        (base / name).mkdir(parents=True)
    for _ in range(rng.randint(0, 3)):
        (base / "tokens" / f"{rng.randint(1, TRIALS)}-{rng.randint(1, ITERATIONS)}").touch()
    job = {
        "look_s": 0.02,
        "storage": str(base / "results"),
        "tokens": str(base / "tokens"),
        "step_s": rng.choice((0.005, 0.02)),
        "executor": executor,
        "save_every": rng.choice((0, 1, 3)),
        "scheduler": rng.choice(("fifo", "fifo", "fifo", "asha", "hyperband", "pbt")),
        "upload_dir": str(base / "there") if rng.random() < 0.2 else None,
    }
    while ordered.kills < kills:
        _live(ordered, rng, zygote, job, strike=True)
    for number in range(LAST_LIVES):
        status = _live(ordered, rng, zygote, job, strike=False)
        if status != 0:
            ordered.flags.append(f"a life that nobody killed ended with {status}")
            break
        if number < 2:
            for trial in range(2 * TRIALS + MOST_NEW + 2):  # and more than there are
                _give(ordered, rng, {"order": "go", "trial": str(trial)}, anew=True)
        elif not list((ordered.root / "orders").glob("*[0-9a-f].json")):
            break
    flags, ordered.done = judge(ordered.root, ordered.books, ordered.given, job)
    ordered.flags += flags
    return ordered


def _live(ordered: Ordered, rng: random.Random, zygote: Zygote, job: dict[str, Any], *, strike: bool) -> int:
    how = rng.choice(("change", "change", "time")) if strike else ""
    change = int(rng.choice((60, 150, 400)) * rng.random()) if how == "change" else None
    if ordered.root.is_dir():
        for _ in range(rng.choice((0, 0, 1, 3, 20)) if strike else 0):
            _give(ordered, rng, _draw(ordered, rng))
    pid = zygote.begin({**job, "kill_before": change})
    due = time.monotonic() + rng.uniform(0.0, 0.8)
    while strike and not zygote.is_over():
        if how == "time" and time.monotonic() >= due:
            os.kill(pid, signal.SIGKILL)
            break
        if ordered.root.is_dir() and rng.random() < 0.3:
            _give(ordered, rng, _draw(ordered, rng))
        time.sleep(0.005)
    status = zygote.end()
    ordered.kills += status == -signal.SIGKILL
    count("kills of driver", status == -signal.SIGKILL)
    ordered.lives.append(f"{how} {change}: {status}")
    if (journal := ordered.root / "journal").is_dir():
        shutil.copytree(journal, ordered.base / "books" / f"{len(ordered.lives):04d}")
    return status


def _draw(ordered: Ordered, rng: random.Random) -> dict[str, Any]:
    count = _count(ordered.root)
    trial = str(rng.choice((*range(count), *range(count), 99)))
    word = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    if word in ("add", "fork") and count > TRIALS + MOST_NEW:
        word = "note"
    order: dict[str, Any] = {"order": word, "trial": trial}
    if word == "note":
        order["text"] = f"{rng.getrandbits(64):x}"
    elif word == "save":
        order["pin"] = rng.random() < 0.5
    elif word in ("pin", "unpin", "tag", "fork"):
        order["iteration"] = rng.choice(_saved(ordered.root, trial) or [1])
        if word == "tag":
            order["tag"] = f"t{rng.randint(0, 5)}"
        elif word == "fork":
            order["config"] = {"rate": rng.randint(1, 9)}
    elif word == "add":
        order = {"order": word, "config": {"rate": rng.randint(1, 9)}}
    elif word == "set":
        order |= {"name": "resources", "value": {"cpu": rng.choice((0.25, 0.5, 1.0))}}
        if rng.random() < 0.5:
            order = {"order": word, "name": "max_concurrent", "value": rng.randint(1, 5)}
        elif rng.random() < 0.2:
            order = {"order": word, "name": "num_samples", "value": rng.randint(1, 2)}
    elif word == "stop" and rng.random() < 0.2:
        order["trial"] = "all"
    return order


def _count(root: Path) -> int:
    """How many trials there are."""
    return max(1, len(list(root.glob("Adds_*"))))


def _saved(root: Path, trial: str) -> list[int]:
    """Iterations of which the trial has a checkpoint now."""
    number = f'"index":{trial},'
    found = [path.parent for path in root.glob("Adds_*/trial.json") if number in path.read_text().replace(" ", "")]
    return [int(path.name[11:17]) for place in found for path in place.glob("checkpoint_*")]


def _give(ordered: Ordered, rng: random.Random, order: dict[str, Any], *, anew: bool = False) -> None:
    """Mostly under an id of its own; else again under one that is known, and that is no new order."""
    known = bool(ordered.given) and not anew and rng.random() < 0.1
    order_id = rng.choice(list(ordered.given)) if known else f"{rng.getrandbits(64):016x}"
    if rng.random() < 0.7:
        Mailbox(ordered.root).put(order_id, json.dumps(order).encode())
    else:
        try:
            give(ordered.root, order, order_id=order_id, if_dead="wait")
        except (OrderError, ExperimentNotFoundError):
            return  # it was refused at once, and must not turn up in the journal
    ordered.given.setdefault(order_id, order)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--each", type=int, default=10, help="kills of one experiment")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--executor", default="local")
    given = parser.parse_args()
    zygote, work = Zygote(), Path(tempfile.mkdtemp(prefix="ordered-"))
    kills = orders = done = bad = 0
    words: Counter[str] = Counter()
    try:
        for seed in range(given.seed, given.seed + given.kills // given.each):
            seen = perform(seed, work / str(seed), zygote, kills=given.each, executor=given.executor)
            kills, orders, bad = kills + seen.kills, orders + len(seen.given), bad + len(seen.flags)
            done += seen.done
            words.update(order["order"] for order in seen.given.values())
            if seen.flags:
                print(f"seed {seed} ({work / str(seed)}):", *seen.flags, sep="\n  ", flush=True)
            else:
                shutil.rmtree(work / str(seed))
    finally:
        zygote.close()
    print(f"{kills} kills, {orders} orders ({dict(words)}), {done} of them done, {bad} rules broken")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
