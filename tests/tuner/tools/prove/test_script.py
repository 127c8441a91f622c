"""A script that is run to be proven: what is said while it runs, and when it ends badly or runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.error import SettingError
from tuner.progress.task_bar import TaskBar
from tuner.tools.prove.script import prove_script

SLOW = """
import tuner as tune, pathlib, sys, time
def train(config):
    for step in range(3):
        tune.report({"step": step})
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.02)
tune.run(train, name="mine", executor="inline", verbose=0)
"""


class Seen(TaskBar):
    """Notes what was shown; lets the script end when its three results were."""

    def __init__(self, go: Path) -> None:
        super().__init__("proving", "result")
        self.go, self.told = go, list[str]()

    def at(self, items: int) -> None:
        super().at(items)
        self.told.append(f"{self.what}: {self.text}")
        if items == 3:
            self.go.touch()


def test_results_are_counted_while_the_script_runs(tmp_path: Path) -> None:
    script, go = tmp_path / "train.py", tmp_path / "go"
    script.write_text(SLOW)
    work, said = Seen(go), list[str]()
    place = tmp_path / "place"
    place.mkdir()
    verdict = prove_script(script, [str(go)], place=place, kills=1, seed=0, say=said.append, work=work)
    assert not verdict.proven and "nothing was saved" in verdict.text
    assert said == ["running without a kill"] and work.told[-1] == "proving: without a kill: 3 results"


def test_a_script_that_fails_shows_what_it_printed_last(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("print('before')\nraise SystemExit('no data here')\n")
    verdict = prove_script(script, [], place=tmp_path, kills=1, seed=0)
    assert not verdict.proven and "with status 1 without any kill" in verdict.text and "no data here" in verdict.text


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is not there"):
        prove_script(tmp_path / "nothing.py", [], place=tmp_path, kills=1, seed=0)
