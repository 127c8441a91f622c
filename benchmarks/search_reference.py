"""Where regret begins and ends on each data set: `python benchmarks/search_reference.py --data DIR` writes
search_reference.json.

The median and the mean length of a training are those of 2,000 random configs. The best one known comes from these and
an evolution at six of the epochs: 20 times, the best 50 have 5 children each, near them at a width that shrinks.
The best front known of accuracy and mean seconds an epoch comes from the same configs and another evolution, which
keeps the best in each of several directions.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from lcbench import COLUMNS, EPOCHS, Surrogate
from search_hypervolume import hypervolume
from search_runs import REFERENCE, Reference

RANDOM, PARENTS, CHILDREN, ROUNDS = 2_000, 50, 5, 20
LATE = (12, 20, 28, 36, 44, 52)
"""The epochs that the evolution looks at."""
DIRECTIONS, OF_EACH = 17, 3
"""Of the front's evolution: so many shares of both objectives, and the best so many in each are parents."""
SLOW = 90
"""The percentile of the random configs' seconds an epoch that is the reference point of the hypervolume."""


def reference(surrogate: Surrogate, dataset: str) -> dict[str, float]:
    """The entry of one data set."""
    generator = np.random.default_rng(0)
    unit = generator.random((RANDOM, len(COLUMNS)))
    seconds, accuracy = surrogate.arrays(dataset, surrogate.from_unit(unit))
    median, length = float(np.median(accuracy.max(axis=1))), float(seconds[:, -1].mean())
    slow = round(float(np.percentile(seconds[:, -1] / EPOCHS, SLOW)), 4)
    drawn, scores = unit, accuracy.max(axis=1)
    for turn in range(ROUNDS):
        best = np.argsort(-scores)[:PARENTS]
        unit, scores = unit[best], scores[best]
        children = np.repeat(unit, CHILDREN, axis=0)
        children = np.clip(children + generator.normal(0, 0.15 * 0.8**turn, children.shape), 0, 1)
        found = surrogate.best_accuracy(dataset, surrogate.from_unit(children), LATE)
        unit, scores = np.concatenate([unit, children]), np.concatenate([scores, found])
    best = np.argsort(-scores)[:PARENTS]
    highest = surrogate.arrays(dataset, surrogate.from_unit(unit[best]))[1].max()
    found = Reference(round(median, 4), round(float(highest), 4), round(length, 4), 0.0, slow, 0.0)
    return front(surrogate, dataset, found, np.concatenate([drawn, unit[best]]))._asdict()


def front(surrogate: Surrogate, dataset: str, found: Reference, unit: np.ndarray) -> Reference:
    """The same with what hypervolume is measured by; from configs, as places in the unit cube, onwards."""
    generator = np.random.default_rng(1)
    shares = np.linspace(0.02, 0.98, DIRECTIONS)
    seconds, accuracy = surrogate.arrays(dataset, surrogate.from_unit(unit))
    objectives = np.stack([accuracy.max(axis=1), -np.log(seconds[:, -1] / EPOCHS)], axis=1)
    for turn in range(ROUNDS):
        worst = np.array([found.median, -np.log(found.most_epoch_s)])
        places = (objectives - worst) / (objectives.max(axis=0) - worst)
        scores = np.stack([np.minimum(places[:, 0] / share, places[:, 1] / (1 - share)) for share in shares])
        parents = np.unique(np.argsort(-scores, axis=1)[:, :OF_EACH])
        children = np.repeat(unit[parents], CHILDREN, axis=0)
        children = np.clip(children + generator.normal(0, 0.15 * 0.8**turn, children.shape), 0, 1)
        seconds, accuracy = surrogate.arrays(dataset, surrogate.from_unit(children))
        more = np.stack([accuracy.max(axis=1), -np.log(seconds[:, -1] / EPOCHS)], axis=1)
        unit, objectives = np.concatenate([unit, children]), np.concatenate([objectives, more])
    epoch_s = np.exp(-objectives[:, 1])
    found = found._replace(least_epoch_s=round(float(epoch_s.min()), 4))
    volume = hypervolume(
        [found.place(*point) for point in zip(objectives[:, 0].tolist(), epoch_s.tolist(), strict=True)]
    )
    return found._replace(volume=round(volume, 5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the folder with the surrogate of LCBench")
    surrogate = Surrogate(parser.parse_args().data)
    found = {dataset: reference(surrogate, dataset) for dataset in surrogate.datasets}
    lines = ",\n".join(f'  "{dataset}": {json.dumps(entry)}' for dataset, entry in found.items())
    REFERENCE.write_text("{\n" + lines + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
