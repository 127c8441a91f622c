"""`tuner show` of a trial that went on from another one's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tuner.driver.test_clones import RATES, Counter, Scripted, clone_of, run
from tuner.cli import main
from tuner.schedulers.base import Decision


def test_the_lineage_names_donor_checkpoint_and_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = Scripted({(0, 4): Decision.SAVE, (1, 3): clone_of(0, 10.0)})
    results = run(tmp_path, Counter, scheduler, config=RATES, max_concurrent_trials=1)
    donor, clone = results.trials
    capsys.readouterr()

    assert main(["show", str(tmp_path / "e"), clone.trial_id, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["clones"]
    assert main(["show", str(tmp_path / "e"), clone.trial_id]) == 0
    said = capsys.readouterr().out

    (made,) = clone.clones
    assert told == {
        "iteration": 3,
        "donor": donor.trial_id,
        "checkpoint": made.donor.name,
        "changed": {"rate": [100.0, 10.0]},
    }
    source = f"trial 0@{made.donor.iteration} ({donor.trial_id})"
    assert f"lineage\n  at iteration 3 cloned from {source}  rate: 100 -> 10\n" in said
    assert "\n  1: paused after iteration 3; went on as a clone of trial 0@4\n" in said
    assert main(["show", str(tmp_path / "e"), clone.trial_id, "--json"]) == 0
    (attempt,) = json.loads(capsys.readouterr().out)["attempts"]
    assert attempt["donor"] == {"trial": donor.trial_id, "index": 0, "iteration": 4}
    assert main(["show", str(tmp_path / "e"), "--json"]) == 0
    assert [row["from"] for row in json.loads(capsys.readouterr().out)["trials"]] == [None, "0@4"]
    assert main(["show", str(tmp_path / "e")]) == 0
    head, first, second = capsys.readouterr().out.splitlines()[-3:]
    assert "from" in head.split() and "0@4" in second.split() and "0@4" not in first.split()
    assert main(["show", str(tmp_path / "e"), "0"]) == 0
    assert f"trial 1 was cloned from it at iteration {made.donor.iteration}  rate: 100 -> 10" in capsys.readouterr().out
    for trial in "01":  # the log of either tells of it
        assert main(["log", str(tmp_path / "e"), trial]) == 0
        assert f"trial 1 goes on at 3 as a clone of {source}: rate: 100 -> 10" in capsys.readouterr().out
    line = results.plot("schedule").data[1]
    assert (list(line.x), list(line.y)) == ([0, 3, 8], [100.0, 10.0, 10.0])
    assert line.hovertext[1] == f"{clone.trial_id}<br>from {donor.trial_id} at iteration 4"
