"""A training that knows of nothing: it takes options, prints its loss, and saves its state in files.

    python examples/plain_program.py --lr 0.1 --out /tmp/out

configs/command.yaml tunes it as it is.
"""

from __future__ import annotations

import argparse
import json
import os


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out", required=True)
    parser.add_argument("--resume")
    given = parser.parse_args()
    state = {"x": 10.0, "step": 0}
    if given.resume:
        with open(os.path.join(given.resume, "state.json")) as file:
            state = json.load(file)
    for step in range(state["step"] + 1, given.steps + 1):
        state = {"x": state["x"] - given.lr * 2 * state["x"], "step": step}
        saved = os.path.join(given.out, f"step-{step}")
        os.makedirs(saved + ".tmp", exist_ok=True)
        with open(os.path.join(saved + ".tmp", "state.json"), "w") as file:
            json.dump(state, file)
        os.rename(saved + ".tmp", saved)  # complete from here on
        print(f"step {step}: loss={state['x'] ** 2:.6f}", flush=True)


if __name__ == "__main__":
    main()
