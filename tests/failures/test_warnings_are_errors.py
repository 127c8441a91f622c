"""Under `-W error -X dev` nothing of a run, in whichever of its processes, leaks a socket or a file."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
    import sys
    import trainables as train
    import tuner as tune
    from pathlib import Path
    from trainables.data_parallel_trainer import DataParallelTrainer

    place, kind = sys.argv[1:]

    def saves(config):
        with tune.checkpoint_dir(step=1) as directory:
            Path(directory, "state").write_text("1")
        tune.report({"loss": 1})
        if config.get("fails"):
            raise ValueError("as asked")

    def saves_in_ranks():
        train.report({"loss": 1}, checkpoint=train.Checkpoint.from_dict({"step": 1}))

    how = {"storage_path": place, "name": "e", "raise_on_failed_trial": False}
    if kind == "replica":
        tune.run(saves, sync_config=tune.SyncConfig(upload_dir=place + "/copies"), **how)
        assert len(tune.ExperimentAnalysis(place + "/copies/e").trials) == 1
    elif kind == "group":
        config = train.RunConfig(name="e", storage_path=place)
        DataParallelTrainer(saves_in_ranks, scaling_config=train.ScalingConfig(num_workers=2), run_config=config).fit()
    else:
        tune.run(saves, config={"fails": True}, max_failures=1, **how)
        tune.run(saves, config={"fails": True}, resume="AUTO+ERRORED", **how)
"""


@pytest.mark.parametrize("kind", ["failing", "replica", "group"])
def test_nothing_is_leaked(tmp_path, kind):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", script, tmp_path, kind],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    outputs = "".join(file.read_text() for file in tmp_path.glob("e/*/std*"))
    said = ended.stdout + ended.stderr + outputs
    assert ended.returncode == 0, said
    for sign in ("ResourceWarning", "Exception ignored", "unclosed"):
        assert sign not in said, said
