"""What a run warned of is found later: with `verbose=0`, after the terminal is gone, in the copy elsewhere."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from lifecycle_scripts import Stage, contents

import tuner as tune
from tuner.cli import main
from tuner.error import ResumeError
from tuner.experiment.driver_log import Warned, read
from tuner.experiment.paths import ExperimentPaths


def fails_once(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["n"] + 1 if checkpoint else 1
    for n in range(first, 6):
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))
        if n == 3 and not Path(config["again"]).exists():
            raise RuntimeError("once")


def run(storage: Path, **settings: Any) -> Path:
    given: dict[str, Any] = {
        "name": "e",
        "storage_path": str(storage),
        "config": {"again": str(storage.parent / "again")},
        "executor": "inline",
        "verbose": 0,
        "raise_on_failed_trial": False,
    }
    tune.run(fails_once, **given | settings)
    return storage / "e"


def damage_newest(path: Path) -> Path:
    newest = sorted(path.glob("fails_once_*/checkpoint_*"))[-1]
    file = next(each for each in newest.iterdir() if not each.name.startswith("."))
    file.write_bytes(b"rot" + file.read_bytes()[3:])
    return newest


def warned(path: Path) -> list[Warned]:
    return read(ExperimentPaths(path))


def test_f03_a_damaged_checkpoint_is_named_in_the_log_of_a_silent_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = run(tmp_path / "r")
    assert not (path / "driver.log").exists(), "nothing was wrong"
    newest = damage_newest(path)
    (tmp_path / "again").touch()
    capfd.readouterr()
    run(tmp_path / "r", resume="AUTO+ERRORED")
    said = capfd.readouterr()
    assert said.out == "" and newest.name not in said.err
    (line,) = warned(path)
    assert line.level == "WARNING" and f"checkpoint {newest.name} is damaged and set aside" in line.text
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", line.at)

    assert main(["show", str(path)]) == 0
    shown = capfd.readouterr().out
    at = line.at[:19].replace("T", " ")
    assert f"1 warning (`tuner show {path} --warnings`), the last at {at}:\n  " in shown
    assert main(["show", str(path), "--warnings"]) == 0
    assert capfd.readouterr().out == f"{line}\n"
    assert main(["show", str(path), "--json", "--warnings"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["warnings"], told["warned"][0]["text"]) == (1, line.text)


def test_one_without_warnings_says_nothing_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path / "r")
    assert main(["show", str(path)]) == 0
    assert "--warnings" not in capsys.readouterr().out
    assert main(["show", str(path), "--warnings"]) == 0
    assert capsys.readouterr().out == "no warnings\n"


def test_what_came_before_the_directory_was_there_is_in_it(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="server_port has no effect"):
        path = run(tmp_path / "r", sync_config=tune.SyncConfig(syncer="cp {source} {target}"), server_port=1)
    texts = [line.text for line in warned(path)]
    assert texts[0].startswith("server_port has no effect")
    assert any("has nothing to copy" in text for text in texts[1:])


def test_what_the_journal_lost_is_in_it(tmp_path: Path) -> None:
    path = run(tmp_path / "r")
    segment = sorted(path.glob("journal/*.jsonl"))[-1]
    segment.write_bytes(segment.read_bytes() + b'{"n":99,"c":"')
    run(tmp_path / "r", resume="AUTO")
    assert any("a torn line at its end was cut" in line.text for line in warned(path))


def test_r5_a_resume_that_is_refused_writes_nothing(tmp_path: Path) -> None:
    path = run(tmp_path / "r")
    before = {name: stamp for name, stamp in contents(path).items() if not name.startswith("generations/")}
    with pytest.raises(ResumeError):
        run(
            tmp_path / "r",
            resume="AUTO",
            config={"other": 1},
            sync_config=tune.SyncConfig(syncer="cp {source} {target}"),
        )
    after = {name: stamp for name, stamp in contents(path).items() if not name.startswith("generations/")}
    assert after == before


class Refuses(tune.Callback):
    def setup(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("not today")


@pytest.mark.parametrize("there", [False, True], ids=["new directory", "empty directory"])
def test_t09_a_start_that_is_taken_back_leaves_no_log(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "r" / "e").mkdir(parents=True)
    with pytest.raises(RuntimeError, match="not today"):
        run(tmp_path / "r", callbacks=[Refuses()], sync_config=tune.SyncConfig(syncer="cp {source} {target}"))
    assert not (tmp_path / "r" / "e" / "driver.log").exists()
    path = run(tmp_path / "r")
    assert warned(path) == []


def test_t09_what_is_replaced_has_its_own_log(tmp_path: Path) -> None:
    sync = tune.SyncConfig(syncer="cp {source} {target}")
    path = run(tmp_path / "r", sync_config=sync)
    (old,) = warned(path)
    with pytest.raises(RuntimeError, match="not today"):
        run(tmp_path / "r", overwrite=True, callbacks=[Refuses()], sync_config=sync)
    assert warned(path) == [old], "it is back"
    run(tmp_path / "r", overwrite=True)
    assert warned(path) == []


def test_the_copy_has_it_and_another_machine_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    there = tmp_path / "there"
    sync = {"sync_config": tune.SyncConfig(upload_dir=there.as_uri())}
    path = run(tmp_path / "a", **sync)
    damage_newest(path)
    run(tmp_path / "a", resume="AUTO+ERRORED", **sync)
    first = warned(path)
    assert first
    assert (there / "e" / "driver.log").read_bytes() == (path / "driver.log").read_bytes()
    capsys.readouterr()
    assert main(["show", (there / "e").as_uri(), "--warnings"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(line) for line in first]
    assert main(["cp", str(path), str(tmp_path / "copy")]) == 0
    assert warned(tmp_path / "copy") == first

    (tmp_path / "again").touch()
    with pytest.warns(UserWarning, match="server_port has no effect"):
        run(tmp_path / "b", resume="AUTO+ERRORED", server_port=1, **sync)
    both = warned(tmp_path / "b" / "e")
    assert both[: len(first)] == first and "server_port" in both[len(first)].text
    assert (there / "e" / "driver.log").read_bytes() == (tmp_path / "b" / "e" / "driver.log").read_bytes()


class Warns(tune.Callback):
    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        for number in range(100):
            logging.getLogger("tuner.mine").warning("again: %d", number)


def test_the_copy_has_how_many_were_left_out_when_a_run_ends(tmp_path: Path) -> None:
    sync = tune.SyncConfig(upload_dir=tmp_path / "there")
    path = run(tmp_path / "a", sync_config=sync, callbacks=[Warns()])
    assert [line.text for line in warned(path)][100:] == ["200 more like: again: %d"]
    assert (tmp_path / "there" / "e" / "driver.log").read_bytes() == (path / "driver.log").read_bytes()


SCRIPT = """
import os

def train(config):
    for n in range(1, 4):
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))

tune.run(train, name="e", storage_path=os.environ["RESULTS"], verbose=0, keep_checkpoints_num=1,
         checkpoint_score_attr="nn")
"""


def test_f52_a_script_with_verbose_0_leaves_its_warnings_behind(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.write(SCRIPT)
        assert stage.run() == ""
        lines = warned(stage.results / "e")
    assert any("nn" in line.text for line in lines)
