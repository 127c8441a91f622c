"""The fork server: what is loaded ahead, what is not, and that a script runs once."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from driving import SCRIPTS, script_environment

import tuner as tune
from tuner.executors.local import forkserver, slots

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


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


def test_t10_pyarrow_and_pandas_are_preloaded_without_a_thread_and_work_in_a_trial(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        preloaded = "pyarrow" in sys.modules and "pandas" in sys.modules
        import pandas  # noqa: F401
        import pyarrow.compute

        talk.report(preloaded=preloaded, value=pyarrow.compute.sum(pyarrow.array(range(100_000))).as_py())

    driver = local(trainable)
    trial = driver.launch()
    assert driver.first_report(trial) == {"preloaded": True, "value": 4_999_950_000}
    server, keeper = (pid for pid, _ in driver.executor.owned_processes())
    assert (threads_of(server), threads_of(keeper)) == (1, 1)
    driver.finish(trial)


@pytest.mark.parametrize(("noticeable_s", "level"), [(1000.0, logging.INFO), (0.0, logging.WARNING)])
def test_t10_a_module_that_starts_a_thread_is_not_preloaded_and_named_once(
    local: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    noticeable_s: float,
    level: int,
) -> None:
    (tmp_path / "starts_threads.py").write_text(
        "import threading\n"
        "thread = threading.Thread(target=threading.Event().wait, name='watcher', daemon=True)\n"
        "thread.start()\n"
    )
    (tmp_path / "starts_none.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(slots, "_NOTICEABLE_S", noticeable_s)
    caplog.set_level(logging.INFO)

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
    (named,) = [record for record in caplog.records if "starts_threads" in record.getMessage()]
    assert named.levelno == level  # by what it costs each trial
    assert re.match(
        r"Trials import starts_threads themselves, because importing it started a thread \(watcher\)\. "
        r"This takes each trial about \d+\.\d s\. ",
        named.getMessage(),
    )


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("thread = threading.Thread(target=int)\nthread.start()\nthread.join()", id="joined"),
        pytest.param(
            "thread = threading.Thread(target=threading.Event().wait, daemon=True)\nthread.start()\n"
            "with open(f'/proc/self/task/{thread.native_id}/comm', 'w') as file:\n    file.write('jemalloc_bg_thd')",
            id="jemalloc",
        ),
    ],
)
def test_a_module_whose_thread_does_not_matter_to_a_fork_is_preloaded(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    (tmp_path / "has_a_thread.py").write_text(f"import threading\n{code}\n")
    monkeypatch.syspath_prepend(tmp_path)

    def trainable(config: Any, talk: Any) -> None:
        before = "has_a_thread" in sys.modules
        import has_a_thread  # type: ignore[import-not-found]  # noqa: F401

        talk.report(before=before)

    driver = local(trainable)
    trial = driver.launch()
    assert driver.first_report(trial) == {"before": True}
    driver.finish(trial)


def test_an_import_that_trials_repeat_is_a_line_of_driver_log_and_not_of_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ticks.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, name='ticker', daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(slots, "_NOTICEABLE_S", 1000.0)

    def train(config: Any) -> None:
        import ticks  # type: ignore[import-not-found]  # noqa: F401

        tune.report({"x": 1})

    tune.run(train, name="ticking", storage_path=str(tmp_path))
    (line,) = (tmp_path / "ticking" / "driver.log").read_text().splitlines()
    assert " INFO Trials import ticks themselves, because importing it started a thread (ticker). " in line
    shown = capfd.readouterr()
    assert "ticker" not in shown.out + shown.err


# --- the table of docs/performance.md: libraries that start no thread while they are preloaded ---------------

LIBRARIES = (
    "numpy",
    "scipy.linalg",
    "pyarrow.dataset",
    "pandas",
    "sklearn.metrics",
    "numba",
    "numexpr",
    "h5py",
    "matplotlib.pyplot",
    "lightgbm",
    "xgboost",
    "cv2",
    "grpc",
    "duckdb",
    "torch",
    "transformers",
    "datasets",
    "jax.numpy",
    "tensorflow",
    "optuna",
)
IMPORT_ALL = """
import importlib, importlib.util, sys
from tuner.executors.local.preload import check
for library in sys.argv[1:]:
    if importlib.util.find_spec(library.partition(".")[0]) is not None:
        importlib.import_module(library)
        check(library)
        print(library)
"""


@pytest.mark.torch
def test_libraries_start_no_thread_while_they_are_preloaded() -> None:
    environment = {**os.environ, **forkserver.preloading_environment(os.environ)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *LIBRARIES], env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert {"numpy", "pandas", "sklearn.metrics", "torch"} < set(done.stdout.split())


class StartsAThreadWhenLoaded:
    def __reduce__(self) -> Any:
        return _start_thread, ()


def _start_thread() -> str:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return "loaded"


def test_t10_a_trainable_that_starts_a_thread_when_unpickled_is_left_to_the_trials(
    local: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    captured = StartsAThreadWhenLoaded()

    def trainable(config: Any, talk: Any) -> None:
        talk.report(value=captured, threads=threads_of(os.getpid()))

    driver = local(trainable)
    assert driver.first_report(driver.launch()) == {"value": "loaded", "threads": 2}
    assert threads_of(driver.executor.owned_processes()[0][0]) == 1
    assert "Trials import the trainable themselves, because importing it started a thread" in caplog.text


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


@pytest.mark.parametrize("how", ["script", "-c", "stdin"])
def test_scripts_without_a_guard_run_once(tmp_path: Path, how: str) -> None:
    script = SCRIPTS / "without_a_guard.py"
    text = script.read_text()
    begun = {"script": [script], "-c": ["-c", text], "stdin": ["-"]}[how]
    done = subprocess.run(
        [sys.executable, *begun, tmp_path, "a"],
        input=text if how == "stdin" else None,
        env=script_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "the script runs",
        "[[{'x': 0, 'argv': ['a']}], [{'x': 1, 'argv': ['a']}], [{'x': 2, 'argv': ['a']}]]",
    ]


@pytest.mark.parametrize("how", ["guarded", "unguarded", "-c", "stdin", "-m"])
def test_processes_that_a_trial_starts_find_the_names_of_the_script(tmp_path: Path, how: str) -> None:
    script = SCRIPTS / "pools.py"
    text = script.read_text()
    begun = {"-c": ["-c", text], "stdin": ["-"], "-m": ["-m", "pools"]}.get(how, [script])
    done = subprocess.run(
        [sys.executable, *begun, tmp_path, *(["unguarded"] if how == "unguarded" else [])],
        input=text if how == "stdin" else None,
        cwd=SCRIPTS,
        env=script_environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.stdout, done.stderr) == (f"{[(14, 36, how in ('guarded', '-m'))] * 2}\n", "")
