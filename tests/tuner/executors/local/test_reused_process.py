"""A process that goes on with the next attempt: what it carries over, what it does not, and when a fresh one begins."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from acting import TWICE, Told
from driving import SCRIPTS, script_environment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainables.errors import SessionError
from tuner.executors.base import Started
from tuner.executors.local.executor import LocalExecutor


class Drive:
    """Trials of `Told` under an executor, one after another or at once."""

    def __init__(self, local: Any, directory: Path, **how: Any) -> None:
        self.driver = local(Told, **{"kind": LocalExecutor, **how})
        self.log = directory / "log"
        self.log.touch()

    def launch(self, reuse: bool = True, **config: Any) -> str:
        how = {key: config.pop(key) for key in ("resources", "environment", "timeout_s", "stdout", "stderr", "grace_s")
               if key in config}  # fmt: skip
        for key in ("index", "seed", "tee"):
            if key in config:
                how[key] = config.pop(key)
        trial: str = self.driver.launch({"log": str(self.log), **config}, reuse=reuse, **how)
        return trial

    def run(self, reuse: bool = True, **config: Any) -> dict[str, Any]:
        """The first result of a trial, when it has ended."""
        trial = self.launch(reuse, **config)
        exited = self.driver.finish(trial)
        assert (exited.status, exited.reason, self.driver.errors(trial)) == (0, None, [])
        first: dict[str, Any] = self.driver.reports(trial)[0]
        return first

    def calls(self, method: str) -> list[int]:
        said = [line.split() for line in self.log.read_text().splitlines()]
        return [int(pid) for name, pid in said if name == method]

    def starts(self, trial: str) -> list[int]:
        return [e.pid for e in self.driver.events if isinstance(e, Started) and e.trial_id == trial]


@pytest.fixture
def drive(local: Any, tmp_path: Path) -> Any:
    return lambda **how: Drive(local, tmp_path, **how)


# --- what is carried over ------------------------------------------------------------------------------------------


def test_setup_is_called_once_for_each_slot(drive: Any) -> None:
    trials = drive(cpus=2)
    for _ in range(10):
        trials.launch()
    assert [e.status for e in trials.driver.finish_all()] == [0] * 10
    assert len(trials.calls("setup")) == 2 and len(trials.calls("reset")) == 8
    assert trials.calls("cleanup") == []
    trials.driver.executor.shutdown()
    assert sorted(trials.calls("cleanup")) == sorted(trials.calls("setup"))


def test_who_does_not_ask_gets_a_process_for_each_attempt_and_loads_nothing_of_it(drive: Any) -> None:
    trials = drive()
    seen = [trials.run(reuse=False, step="loaded") for _ in range(3)]
    assert len({each["pid"] for each in seen}) == 3
    assert [each["said"] for each in seen] == [[]] * 3 and trials.run(step="loaded")["said"] != []
    assert trials.calls("reset") == [] and len(trials.calls("cleanup")) == 3


def test_nothing_of_an_old_trial_shows_in_the_next_one(drive: Any, tmp_path: Path) -> None:
    asked = {"step": "whole_state", "index": 7, "seed": 3, "environment": {"ITS": "own"}, "resources": {"cpu": 2}}
    where = {"stdout": tmp_path / "stdout", "stderr": tmp_path / "stderr"}
    trials = drive(cpus=2)
    trials.driver.launched = 1
    fresh = trials.run(reuse=False, **asked, **where)
    trials.driver.launched = 0
    old = {key: asked[key] for key in ("environment", "resources")}
    first = trials.run(setup="make_a_mess", step="make_a_mess", **old, **where)
    trials.driver.events.clear()
    later = trials.run(**asked, **where)
    assert later["pid"] == first["pid"] != fresh["pid"]
    assert later["said"]["trial"][:3] == ["t1"] * 3
    assert later["said"] == fresh["said"]
    automatic = ("training_iteration", "iterations_since_restore", "trial_id", "hostname")
    assert [later[key] for key in automatic] == [fresh[key] for key in automatic]
    assert later["time_total_s"] == later["time_since_restore"] == later["time_this_iter_s"]


@pytest.mark.parametrize("tee", [False, True])
def test_output_goes_to_the_files_of_its_own_trial(
    drive: Any, tmp_path: Path, tee: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = drive()
    for name in "ab":
        files = {stream: tmp_path / f"{name}-{stream}" for stream in ("stdout", "stderr")}
        trials.run(step="print_in_all_ways", name=name, tee=tee, **files)
    assert len(trials.calls("setup")) == 1
    for name in "ab":
        assert sorted((tmp_path / f"{name}-stdout").read_text()) == sorted(f"python {name} C {name}")
        assert (tmp_path / f"{name}-stderr").read_text().startswith(f"errors {name}")
        assert f"logged {name}" in (tmp_path / f"{name}-stderr").read_text()


def test_a_late_report_of_an_old_trials_thread_is_refused(drive: Any) -> None:
    trials = drive()
    trials.run(step="leave_a_thread")
    kind, text = trials.run(step="let_it_report")["said"]
    assert kind == SessionError.__name__
    assert "'stray'" in text and "t1" in text
    assert len(trials.driver.reports("t1")) == TWICE


def test_reset_config_knows_its_trial_and_reports_nothing(drive: Any) -> None:
    trials = drive()
    trials.run()
    assert trials.run(reset_config="report_too_early")["pid"] in trials.calls("setup")
    assert len(trials.driver.reports("t1")) == TWICE


# --- processes ---------------------------------------------------------------------------------------------------


def test_what_a_trial_abandoned_is_gone_when_it_is_over(drive: Any, watch: Any) -> None:
    trials = drive()
    trial = trials.launch(step="start_a_stubborn_one")
    watched = watch(trials.driver.first_report(trial)["said"])
    trials.driver.finish(trial)
    assert watched.gone()
    assert trials.run()["pid"] == trials.calls("setup")[0]


@pytest.mark.parametrize("how", ["vanish", "fail"])
def test_after_a_crash_the_next_attempt_has_a_fresh_process(drive: Any, how: str) -> None:
    trials = drive()
    before = trials.run()["pid"]
    crashed = trials.launch(step=how)
    assert trials.driver.finish(crashed).status == {"vanish": -signal.SIGKILL, "fail": 0}[how]
    assert trials.starts(crashed) == [before]
    assert trials.run()["pid"] != before
    assert len(trials.calls("setup")) == 2
    assert trials.calls("cleanup") == ([before] if how == "fail" else [])


@pytest.mark.parametrize("how", ["refuse", "vanish"])
def test_an_attempt_that_is_not_taken_over_begins_afresh(drive: Any, how: str) -> None:
    trials = drive()
    before = trials.run()["pid"]
    result = trials.run(reset_config=how, environment={})
    assert result["pid"] != before and trials.calls("reset") == [before]
    assert trials.starts("t1") == [result["pid"]]
    assert trials.calls("cleanup") == ([before] if how == "refuse" else [])
    assert trials.run()["pid"] == result["pid"]


def test_a_reset_that_raises_is_the_trials_own_failure(drive: Any) -> None:
    trials = drive()
    before = trials.run()["pid"]
    failed = trials.launch(reset_config="fail")
    assert trials.driver.finish(failed).status == 0
    (error,) = trials.driver.errors(failed)
    assert (error.type, error.message) == ("ValueError", "on purpose")
    assert trials.starts(failed) == trials.calls("cleanup") == [before]
    assert trials.run()["pid"] != before


def test_a_process_that_was_killed_while_it_waited_is_not_missed(drive: Any) -> None:
    trials = drive()
    before = trials.run()["pid"]
    os.kill(before, signal.SIGKILL)
    result = trials.run()
    assert result["pid"] != before and trials.starts("t1") == [result["pid"]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_notice_to_one_that_waits_has_it_give_back_what_it_has(drive: Any, watch: Any, number: int) -> None:
    trials = drive()
    waiting = watch(trials.run()["pid"])
    os.kill(waiting.pid, number)
    assert waiting.gone(within_s=10) and trials.calls("cleanup") == [waiting.pid]
    assert trials.run()["pid"] != waiting.pid


@pytest.mark.parametrize("victim", ["keeper", "server"])
def test_engine_processes_that_die_beside_a_waiting_one_cost_a_setup(drive: Any, watch: Any, victim: str) -> None:
    trials = drive()
    waiting = watch(trials.run()["pid"])
    (server, _), (keeper, _) = trials.driver.executor.owned_processes()
    os.kill({"keeper": keeper, "server": server}[victim], signal.SIGKILL)
    assert waiting.gone(within_s=10)
    assert trials.run()["pid"] != waiting.pid


def test_a_time_limit_counts_from_the_attempts_own_start(drive: Any) -> None:
    trials = drive()
    before = trials.run(timeout_s=60)["pid"]
    late = trials.launch(reset_config="hang", timeout_s=0.3)
    exited = trials.driver.finish(late)
    assert (exited.status, exited.reason) == (-signal.SIGKILL, "timeout")
    assert trials.run()["pid"] != before


def test_an_attempt_that_is_killed_before_it_is_taken_over_is_over(drive: Any) -> None:
    trials = drive()
    trials.run()
    hanging = trials.launch(reset_config="hang")
    trials.driver.executor.kill(hanging)
    assert trials.driver.finish(hanging).reason == "killed"


def test_when_the_driver_dies_a_waiting_process_does_too(watch: Any, tmp_path: Path) -> None:
    command = [sys.executable, SCRIPTS / "driver_with_a_waiting_process.py", tmp_path]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=script_environment())
    assert driver.stdout is not None
    watched = [watch(pid) for pid in json.loads(driver.stdout.readline())]
    driver.kill()
    driver.wait()
    assert [each.gone(within_s=10) for each in watched] == [True] * 3
    driver.stdout.close()


def test_nothing_piles_up_in_a_process_that_runs_many(drive: Any) -> None:
    trials = drive()
    seen = [trials.run(step="what_it_holds")["said"] for _ in range(60)]
    assert len(trials.calls("setup")) == 1
    assert seen[5] == seen[-1]


# --- resources ---------------------------------------------------------------------------------------------------


def test_other_resources_have_a_fresh_process_and_the_old_one_makes_room(drive: Any, watch: Any) -> None:
    trials = drive(cpus=2)
    small = watch(trials.run(resources={"cpu": 1})["pid"])
    assert trials.driver.executor.can_launch({"cpu": 2})
    large = trials.run(resources={"cpu": 2})
    assert small.gone() and trials.calls("cleanup") == [small.pid]
    assert trials.run(resources={"cpu": 2})["pid"] == large["pid"]


def test_a_gpu_is_let_go_before_somebody_else_gets_it(drive: Any, watch: Any) -> None:
    trials = drive(cpus=4, gpus=2)
    whole = {"cpu": 1.0, "gpu": 1.0}
    first, second = (trials.launch(step="visible_gpus", resources=whole) for _ in range(2))
    seen = {trials.driver.first_report(trial)["said"] for trial in (first, second)}
    trials.driver.finish_all()
    waiting = [watch(pid) for pid in trials.calls("setup")]
    assert seen == {"0", "1"} and not any(each.gone() for each in waiting)
    assert trials.run(step="visible_gpus", resources=whole)["pid"] in [each.pid for each in waiting]
    both = trials.run(step="visible_gpus", resources={"cpu": 1.0, "gpu": 2.0})
    assert both["said"] == "0,1"
    assert all(each.gone() for each in waiting)


def test_leased_gpus_are_let_go_too_though_nobody_counts_them_here(drive: Any, watch: Any) -> None:
    trials = drive(cpus=8, gpus=0)
    old = watch(trials.run(environment={"CUDA_VISIBLE_DEVICES": "0,1"})["pid"])
    other = trials.run(environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert other["pid"] != old.pid and old.gone()


def test_there_are_never_more_processes_than_attempts_at_once(drive: Any, watch: Any) -> None:
    trials = drive(cpus=8)
    seen = [watch(trials.run(resources={"cpu": 1 + n})["pid"]) for n in range(3)]
    trials.driver.until(lambda: trials.calls("cleanup") == [each.pid for each in seen[:2]])
    assert not seen[2].gone()


class Impatient(LocalExecutor):
    idle_s = 0.05


def test_one_that_waits_too_long_gives_back_what_it_has(drive: Any, watch: Any) -> None:
    trials = drive(kind=Impatient)
    waiting = watch(trials.run()["pid"])
    trials.driver.until(lambda: trials.calls("cleanup") == [waiting.pid])
    trials.driver.executor.shutdown()
    assert waiting.gone()


@pytest.mark.parametrize("how", ["end_idle", "shutdown"])
def test_a_cleanup_that_hangs_is_ended_after_the_grace_time(drive: Any, watch: Any, how: str) -> None:
    trials = drive()
    waiting = watch(trials.run(cleanup="hang", grace_s=0.2)["pid"])
    getattr(trials.driver.executor, how)()
    trials.driver.executor.shutdown()
    assert waiting.gone() and trials.calls("cleanup") == [waiting.pid]


# --- all orders --------------------------------------------------------------------------------------------------

ENDS = {"ends": (True, True), "refuse": (True, True), "vanish": (False, False), "fail": (False, False)}
"""How an attempt goes: (it ends well, its process stays)."""


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(orders=st.lists(st.tuples(st.sampled_from(sorted(ENDS)), st.sampled_from([1, 2])), min_size=2, max_size=7))
def test_in_any_order_a_setup_is_called_when_no_process_can_take_it_over(
    drive: Any, orders: list[tuple[str, int]]
) -> None:
    trials = drive(cpus=2)
    trials.log.write_text("")
    waiting: int | None = None  # the resources of the process that waits
    setups = 0
    for how, cpus in orders:
        takes = waiting == cpus
        setups += not takes or how == "refuse"
        where = {"reset_config": how} if how == "refuse" else {} if how == "ends" else {"step": how}
        trial = trials.launch(resources={"cpu": cpus}, **where)
        trials.driver.finish(trial)
        well, stays = ENDS[how]
        assert len(trials.driver.reports(trial)) == (TWICE if well else 0)
        assert len(trials.starts(trial)) == 1
        assert len(trials.calls("setup")) == setups
        waiting = cpus if stays else None
    with contextlib.suppress(ProcessLookupError):
        trials.driver.executor.shutdown()
    assert len(trials.calls("cleanup")) == len(trials.calls("setup")) - sum(how == "vanish" for how, _ in orders)
