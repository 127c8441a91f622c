"""`ask`, `report` and `finish` of a session, beside Optuna's ask, report and tell: in memory, and on its journal.

One process asks in turn: each of the three runs a trial of ten reports, then the next does, so that a slow moment of
the machine hits all of them. Random search in one dimension; no result files. Optuna's journal is a file that it fsyncs
with every call; ours has the start of a trial on the disk before `ask` returns, and every result with the system before
`report` does. What is given is the median of each call, and ours as a multiple of Optuna's.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import main, median, storage

TRIALS, REPORTS = 100, 10


def timed(found: list[float], call: Callable[[], Any]) -> Any:
    started = time.perf_counter()
    result = call()
    found.append(time.perf_counter() - started)
    return result


def ours() -> dict[str, float]:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    import tuner as tune

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found: dict[str, list[float]] = defaultdict(list)
    with (
        storage() as place,
        tune.open_session(
            "ask_tell", config={"x": tune.uniform(0, 1)}, num_samples=TRIALS, storage_path=place, seed=0
        ) as session,
    ):
        sampler = optuna.samplers.RandomSampler(seed=0)
        journal = JournalStorage(JournalFileBackend(str(Path(place, "optuna.log"))))
        studies = {
            "bare": optuna.create_study(sampler=sampler),
            "journal": optuna.create_study(sampler=sampler, storage=journal),
        }

        def ask(study: optuna.Study) -> optuna.Trial:
            trial = study.ask()
            trial.suggest_float("x", 0, 1)
            return trial

        def report(trial: optuna.Trial, step: int) -> None:
            trial.report(1.0, step)
            trial.should_prune()

        for _ in range(TRIALS):
            for name, study in studies.items():
                theirs = timed(found[f"{name}_ask"], lambda study=study: ask(study))
                for step in range(REPORTS):
                    timed(found[f"{name}_report"], lambda trial=theirs, step=step: report(trial, step))
                timed(found[f"{name}_finish"], lambda study=study, trial=theirs: study.tell(trial, 1.0))
            mine = timed(found["ours_ask"], lambda: session.ask(wait=True))
            for _ in range(REPORTS):
                timed(found["ours_report"], lambda trial=mine: trial.report({"loss": 1.0}))
            timed(found["ours_finish"], mine.finish)
    at = {name: median(values) for name, values in found.items()}
    shown = {f"{call}_us": 1e6 * at[f"ours_{call}"] for call in ("ask", "report", "finish")}
    for other, call in itertools.product(("bare", "journal"), ("ask", "report", "finish")):
        theirs = at[f"{other}_{call}"]
        shown |= {f"{call}_of_{other}": at[f"ours_{call}"] / theirs, f"{other}_{call}_us": 1e6 * theirs}
    return shown


if __name__ == "__main__":
    main({"ours": ours})
