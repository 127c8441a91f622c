"""What is said of trials whose processes really died: by signals, by os._exit, and for want of memory."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.driver.deaths import death_of
from tuner.executors.base import Death, Exited, OutOfMemory
from tuner.executors.local.out_of_memory import memory_group
from tuner.experiment.trial import Trial
from tuner.progress.failure_text import failure_text

ROOT = Path(__file__).parents[3]
LIMIT = 400 * 1024 * 1024


def reads(address: int) -> bytes:
    return ctypes.string_at(address)


def dies(config: dict[str, Any]) -> None:
    tune.report({"loss": 1})
    if config["how"] == "reads nowhere":
        reads(0)
    print("its last words", flush=True)
    if config["how"] == "leaves":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, config["how"]))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    ways = ["SIGKILL", "reads nowhere", "SIGABRT", "leaves"]
    analysis = tune.run(
        dies,
        config={"how": tune.grid_search(ways)},
        storage_path=tmp_path_factory.mktemp("results"),
        raise_on_failed_trial=False,
        verbose=0,
    )
    return {trial.config["how"]: trial for trial in analysis.trials}


@pytest.mark.parametrize(
    ("how", "said", "file"),
    [
        ("SIGKILL", "the trial's process was killed (SIGKILL)", "stdout"),
        ("reads nowhere", "the trial's process crashed (SIGSEGV)", "stderr"),
        ("SIGABRT", "the trial's process crashed (SIGABRT)", "stderr"),
        ("leaves", "the trial's process left with status 7, as os._exit(7) does", "stdout"),
    ],
)
def test_a_death_says_what_it_was_and_which_file_has_more(
    trials: dict[str, Trial], how: str, said: str, file: str
) -> None:
    trial = trials[how]
    assert trial.error is not None and trial.error.type == "TrialProcessDiedError"
    first, *_, last = trial.error.message.splitlines()
    assert first.startswith(said)
    assert last == f"what it printed last is in {trial.path}/{file}"
    assert Path(trial.path, file).stat().st_size


def test_a_crash_has_the_stack_of_the_user_s_code(trials: dict[str, Trial]) -> None:
    error = trials["reads nowhere"].error
    assert error is not None
    lines = failure_text(error).splitlines()
    line = reads.__code__.co_firstlineno + 1
    assert lines[0] == f'  File "{__file__}", line {line}, in reads'
    assert lines[1] == "    return ctypes.string_at(address)"
    assert lines[2].strip().startswith("which called File") and "ctypes" in lines[2]
    assert "runtime/worker.py" not in error.traceback and "<string>" not in error.traceback
    assert error.traceback in Path(trials["reads nowhere"].path, "error.txt").read_text()


def test_a_kill_says_how_much_memory_there_was(trials: dict[str, Trial]) -> None:
    error = trials["SIGKILL"].error
    assert error is not None
    assert "at its peak it had " in error.message.splitlines()[1]
    assert ": out of memory" not in error.message, "it was not"


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (
            Death(2 * 10**9, OutOfMemory.KILLED, "x counts it", 3 * 10**9),
            ["(SIGKILL): out of memory", "2.0 GB"],
        ),
        (Death(5_000_000, OutOfMemory.UNKNOWN), ["(SIGKILL): perhaps out of memory", "5.0 MB"]),
        (Death(), ["(SIGKILL): perhaps out of memory"]),
        (Death(0, OutOfMemory.NOT_KILLED, "x"), ["not by the kernel", "x counts no such kill"]),
        (None, ["(SIGKILL): perhaps out of memory"]),
    ],
)
def test_what_is_known_of_memory_is_said(known: Death | None, words: list[str]) -> None:
    message = death_of(Exited("e_0", 1, -signal.SIGKILL, death=known), []).message
    assert all(word in message for word in words)


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup whose processes may have little memory."""
    own = memory_group(Path("/"))
    if own is None:
        pytest.skip("no cgroup counts kills for want of memory here")
    made = own.counter.parent / f"test-{os.getpid()}"
    limit = made / own.limit_file.name
    try:
        made.mkdir()
        limit.write_text(str(LIMIT))
    except OSError as error:
        if made.is_dir():
            made.rmdir()
        pytest.skip(f"no cgroup with a limit can be made here: {error}")
    yield made
    made.rmdir()


def test_the_kernel_s_kill_for_want_of_memory_is_told(group: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "tests/scripts/takes_all_memory.py", tmp_path, group],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "was killed (SIGKILL): out of memory" in ended.stdout, ended.stdout + ended.stderr
    assert "of 419.4 MB that its cgroup may have" in ended.stdout
    evidence = ("memory.oom_control counts it", "memory.events counts it", "the kernel's log names it")
    assert any(each in ended.stdout for each in evidence)
