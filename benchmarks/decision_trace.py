"""What Syne Tune's ASHA decides on curves of the surrogate: `python benchmarks/decision_trace.py --data DIR`, in the
environment of `make bench-search`, writes tests/data/asha_decisions.json, which our own is compared with.

Eight trials run at a time, in the order of their virtual times; who is stopped makes room for the next.
"""

from __future__ import annotations

import argparse
import heapq
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lcbench import COLUMNS, EPOCHS, METRIC, Surrogate

TARGET = Path(__file__).resolve().parent.parent / "tests" / "data" / "asha_decisions.json"
SETTINGS = (
    ("3945", {"reduction_factor": 3, "grace_period": 1, "max_t": EPOCHS}),
    ("167184", {"reduction_factor": 4, "grace_period": 1, "max_t": EPOCHS}),
    ("189906", {"reduction_factor": 2, "grace_period": 3, "max_t": 27}),
)
TRIALS, SLOTS = 60, 8


def decided(surrogate: Surrogate, dataset: str, settings: dict[str, Any]) -> list[list[Any]]:
    """Each result at which Syne Tune may decide, with whether it stops: [trial, epoch, accuracy, stopped]."""
    from search_peers import syne_space
    from syne_tune.optimizer.baselines import ASHA

    scheduler = ASHA(
        syne_space(surrogate), metric=METRIC, time_attr="epoch", do_minimize=False, random_seed=0, **settings
    )
    values = surrogate.random_values(TRIALS, seed=0).tolist()
    configs = [dict(zip(COLUMNS, row, strict=True)) for row in values]
    curves = surrogate.curves(dataset, configs)
    heap: list[tuple[float, int, int, float]] = []
    trials = [SimpleNamespace(trial_id=number, config=config) for number, config in enumerate(configs)]
    waiting = list(range(TRIALS))
    found: list[list[Any]] = []

    def start(now: float) -> None:
        if waiting:
            number = waiting.pop(0)
            scheduler.on_trial_add(trials[number])
            heapq.heappush(heap, (now + curves[number].seconds[0], number, 1, now))

    for _ in range(SLOTS):
        start(0.0)
    while heap:
        now, number, epoch, begun = heapq.heappop(heap)
        accuracy = round(curves[number].accuracy[epoch - 1], 3)
        decision = scheduler.on_trial_result(trials[number], {METRIC: accuracy, "epoch": epoch})
        stopped = decision == "STOP"
        found.append([number, epoch, accuracy, int(stopped)])
        if stopped:
            scheduler.on_trial_remove(trials[number])
            start(now)
        else:
            heapq.heappush(heap, (begun + curves[number].seconds[epoch], number, epoch + 1, begun))
    rungs = {height for bracket in scheduler.brackets for height, _ in bracket.rungs} | {settings["max_t"]}
    return [entry for entry in found if entry[1] in rungs or entry[3]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the folder with the surrogate of LCBench")
    surrogate = Surrogate(parser.parse_args().data)
    from syne_tune import __version__

    traces = [
        {"dataset": dataset, "settings": settings, "results": decided(surrogate, dataset, settings)}
        for dataset, settings in SETTINGS
    ]
    parts = ",\n".join(json.dumps(trace) for trace in traces)
    TARGET.write_text(f'{{"syne_tune": "{__version__}", "traces": [\n{parts}\n]}}\n', "utf-8")


if __name__ == "__main__":
    main()
