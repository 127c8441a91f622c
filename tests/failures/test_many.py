"""As many as people have: trials at once, trials and results in all, files in one checkpoint.

Each is small in the normal suite and in full under soak; what grows with the square of its number is told by two sizes.
"""

from __future__ import annotations

import collections
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import rows, run

import tuner as tune


def bytes_below(directory: Path) -> int:
    """What `du` says, in bytes of content."""
    return int(subprocess.run(["du", "-sb", directory], check=True, capture_output=True).stdout.split()[0])


# --- trials and results ---------------------------------------------------------------------------------------


def reports(config: dict[str, Any]) -> None:
    for n in range(1, config["n"] + 1):
        tune.report({"n": n, "score": config["x"] * n})


def many_trials(path: Path, trials: int, results: int) -> float:
    """Seconds for so many trials, which are all there afterwards, once each; then nothing is left to do."""
    settings = {"config": {"x": tune.uniform(0, 1), "n": results}, "num_samples": trials, "seed": 1}
    settings |= {"executor": "inline", "metric": "score", "mode": "max"}
    began = time.monotonic()
    done = run(reports, path, **settings).trials
    took = time.monotonic() - began
    assert collections.Counter((trial.status, trial.iteration) for trial in done) == {("TERMINATED", results): trials}
    assert [row["n"] for trial in (done[0], done[-1]) for row in rows(trial)] == [*range(1, results + 1)] * 2
    began = time.monotonic()
    again = run(reports, path, resume="AUTO", **settings)
    shown = time.monotonic() - began
    assert len(again.trials) == trials and {trial.attempt for trial in again.trials} == {1}
    assert again.best_trial.last_result["score"] == max(trial.last_result["score"] for trial in done)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{trials} trials of {results} results: {took:.1f} s, {took / trials / results * 1e6:.0f} us a result, shown "
        f"again in {shown:.1f} s, {bytes_below(path / 'e' / 'journal') / trials:.0f} B of journal a trial, "
        f"{memory:.0f} MB at most"
    )
    return took


def test_three_hundred_trials_of_15_results_are_all_there_once(tmp_path: Path) -> None:
    many_trials(tmp_path, 300, 15)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_20000_trials_of_15_results_are_all_there_once(tmp_path: Path) -> None:
    many_trials(tmp_path, 20_000, 15)
