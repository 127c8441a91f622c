"""Names of experiments: new, taken, replaced, owned, found again (F31, F32, D11, T09; design.md section 6)."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Stage, contents, iterations

import tuner as tune
from tuner.driver import loop
from tuner.error import (
    ExperimentDamagedError,
    ExperimentExistsError,
    OwnedElsewhereError,
    ResumeError,
    SettingError,
    TrialsFailedError,
)
from tuner.opening import apply as opening
from tuner.opening import undo


def simple(config):
    tune.report({"a": 1})


def silent(config):
    raise ValueError("no result ever")


def run(trainable, path, **settings):
    return tune.run(trainable, storage_path=path, executor="inline", **{"verbose": 0, **settings})


# --- no name ---------------------------------------------------------------------------------------------------


def test_t09_without_a_name_there_is_one_with_trainable_date_and_time(tmp_path):
    names = {Path(run(simple, tmp_path).experiment_path).name for _ in range(3)}
    assert len(names) == 3
    for name in names:
        assert re.fullmatch(r"simple_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(_\d+)?", name)


def test_f31_a_dated_name_that_another_driver_takes_in_the_same_second_is_passed_over(tmp_path, monkeypatch):
    """Both looked, both saw that the name is free; the other one was faster."""
    real, taken = opening.claim, []

    def late(paths, **arguments):
        if not taken:
            taken.append(paths.root)
            run(simple, tmp_path, name=paths.root.name)
            taken.append(contents(paths.root))
        return real(paths, **arguments)

    monkeypatch.setattr(opening, "claim", late)
    mine = run(simple, tmp_path)
    root, before = taken
    assert Path(mine.experiment_path) != root
    assert contents(root).items() >= before.items()  # beside them only the record of this driver's life
    assert len(mine.trials) == 1


# --- the name is taken -----------------------------------------------------------------------------------------


def test_t09_a_taken_name_is_refused_and_nothing_is_touched(tmp_path):
    run(simple, tmp_path, name="e")
    before = contents(tmp_path)
    with pytest.raises(ExperimentExistsError, match=r'resume="AUTO".*overwrite=True'):
        run(simple, tmp_path, name="e")
    assert contents(tmp_path) == before


def test_t09_an_experiment_that_never_had_a_result_is_replaced(tmp_path):
    with pytest.raises(TrialsFailedError):
        run(silent, tmp_path, name="e")
    analysis = run(simple, tmp_path, name="e")
    (trial,) = analysis.trials
    assert (trial.status, trial.trainable_name, trial.last_result["a"]) == ("TERMINATED", "simple", 1)
    assert len(list(Path(analysis.experiment_path).glob("s*_*"))) == 1  # nothing of the one before is left


@pytest.mark.parametrize("told_from", [100, 3])
def test_t09_overwrite_replaces_and_says_so(tmp_path, capsys, monkeypatch, told_from):
    monkeypatch.setattr(undo, "TOLD_FROM", told_from)
    first = run(simple, tmp_path, name="e", num_samples=2)
    again = run(simple, tmp_path, name="e", overwrite=True, verbose=1)
    assert len(again.trials) == 1
    assert not set(os.listdir(again.experiment_path)) & {trial.dirname for trial in first.trials}
    said = capsys.readouterr().out
    assert "starting new because overwrite=True" in said
    assert ("removing the experiment that was replaced" in said) == (told_from == 3)


def test_t09_overwrite_and_resume_exclude_each_other(tmp_path):
    run(simple, tmp_path, name="e")
    before = contents(tmp_path)
    for word in ("AUTO", True, "LOCAL+ERRORED"):
        with pytest.raises(SettingError, match="overwrite.*resume"):
            run(simple, tmp_path, name="e", overwrite=True, resume=word)
    assert contents(tmp_path) == before


def test_f31_a_name_that_got_taken_while_this_driver_started_is_refused(tmp_path, monkeypatch):
    """The other driver started, ran and ended between this one's look and its claim."""
    real, states = opening.claim, []

    def late(paths, **arguments):
        if not states:
            states.append(None)
            run(simple, tmp_path, name="e")
            states.append(contents(paths.root))
        return real(paths, **arguments)

    monkeypatch.setattr(opening, "claim", late)
    with pytest.raises(ExperimentExistsError, match=r'resume="AUTO"'):
        run(simple, tmp_path, name="e")
    assert contents(tmp_path / "e").items() >= states[1].items()  # beside them only the record of this driver's life
    assert iterations(run(simple, tmp_path, name="e", resume=True).trials[0]) == [1]


