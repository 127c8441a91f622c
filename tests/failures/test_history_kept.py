"""What became of each checkpoint is known after the journal was compacted: here, elsewhere, and on another machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lifecycle_scripts import Stage

import tuner as tune
from trainables.transfer.open import open_backend
from tuner.cli import main
from tuner.driver import driver
from tuner.experiment import journal_writer
from tuner.experiment.history import History
from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths

RESULTS = 40


def train(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["n"] + 1 if checkpoint else 1
    for n in range(first, config.get("n", RESULTS) + 1):
        metrics = {"score": float(n % 7), "text": "x" * 4000}
        tune.report(metrics, checkpoint=tune.Checkpoint.from_dict({"n": n}))


def run(storage: Path, **settings: Any) -> Path:
    """An experiment whose journal is large enough for a snapshot at its end, with the limits that users have."""
    given: dict[str, Any] = {
        "name": "e",
        "storage_path": str(storage),
        "config": {"a": tune.grid_search([1, 2])},
        "executor": "inline",
        "verbose": 0,
        "keep_checkpoints_num": 2,
        "checkpoint_score_attr": "score",
    }
    tune.run(train, **given | settings)
    return storage / "e"


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return json.loads(said.out)


def require_known(capsys: pytest.CaptureFixture[str], place: str, count: int = RESULTS) -> None:
    """Of each checkpoint that was ever saved it is known what became of it, and by which rule."""
    for trial in ("0", "1"):
        told = asked(capsys, "show", place, trial, "--why")
        assert (told["unknown"], told["recorded_since"]) == (0, None)
        assert [one["iteration"] for one in told["why"]] == list(range(1, count + 1))
        assert all(one["why"] == ["best:2:score"] and one["for"] for one in told["why"] if one["fate"] == "deleted")
        assert sum(one["fate"] == "kept" for one in told["why"]) == 3
    would = asked(capsys, "retention", place, "--policy", "every:10")
    assert {row["unknown"] for row in would["trials"]} == {0}
    assert [one["iteration"] for one in would["trials"][0]["would_keep"]] == list(range(10, count + 1, 10))


@pytest.fixture
def compacted_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "COMPACT_BYTES", 40_000)
    monkeypatch.setitem(journal_writer.JournalWriter.compact.__kwdefaults__, "grace_s", 0.0)


def test_after_a_finished_run_it_is_known_what_became_of_each_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run(tmp_path)
    paths = ExperimentPaths(path)
    assert read_journal(paths).bodies == [], "a snapshot is all that a resume reads"
    assert [name.name for name in paths.journal.iterdir() if name.suffix == ".jsonl"] == []
    require_known(capsys, str(path))


def test_without_a_history_it_is_said_since_when_it_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As experiments of 0.1.0 are, whose compaction forgot."""
    path = run(tmp_path)
    shutil.rmtree(ExperimentPaths(path).history)
    told = asked(capsys, "show", str(path), "0", "--why")
    assert told["unknown"] == RESULTS - 3
    assert told["recorded_since"] == max(one["saved_at"] for one in told["why"]) or told["recorded_since"] > 1e9
    assert main(["show", str(path), "0", "--why"]) == 0
    assert f"{RESULTS - 3} more were saved and deleted: not recorded before " in capsys.readouterr().out
    assert main(["retention", str(path), "--policy", "latest:1"]) == 0
    assert "74 more were saved and deleted: not recorded before " in capsys.readouterr().out


def test_a_resume_reads_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path)
    for pack in ExperimentPaths(path).history.iterdir():
        pack.write_bytes(b"damaged")
    run(tmp_path, resume="AUTO", num_samples=2)
    assert main(["show", str(path), "0", "--why"]) == 0
    said = capsys.readouterr()
    assert "the history is not whole" in said.err and "not recorded before" in said.out
    assert main(["verify", str(path)]) == 1
    assert "history" in capsys.readouterr().out


