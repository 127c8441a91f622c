"""Runs experiments of the campaign by their seeds: `repeat.py 17`, or `repeat.py 0-49 --in DIRECTORY`."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from lives import Runner, Seen  # noqa: E402
from oracle import judge  # noqa: E402
from places import Places  # noqa: E402
from plans import REPLICAS, Plan, draw, to_json, with_cuts  # noqa: E402

from tests.servers.powered import Disk, powered_disk  # noqa: E402

BAD = {"clock": {"SHIM_JUMPS": "1"}, "sync": {"SHIM_SYNC_MS": "150"}, "locks": {"SHIM_NO_LOCKS": "1"}, "nfs": {}}


def perform(
    plan: Plan,
    base: Path,
    places: Places,
    disk: Disk | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Seen, list[str]]:
    """One experiment to its end, and the rules that it broke."""
    base.mkdir(parents=True)
    runner = Runner(plan, base, places, disk, environment)
    seen = runner.run()
    ended = not seen.flags and all(not life.hung for life in seen.lives)
    there = places.look(plan.replica, runner.name, base / "there") if plan.replica != "none" else None
    flags = judge(seen, there)
    if ended and plan.again and (status := runner.again()) != 0:
        flags.append(f"the finished experiment, run once more, ends with {status}")
    return seen, flags


def cut(plan: Plan, base: Path, places: Places) -> tuple[Seen, list[str]]:
    """The same on a disk whose power is cut."""
    with powered_disk(base / "powered", ("xfs", "ext4")[plan.seed % 2], 2 << 30) as disk:
        return perform(with_cuts(plan), base / "work", places, disk)


def on_bad_machine(plan: Plan, base: Path, places: Places, kind: str) -> tuple[Seen, list[str]]:
    """The same where the clock jumps, syncing is slow, nothing can be locked (`shim.c`), or all is on NFS (`nfs.c`)."""
    base.mkdir(parents=True)
    source = HERE / ("nfs.c" if kind == "nfs" else "shim.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", base / "shim.so", source, "-ldl"], check=True)
    return perform(plan, base / "work", places, environment={"LD_PRELOAD": str(base / "shim.so"), **BAD[kind]})


def describe(plan: Plan, seen: Seen, flags: list[str], option: str = "") -> str:
    """For people: what it was, what happened, which rules were broken, and how to repeat it."""
    lives = [f"  life {life.number}: {life.status}{' (disk lost)' * life.lost} {life.blows}" for life in seen.lives]
    return "\n".join(
        [f"seed {plan.seed}: {json.dumps(to_json(plan))}", *lives, *(f"  FLAG {flag}" for flag in flags)]
        + [f"  to repeat it: python tests/campaign/repeat.py {plan.seed}{option}"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="17, or 0-49")
    parser.add_argument("--in", dest="directory", type=Path, help="where to work; what is flagged stays there")
    parser.add_argument("--small", action="store_true", help="the size of `make test-wide`")
    parser.add_argument("--power", action="store_true", help="every blow is a power cut (root)")
    parser.add_argument("--bad", choices=sorted(BAD), help="what is wrong with the machine (gcc)")
    parser.add_argument("--replicas", default=",".join(REPLICAS))
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    work = given.directory or Path(tempfile.mkdtemp(prefix="campaign-"))
    work.mkdir(parents=True, exist_ok=True)
    places, flagged = Places(work), 0
    try:
        for seed in range(int(first), int(last or first) + 1):
            plan = draw(seed, replicas=tuple(given.replicas.split(",")), small=given.small)
            base, began = work / f"seed-{seed}", time.monotonic()
            shutil.rmtree(base, ignore_errors=True)
            if given.bad:
                seen, flags = on_bad_machine(plan, base, places, given.bad)
            else:
                seen, flags = (cut if given.power else perform)(plan, base, places)
            flagged += bool(flags)
            with (work / "said").open("a") as said:
                said.write(f"=== {seed}\n{seen.output}")
            print(f"{seed} {'FLAGGED' if flags else 'ok'} {time.monotonic() - began:.1f} s", flush=True)
            if flags:
                print(
                    describe(
                        plan,
                        seen,
                        flags,
                        " --power" * given.power + " --small" * given.small + f" --bad {given.bad}" * bool(given.bad),
                    ),
                    flush=True,
                )
            else:
                shutil.rmtree(base)
    finally:
        places.close()
    print(f"{flagged} flagged; work in {work}")
    return 1 if flagged else 0


if __name__ == "__main__":
    sys.exit(main())