def test_f31_a_damaged_description_is_an_error_and_never_a_reason_to_start_over(tmp_path):
    run(simple, tmp_path, name="e")
    (tmp_path / "e" / "experiment.json").write_text("{")
    before = contents(tmp_path)
    for settings in ({}, {"resume": "AUTO"}, {"resume": True}):
        with pytest.raises(ExperimentDamagedError, match="experiment.json"):
            run(simple, tmp_path, name="e", **settings)
    assert contents(tmp_path) == before


def test_t09_a_foreign_directory_is_left_alone(tmp_path):
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "thesis.tex").write_text("years of work")
    for settings in ({}, {"resume": "AUTO"}, {"overwrite": True}):
        with pytest.raises(ExperimentDamagedError, match="thesis.tex"):
            run(simple, tmp_path, name="e", **settings)
    assert os.listdir(tmp_path / "e") == ["thesis.tex"]


def test_t09_a_format_of_the_future_is_refused(tmp_path):
    run(simple, tmp_path, name="e")
    path = tmp_path / "e" / "experiment.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 99'))
    with pytest.raises(ExperimentDamagedError, match="99.*newer"):
        run(simple, tmp_path, name="e", resume="AUTO")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", "a b", "ü", "x" * 121, 7, ".hidden"])
def test_t09_a_name_is_letters_digits_and_few_signs(tmp_path, name):
    with pytest.raises(SettingError, match="name="):
        run(simple, tmp_path, name=name)
    assert list(tmp_path.iterdir()) == []


# --- two drivers -------------------------------------------------------------------------------------------------

WAITING = """
import os, sys
def waits(config):
    tune.report({"a": 1})
    tell("waiting", os.getpid())
    gate()
    tune.report({"a": 2})
analysis = tune.run(waits, name="e", storage_path=os.environ["RESULTS"], resume=sys.argv[1] if sys.argv[1:] else False)
print("RESULT", analysis.trials[0].last_result["a"])
"""


def test_f31_of_two_drivers_the_second_is_refused_with_the_owners_pid(tmp_path):
    with Stage(tmp_path) as stage:
        stage.gate()
        stage.write(WAITING)
        first = stage.start()
        first.hear("waiting")
        for word in ("AUTO", "LOCAL"):
            second = stage.start("script.py", word)
            assert second.wait() == 1
            assert "OwnedElsewhereError" in second.output and f"pid {first.process.pid}" in second.output
        third = stage.start("script.py")
        assert third.wait() == 1
        assert f"ExperimentExistsError: the experiment at {stage.results}/e is running (pid {first.process.pid} on" in (
            third.output
        )
        stage.let()
        assert "RESULT 2" in first.ends_well()
        assert "RESULT 2" in stage.run("script.py", "AUTO")


def test_f31_two_drivers_that_start_in_the_same_instant_make_one_run(tmp_path):
    with Stage(tmp_path) as stage:
        stage.gate("start")
        stage.gate()
        stage.write("tell('ready'); gate('start')\n" + WAITING)
        drivers = [stage.start("script.py"), stage.start("script.py")]
        drivers[0].hear("ready", 2)
        stage.let(2, "start")
        stage.hear("waiting")
        stage.let()
        codes = sorted(driver.wait() for driver in drivers)
        assert codes == [0, 1], [driver.output for driver in drivers]
        loser = next(driver for driver in drivers if driver.process.returncode)
        assert "OwnedElsewhereError" in loser.output or "ExperimentExistsError" in loser.output
        (trial,) = tune.ExperimentAnalysis(stage.results / "e").trials
        assert iterations(trial) == [1, 2]


def test_f31_a_killed_owner_is_taken_over_at_once_and_nothing_of_it_runs_on(tmp_path):
    with Stage(tmp_path) as stage:
        stage.gate()
        stage.write(WAITING)
        first = stage.start()
        (news,) = first.hear("waiting")
        trial = os.pidfd_open(int(news.split()[1]))
        first.kill()
        stage.let(1)
        second = stage.start("script.py", "AUTO")
        second.hear("waiting")
        with pytest.raises(ProcessLookupError):
            signal.pidfd_send_signal(trial, 0)
        os.close(trial)
        stage.let(2)
        assert "resuming from" in second.ends_well()
        (trial,) = tune.ExperimentAnalysis(stage.results / "e").trials
        assert iterations(trial) == [1, 2] and trial.attempt == 2