def test_the_limit_is_what_the_environment_says(
    tmp_path: Path, compacted_often: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNE_HISTORY_BYTES", "6kB")
    path = run(tmp_path)
    sizes = [pack.stat().st_size for pack in ExperimentPaths(path).history.iterdir()]
    assert 0 < sum(sizes) <= 6000
    told = asked(capsys, "show", str(path), "1", "--why")
    assert told["unknown"] > 0 and told["recorded_since"] > 1e9
    monkeypatch.setenv("TUNE_HISTORY_BYTES", "plenty")
    with pytest.raises(ValueError, match="TUNE_HISTORY_BYTES='plenty' is not accepted"):
        run(tmp_path / "other")


# --- other places ---------------------------------------------------------------------------------------------


def test_a_copy_and_an_empty_machine_know_it_too(
    tmp_path: Path, compacted_often: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    there = tmp_path / "there"
    sync = tune.SyncConfig(upload_dir=there.as_uri())
    path = run(tmp_path / "a", sync_config=sync)
    packs = sorted(pack.name for pack in ExperimentPaths(path).history.iterdir())
    assert len(packs) > 3
    assert sorted(pack.name for pack in (there / "e" / "journal" / "history").iterdir()) == packs
    require_known(capsys, (there / "e").as_uri())
    require_known(capsys, str(there / "e"))
    assert main(["verify", (there / "e").as_uri()]) == 0

    assert main(["cp", str(path), str(tmp_path / "copy")]) == 0
    require_known(capsys, str(tmp_path / "copy"))
    assert main(["sync", str(tmp_path / "synced" / "e"), "--from", (there / "e").as_uri()]) == 0
    require_known(capsys, str(tmp_path / "synced" / "e"))

    run(tmp_path / "b", sync_config=sync, resume="AUTO", config={"a": tune.grid_search([1, 2])}, num_samples=2)
    require_known(capsys, str(tmp_path / "b" / "e"))
    require_known(capsys, (there / "e").as_uri())
    run(tmp_path / "c", name="heir", restore=str(path), resume=None)
    require_known(capsys, str(tmp_path / "c" / "heir"))


def test_what_is_dropped_here_goes_there_too(
    tmp_path: Path, compacted_often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_HISTORY_BYTES", "12kB")
    there = tmp_path / "there"
    path = run(tmp_path / "a", sync_config=tune.SyncConfig(upload_dir=there.as_uri()))
    packs = sorted(pack.name for pack in ExperimentPaths(path).history.iterdir())
    assert packs
    assert sorted(pack.name for pack in (there / "e" / "journal" / "history").iterdir()) == packs
    history = History(ExperimentPaths(there / "e"), read_journal(ExperimentPaths(there / "e")))
    assert not history.is_whole and history.notes == []


SCRIPT = """
import os
import tuner.experiment.journal_writer as writer
writer.COMPACT_BYTES = 30_000
writer.JournalWriter.compact.__kwdefaults__["grace_s"] = 0.05

def train(config):
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["n"] + 1 if checkpoint else 1
    for n in range(first, 201):
        tune.report({"score": float(n % 7), "text": "x" * 500}, checkpoint=tune.Checkpoint.from_dict({"n": n}))
        if n % 40 == 0:
            tell("reached", n)

tune.run(train, name="e", storage_path=os.environ["RESULTS"], resume="AUTO", num_samples=2, verbose=0,
         keep_checkpoints_num=2, checkpoint_score_attr="score")
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        yield made


def test_f01_drivers_that_are_killed_lose_nothing_of_it(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.write(SCRIPT)
    for _ in range(3):
        script = stage.start()
        script.hear("reached")
        script.kill()
    script = stage.start()
    assert script.wait(120) == 0, script.output
    path = next(iter(Path(stage.results).glob("e")))
    history = History(ExperimentPaths(path), read_journal(ExperimentPaths(path)))
    assert history.notes == [] and history.is_whole
    assert [fact.seq for fact in history.facts()] == list(range(1, history.contents.last_seq + 1))
    for trial in ("0", "1"):
        told = asked(capsys, "show", str(path), trial, "--why")
        assert told["unknown"] == 0
        assert {one["iteration"] for one in told["why"]} == set(range(1, 201))


def test_it_is_packed_before_the_run_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "FINAL_COMPACT_BYTES", 1000)
    path = run(tmp_path, executor=None, config={"n": 5})
    journal = ExperimentPaths(path).journal
    assert sorted(entry.name[:4] for entry in journal.iterdir()) == ["hist", "snap"]


def test_the_place_for_copies_has_the_history_before_segments_go_there(tmp_path: Path, compacted_often: None) -> None:
    """Looked at from outside, all along the run."""
    there = tmp_path / "there"
    backend = open_backend(there.as_uri())
    looks = []

    class Look(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):  # type: ignore[no-untyped-def]
            books = ExperimentPaths(there / "e")
            if books.experiment_json.exists():
                history = History(books, read_journal(books))
                looks.append(history.contents.last_seq)
                assert history.is_whole and history.notes == []
                assert [fact.seq for fact in history.facts()] == list(range(1, history.contents.last_seq + 1))

    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
        run(tmp_path / "a", sync_config=tune.SyncConfig(upload_dir=there.as_uri()), callbacks=[Look()])
    backend.close()
    assert len(set(looks)) > 5
