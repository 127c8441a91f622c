"""Programs that know nothing of us, as files, for tests of commands."""

from __future__ import annotations

from pathlib import Path

TRAIN = """
import argparse, json, os, signal, sys, time
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, required=True)
p.add_argument("--out", required=True)
p.add_argument("--resume")
p.add_argument("--epochs", type=int, default=6)
p.add_argument("--pause", type=float, default=0.0)
p.add_argument("--late", type=float, default=0.0)
p.add_argument("--fail-at", type=int, default=-1)
p.add_argument("--keep", type=int, default=0)
a = p.parse_args()
w, start = 0.0, 0
if a.resume:
    state = json.load(open(os.path.join(a.resume, "state.json")))
    w, start = state["w"], state["epoch"]
with open(os.path.join(a.out, "lives.txt"), "a") as lives:
    print(start, file=lives)
log = open(os.path.join(a.out, "log.jsonl"), "a")
for epoch in range(start + 1, a.epochs + 1):
    time.sleep(a.pause)
    if epoch == a.fail_at and not a.resume:
        sys.exit("no memory left for " + str(epoch))
    w += a.lr * (1 - w)
    print(json.dumps({"epoch": epoch, "loss": (1 - w) ** 2}), file=log, flush=True)
    print(f"epoch {epoch} loss={(1 - w) ** 2}", flush=True)
    time.sleep(a.late)
    half = os.path.join(a.out, f".half-{epoch}")
    os.makedirs(half, exist_ok=True)
    with open(os.path.join(half, "state.json"), "w") as file:
        json.dump({"w": w, "epoch": epoch}, file)
    os.rename(half, os.path.join(a.out, f"epoch-{epoch}"))
    old = os.path.join(a.out, f"epoch-{epoch - a.keep}")
    if a.keep and os.path.exists(old):
        os.remove(os.path.join(old, "state.json"))
        os.rmdir(old)
"""


def loss(lr: float, epoch: int) -> float:
    """What the program gives, but for rounding."""
    return float((1 - lr) ** (2 * epoch))


def written(directory: Path) -> str:
    """The program's path."""
    path = directory / "train.py"
    path.write_text(TRAIN)
    return str(path)
