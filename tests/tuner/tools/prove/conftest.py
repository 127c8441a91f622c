"""What a watched run leaves behind, made by running one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.tools.prove import run_records
from tuner.tools.prove.run_watch import Watch


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """Makes what a run leaves behind, a trial for each list of losses; saved is every second result."""

    def make(
        name: str,
        *losses: Sequence[float],
        every: int = 2,
        fails: str = "",
        kills: Sequence[int] = (),
        ends: int = 9,
        wrong: int = 0,
        timing: str = "",
    ) -> Path:
        def train(config: dict[str, Any]) -> None:
            for step, loss in enumerate(config["losses"][:ends], 1):
                loss += step == wrong
                saved = (
                    tune.Checkpoint.from_dict({"loss": loss, "_timestamp": id(config)}) if step % every == 0 else None
                )
                tune.report({"loss": loss, "seconds": id(saved)}, checkpoint=saved)
            if fails:
                raise ValueError(fails)

        place = tmp_path / name
        place.mkdir()
        file = place / f"0{run_records.SUFFIX}"
        space = {"losses": tune.grid_search(list(map(list, losses)))}
        tune.run(train, name="e", config=space, storage_path=place / "0", executor="inline", verbose=0,
                 callbacks=[Watch(file, [], victim="run")], raise_on_failed_trial=False)  # fmt: skip
        run_records.write_timing(place, 0, timing.splitlines())
        for reached in kills:
            kept = file.read_bytes()
            file.unlink()
            run_records.write(file, "killed", 0, reached)
            run_records.write(file, "start", 0, reached // 2 * 2)
            file.write_bytes(file.read_bytes() + kept)
        return place

    return make