def test_f31_a_stopped_driver_still_owns_its_experiment(tmp_path):
    with Stage(tmp_path) as stage:
        stage.gate()
        stage.write(WAITING)
        first = stage.start()
        first.hear("waiting")
        first.send(signal.SIGSTOP)
        with pytest.raises(OwnedElsewhereError, match=f"pid {first.process.pid}"):
            tune.run(waits_elsewhere, name="e", storage_path=stage.results, resume=True, executor="inline", verbose=0)
        first.send(signal.SIGCONT)
        stage.let()
        assert "RESULT 2" in first.ends_well()


def waits_elsewhere(config):
    raise AssertionError("never runs")


waits_elsewhere.__name__ = waits_elsewhere.__qualname__ = "waits"


@pytest.mark.parametrize(("look_s", "when"), [(0.0, 2), (60.0, 3)])
def test_t04_a_driver_that_was_taken_over_writes_down_no_result_and_starts_no_trial(
    tmp_path, monkeypatch, look_s, when
):
    """Between two heartbeats: it was stopped, and wakes with a result to hear or a trial to start."""
    monkeypatch.setattr(loop, "LOOK_S", look_s)
    taken, begun = [], []

    def train(config):
        begun.append(config["x"])
        for step in (1, 2, 3):
            if step == when:
                (record,) = (tmp_path / "e" / "generations").glob("*.json")
                taken.append(shutil.copy(record, record.with_name("000002.json")))
            tune.report({"a": step})

    with pytest.raises(OwnedElsewhereError, match="was taken over by"):
        run(train, tmp_path, name="e", config={"x": tune.grid_search([1, 2])})
    assert (len(taken), begun) == (1, [1])
    (told,) = (tmp_path / "e").glob("*/result.json")
    assert [json.loads(line)["a"] for line in told.read_text().splitlines()] == ([1] if look_s == 0 else [1, 2, 3])


# --- resume words -------------------------------------------------------------------------------------------------

SUFFIXES = ("ERRORED", "RESTART_ERRORED", "ERRORED_ONLY", "RESTART_ERRORED_ONLY")
LOCAL_WORDS = [True, "LOCAL", "ERRORED_ONLY", *(f"LOCAL+{suffix}" for suffix in SUFFIXES)]
AUTO_WORDS = ["AUTO", *(f"AUTO+{suffix}" for suffix in SUFFIXES)]


@pytest.mark.parametrize("word", [*LOCAL_WORDS, *AUTO_WORDS])
def test_d11_every_word_takes_up_an_experiment(tmp_path, word):
    run(simple, tmp_path, name="e")
    analysis = run(simple, tmp_path, name="e", resume=word)
    assert [trial.attempt for trial in analysis.trials] == [1]


@pytest.mark.parametrize("word", LOCAL_WORDS)
def test_d11_words_that_need_an_experiment_raise_without_one_and_list_what_is_there(tmp_path, word):
    run(simple, tmp_path, name="other")
    with pytest.raises(ResumeError, match=r"no experiment at .*/e; there are: other"):
        run(simple, tmp_path, name="e", resume=word)
    assert os.listdir(tmp_path / "other") and not (tmp_path / "e").exists()


@pytest.mark.parametrize("word", AUTO_WORDS)
def test_f32_auto_words_start_anew_and_say_why_with_the_path(tmp_path, capsys, word):
    run(simple, tmp_path, name="e", resume=word, verbose=1)
    assert f"starting new because there is no experiment at {tmp_path}/e" in capsys.readouterr().out
    run(simple, tmp_path, name="e", resume=word, verbose=1)
    assert f"resuming from {tmp_path}/e" in capsys.readouterr().out


def test_f32_with_verbose_0_that_line_goes_to_the_log(tmp_path, caplog):
    with caplog.at_level("INFO", "tuner"):
        run(simple, tmp_path, name="e", resume="AUTO")
        run(simple, tmp_path, name="e", resume="AUTO")
    assert f"starting new because there is no experiment at {tmp_path}/e" in caplog.text
    assert f"resuming from {tmp_path}/e" in caplog.text


@pytest.mark.parametrize("word", ["auto", "MAYBE", "", "AUTO+", "AUTO+ALL", "ERRORED_ONLY+ERRORED", "+ERRORED", 1, []])
def test_d11_every_other_word_is_an_error_that_lists_them(tmp_path, word):
    with pytest.raises(SettingError, match="AUTO.*RESTART_ERRORED_ONLY"):
        run(simple, tmp_path, name="e", resume=word)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["REMOTE", *(f"REMOTE+{suffix}" for suffix in SUFFIXES)])
