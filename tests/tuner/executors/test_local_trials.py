"""What a trial finds in its process, and how it got there."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from driving import StandInExecutor

from trainables.wire import Answer, Finished, SavePublished
from tuner.error import SerializationError, TuneError
from tuner.executors.base import Message
from tuner.executors.local.executor import LocalExecutor
from tuner.executors.local.forkserver import NUMBER

cloudpickle.register_pickle_by_value(sys.modules[__name__])

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_an_attempt_is_started_then_speaks_then_exits(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        talk.report(value=config["x"] + 1)

    driver = local(trainable)
    trial = driver.launch({"x": 1})
    assert driver.finish(trial).status == 0
    kinds = [type(e.body).__name__ if isinstance(e, Message) else type(e).__name__ for e in driver.events]
    assert kinds == ["Started", "Report", "Finished", "Exited"]
    assert driver.reports(trial) == [{"value": 2}]


def test_everything_said_arrives_in_order_before_the_exit(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        for index in range(2000):
            talk.published(index)
        os.abort()

    driver = local(trainable)
    trial = driver.launch()
    assert driver.finish(trial).status == -signal.SIGABRT
    said = [e.body.ref.index for e in driver.events if isinstance(e, Message) and isinstance(e.body, SavePublished)]
    assert said == list(range(2000))


def test_what_was_said_on_the_side_comes_before_the_last_word(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        talk.published(1)

    driver = local(trainable)
    for _ in range(20):
        driver.launch()
        driver.finish_all()
    kinds = [type(e.body) for e in driver.events if isinstance(e, Message)]
    assert kinds == [SavePublished, Finished] * 20


def test_configs_and_reports_larger_than_any_buffer_get_through(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        talk.report(echo=config["big"])

    driver = local(trainable)
    big = "x" * 3_000_000
    trial = driver.launch({"big": big})
    driver.finish(trial)
    assert driver.reports(trial)[0]["echo"] == big


def test_slots_are_used_at_once_and_again(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        talk.report(keeper=os.getppid())

    driver = local(trainable, cpus=2)
    for _ in range(6):
        driver.launch()
    driver.finish_all()
    keepers = {driver.reports(f"t{i}")[0]["keeper"] for i in range(6)}
    assert len(keepers) <= 2
    assert len(driver.executor.owned_processes()) == 1 + len(keepers)


def test_two_fractions_share_one_core(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        talk.report()

    driver = local(trainable, cpus=1)
    driver.launch(resources={"cpu": 0.5})
    assert driver.executor.can_launch({"cpu": 0.5})
    driver.launch(resources={"cpu": 0.5})
    assert not driver.executor.can_launch({"cpu": 0.5})
    driver.finish_all()


# --- environment -----------------------------------------------------------------------------------------


def shows_environment(config: Any, talk: Any) -> None:
    talk.report(**{name: os.environ.get(name) for name in config["names"]})


def test_gpus_are_assigned_whole_and_shared(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def trainable(config: Any, talk: Any) -> None:
        talk.report(gpus=os.environ.get("CUDA_VISIBLE_DEVICES"))
        if config.get("stay"):
            signal.pause()

    driver = local(trainable, cpus=8, gpus=3)
    asked = [0.5, 0.5, 1, 0.3, 0.3]
    trials = [driver.launch({"stay": True}, resources={"cpu": 1, "gpu": gpu}) for gpu in asked]
    assert [driver.first_report(t)["gpus"] for t in trials] == ["0", "0", "1", "2", "2"]
    assert not driver.executor.can_launch({"gpu": 0.5})
    assert driver.executor.can_launch({"gpu": 0.4})
    without = driver.launch({}, resources={"cpu": 1})
    assert driver.first_report(without)["gpus"] == "", "a trial that asked for none sees none"
    for trial in trials[:2]:
        driver.executor.kill(trial)
        driver.finish(trial)
    again = driver.launch({}, resources={"gpu": 1})
    assert driver.first_report(again)["gpus"] == "0"


def test_gpu_ids_are_those_the_driver_was_given(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc")
    driver = local(shows_environment)
    assert driver.executor.total()["gpu"] == 2
    trial = driver.launch({"names": ["CUDA_VISIBLE_DEVICES"]}, resources={"gpu": 2})
    assert driver.first_report(trial) == {"CUDA_VISIBLE_DEVICES": "5,GPU-abc"}


def test_thread_limits_are_the_trials_cpus_unless_the_user_set_them(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    driver = local(shows_environment, cpus=3)
    trial = driver.launch(
        {"names": ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "MINE"]}, resources={"cpu": 3}, environment={"MINE": "x"}
    )
    assert driver.first_report(trial) == {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "7", "MINE": "x"}


@pytest.mark.torch
def test_libraries_that_were_loaded_under_the_limit_get_the_trials_threads(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def trainable(config: Any, talk: Any) -> None:
        import numpy
        import torch
        from threadpoolctl import threadpool_info

        pools = {pool["user_api"]: pool["num_threads"] for pool in threadpool_info()}
        talk.report(torch=torch.get_num_threads(), blas=pools["blas"], sum=float(numpy.ones(3).sum()))

    driver = local(trainable, cpus=2)
    trial = driver.launch(resources={"cpu": 2})
    assert driver.first_report(trial) == {"torch": 2, "blas": 2, "sum": 3.0}


# --- the fork server ---------------------------------------------------------------------------------------


@pytest.mark.torch
def test_t10_the_server_has_one_thread_after_preloading_numpy_and_torch(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        preloaded = "torch" in sys.modules and "numpy" in sys.modules
        import numpy  # noqa: F401
        import torch

        talk.report(preloaded=preloaded, server=config.get("x"), value=float(torch.ones(2).sum()))

    driver = local(trainable)
    trial = driver.launch()
    assert driver.first_report(trial) == {"preloaded": True, "server": None, "value": 2.0}
    server, keeper = (pid for pid, _ in driver.executor.owned_processes())
    assert (threads_of(server), threads_of(keeper)) == (1, 1)
    driver.finish(trial)


def test_t10_a_module_that_starts_a_thread_is_not_preloaded_and_named_once(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "starts_threads.py").write_text(
        "import threading\nthread = threading.Thread(target=threading.Event().wait, daemon=True)\nthread.start()\n"
    )
    (tmp_path / "starts_none.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def trainable(config: Any, talk: Any) -> None:
        before = [name in sys.modules for name in ("starts_none", "starts_threads")]
        import starts_none  # type: ignore[import-not-found]  # noqa: F401
        import starts_threads  # type: ignore[import-not-found]

        talk.report(before=before, alive=starts_threads.thread.is_alive())

    driver = local(trainable)
    for _ in range(2):
        trial = driver.launch()
        assert driver.first_report(trial) == {"before": [True, False], "alive": True}
    assert threads_of(driver.executor.owned_processes()[0][0]) == 1
    driver.finish_all()
    named = [record.getMessage() for record in caplog.records if "starts_threads" in record.getMessage()]
    assert len(named) == 1 and "1 more thread" in named[0]


class StartsAThreadWhenLoaded:
    def __reduce__(self) -> Any:
        return _start_thread, ()


def _start_thread() -> str:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return "loaded"


def test_t10_a_trainable_that_starts_a_thread_when_unpickled_is_left_to_the_trials(
    local: Any, caplog: pytest.LogCaptureFixture
) -> None:
    captured = StartsAThreadWhenLoaded()

    def trainable(config: Any, talk: Any) -> None:
        talk.report(value=captured, threads=threads_of(os.getpid()))

    driver = local(trainable)
    assert driver.first_report(driver.launch()) == {"value": "loaded", "threads": 2}
    assert threads_of(driver.executor.owned_processes()[0][0]) == 1
    assert "the trainable is not loaded ahead" in caplog.text


def test_a_module_that_cannot_be_imported_fails_the_trial_and_not_the_server(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text("import sys\nsys.exit('not today')\n")
    monkeypatch.syspath_prepend(tmp_path)

    def trainable(config: Any, talk: Any) -> None:
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401

    def other(config: Any, talk: Any) -> None:
        import broken_module  # type: ignore[import-not-found]  # noqa: F401

    driver = local(trainable)
    trial = driver.launch()
    driver.finish(trial)
    assert driver.errors(trial)[0].type == "ModuleNotFoundError"
    driver = local(other)
    assert driver.finish(driver.launch()).status == 1


def test_a_module_that_kills_the_server_costs_only_the_preloading(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kills.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def trainable(config: Any, talk: Any) -> None:
        talk.report(value=1)
        if config.get("dare"):
            import kills  # type: ignore[import-not-found]  # noqa: F401

    driver = local(trainable)
    trial = driver.launch()
    assert driver.first_report(trial) == {"value": 1}
    assert driver.finish(trial).status == 0
    assert "exited with status 3" in caplog.text


def test_a_server_that_never_starts_is_an_error_that_says_so(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_worker.py").write_text("import os\nos._exit(4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(StandInExecutor, "worker", "bad_worker")
    driver = local(shows_environment)
    driver.launch()
    with pytest.raises(TuneError, match="does not start: it exited with status 4"):
        driver.finish_all()


# --- shipping ------------------------------------------------------------------------------------------------


def test_a_large_captured_object_is_stored_once(local: Any, tmp_path: Path) -> None:
    large = os.urandom(5_000_000)

    def trainable(config: Any, talk: Any) -> None:
        talk.report(size=len(large))

    driver = local(trainable)
    trials = [driver.launch() for _ in range(4)]
    driver.finish_all()
    assert [driver.reports(t) for t in trials] == [[{"size": 5_000_000}]] * 4
    stored = [p.stat().st_size for p in (tmp_path / "temporary").iterdir()]
    assert len(stored) == 1 and stored[0] < 5_100_000
    driver.executor.shutdown()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_configs_may_hold_lambdas_and_local_classes(local: Any) -> None:
    class Local:
        value = 3

    def trainable(config: Any, talk: Any) -> None:
        talk.report(value=config["f"](config["object"].value))

    driver = local(trainable)
    assert driver.first_report(driver.launch({"f": lambda x: x * 2, "object": Local()})) == {"value": 6}


def _closure(variable: Any) -> Any:
    def trainable(config: Any, talk: Any) -> None:
        talk.report(x=str(variable))

    return trainable


UNSENDABLE = threading.Lock()


def uses_global(config: Any, talk: Any) -> None:
    talk.report(x=str(UNSENDABLE))


@pytest.mark.parametrize(
    ("trainable", "named"),
    [
        (_closure(UNSENDABLE), "closure variable 'variable' of _closure.<locals>.trainable"),
        (_closure({"a": [1, UNSENDABLE]}), "element 1 of a list"),
        (uses_global, "global variable 'UNSENDABLE' of uses_global"),
    ],
)
def test_a_trainable_that_cannot_be_sent_names_the_variable(tmp_path: Path, trainable: Any, named: str) -> None:
    with pytest.raises(SerializationError, match=named.replace("(", r"\(")):
        StandInExecutor(cpus=1).start(trainable, temporary=tmp_path)
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import os, pickle, sys
sys.path[:0] = [{here!r}, {root!r}]
from pathlib import Path
from driving import Driver, StandInExecutor

print("the script runs")

class Model:
    def __init__(self, x):
        self.x = x

def helper(x):
    return Model(x)

executor = StandInExecutor(cpus=2)
executor.start(
    lambda config, talk: talk.report(x=pickle.loads(pickle.dumps(helper(config["x"]))).x, argv=sys.argv[1:]),
    temporary=Path({tmp!r}),
)
driver = Driver(executor, {tmp!r})
trials = [driver.launch({{"x": x}}) for x in range(3)]
driver.finish_all()
print([driver.reports(t) for t in trials])
executor.shutdown()
"""


