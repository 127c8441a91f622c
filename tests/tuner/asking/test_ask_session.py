"""Sessions: what callers are given, what is refused, and what is left when callers and drivers are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.asking.callers import Caller, callers, driver, history, judged, kill_driver, lives, until
from tuner.error import (
    ExperimentExistsError,
    MetricMissingError,
    ResumeError,
    SerializationError,
    SettingError,
    TuneError,
)
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state

SPACE = {"x": tune.uniform(0, 1)}
TOTALS = [1, 3, 6, 10, 15]


def opened(storage: Path, **more: Any) -> Any:
    return tune.open_session("s", **{"config": SPACE, "storage_path": storage, **more})


def published(storage: Path) -> list[int]:
    """Iterations of the checkpoints that the journal has."""
    return [fact["ref"]["iteration"] for fact in history(storage).kind("published")]


def state(storage: Path) -> Any:
    return load_state(ExperimentPaths(storage / "s"))


# --- one caller ---------------------------------------------------------------------------------------------------


def test_a_loop_of_the_callers_own_is_a_run_like_any_other(tmp_path: Path) -> None:
    with opened(tmp_path, num_samples=2, metric="loss", mode="min", seed=1) as session:
        trials = []
        while (trial := session.ask()) is not None:
            trials.append(trial)
            assert trial.checkpoint is None and trial.iteration == 0
            with pytest.raises(SettingError, match="wait='yes'"):
                session.ask("yes")
            for n in (1, 2):
                assert trial.report({"loss": trial.config["x"] / n}, tune.Checkpoint.from_dict({"n": n})) == "continue"
            trial.finish()
        assert session.ask() is None and session.ask(wait=True) is None
    assert len({trial.trial_id for trial in trials}) == 2
    assert len({trial.seed for trial in trials}) == 2
    analysis = tune.ExperimentAnalysis(session.path, metric="loss", mode="min")
    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "TERMINATED"]
    assert [len(trial.checkpoints) for trial in analysis.trials] == [2, 2]
    assert analysis.best_config == min((trial.config for trial in trials), key=lambda config: config["x"])
    until(lambda: not lives(tmp_path))


def test_the_same_call_goes_on_and_a_finished_one_has_nothing_more(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        session.ask().report({"a": 1}, tune.Checkpoint.from_dict({"n": 1}))
    with opened(tmp_path) as session:
        trial = session.ask()
        assert (trial.iteration, trial.checkpoint.to_dict()["n"]) == (1, 1)
        trial.finish()
        assert session.ask() is None
    with opened(tmp_path) as session:
        assert session.ask() is None
    with opened(tmp_path, num_samples=2) as session:
        session.ask().report({"a": 1})
    assert [trial.status for trial in state(tmp_path).trials] == ["TERMINATED", "PENDING"]


def test_without_waiting_there_is_none_while_another_has_the_last(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        trial = session.ask()
        assert session.ask() is None
        trial.report({"a": 1})
        trial.finish()
        assert session.ask(wait=True) is None


def test_who_does_not_wait_is_told_whether_there_will_be_more(tmp_path: Path) -> None:
    with opened(tmp_path) as session, opened(tmp_path) as other:
        trial = session.ask()
        assert other.ask() is None and not other.finished and not session.finished
        kill_driver(tmp_path)
        assert other.ask() is None and not other.finished
        trial.report({"a": 1})
        trial.finish()
        assert session.ask() is None and session.finished
        assert other.ask() is None and other.finished


def test_that_there_is_no_more_holds_over_the_death_of_the_driver_that_knew(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        trial = session.ask()
        trial.report({"a": 1})
        kill_driver(tmp_path)
        trial.finish()
        with contextlib.suppress(ProcessLookupError):
            os.kill(driver(tmp_path), signal.SIGKILL)  # about to end, or just ended
        assert session.ask() is None and session.finished
    with opened(tmp_path) as session:
        assert session.ask() is None and session.finished


def test_who_waits_for_a_trial_of_its_own_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tuner.asking.ask_session.OWN_S", 0.01)
    with opened(tmp_path) as session:
        trial = session.ask()
        waiting = threading.Thread(target=session.ask, args=(True,))
        waiting.start()
        until(lambda: f"this process has 1 of them: {trial.trial_id}. A trial is over after finish()" in caplog.text)
        trial.report({"a": 1})
        trial.finish()
        waiting.join()
        assert session.ask(wait=True) is None


def test_a_driver_that_is_killed_at_its_start_is_followed_by_another(tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"

    class Deadly(tune.Callback):
        def __init__(self, times: int) -> None:
            self.times = times

        def __setstate__(self, state: dict[str, Any]) -> None:
            self.__dict__.update(state)
            with deaths.open("a+") as file:
                file.write("x")
            if deaths.stat().st_size <= self.times:
                os.kill(os.getpid(), signal.SIGKILL)

    with opened(tmp_path, callbacks=[Deadly(2)]) as session:
        trial = session.ask()
        trial.report({"a": 1})
        trial.finish()
    assert deaths.stat().st_size == 3
    deaths.unlink()
    with pytest.raises(TuneError, match="5 drivers of the session .* were killed"):
        tune.open_session("t", storage_path=tmp_path, callbacks=[Deadly(9)])


def test_what_failed_is_tried_again_from_its_checkpoint_as_often_as_is_said(tmp_path: Path) -> None:
    with opened(tmp_path, max_failures=1) as session:
        trial = session.ask()
        trial.report({"a": 1}, tune.Checkpoint.from_dict({"n": 1}))
        trial.fail(ValueError("no luck"))
        again = session.ask(wait=True)
        assert (again.trial_id, again.iteration) == (trial.trial_id, 1)
        again.fail("no luck either")
        assert session.ask(wait=True) is None
    (failed,) = state(tmp_path).trials
    assert (failed.status, failed.error.message) == ("ERROR", "no luck either")
    assert "ValueError: no luck" in (tmp_path / "s" / failed.dirname / "error.txt").read_text()


def test_stop_criteria_and_schedulers_end_trials(tmp_path: Path) -> None:
    with opened(tmp_path, stop={"a": 2}) as session:
        trial = session.ask()
        assert [trial.report({"a": n}) for n in (1, 2)] == ["continue", "stop"]
        trial.finish()  # nothing is left to say
        with pytest.raises(Exception, match=r"report\(\) of trial .* which is over here \(stop\): ask\(\)"):
            trial.report({"a": 3})
    assert [trial.status for trial in state(tmp_path).trials] == ["TERMINATED"]


# --- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"config": "x"}, SettingError, "config='x'"),
        ({"mode": "best"}, SettingError, "mode='best'"),
        ({"num_samples": "many"}, SettingError, "num_samples='many'"),
        ({"reuse_actors": True}, SettingError, "no argument 'reuse_actors'; accepted are name, config,"),
        ({"numsamples": 3}, SettingError, "no argument 'numsamples'; did you mean 'num_samples'?"),
        ({"resume": True}, ResumeError, "no experiment"),
        ({"resume": None}, SettingError, "resume=None"),
        ({"storage_path": __file__}, SettingError, "is a file"),
        ({"scheduler": "bsha"}, SettingError, "bsha"),
        ({"config": {"x": threading.Lock()}}, SerializationError, "settings of the session"),
        ({"checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=2)}, SettingError, "checkpoint_frequency=2"),
    ],
)
def test_settings_that_are_not_accepted_are_named(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        opened(tmp_path, **given)
    with pytest.raises(SettingError, match="name=3"):
        tune.open_session(3)  # type: ignore[arg-type]


def test_another_search_space_is_refused_by_the_first_and_by_who_joins(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        with pytest.raises(ResumeError, match="search space"):
            opened(tmp_path, config={"y": tune.uniform(0, 1)})
        session.ask().report({"a": 1})
    with pytest.raises(ResumeError, match="search space"):
        opened(tmp_path, config={"y": tune.uniform(0, 1)})


def test_a_name_that_is_taken_is_refused_where_nothing_is_to_be_continued(tmp_path: Path) -> None:
    with opened(tmp_path, resume=False) as session:
        session.ask().report({"a": 1})
        with pytest.raises(ExperimentExistsError, match="is running"):
            opened(tmp_path, resume=False)
    with pytest.raises(ExperimentExistsError, match="AUTO"):
        opened(tmp_path, resume=False)


def test_a_metric_that_is_missing_is_raised_where_it_was_to_be_reported(tmp_path: Path) -> None:
    with opened(tmp_path, metric="loss", mode="min") as session:
        with pytest.raises(MetricMissingError, match="los"):
            session.ask().report({"los": 1}) and session.ask()


def test_a_session_and_its_trials_end_and_say_so(tmp_path: Path) -> None:
    with opened(tmp_path, num_samples=2) as session:
        trial, left = session.ask(), session.ask()
        trial.report({"a": 1})
        trial.finish()
        with pytest.raises(Exception, match=r"finish\(\) of trial .* \(finished\)"):
            trial.finish()
        left.report({"a": 1})
    with pytest.raises(Exception, match=r"left, for its session was closed"):
        left.report({"a": 2})
    with pytest.raises(Exception, match=r"ask\(\) after close\(\)"):
        session.ask()
    session.close()


def test_a_metric_that_cannot_be_written_down_leaves_the_trial_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        trial = session.ask()
        with pytest.raises(ValueError, match="a is a builtins.object"):
            trial.report({"a": object()})
        assert trial.report({"a": 1}) == "continue"
        trial.finish()
    assert [trial.iteration for trial in state(tmp_path).trials] == [1]


def test_a_forked_child_has_no_part_in_it(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        trial = session.ask()
        out, into = os.pipe()
        if (pid := os.fork()) == 0:
            said = []
            for call in (session.ask, lambda: trial.report({"a": 1})):
                try:
                    call()
                except RuntimeError as error:
                    said.append(str(error))
            session.close()  # as a `with` does
            os.write(into, json.dumps(said).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        asked, reported = json.loads(os.read(out, 10000))
        assert "open it there with tune.open_session" in asked
        assert "child process" in reported
        assert trial.report({"a": 1}) == "continue"
        trial.finish()


def test_an_experiment_of_tune_run_is_no_session(tmp_path: Path) -> None:
    def other(config: dict[str, Any]) -> None:
        tune.report({"a": 1})

    tune.run(other, name="s", storage_path=tmp_path, config=SPACE, verbose=0)
    with pytest.raises(ResumeError, match="'other', not 'trial'"):
        opened(tmp_path)


# --- several callers ----------------------------------------------------------------------------------------------


def test_callers_share_an_experiment_and_the_last_one_out_ends_the_driver(tmp_path: Path) -> None:
    with callers(tmp_path, {"num_samples": 2}, {"num_samples": 2}) as (one, two):
        pid = driver(tmp_path)
        first, second = one.do("ask"), two.do("ask")
        assert first["trial"] != second["trial"]
        assert one.do("ask") is None
        two.begin("ask", wait=True)
        assert one.do("close") is None
        assert two.end()["trial"] == first["trial"]  # it was left, and goes on here
        assert driver(tmp_path) == pid and lives(tmp_path)
    assert state(tmp_path).counts["TERMINATED"] == 0


def test_threads_have_a_trial_each(tmp_path: Path) -> None:
    caller = Caller(tmp_path, num_samples=6, work={"iterations": 4, "step_s": 0.01, "threads": 4})
    assert caller.process.wait(100) == 0
    caller.close()
    judged(tmp_path, trials=6, iterations=4)


def test_who_opens_at_once_finds_one_driver(tmp_path: Path) -> None:
    with callers(tmp_path, *[{"num_samples": 3}] * 3) as three:
        assert len({caller.do("ask")["trial"] for caller in three}) == 3
    assert len(history(tmp_path).kind("generation")) == 1


def test_a_path_that_no_socket_fits_into(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    with opened(deep) as session:
        trial = session.ask()
        trial.report({"a": 1}, tune.Checkpoint.from_dict({"n": 1}))
        trial.finish()
    assert [trial.status for trial in state(deep).trials] == ["TERMINATED"]


# --- what is killed -----------------------------------------------------------------------------------------------


def test_who_dies_leaves_its_trial_with_its_newest_checkpoint(tmp_path: Path) -> None:
    with callers(tmp_path, {}, {}) as (one, two):
        first = one.do("ask")
        assert one.do("report", state=1, a=1) == "continue"
        assert one.do("report", state=2, a=2) == "continue"
        assert one.do("report", a=3) == "continue"
        until(lambda: published(tmp_path) == [1, 2])
        one.kill()
        got = two.do("ask", wait=True)
        assert (got["trial"], got["iteration"], got["from"]) == (first["trial"], 2, 2)
        two.do("report", a=3)
        two.do("finish")
    assert [trial.iteration for trial in state(tmp_path).trials] == [3]


def test_its_children_do_not_keep_the_trial_of_a_dead_caller(tmp_path: Path) -> None:
    with callers(tmp_path, {}, {}) as (one, two):
        first, child = one.do("ask"), one.do("fork")
        try:
            one.kill()
            assert two.do("ask", wait=True)["trial"] == first["trial"]
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("saves", [True, False])
def test_an_attempt_goes_on_under_the_next_driver(tmp_path: Path, saves: bool) -> None:
    with callers(tmp_path, {"num_samples": 2}) as (one,):
        one.do("ask")
        for n in (1, 2, 3):
            if n > 1:
                kill_driver(tmp_path)
            assert one.do("report", state=n if saves else None, total=TOTALS[n - 1]) == "continue"
        kill_driver(tmp_path)
        assert one.do("finish") is None
        kill_driver(tmp_path)
        assert one.do("ask")["iteration"] == 0
        for n in (1, 2, 3):
            one.do("report", state=n, total=TOTALS[n - 1])
        one.do("finish")
    judged(tmp_path, trials=2, iterations=3)
    starts = [fact for fact in history(tmp_path).kind("attempt") if fact["trial"].endswith("00000")]
    assert [(fact["generation"], fact["attempt"], fact.get("iteration", 0)) for fact in starts] == [
        (1, 1, 0),
        (1, 1, 1),
        (1, 1, 2),
        (1, 1, 3),
    ]
    if saves:
        assert len(state(tmp_path).trials[0].checkpoints) == 3
        assert state(tmp_path).trials[0].checkpoints[-1].metrics["total"] == 6


def test_a_driver_that_dies_over_a_call_answers_it_once(tmp_path: Path) -> None:
    with callers(tmp_path, {"num_samples": 2}) as (one,):
        pid = driver(tmp_path)
        os.kill(pid, signal.SIGSTOP)  # it hears nothing any more
        one.begin("ask")
        os.kill(pid, signal.SIGKILL)
        assert one.end()["iteration"] == 0
        for n in (1, 2):
            pid = driver(tmp_path)
            os.kill(pid, signal.SIGSTOP)
            one.begin("report", state=n, total=TOTALS[n - 1])
            os.kill(pid, signal.SIGKILL)
            assert one.end() == "continue"
        pid = driver(tmp_path)
        os.kill(pid, signal.SIGSTOP)
        one.begin("finish")
        os.kill(pid, signal.SIGKILL)
        assert one.end() is None
        one.do("ask")
        one.do("report", total=1)
        one.do("report", total=3)
        one.do("finish")
    judged(tmp_path, trials=2, iterations=2)


def test_nobody_else_gets_the_trial_of_a_caller_that_outlives_the_driver(tmp_path: Path) -> None:
    with callers(tmp_path, {"num_samples": 2}, {"num_samples": 2}) as (one, two):
        first = one.do("ask")
        one.do("report", state=1, total=1)
        kill_driver(tmp_path)
        second = two.do("ask")  # begins the next driver's life
        assert second["trial"] != first["trial"]
        assert two.do("ask") is None
        two.begin("ask", wait=True)
        one.kill()
        again = two.end()
        assert (again["trial"], again["iteration"], again["from"]) in (
            (first["trial"], 1, 1),
            (first["trial"], 0, None),
        )


def test_a_caller_and_the_driver_die_together(tmp_path: Path) -> None:
    with callers(tmp_path, {}, {}) as (one, two):
        first = one.do("ask")
        one.do("report", state=1, total=1)
        one.do("report", state=2, total=3)
        os.kill(driver(tmp_path), signal.SIGKILL)
        one.kill()
        again = two.do("ask", wait=True)
        assert again["trial"] == first["trial"] and again["from"] in (1, 2)
        for n in range(again["iteration"] + 1, 4):
            two.do("report", state=n, total=TOTALS[n - 1])
        two.do("finish")
    judged(tmp_path, trials=1, iterations=3)


def test_ctrl_c_ends_the_caller_and_not_the_driver(tmp_path: Path) -> None:
    with callers(tmp_path, {}, {}) as (one, two):
        first, pid = one.do("ask"), driver(tmp_path)
        one.do("report", state=1, total=1)
        os.killpg(os.getpgid(pid), 0)
        assert os.getsid(pid) not in (os.getsid(one.process.pid), os.getsid(os.getpid()))
        one.kill(signal.SIGINT)
        again = two.do("ask", wait=True)
        assert (again["trial"], again["from"]) == (first["trial"], 1)
        assert driver(tmp_path) == pid
        two.do("finish")
    (trial,) = state(tmp_path).trials
    assert (trial.status, trial.num_lost, trial.num_failures) == ("TERMINATED", 0, 0)


def test_when_all_callers_are_dead_the_driver_ends_in_order(tmp_path: Path) -> None:
    with callers(tmp_path, {}, {}) as both:
        both[0].do("ask")
        both[0].do("report", state=1, total=1)
        for caller in both:
            caller.kill()
        until(lambda: not lives(tmp_path))
    assert [fact["why"] for fact in history(tmp_path).kind("run_ended")] == ["deserted"]


def test_a_driver_that_is_told_to_leave_says_so_and_the_session_can_be_opened_again(tmp_path: Path) -> None:
    with callers(tmp_path, {}) as (one,):
        one.do("ask")
        assert one.do("report", state=1, total=1) == "continue"
        os.kill(driver(tmp_path), signal.SIGTERM)
        until(lambda: one.do("report", state=2, total=3) == "pause")
        assert "told to leave" in one.do("ask")["text"]
    with opened(tmp_path) as session:
        assert session.ask().iteration >= 1


# --- schedulers, and copies ---------------------------------------------------------------------------------------


def test_asha_stops_trials(tmp_path: Path) -> None:
    with opened(
        tmp_path,
        num_samples=6,
        metric="a",
        mode="max",
        scheduler=tune.create_scheduler("asha", max_t=9, grace_period=1, reduction_factor=3),
    ) as session:
        lengths = []
        for a in (6, 5, 4, 3, 2, 1):
            trial = session.ask()
            n, said = 0, "continue"
            while said == "continue":
                n += 1
                said = trial.report({"a": a})
            assert said == "stop"
            lengths.append(n)
    assert lengths == [9, 1, 1, 1, 1, 1]


def test_hyperband_pauses_trials_at_a_save_and_hands_them_out_again(tmp_path: Path) -> None:
    with opened(
        tmp_path,
        num_samples=9,
        metric="a",
        mode="max",
        scheduler=tune.create_scheduler("hyperband", max_t=9, reduction_factor=3),
    ) as session:
        said = []
        while (trial := session.ask(wait=True)) is not None:
            n, then = trial.iteration, "continue"
            while then == "continue":
                n += 1
                state_of = tune.Checkpoint.from_dict({"n": n}) if trial.should_save or n == 1 else None
                then = trial.report({"a": n * trial.config["x"]}, state_of)
            said.append((trial.trial_id, n, then))
    assert {then for _, _, then in said} == {"pause", "stop"}
    ended = state(tmp_path)
    assert ended.counts["TERMINATED"] == 9
    assert max(trial.iteration for trial in ended.trials) == 9


def test_population_based_training_hands_out_a_donors_checkpoint(tmp_path: Path) -> None:
    settings = {
        "num_samples": 2,
        "metric": "a",
        "mode": "max",
        "seed": 3,
        "space": {"x": 1},
        "scheduler": [
            "pbt",
            {
                "perturbation_interval": 2,
                "hyperparam_mutations": {},
                "quantile_fraction": 0.5,
                "time_attr": "training_iteration",
            },
        ],
    }
    with callers(tmp_path, settings, settings) as (one, two):
        good, bad = one.do("ask"), two.do("ask")
        for n in (1, 2):
            one.do("report", state=["good", n], a=10 * n)
        until(lambda: published(tmp_path) == [1, 2])
        for n in (1, 2):
            said = two.do("report", state=["bad", n], a=n)
        assert said == "pause"
        kill_driver(tmp_path)
        clone = two.do("ask", wait=True)
        assert clone["trial"] == bad["trial"] != good["trial"]
        assert clone["from"] == ["good", 2] and clone["iteration"] == 2
        assert two.do("report", state=["clone", 3], a=30) == "continue"


def test_the_replica_has_everything_when_the_last_has_closed(tmp_path: Path) -> None:
    share = tmp_path / "share"
    with callers(tmp_path / "here", {"upload_dir": str(share), "keep": 1}) as (one,):
        one.do("ask")
        for n in (1, 2, 3):
            one.do("report", state=n, total=n)
        assert one.do("close") is None
        found = sorted(path.parent.name for path in share.glob("s/trial_*/*/.manifest.json"))
        assert found == ["checkpoint_000003"]
    with tune.open_session(
        "s", config=SPACE, storage_path=tmp_path / "other", sync_config=tune.SyncConfig(upload_dir=str(share))
    ) as session:
        trial = session.ask()
        assert (trial.iteration, trial.checkpoint.to_dict()["state"]) == (3, 3)
        trial.finish()
