"""The fork server: what is loaded ahead, what is not, and that a script runs once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from driving import SCRIPTS, script_environment

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
