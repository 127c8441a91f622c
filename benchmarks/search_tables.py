"""What the searches of `search.py` add up to: regret over time, ranks, intervals, pairs."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SHARES = (0.05, 0.10, 0.25, 0.50, 1.00)
"""Of the virtual time, at which regret is compared."""
EVERY = tuple(number / 100 for number in range(1, 101))
"""Shares of the time at which it is asked whether a regret is reached."""
TARGETS = (0.2, 0.1, 0.05)
"""Regrets, the time to which is compared."""
DRAWS = 1_000
"""Of a bootstrap."""
PAIRED = "-same"
"""How methods are called that get the same configs in ours and in Syne Tune: they are compared in pairs."""

Key = tuple[str, str, int, int]
"""Method, data set, seed, workers."""


@dataclass
class Results:
    """Searches by method, data set, seed and workers."""

    runs: dict[Key, dict[str, Any]] = field(default_factory=dict)

    def of(self, keys: Iterable[Key]) -> Results:
        """Only these."""
        return Results({key: self.runs[key] for key in keys if key in self.runs})

    def methods(self, workers: int) -> list[str]:
        return list(dict.fromkeys(key[0] for key in self.runs if key[3] == workers))

    def shared_cells(self, workers: int) -> list[tuple[str, int]]:
        """(data set, seed) that every method has."""
        methods_of: dict[tuple[str, int], set[str]] = defaultdict(set)
        for method, dataset, seed, count in self.runs:
            if count == workers:
                methods_of[dataset, seed].add(method)
        everybody = set(self.methods(workers))
        return sorted(cell for cell, found in methods_of.items() if found == everybody)

    def cells_of(self, first: str, second: str, workers: int) -> list[tuple[str, int]]:
        """(data set, seed) that both methods have."""
        return self.of(key for key in self.runs if key[0] in (first, second)).shared_cells(workers)

    def regrets(self, method: str, workers: int, cells: list[tuple[str, int]], shares: Iterable[float]) -> np.ndarray:
        """(cells, shares)."""
        runs = [self.runs[method, dataset, seed, workers]["steps"] for dataset, seed in cells]
        return np.array([[regret_at(steps, share) for share in shares] for steps in runs])

    def times(self, method: str, workers: int, cells: list[tuple[str, int]], target: float) -> np.ndarray:
        """When each search reached that regret, as a share of the time; inf: it did not."""
        runs = [self.runs[method, dataset, seed, workers]["steps"] for dataset, seed in cells]
        return np.array([next((at for at, regret in steps if regret <= target), np.inf) for steps in runs])


def regret_at(steps: list[tuple[float, float]], share: float) -> float:
    """The regret at a share of the time; 1 before the first result."""
    passed = bisect.bisect_right([at for at, _ in steps], share)
    return steps[passed - 1][1] if passed else 1.0


def drawn_cells(cells: list[tuple[str, int]]) -> Iterator[np.ndarray]:
    """Numbers of cells for a bootstrap: data sets are drawn, and of each as many seeds as it has."""
    generator = np.random.default_rng(0)
    by_dataset: dict[str, list[int]] = defaultdict(list)
    for number, (dataset, _) in enumerate(cells):
        by_dataset[dataset].append(number)
    groups = [np.array(group) for group in by_dataset.values()]
    for _ in range(DRAWS):
        chosen = generator.integers(0, len(groups), len(groups))
        yield np.concatenate([generator.choice(groups[one], len(groups[one])) for one in chosen])


def bootstrapped(values: np.ndarray, cells: list[tuple[str, int]], statistic: Any = np.mean) -> tuple[float, float]:
    """The 95 % interval of a statistic of one value for each cell."""
    low, high = np.percentile([statistic(values[numbers]) for numbers in drawn_cells(cells)], (2.5, 97.5))
    return float(low), float(high)


def bootstrap_means(values: np.ndarray, cells: list[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval of the means of the columns of (cells, columns)."""
    low, high = np.percentile([values[numbers].mean(axis=0) for numbers in drawn_cells(cells)], (2.5, 97.5), axis=0)
    return low, high


def ranks(columns: np.ndarray) -> np.ndarray:
    """Of (methods, cells): the place of each method in each cell, from 1; equal ones share the mean of their places."""
    below = (columns[None, :, :] < columns[:, None, :]).sum(axis=1)
    equal = (columns[None, :, :] == columns[:, None, :]).sum(axis=1)
    return below + (equal + 1) / 2


def table(results: Results, workers: int, measured: str = "regret") -> str:
    """Mean regret, or what else is measured from 1 to 0, with its interval at the end, rank and time, in Markdown."""
    cells = results.shared_cells(workers)
    methods = [name for name in results.methods(workers) if not name.endswith(PAIRED)]
    if not cells or not methods:
        return f"{workers} workers: no data set and seed is done by all of {', '.join(methods) or 'the methods'}"
    found = np.stack([results.regrets(method, workers, cells, SHARES) for method in methods])
    places = np.stack([ranks(found[:, :, column]).mean(axis=1) for column in range(len(SHARES))], axis=1)
    datasets = len({dataset for dataset, _ in cells})
    head = " | ".join(f"{share:.0%}" for share in SHARES)
    goals = " | ".join(f"to {target:g}" for target in TARGETS)
    lines = [
        f"{workers} workers, {datasets} data sets, {len(cells)} searches of each method",
        "",
        f"| mean {measured} after | {head} | 95 % interval at the end | mean rank at 25 / 50 / 100 % | {goals} "
        "| trials | CPU s |",
        "|---" * (len(SHARES) + len(TARGETS) + 5) + "|",
    ]
    for method, regret, place in sorted(
        zip(methods, found, places, strict=True), key=lambda row: float(row[1][:, -3:].mean())
    ):
        low, high = bootstrapped(regret[:, -1], cells)
        means = " | ".join(f"{mean:.3f}" for mean in regret.mean(axis=0))
        reached = " | ".join(_share(np.median(results.times(method, workers, cells, target))) for target in TARGETS)
        runs = [results.runs[method, dataset, seed, workers] for dataset, seed in cells]
        trials = np.mean([run["trials"] for run in runs])
        cpu_s = np.mean([run["cpu_s"] for run in runs])
        ranked = " / ".join(f"{one:.1f}" for one in place[-3:])
        lines.append(
            f"| {method} | {means} | {low:.3f} to {high:.3f} | {ranked} | {reached} | {trials:.0f} | {cpu_s:.2f} |"
        )
    return "\n".join(lines) + "\n"


