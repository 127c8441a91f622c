"""Experiments that are moved, copied, renamed, or named by any path there is (F13, F44, F49, D10)."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import count_up, facts, in_child, iterations, kept, killed_at, rows, run

import trainables as train
import tuner as tune
from trainables.store import fs, verify
from tuner.cli import main
from tuner.error import SettingError

SPACE = {"n": 6, "i": tune.grid_search([0, 1])}
SETTINGS = {"metric": "score", "mode": "max", "keep_checkpoints_num": 2}


def half(path):
    """An experiment of two trials, of which one is killed at half its way and the other has not begun."""
    killed_at(3, count_up, hook="on_checkpoint", path=path, config=SPACE, max_concurrent_trials=1, **SETTINGS)
    return path / "e"


def check(root, analysis, *, old=None):
    """The experiment at `root` has all results, under that root and no other."""
    assert Path(analysis.experiment_path) == root
    for trial in analysis.trials:
        assert trial.status == "TERMINATED" and trial.iteration == 6
        assert Path(trial.path).parent == root
        assert [row["training_iteration"] for row in rows(trial)] == [1, 2, 3, 4, 5, 6]
        assert iterations(trial) == [5, 6]
        assert Path(trial.checkpoint.path).is_relative_to(root)
    assert Path(analysis.best_checkpoint.path).is_relative_to(root)
    starts = [fact.get("iteration", 0) for fact in facts(root, "attempt")]
    assert sorted(starts) == [0, 0, 3]  # continued, not started over
    if old is not None:
        for file in root.rglob("*"):
            if file.is_file():
                assert os.fsencode(old) not in file.read_bytes(), file
        assert not old.exists()


@pytest.mark.parametrize("how", ["absolute", "relative", "symlink", "file URI", "home", "renamed"])
def test_f13_a_moved_experiment_continues_where_it_lies_now(tmp_path, monkeypatch, how):
    old = half(tmp_path / "old storage")
    new = tmp_path / "new" / ("other" if how == "renamed" else "e")
    new.parent.mkdir()
    shutil.move(old, new)
    shutil.rmtree(old.parent)
    storage, root = new.parent, new
    if how == "relative":
        monkeypatch.chdir(tmp_path)
        storage = Path("new")
    elif how == "symlink":
        (tmp_path / "link").symlink_to(new.parent)
        storage = tmp_path / "link"
        root = storage / "e"
    elif how == "file URI":
        storage = new.parent.as_uri()
    elif how == "home":
        monkeypatch.setenv("HOME", str(tmp_path))
        storage = "~/new"
    analysis = run(count_up, storage, name=new.name, config=SPACE, resume=True, **SETTINGS)
    check(root, analysis, old=old)


@pytest.mark.parametrize(
    "form", [str, Path, lambda path: path.as_uri(), os.path.relpath], ids=["str", "Path", "URI", "relative"]
)
def test_f13_tuner_restore_and_analysis_take_every_form_of_a_path(tmp_path, monkeypatch, form):
    old = half(tmp_path / "old")
    new = tmp_path / "new" / "other"
    shutil.copytree(old, new)
    shutil.rmtree(old.parent)
    monkeypatch.chdir(tmp_path)
    given = form(new)
    assert tune.Tuner.can_restore(given)
    grid = tune.Tuner.restore(given, count_up).fit()
    assert len(grid) == 2 and not grid.errors
    analysis = tune.ExperimentAnalysis(given)
    check(new, analysis, old=old)
    assert grid.get_best_result().checkpoint.path == analysis.best_checkpoint.path
    assert grid.experiment_path == str(new)


def as_another_user(path, rehearsal):
    """Continue an experiment as `nobody`, with another home, on a copy that belongs to nobody.

    Where that user cannot read the packages they have to be imported before: this process continues `rehearsal` first.
    """
    subprocess.run(["chown", "-R", "65534:65534", str(path)], check=True)

    def act():
        # The interpreter itself may lie where that user cannot start it: the trials run in this process.
        settings = {"config": SPACE, "resume": True, "executor": "inline", **SETTINGS}
        check(rehearsal / "e", run(count_up, rehearsal, **settings))
        os.setgid(65534)
        os.setuid(65534)
        os.environ["HOME"] = str(path)
        os.chdir(path)
        check(path / "e", run(count_up, path, **settings))

    return in_child(act)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user: needs root")
def test_f13_another_user_continues_a_copy(tmp_path):
    old = half(tmp_path / "old")
    with tempfile.TemporaryDirectory(prefix="t", dir="/var/tmp") as open_to_all:
        os.chmod(open_to_all, 0o755)
        place = Path(open_to_all, "s")
        place.mkdir()
        shutil.copytree(old, place / "e")
        rehearsal = tmp_path / "rehearsal"
        shutil.copytree(old, rehearsal / "e")
        shutil.rmtree(old)
        assert as_another_user(place, rehearsal) == 0


def test_d10_a_copy_whose_path_contains_the_old_path(tmp_path):
    old = half(tmp_path / "s")
    new = old / str(tmp_path / "s").lstrip("/") / "e"  # /a/s/e/a/s/e
    aside = tmp_path / "aside"
    shutil.copytree(old, aside)
    new.parent.mkdir(parents=True)
    shutil.move(aside, new)
    analysis = run(count_up, new.parent, config=SPACE, resume=True, **SETTINGS)
    check(new, analysis)
    assert len(facts(old, "attempt")) == 1  # the old one was not touched


def test_f13_the_cli_reads_and_a_checkpoint_restores_from_the_new_place(tmp_path, capsys):
    old = half(tmp_path / "old")
    new = tmp_path / "new"
    shutil.move(old.parent, new)
    for arguments in (["ls", str(new)], ["show", str(new / "e")], ["verify", str(new / "e")]):
        assert main(arguments) in (0, None)
    assert str(old) not in capsys.readouterr().out
    (trial,) = [trial for trial in tune.ExperimentAnalysis(new / "e").trials if trial.checkpoint][:1]
    result = train.Result.from_path(trial.path)
    assert Path(result.checkpoint.path).parent == Path(trial.path)
    run(count_up, tmp_path, name="from", config={"n": 5}, restore=result.checkpoint)
    assert facts(tmp_path / "from", "attempt")[0]["iteration"] == 3


# --- F44 ---------------------------------------------------------------------------------------------------------


def long_and_odd():
    config = {f"param/{'é' * 5}:*?{i}": tune.choice([f'value {"ü" * 40}/\\:*?"<>|\n{i}' * 3]) for i in range(40)}
    return {**config, "nested": {"a b": {"ключ": tune.choice(["значение" * 20])}}}


def with_a_very_long_name_that_nobody_would_type_but_somebody_generated_anyway_it_is_really_long(config):
    tune.report(a=1)


def test_f44_forty_long_odd_parameters_have_a_short_plain_directory_and_a_file_with_all(tmp_path):
    odd = with_a_very_long_name_that_nobody_would_type_but_somebody_generated_anyway_it_is_really_long
    analysis = run(odd, tmp_path, config=long_and_odd(), num_samples=2)
    for trial in analysis.trials:
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", Path(trial.path).name)
        assert tune.ExperimentAnalysis(tmp_path / "e").get_all_configs()[trial.path] == trial.config
        assert train.Result.from_path(trial.path).config == trial.config
        assert len(trial.evaluated_params) == 41
    assert len({trial.path for trial in analysis.trials}) == 2
    frame = analysis.dataframe()
    assert "config/nested/a b/ключ" in frame.columns


def test_f44_a_lambda_and_a_registered_odd_name_too(tmp_path):
    def trainable(config):
        tune.report(a=1)

    trainable.__name__ = trainable.__qualname__ = "<lambda> of /etc:*?"
    for each in (lambda config: tune.report(a=1), trainable):
        (trial,) = tune.run(each, storage_path=tmp_path, verbose=0).trials
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", Path(trial.path).name)
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", Path(trial.path).parent.name)


@pytest.mark.parametrize("given", [r"C:\results", "C:/results", r"\\server\share"])
def test_f44_a_path_of_another_system_is_refused_before_anything_is_made(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=re.escape(repr(given))):
        run(count_up, given, config={"n": 1})
    with pytest.raises(SettingError):
        tune.Tuner(count_up, run_config=tune.RunConfig(storage_path=given)).fit()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", "x" * 300, "a\0b", "C:\\x"])
def test_f44_a_name_never_leaves_its_directory(tmp_path, name):
    with pytest.raises(SettingError, match="name="):
        run(count_up, tmp_path / "s", name=name, config={"n": 1})
    assert not (tmp_path / "s").exists() and not (tmp_path / "x").exists()


def test_f44_spaces_unicode_and_a_long_storage_path(tmp_path):
    place = tmp_path / "mit Leerzeichen und ümlaut 'quoted' $HOME" / ("tief" * 30)
    killed_at(2, count_up, hook="on_checkpoint", path=place, config={"n": 3})
    (trial,) = run(count_up, place, config={"n": 3}, resume=True).trials
    assert iterations(trial) == [1, 2, 3]


def test_f44_result_dir_comes_from_the_environment_and_from_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (trial,) = tune.run(count_up, name="e", config={"n": 1}, verbose=0).trials
    assert Path(trial.path).is_relative_to(tmp_path / "home" / "tuner_results" / "e")
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path / "elsewhere"))
    (trial,) = tune.run(count_up, name="e", config={"n": 1}, verbose=0).trials
    assert Path(trial.path).is_relative_to(tmp_path / "elsewhere" / "e")


# --- F49: a filesystem that can little ---------------------------------------------------------------------------


def without(monkeypatch, *, locks=True, links=True, synced=True):
    def refuse(number):
        def refused(*arguments, **more):
            raise OSError(number, os.strerror(number))

        return refused

    if not locks:
        monkeypatch.setattr(fcntl, "flock", refuse(errno.ENOLCK))
    if not links:
        monkeypatch.setattr(fs, "link", refuse(errno.EPERM))
    if not synced:
        for name in ("fsync", "fdatasync", "fsync_dir", "fsync_file"):
            monkeypatch.setattr(fs, name, lambda *arguments: None)


@pytest.mark.parametrize(
    "lacks",
    [{"locks": False}, {"links": False}, {"synced": False}, {"locks": False, "links": False, "synced": False}],
    ids=lambda lacks: "+".join(lacks),
)
def test_f49_without_locks_links_or_syncing_a_torn_record_is_dropped_and_the_run_continues(
    tmp_path, monkeypatch, lacks
):
    without(monkeypatch, **lacks)
    killed_at(4, count_up, hook="on_checkpoint", path=tmp_path, config={"n": 6}, keep_checkpoints_num=2)
    segment = max((tmp_path / "e" / "journal").glob("*.jsonl"))
    with segment.open("ab") as file:
        file.write(b'{"n":99,"c":"00000000","f":{"kind":"resu')
    (trial,) = run(count_up, tmp_path, config={"n": 6}, keep_checkpoints_num=2, resume=True).trials
    assert facts(tmp_path / "e", "attempt")[-1]["iteration"] == 4
    assert kept(trial) == ["checkpoint_000005-2.2", "checkpoint_000006-2.2"]
    for published in verify.list_checkpoints(Path(trial.path)):
        verify.check(published.path)
    assert "sqlite3" not in {path.suffix.lstrip(".") for path in tmp_path.rglob("*")}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:6] == b"SQLite"]
