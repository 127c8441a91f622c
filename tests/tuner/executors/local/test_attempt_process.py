"""The process of one attempt: what it finds there, what it leaves, and how its exit is told."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tuner.executors.local import forkserver
from tuner.executors.local.executor import LocalExecutor

cloudpickle.register_pickle_by_value(sys.modules[__name__])


# --- environment -----------------------------------------------------------------------------------------


def shows_environment(config: Any, talk: Any) -> None:
    talk.report(**{name: os.environ.get(name) for name in config["names"]})


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


def test_allocators_are_set_as_the_user_set_them_once_everything_is_preloaded(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JE_ARROW_MALLOC_CONF", raising=False)
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "dirty_decay_ms:5")
    assert forkserver.preloading_environment(os.environ)["_RJEM_MALLOC_CONF"] == (
        "dirty_decay_ms:5,background_thread:false"
    )
    driver = local(shows_environment)
    trial = driver.launch({"names": ["JE_ARROW_MALLOC_CONF", "_RJEM_MALLOC_CONF"]})
    assert driver.first_report(trial) == {"JE_ARROW_MALLOC_CONF": None, "_RJEM_MALLOC_CONF": "dirty_decay_ms:5"}


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


# --- with the real worker ------------------------------------------------------------------------------------------


def draws(config: Any) -> None:
    import random

    import numpy
    import torch

    from trainables.session import report

    report({"python": random.random(), "numpy": float(numpy.random.random()), "torch": float(torch.rand(1))})


@pytest.mark.torch
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