def tables(results: Results, workers: int) -> str:
    """Tables of the searches that all of some methods have: of those with more than a third of the most searches, more
    than a tenth, of all. One that has no more searches than the next, or a single method, is left out.
    """
    counts = Counter(key[0] for key in results.runs if key[3] == workers)
    shown: list[str] = []
    most = -1
    for share in (0, 1 / 10, 1 / 3):
        least = share * max(counts.values(), default=0)
        some = results.of(key for key in results.runs if counts[key[0]] > least)
        found = len(some.shared_cells(workers))
        if found > most and (len(some.methods(workers)) > 1 or not shown):
            shown.insert(0, table(some, workers))
            most = found
    return "\n".join(shown)


def beside(results: Results, method: str, workers: int) -> str:
    """A method and each other one over the searches that both have: its mean regret, and the mean difference with its
    95 % interval; below 0 it is ahead.
    """
    lines = [
        f"| {method} beside | searches | data sets | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |",
        "|---" * (len(SHARES) + 3) + "|",
    ]
    for other in _others(results, method, workers):
        cells = results.cells_of(method, other, workers)
        if cells:
            own, others = (results.regrets(name, workers, cells, SHARES) for name in (method, other))
            low, high = bootstrap_means(own - others, cells)
            columns = zip(own.mean(axis=0), others.mean(axis=0), low, high, strict=True)
            shown = [f"{mean:.3f} / {its:.3f} ({below:+.3f} to {above:+.3f})" for mean, its, below, above in columns]
            datasets = len({dataset for dataset, _ in cells})
            lines.append(f"| {other} | {len(cells)} | {datasets} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _others(results: Results, method: str, workers: int) -> list[str]:
    """Those that a method is compared with; none if it has no search."""
    names = results.methods(workers)
    return [name for name in names if name != method and not name.endswith(PAIRED)] if method in names else []


def catching_up(results: Results, method: str, workers: int) -> str:
    """When a method's median regret is that of each other one at the end, over the searches of both, in Markdown."""
    lines = [f"| {method} has the final median regret of | searches | at this share of the time |", "|---|---|---|"]
    for other in _others(results, method, workers):
        cells = results.cells_of(method, other, workers)
        if cells:
            goal = np.median(results.regrets(other, workers, cells, [1.0]))
            reached = np.median(results.regrets(method, workers, cells, EVERY), axis=0) <= goal
            at = f"{EVERY[int(reached.argmax())]:.2f}" if reached.any() else "never"
            lines.append(f"| {other} | {len(cells)} | {at} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _share(number: float) -> str:
    return f"{number:.0%}" if np.isfinite(number) else "never"


def paired(results: Results, first: str, second: str, workers: int, share: float) -> tuple[float, float, float, float]:
    """The difference in regret of two methods, first minus second, over the same data sets and seeds: its median with
    the 95 % interval of that, and its mean.
    """
    cells = results.cells_of(first, second, workers)
    difference = (
        results.regrets(first, workers, cells, [share]) - results.regrets(second, workers, cells, [share])
    ).ravel()
    low, high = bootstrapped(difference, cells, np.median)
    return float(np.median(difference)), low, high, float(difference.mean())


def pairs(results: Results, workers: int) -> str:
    """Our methods that were given the same configs as Syne Tune's of that name, beside these, in Markdown."""
    both = [name for name in results.methods(workers) if f"syne-{name}" in results.methods(workers)]
    lines = ["| ours minus Syne Tune's | searches | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"]
    lines.append("|---" * (len(SHARES) + 2) + "|")
    for name in both:
        shared = results.cells_of(name, f"syne-{name}", workers)
        found = [paired(results, name, f"syne-{name}", workers, share) for share in SHARES]
        shown = [f"{median:+.3f} ({low:+.3f} to {high:+.3f}), mean {mean:+.3f}" for median, low, high, mean in found]
        lines.append(f"| {name} | {len(shared)} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n" if both else ""


def costs(results: Results, workers: int) -> str:
    """What the searches have cost in fact, and those of the methods that cost most."""
    spent: dict[str, list[float]] = defaultdict(list)
    for (method, _, _, count), run in results.runs.items():
        if count == workers:
            spent[method].append(run["cpu_s"])
    dearest = sorted(spent, key=lambda method: -float(np.mean(spent[method])))[:3]
    each = ", ".join(f"{method} {np.mean(spent[method]):.0f} s" for method in dearest)
    total_s, count = sum(map(sum, spent.values())), sum(map(len, spent.values()))
    return f"These {count} searches took {total_s / 60:.0f} min of CPU; the dearest, each: {each}.\n" if spent else ""