@pytest.mark.parametrize("there", [False, True])
def test_d11_remote_without_a_replica_is_an_error(tmp_path, word, there):
    if there:
        run(simple, tmp_path, name="e")
    before = contents(tmp_path)
    with pytest.raises(ResumeError):
        run(simple, tmp_path, name="e", resume=word)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("answer", "resumes"), [("y", True), ("", True), ("n", False)])
def test_t09_prompt_asks_on_the_terminal(tmp_path, monkeypatch, answer, resumes):
    run(simple, tmp_path, name="e")
    before = contents(tmp_path)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with open(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        if resumes:
            assert len(run(simple, tmp_path, name="e", resume="PROMPT").trials) == 1
        else:
            with pytest.raises(ExperimentExistsError, match="left alone"):
                run(simple, tmp_path, name="e", resume="PROMPT")
            assert contents(tmp_path) == before
    os.close(ours)


def test_t09_prompt_without_a_terminal_is_an_error(tmp_path, monkeypatch):
    run(simple, tmp_path, name="e")
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(ResumeError, match='resume="AUTO"'):
            run(simple, tmp_path, name="e", resume="PROMPT")


# --- AUTO without a name --------------------------------------------------------------------------------------------

AUTO = """
import os, sys
import tuner as tune
def train(config):
    open(os.environ["RESULTS"] + "/ran", "a").write("x")
    return {"a": config["x"]}
space = {"x": tune.uniform(0, float(os.environ.get("HIGH", 1)))}
analysis = tune.run(train, config=space, resume="AUTO", storage_path=os.environ["RESULTS"], seed=1)
print("AT", analysis.experiment_path)
"""


def at(output):
    return re.search(r"^AT (.*)$", output, re.M)[1]


def test_f32_auto_without_a_name_finds_its_run_again_also_from_another_checkout(tmp_path):
    with Stage(tmp_path) as stage:
        stage.results.mkdir()
        stage.write(AUTO, "here/tune_it.py")
        first = stage.run("here/tune_it.py")
        assert f"starting new because there is no experiment at {at(first)}" in first
        assert re.fullmatch(r"train_[0-9a-f]{8}", Path(at(first)).name)
        again = stage.run("here/tune_it.py")
        assert f"resuming from {at(first)}" in again and at(again) == at(first)
        shutil.copytree(stage.place / "here", stage.place / "there")
        elsewhere = stage.run("there/tune_it.py")
        assert f"resuming from {at(first)}" in elsewhere
        assert (stage.results / "ran").read_text() == "x"


def test_t09_two_scripts_with_an_equal_function_name_are_two_experiments(tmp_path):
    with Stage(tmp_path) as stage:
        stage.results.mkdir()
        stage.write(AUTO, "one.py")
        stage.write(AUTO, "two.py")
        one, two = stage.run("one.py"), stage.run("two.py")
        assert at(one) != at(two)
        assert "starting new because" in one and "starting new because" in two


def test_t09_auto_with_another_search_space_is_an_error_that_shows_both(tmp_path):
    with Stage(tmp_path) as stage:
        stage.results.mkdir()
        stage.write(AUTO)
        path = at(stage.run())
        before = contents(Path(path))
        changed = stage.start(HIGH="2")
        assert changed.wait() == 1
        last = changed.output[changed.output.index("ResumeError") :]
        assert path in last and "uniform(0.0, 1.0)" in last and "uniform(0.0, 2.0)" in last
        assert contents(Path(path)) == before


def test_t09_auto_on_an_errored_run_shows_it_and_runs_nothing(tmp_path):
    def fails(config):
        with open(tmp_path / "ran", "a") as file:
            file.write("x")
        tune.report({"a": 1})
        raise ValueError("boom")

    for _ in range(2):
        with pytest.raises(TrialsFailedError, match="boom") as caught:
            run(fails, tmp_path, name="e", resume="AUTO")
        assert [trial.status for trial in caught.value.analysis.trials] == ["ERROR"]
    assert (tmp_path / "ran").read_text() == "x"


def test_f31_two_experiments_of_one_process_do_not_disturb_each_other(tmp_path):
    """In threads, of which each has its own experiment."""
    found = {}

    def start(name):
        found[name] = tune.run(simple, name=name, storage_path=tmp_path, num_samples=3, verbose=0)

    threads = [threading.Thread(target=start, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: [t.status for t in a.trials] for name, a in found.items()} == {
        "one": ["TERMINATED"] * 3,
        "two": ["TERMINATED"] * 3,
    }
