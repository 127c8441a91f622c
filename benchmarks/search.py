"""How soon a search finds a good configuration: ours, Syne Tune's and Optuna's on the surrogate of LCBench.

`make bench-search DATA=DIR`, or `python benchmarks/search.py --data DIR --json OUT`. Every search has the virtual time
of 40 full trainings of average length on 4 workers. Regret is the share of the way from the median of random configs
to the best one known that is left at a moment. What OUT has is not measured again, so that a long measurement may be
cut off, and goes on when the command is given again; the tables are of all that OUT has of these methods, data sets and
numbers of workers. A method whose code has changed is measured anew when its number in `search_methods.VERSIONS` is
raised.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from lcbench import Missing, Surrogate
from search_kept import Kept
from search_methods import NAMED_ONLY, OURS, SLOW, VERSIONS, Run
from search_picture import svg
from search_runs import WORKERS, references
from search_tables import Key, Results, beside, catching_up, costs, pairs, tables

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- tables of benchmarks/search.py{} -->\n", "<!-- end of tables -->"
FIRST = "3945 7593 126025 126026 146212 167149 167168 167185 168330 168868 189862 189906".split()
"""The twelve of `make bench-search`: six to tune on, six that judge."""


def wanted(
    methods: Collection[str],
    datasets: list[str],
    seeds: int,
    workers: list[int],
    slow_seeds: int | None = None,
    slow_datasets: int | None = None,
) -> Iterator[Key]:
    """All searches; any first part of them treats methods and data sets alike, but for the slow methods, which have the
    first `slow_seeds` of the first `slow_datasets`.
    """
    slow = {(seed, dataset) for seed in range(seeds)[:slow_seeds] for dataset in datasets[:slow_datasets]}
    for seed in range(seeds):
        for count in workers:
            for dataset in datasets:
                for method in methods:
                    if method not in SLOW or (seed, dataset) in slow:
                        yield method, dataset, seed, count


def measured(surrogate: Surrogate, run: Run, key: Key) -> dict[str, Any]:
    """One search: its improvements as shares of the time and regret, and what it cost."""
    _, dataset, seed, workers = key
    reference = references()[dataset]
    # Of its own on each data set: else 34 searches share the luck of one draw.
    found = run(surrogate, dataset, 100 * seed + surrogate.datasets.index(dataset), workers)
    steps = [
        (round(seconds / reference.horizon_s, 5), round(reference.regret(accuracy), 5))
        for seconds, accuracy in found.improvements
    ]
    return {"steps": steps, "trials": found.trials, "cpu_s": found.cpu_s}


@cache
def opened(data: str) -> Surrogate:
    """The surrogate of this process."""
    return Surrogate(data)


def measured_here(data: str, peers: bool, key: Key) -> tuple[Key, dict[str, Any]]:
    """One search in a process of the pool."""
    warnings.filterwarnings("ignore")
    surrogate = opened(data)
    try:
        return key, measured(surrogate, chosen_methods(key[0], peers)[key[0]], key)
    finally:
        surrogate.clear()


def measure(kept: Kept, missing: list[Key], given: argparse.Namespace) -> None:
    """All that is missing, as many at a time as there are processes; after the given minutes no more are begun."""
    began = time.monotonic()
    ends = began + 60 * given.minutes if given.minutes else None
    todo, running, done = iter(missing), set[Future[tuple[Key, dict[str, Any]]]](), 0
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        while True:
            while len(running) < given.processes and (ends is None or time.monotonic() < ends):
                if (key := next(todo, None)) is None:
                    break
                running.add(pool.submit(measured_here, given.data, given.peers, key))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                kept.add(*future.result())
            done += len(ended)
            if sys.stderr.isatty():
                left = (time.monotonic() - began) / done * (len(missing) - done)
                print(f"\r{done}/{len(missing)} searches, {left / 60:.0f} min left ", end="", file=sys.stderr)


def chosen_methods(named: str | None, peers: bool) -> dict[str, Run]:
    """The methods that were named, or all that can be afforded; with --peers Syne Tune's and Optuna's as well."""
    known = dict(OURS)
    if peers:
        from search_peers import PEERS

        known |= PEERS
    names = named.split(",") if named else [name for name in known if name not in NAMED_ONLY]
    if unknown := [name for name in names if name not in known]:
        sys.exit(
            f"--methods {','.join(unknown)}: accepted are {', '.join(known)}{'' if peers else '; more with --peers'}"
        )
    return {name: known[name] for name in names}


def chosen_datasets(surrogate: Surrogate, named: str | None) -> list[str]:
    """Those that were named; `first`: twelve of them; `even`: those to tune on; None: all."""
    lists = {None: surrogate.datasets, "first": FIRST, "even": surrogate.tuned_on}
    datasets = lists[named] if named in lists else str(named).split(",")
    if unknown := [dataset for dataset in datasets if dataset not in surrogate.datasets]:
        sys.exit(f"--datasets {','.join(unknown)}: accepted are first, even, {', '.join(surrogate.datasets)}")
    return datasets


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder with the surrogate of LCBench")
    parser.add_argument("--datasets", help="ID,... or first (12) or even (17, to tune on); default: all 34")
    parser.add_argument(
        "--seeds", type=int, default=5, help="so many searches of each kind; 0: only the tables; default: 5"
    )
    parser.add_argument("--slow-seeds", type=int, help=f"of {', '.join(SLOW)}; default: as many as of the others")
    parser.add_argument("--slow-datasets", type=int, help="so many of the data sets for these; default: all")
    parser.add_argument("--workers", default=str(WORKERS), help="N,...; default: 4")
    parser.add_argument("--methods", help=f"NAME,...; default: all but {', '.join(NAMED_ONLY)}")
    parser.add_argument("--peers", action="store_true", help="Syne Tune's and Optuna's methods too")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="searches at a time; default: the cores")
    parser.add_argument("--minutes", type=float, help="begin no search after so long; the same command goes on later")
    parser.add_argument(
        "--docs",
        nargs="?",
        const="",
        metavar="SECTION",
        help="write tables and pictures into docs/search.md, between its marks, or those of a section",
    )
    parser.add_argument("--json", type=Path, required=True, help="where the results are kept")
    return parser.parse_args()


def main() -> None:
    """Measure what is missing in OUT, and print the tables."""
    given = parsed()
    warnings.filterwarnings("ignore")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before the processes begin: a search has one core
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    try:
        surrogate = Surrogate(given.data)
    except Missing as error:
        sys.exit(str(error))
    methods = chosen_methods(given.methods, given.peers)
    datasets = chosen_datasets(surrogate, given.datasets)
    workers = [int(count) for count in given.workers.split(",")]
    kept = Kept(given.json, VERSIONS)
    keys = wanted(methods, datasets, given.seeds, workers, given.slow_seeds, given.slow_datasets)
    measure(kept, [key for key in keys if key not in kept.results.runs], given)
    shown = kept.results.of(key for key in kept.results.runs if key[0] in methods and key[1] in datasets)
    for count in workers:
        print(report(shown, count))
    if given.docs is not None:
        write_docs(shown, workers, given.docs)


def report(results: Results, workers: int) -> str:
    """All tables of so many workers."""
    shown = [
        tables(results, workers),
        beside(results, "auto", workers),
        catching_up(results, "auto", workers),
        pairs(results, workers),
        costs(results, workers),
    ]
    return "\n".join(part for part in shown if part)


def write_docs(results: Results, workers: list[int], section: str = "") -> None:
    """The tables into docs/search.md, between its two marks or those of a section, and the pictures beside it."""
    page, begin = DOCS / "search.md", BEGIN.format(f": {section}" if section else "")
    before, mark, rest = page.read_text("utf-8").partition(begin)
    if not mark:
        sys.exit(f"--docs {section}: {page} has no line {begin.strip()!r}")
    _, _, after = rest.partition(END)
    parts = [begin]
    for count in workers:
        picture = DOCS / f"search_{section and section + '_'}{count}.svg"
        picture.write_text(svg(results, count), "utf-8")
        parts += [f"![Mean regret over virtual time, {count} workers]({picture.name})", "", report(results, count)]
    page.write_text(before + "\n".join([*parts, END]) + after, "utf-8")


if __name__ == "__main__":
    main()
