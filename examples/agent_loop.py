"""An agent's loop through `tuner mcp`: start experiments two at a time, wait, ask what came of them, fork the best.

A script in place of a model: it chooses by rules what a model would choose by reading. It keeps nothing: killed at any
moment and started again it goes on, for what it has asked for has the same ids.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

import tuner as tune

COUNT = 4
AT_ONCE = 2
CONFIG = """\
trainable: {script}:train
name: night
metric: loss
mode: min
num_samples: 2
storage_path: {storage}
param_space:
  lr: {{loguniform: [1.0e-3, 1.0]}}
  momentum: {{uniform: [0.0, 0.9]}}
keep_checkpoints_num: 2
max_failures: -1
resources_per_trial: {{cpu: 0.25}}
"""


def train(config: dict[str, Any]) -> None:
    """Goes down a valley whose floor is at lr = 0.1."""
    restored = tune.get_checkpoint()
    step, distance = restored.to_dict()["at"] if restored else (0, 10.0)
    while step < 6:
        time.sleep(0.1)
        step, distance = step + 1, distance * (0.5 + 0.1 * abs(math.log10(config["lr"] * 10)))
        saved = tune.Checkpoint.from_dict({"at": (step, distance)})
        tune.report({"loss": distance * (1 + config["momentum"])}, checkpoint=saved)


async def tool(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """The data of an answer."""
    answer = await client.call_tool(name, arguments)
    if answer.is_error:
        raise SystemExit(f"{name} {arguments}: {answer.structured_content['error']}")
    return answer.structured_content


async def night(client: Client, count: int) -> None:
    """All of it. Whatever was done already is found done: it may be begun again from here at any time."""
    ended: list[dict[str, Any]] = []
    waiting = list(range(count))
    while waiting:
        for number in waiting[:AT_ONCE]:
            rates = {"choice": [10.0**-exponent for exponent in range(number % 3 + 1)]}
            # The same request again is the same experiment, and continues it where its driver was killed.
            begun = await tool(client, "start", config="night.yaml", id=f"{number:03d}", space={"lr": rates})
            name = begun["experiment"]
            await tool(client, "wait", experiment=name, until="ended", timeout_s=1)
            stands = await tool(client, "overview", experiment=name)
            if stands["state"] == "finished":
                ended.append(stands)
                waiting.remove(number)
    best = min(ended, key=lambda stands: stands["best"]["value"])
    name, trial = best["experiment"], best["best"]["trial"]
    print(f"best: {name}, trial {trial}: {best['best']['value']:.4f} with {best['best']['config']}")
    await fork(client, name, trial)
    used = (await tool(client, "experiments"))["may"]["budget"]["trials"]
    print(f"budget: {used['used']} of {used['of']} trials")


async def fork(client: Client, name: str, trial: int) -> None:
    """One more trial, from the middle of another one; its `id` makes it one, however often this is said."""
    shelf = await tool(client, "trial", experiment=name, trial=trial, section="checkpoints")
    kept = [row["checkpoint"] for row in shelf["checkpoints"] if row["fate"] == "kept"]
    start = {"trial": str(trial), "iteration": int(kept[-1].partition("@")[2])}
    order = {"order": "fork", **start, "config": {"momentum": 0.0}}
    made: dict[str, Any] = {}
    while "trial" not in made or (await tool(client, "overview", experiment=name))["state"] != "finished":
        made = await tool(client, "order", experiment=name, order=order, id="calmer")
        await tool(client, "wait", experiment=name, until="ended", timeout_s=10)
    forked = await tool(client, "trial", experiment=name, trial=made["trial"])
    print(f"fork: trial {forked['trial']} from {forked['began_from']['checkpoint']}: {forked['last']['loss']:.4f}")


async def main(place: Path, count: int) -> None:
    config = place / "night.yaml"
    config.write_text(CONFIG.format(script=Path(__file__).resolve(), storage=place))
    allowed = ["--allow-orders", "--allow-start", str(config), "--max-trials", str(2 * count + 1)]
    server = StdioServerParameters(command=sys.executable, args=["-m", "tuner.cli", "mcp", str(place), *allowed])
    while True:
        try:
            async with Client(stdio_client(server), read_timeout_seconds=60) as client:
                return await night(client, count)
        except Exception as error:  # of a server that was killed: an answer may be lost, and what it did is not
            print(f"once more: {type(error).__name__}", file=sys.stderr)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "night").absolute()
    folder.mkdir(exist_ok=True)
    asyncio.run(main(folder, int(sys.argv[2]) if len(sys.argv) > 2 else COUNT))