@pytest.mark.parametrize("how", ["script", "-c", "stdin"])
def test_scripts_without_a_guard_run_once(tmp_path: Path, how: str) -> None:
    text = SCRIPT.format(here=str(HERE), root=str(ROOT), tmp=str(tmp_path))
    (tmp_path / "script.py").write_text(text)
    arguments = {"script": [str(tmp_path / "script.py"), "a"], "-c": ["-c", text, "a"], "stdin": ["-", "a"]}[how]
    done = subprocess.run(
        [sys.executable, *arguments], input=text if how == "stdin" else None, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "the script runs",
        "[[{'x': 0, 'argv': ['a']}], [{'x': 1, 'argv': ['a']}], [{'x': 2, 'argv': ['a']}]]",
    ]


# --- output ----------------------------------------------------------------------------------------------------


def talks(config: Any, talk: Any) -> None:
    print("to stdout", config.get("n"))
    print("to stderr", file=sys.stderr)
    os.write(1, b"by write(2)\n")
    subprocess.run(["echo", "by a child"], check=True)


def test_output_is_appended_to_files(local: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    driver = local(talks)
    for n in range(2):
        driver.launch({"n": n}, stdout=tmp_path / "stdout", stderr=tmp_path / "stderr")
        driver.finish_all()
    expected = ["to stdout 0", "by write(2)", "by a child", "to stdout 1", "by write(2)", "by a child"]
    assert (tmp_path / "stdout").read_text().splitlines() == expected
    assert (tmp_path / "stderr").read_text() == "to stderr\n" * 2
    assert capfd.readouterr() == ("", "")


def test_output_goes_to_the_terminal_as_well_on_request(
    local: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = local(talks)
    driver.launch({"n": 1}, stdout=tmp_path / "stdout", stderr=tmp_path / "stderr", tee=True)
    driver.finish_all()
    out = "to stdout 1\nby write(2)\nby a child\n"
    assert (tmp_path / "stdout").read_text() == out
    assert (tmp_path / "stderr").read_text() == "to stderr\n"
    assert capsys.readouterr() == (out, "to stderr\n")


def test_a_crash_in_c_leaves_a_line_of_python_in_the_trials_own_file(local: Any, tmp_path: Path) -> None:
    def trainable(config: Any, talk: Any) -> None:
        import ctypes

        ctypes.string_at(0)

    driver = local(trainable)
    trial = driver.launch(stdout=tmp_path / "stdout", stderr=tmp_path / "stderr")
    assert driver.finish(trial).status == -signal.SIGSEGV
    assert "Segmentation fault" in (tmp_path / "stderr").read_text()


def test_the_trials_own_exit_handlers_run_and_inherited_ones_do_not(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "with_handler.py").write_text("import atexit\natexit.register(print, 'inherited')\n")
    monkeypatch.syspath_prepend(tmp_path)

    def trainable(config: Any, talk: Any) -> None:
        import with_handler  # type: ignore[import-not-found]  # noqa: F401

        atexit.register(print, "own")

    driver = local(trainable)
    driver.launch(stdout=tmp_path / "stdout", stderr=tmp_path / "stderr")
    driver.finish_all()
    assert (tmp_path / "stdout").read_text() == "own\n"


def test_an_exit_status_is_passed_on(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        sys.exit(7)

    driver = local(trainable)
    assert driver.finish(driver.launch()).status == 7


# --- waking ------------------------------------------------------------------------------------------------------


def test_wake_ends_run_once_from_a_thread_and_from_a_signal_handler(local: Any) -> None:
    driver = local(shows_environment)
    thread = threading.Thread(target=driver.executor.wake)
    thread.start()
    thread.join()
    driver.executor.run_once(driver.dispatch, None)
    before = signal.signal(signal.SIGALRM, lambda *_: driver.executor.wake())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    driver.executor.run_once(driver.dispatch, None)
    while not driver.executor._slots.server.ready:  # the server's word may have come first
        driver.executor.run_once(driver.dispatch, None)
    signal.signal(signal.SIGALRM, before)


# --- with the real worker ------------------------------------------------------------------------------------------


def draws(config: Any) -> None:
    import random

    import numpy
    import torch

    from trainables.session import report

    report({"python": random.random(), "numpy": float(numpy.random.random()), "torch": float(torch.rand(1))})


@pytest.mark.torch
class HandlerError(OSError):
    """What a handler of the user's raises; TimeoutError is an OSError too."""


@pytest.mark.parametrize("when", ["a launch", "an answer", "a kill"])
def test_f37_an_error_that_the_users_signal_handler_raises_gets_out(
    local: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The signal comes in the very moment when the executor writes to its processes."""

    def trainable(config: Any, talk: Any) -> None:
        while True:
            talk.report(value=1)

    def alarm(*_: Any) -> None:
        raise HandlerError("the user's")

    def then(real: Any) -> Any:
        def disturbed(end: Any, data: Any, *more: Any) -> Any:
            if data != [fork_one]:
                signal.raise_signal(signal.SIGALRM)
            return real(end, data, *more)

        return disturbed

    fork_one = NUMBER.pack(b"K", 1, 0)  # goes to the server before the launch itself goes to a keeper
    before = signal.signal(signal.SIGALRM, alarm)
    driver = local(trainable)
    try:
        if when == "a launch":
            with monkeypatch.context() as patch, pytest.raises(HandlerError):
                patch.setattr(socket, "send_fds", then(socket.send_fds))
                driver.launch()
            return
        trial = driver.launch()
        driver.first_report(trial)
        with monkeypatch.context() as patch, pytest.raises(HandlerError):
            patch.setattr(socket.socket, "send", then(socket.socket.send))
            if when == "an answer":
                driver.executor.tell(trial, Answer())
            else:
                driver.executor.kill(trial)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_t16_forked_trials_do_not_share_random_state(local: Any) -> None:
    def run(seed: int) -> list[dict[str, float]]:
        driver = local(draws, kind=LocalExecutor)
        trials = [driver.launch(seed=seed) for _ in range(2)]
        exits = driver.finish_all()
        assert [e.status for e in exits] == [0, 0], driver.events
        keys = ("python", "numpy", "torch")
        return [{key: driver.reports(trial)[0][key] for key in keys} for trial in trials]

    first, second = run(seed=1)
    assert all(first[key] != second[key] for key in first)
    assert run(seed=1) == [first, second]
    assert run(seed=2)[0] != first


def test_d18_a_trial_killed_in_the_middle_of_a_save_leaves_no_checkpoint(local: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "saving")

    def trainable(config: Any) -> None:
        from trainables.session import checkpoint_dir

        with checkpoint_dir(step=1) as directory:
            (Path(directory) / "half").write_text("half")
            with open(config["fifo"], "w") as fifo:
                fifo.write("now")
            signal.pause()

    driver = local(trainable, kind=LocalExecutor)
    trial = driver.launch({"fifo": str(tmp_path / "saving")})
    with open(tmp_path / "saving") as fifo:
        assert fifo.read() == "now"
    driver.executor.kill(trial)
    assert driver.finish(trial).reason == "killed"
    visible = [p.name for p in (tmp_path / trial).iterdir() if not p.name.startswith(".")]
    assert visible == []


def test_the_real_worker_runs_a_function_and_a_class_of_the_script(local: Any) -> None:
    from trainables.trainable import Trainable

    def function(config: Any) -> None:
        from trainables.session import report

        for i in range(3):
            report({"loss": config["lr"] / (i + 1)})

    class Class(Trainable):
        def setup(self, config: Any) -> None:
            self.lr = config["lr"]

        def step(self) -> Any:
            return {"loss": self.lr / (self.iteration + 1), "done": self.iteration == 2}

    for trainable in (function, Class):
        driver = local(trainable, kind=LocalExecutor)
        trial = driver.launch({"lr": 1.0})
        assert driver.finish(trial).status == 0
        assert [round(r["loss"], 3) for r in driver.reports(trial)] == [1.0, 0.5, 0.333], driver.events
