"""What a power cut takes of the files that nobody waited for, the next start writes again (F01).

Random cuts of real filesystems are in `tests/campaign`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tuner as tune


def count(config: dict[str, Any]) -> None:
    for n in range(1, 4):
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


def run(storage: Path, samples: int) -> tune.ExperimentAnalysis:
    return tune.run(
        count,
        name="e",
        config={"x": tune.uniform(0, 1)},
        num_samples=samples,
        storage_path=storage,
        resume="AUTO",
        seed=3,
        executor="inline",
        verbose=0,
    )


@pytest.mark.parametrize("left", [b"", b"\0" * 40, None], ids=["empty", "zeros", "gone"])
@pytest.mark.parametrize("name", ["trial.json", "params.json", "result.json", "progress.csv"])
def test_f01_a_trials_files_that_a_power_cut_took_are_there_again(
    name: str, left: bytes | None, tmp_path: Path
) -> None:
    file = Path(run(tmp_path, 1).trials[0].path, name)
    whole = file.read_bytes()
    if left is None:
        file.unlink()
    else:
        file.write_bytes(left)
    run(tmp_path, 2)
    assert file.read_bytes() == whole
    if name.endswith(".json") and name != "result.json":
        json.loads(whole)


def test_f01_a_trials_directory_that_a_power_cut_took_is_there_again(tmp_path: Path) -> None:
    first = Path(run(tmp_path, 1).trials[0].path)
    kept = {file.name: file.read_bytes() for file in first.glob("*.json")}
    for path in sorted(first.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    first.rmdir()
    run(tmp_path, 2)
    assert {file.name: file.read_bytes() for file in first.glob("*.json")} == kept
