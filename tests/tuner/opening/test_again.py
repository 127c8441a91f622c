"""A script that is run again: which experiment each of its calls means."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.opening.harness import train
from tuner.error import ResumeError
from tuner.experiment import existing
from tuner.experiment.existing import Existing

SCRIPT = """
import sys
import {tune} as tune

def train(config):
    tune.report({report})

if __name__ == "__main__":
    for a, more in enumerate({calls}, 1):
        tune.run(train, config={{"a": a}}, local_dir={storage!r}, verbose=0, **more)
        if len(sys.argv) > 1 and a == int(sys.argv[1]):
            sys.exit()
"""
TWICE = [{"name": "e"}, {"name": "e"}]


class Script:
    """A script that starts a run for each of `calls`, one after another."""

    def __init__(self, directory: Path, calls: list[dict[str, Any]], *, compat: bool = False) -> None:
        self.storage = directory / "results"
        text = SCRIPT.format(
            tune="ray.tune" if compat else "tuner",
            report="loss=config['a']",
            calls=calls,
            storage=str(self.storage),
        )
        self._words = [sys.executable, *(["-m", "tuner.compat"] if compat else []), str(directory / "script.py")]
        (directory / "script.py").write_text(text)

    def run(self, word: str | None, *, only: int | None = None) -> None:
        """Run it, with such a TUNE_EXISTING; `only` so many of its calls."""
        environment = {name: value for name, value in os.environ.items() if name != "TUNE_EXISTING"}
        environment |= {} if word is None else {"TUNE_EXISTING": word}
        words = [*self._words, *([] if only is None else [str(only)])]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr

    def ids(self) -> dict[str, tuple[int, str]]:
        """Name of each experiment -> the call that it is of, and its id."""
        found = {}
        for path in sorted(self.storage.glob("[!.]*/experiment.json")):
            said = json.loads(path.read_text())
            found[path.parent.name] = said["space"]["a"], said["id"]
        return found


def test_each_of_two_calls_of_one_name_finds_its_own(tmp_path: Path) -> None:
    script = Script(tmp_path, TWICE)
    script.run("aside", only=1)
    first = script.ids()
    assert list(first) == ["e"]
    script.run("resume")  # the first goes on, the second had not begun
    both = script.ids()
    assert list(both) == ["e", "e.1"] and both["e.1"] == first["e"] and both["e"][0] != first["e"][0]
    script.run("resume")
    assert script.ids() == both


def test_a_name_with_a_number_that_somebody_gave_is_not_one_that_was_moved(tmp_path: Path) -> None:
    Script(tmp_path, [{"name": "e.1"}]).run("resume")
    script = Script(tmp_path, [{"name": "e"}])
    script.run("resume")
    assert set(script.ids()) == {"e", "e.1"}


def test_a_long_name_finds_what_was_moved_aside_too(tmp_path: Path) -> None:
    script = Script(tmp_path, [{"name": "e" * 120}] * 2)
    script.run("aside")
    both = script.ids()
    script.run("resume")
    assert len(both) == 2 and script.ids() == both


def test_without_a_name_a_call_goes_on_where_it_was_and_none_moves(tmp_path: Path) -> None:
    script = Script(tmp_path, [{}, {}], compat=True)
    script.run(None, only=1)
    first = script.ids()
    script.run("resume")
    both = script.ids()
    assert first.items() <= both.items() and len(both) == 2
    script.run(None)  # new ones beside them
    assert len(script.ids()) == 4 and both.items() <= script.ids().items()


def test_under_compat_a_second_run_just_runs(tmp_path: Path) -> None:
    script = Script(tmp_path, TWICE[:1], compat=True)
    script.run(None)
    first = script.ids()["e"]
    script.run(None)
    found = script.ids()
    assert list(found) == ["e", "e.1"] and found["e.1"] == first and found["e"] != first


# --- resume=True without a name -------------------------------------------------------------------------------------


def other(config: dict[str, Any]) -> None:
    tune.report({"a": 2})


def name_of(analysis: tune.ExperimentAnalysis) -> str:
    return Path(analysis.experiment_path).name


def run(storage: Path, trainable: Any = train, **settings: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, storage_path=storage, executor="inline", **{"verbose": 0, **settings})


def test_resume_without_a_name_is_the_newest_of_that_trainable(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    older, named = run(tmp_path), run(tmp_path, name="named")
    run(tmp_path, other)
    (tmp_path / "no experiment").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "experiment.json").write_text("{")
    assert name_of(run(tmp_path, resume=True, verbose=1)) == "named"
    assert f"resuming from {tmp_path / 'named'}, the newest experiment of 'train' under" in capfd.readouterr().out
    run(tmp_path, name=name_of(older), resume=True)  # which makes it the one that was used last
    for word in (True, "LOCAL", "LOCAL+ERRORED", "ERRORED_ONLY"):
        assert name_of(run(tmp_path, resume=word)) == name_of(older), word
    assert name_of(named) == "named"


def test_what_was_looked_at_is_said_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match=f"none under {re.escape(str(tmp_path))}; there is no experiment at all"):
        run(tmp_path, resume=True)
    run(tmp_path, other, name="e")
    with pytest.raises(ResumeError, match=r"of 'train', and there is none .* there are: e \(of 'other'\)\. Give name="):
        run(tmp_path, resume=True)
    assert name_of(run(tmp_path, resume="AUTO")).startswith("train_")


# --- the variable ---------------------------------------------------------------------------------------------------


def test_a_tuner_a_list_and_a_trainer_s_call_are_taken_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_EXISTING", "aside")
    config = tune.RunConfig(name="e", storage_path=str(tmp_path), executor="inline", verbose=0)
    tune.Tuner(train, run_config=config).fit()
    tune.Tuner(train, run_config=config).fit()
    tune.run_experiments({"e": {"run": train}}, storage_path=tmp_path, executor="inline", verbose=0)
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} == {"e", "e.1", "e.2"}
    tune.Tuner.restore(str(tmp_path / "e.1"), train, run_config=config).fit()
    assert len(list(tmp_path.glob("[!.]*"))) == 3


def test_at_a_prompt_a_cell_that_is_run_again_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_EXISTING", "resume")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", None, raising=False)
    first, second = run(tmp_path, name="e"), run(tmp_path, name="e")
    assert [trial.trial_id for trial in first.trials] == [trial.trial_id for trial in second.trials]
    assert not (tmp_path / "e.1").exists()


def test_the_variable_is_stronger_than_what_holds_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNE_EXISTING", raising=False)
    assert existing.chosen() is Existing.ERROR
    existing.use(Existing.ASIDE)
    try:
        assert existing.chosen() is Existing.ASIDE
        monkeypatch.setenv("TUNE_EXISTING", "resume")
        assert existing.chosen() is Existing.RESUME
    finally:
        existing.use(Existing.ERROR)
