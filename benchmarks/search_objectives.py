"""How soon a search for two objectives finds their front: accuracy, and mean seconds an epoch.

`make bench-search-objectives DATA=DIR`, or `python benchmarks/search_objectives.py --data DIR --json OUT`. Searches are
as long as those of `search.py`. Measured is the hypervolume of all that was seen up to a moment, as a share of that of
the best front known: what is missing of it. The reference point is the median accuracy of random configs, and the
seconds an epoch that one of ten of them is slower than; 1 is the best known of each, the seconds by their logarithm.

The seconds an epoch are those of the whole training, from the first result on: what the surrogate has for the first
epochs says little about the others.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lcbench import EPOCHS, METRIC, Missing, Surrogate
from search import DOCS, chosen_datasets, wanted
from search_hypervolume import Front
from search_kept import Kept
from search_methods import REDUCTION, Run
from search_picture import svg
from search_runs import WORKERS, Model, Score, references, search
from search_tables import Key, Results, table

from tuner.schedulers import ASHAScheduler
from tuner.search.optuna import OptunaSearch

EPOCH_S, ERROR = "epoch_s", "error"
METRICS, MODES = [METRIC, EPOCH_S], ["max", "min"]
POPULATION = 10
"""Of NSGA-II: Optuna's default, 50, is more than a search of full trainings has in most cases."""
BEGIN, END = "<!-- table of benchmarks/search_objectives.py -->\n", "<!-- end of the table -->"
PICTURE = "search_objectives.svg"
MEASURED = "hypervolume missing"


def model_of(surrogate: Surrogate, dataset: str) -> Model:
    """What SimulatedExecutor asks: the best accuracy so far and the mean seconds an epoch of the whole training."""

    def model(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, float]]]:
        curve = surrogate.curves(dataset, [config])[0]
        before, best, epoch_s = 0.0, 0.0, curve.seconds[-1] / EPOCHS
        for seconds, accuracy in zip(curve.seconds, curve.accuracy, strict=True):
            best = max(best, accuracy)
            yield seconds - before, {METRIC: best, ERROR: 100 - best, EPOCH_S: epoch_s}
            before = seconds

    return model


def scorer(dataset: str) -> Score:
    """The share of the known hypervolume that the results up to each one have."""
    front, reference = Front(), references()[dataset]
    return lambda result: front.add(reference.place(result[METRIC], result[EPOCH_S])) / reference.volume


def _sampler(kind: str, seed: int) -> Any:
    from optuna import samplers

    if kind == "nsga2":
        return samplers.NSGAIISampler(population_size=POPULATION, seed=seed)
    return samplers.TPESampler(seed=seed)


def _by(kind: str, seed: int) -> dict[str, Any]:
    return {"search_alg": OptunaSearch(sampler=_sampler(kind, seed))}


def asha(metric: Any = METRICS, mode: Any = MODES, **settings: Any) -> dict[str, Any]:
    """ASHA of both objectives, or of one."""
    settings = {"max_t": EPOCHS, "reduction_factor": REDUCTION, **settings}
    return {"scheduler": ASHAScheduler(metric=metric, mode=mode, **settings)}


OURS: dict[str, Callable[[int], Mapping[str, Any]]] = {
    "random": lambda seed: {},
    "nsga2": lambda seed: _by("nsga2", seed),
    "tpe": lambda seed: _by("tpe", seed),
    "asha-accuracy": lambda seed: asha(METRIC, "max"),
    "mo-asha": lambda seed: asha(),
    "mo-asha-4": lambda seed: asha(reduction_factor=4),
    "nsga2-mo-asha": lambda seed: {**_by("nsga2", seed), **asha()},
    "tpe-mo-asha": lambda seed: {**_by("tpe", seed), **asha()},
}
"""From a seed to what `search` takes beside both objectives."""
SYNE = "syne-mo-asha"


def _syne() -> Run:
    """Syne Tune's, which makes all objectives small; it is imported where it is asked for only."""
    from search_peers import EPOCH, syne
    from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA

    def make(space: dict[str, Any], seed: int) -> Any:
        settings = {"time_attr": EPOCH, "max_t": EPOCHS, "reduction_factor": REDUCTION, "random_seed": seed}
        return MOASHA(space, metrics=[ERROR, EPOCH_S], **settings)

    return syne(make, model_of=model_of, scorer=scorer)


def measured(surrogate: Surrogate, key: Key) -> dict[str, Any]:
    """One search: what is missing over shares of the time, and what it cost."""
    method, dataset, seed, workers = key
    reference = references()[dataset]
    own = 100 * seed + surrogate.datasets.index(dataset)
    if method == SYNE:
        found = _syne()(surrogate, dataset, own, workers)
    else:
        plugins = {"metric": METRICS, "mode": MODES, **OURS[method](own)}
        model, score = model_of(surrogate, dataset), scorer(dataset)
        found = search(surrogate, dataset, plugins, seed=own, workers=workers, model=model, score=score)
    steps = [(round(at / reference.horizon_s, 5), round(1 - share, 5)) for at, share in found.improvements]
    return {"steps": steps, "trials": found.trials, "cpu_s": found.cpu_s}


def write_docs(results: Results) -> None:
    """The table into docs/search.md, between its two marks, and the picture beside it."""
    page = DOCS / "search.md"
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    (DOCS / PICTURE).write_text(svg(results, WORKERS, MEASURED), "utf-8")
    parts = [
        f"{BEGIN}\n![{MEASURED.capitalize()} over virtual time]({PICTURE})",
        table(results, WORKERS, MEASURED),
        END,
    ]
    page.write_text(before + "\n\n".join(parts) + after, "utf-8")


def main() -> None:
    """Measure what is missing in OUT, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder with the surrogate of LCBench")
    parser.add_argument("--datasets", help="ID,... or first (12) or even (17, to tune on); default: all 34")
    parser.add_argument("--seeds", type=int, default=3, help="so many searches of each kind; default: 3")
    parser.add_argument("--methods", help="NAME,...; default: all of ours")
    parser.add_argument("--peers", action="store_true", help="Syne Tune's MO-ASHA too")
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on later")
    parser.add_argument("--docs", action="store_true", help="write table and picture into docs/search.md")
    parser.add_argument("--json", type=Path, required=True, help="where the results are kept")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    try:
        surrogate = Surrogate(given.data)
    except Missing as error:
        sys.exit(str(error))
    known = [*OURS, *([SYNE] if given.peers else [])]
    methods = given.methods.split(",") if given.methods else known
    if unknown := [name for name in methods if name not in known]:
        more = "" if given.peers else f"; {SYNE} with --peers"
        sys.exit(f"--methods {','.join(unknown)}: accepted are {', '.join(known)}{more}")
    kept = Kept(given.json)
    keys = list(wanted(dict.fromkeys(methods), chosen_datasets(surrogate, given.datasets), given.seeds, [WORKERS]))
    ends = time.monotonic() + 60 * given.minutes if given.minutes else float("inf")
    for key in keys:
        if key not in kept.results.runs and time.monotonic() < ends:
            kept.add(key, measured(surrogate, key))
            surrogate.clear()
    shown = kept.results.of(set(keys))
    print(table(shown, WORKERS, MEASURED))
    if given.docs:
        write_docs(shown)


if __name__ == "__main__":
    main()
