"""How Python ends after a Ctrl-C that nobody caught: as of one, but a prompt stays."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from trainables.user_frames import last_said
from tuner.driver.endings import HaltCause
from tuner.driver.interruption import stopping

CODE = """
from pathlib import Path
from tuner.analysis import ExperimentAnalysis
from tuner.driver.interruption import interrupted
raise interrupted(
    ExperimentAnalysis("/somewhere/e", trials=[], metric=None, mode=None, settings={}),
    how='the same call with name="e" and resume="AUTO"',
)
"""

STARTS = """
import signal, sys
import tuner as tune

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "tuner.driver.build":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
try:
    tune.run(lambda config: None, num_samples=-5)
except KeyboardInterrupt:
    if sys.argv[1] == "goes on":
        tune.run(lambda config: None, num_samples=-5)
    raise
"""


def ended(*flags: str) -> subprocess.CompletedProcess[str]:
    said = "print('still', 'here')\n"
    return subprocess.run([sys.executable, *flags, "-c", CODE], input=said, capture_output=True, text=True, timeout=60)


def test_a_script_ends_of_the_signal_with_three_lines() -> None:
    done = ended()
    assert done.returncode == -signal.SIGINT
    assert len(done.stderr.splitlines()) == 3 and done.stderr.startswith("stopped by Ctrl-C: 0 of 0 trials")


def test_a_script_that_has_not_begun_ends_with_the_line_of_its_call() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS, "ends"], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGINT
    first, call, last = done.stderr.splitlines()
    assert call == '  File "<string>", line 13, in <module>' and last == "KeyboardInterrupt"


def test_who_catches_that_can_call_again() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS, "goes on"], capture_output=True, text=True, timeout=60)
    assert "num_samples=-5" in last_said(done.stderr)


def test_a_prompt_stays() -> None:
    done = ended("-i")
    assert done.returncode == 0 and "still here" in done.stdout
    assert "stopped by Ctrl-C" in done.stderr and "Traceback" not in done.stderr


def test_what_is_said_at_once() -> None:
    assert stopping(HaltCause.INTERRUPTED, 1, 5.0).startswith("stopping: 1 trial saves what it can (at most 5 s")
    for cause in (HaltCause.PREEMPTED, HaltCause.HUNG_UP):
        assert "at most 30 s, TUNE_GRACE_S" in stopping(cause, 2, 30.0)
    assert stopping(HaltCause.INTERRUPTED, 1, 5.0, inline=True).startswith(
        "stopping at the trial's next report; Ctrl-C"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_is_said_while_the_step_of_an_inline_trial_goes_on(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def long_step(config: dict[str, Any]) -> None:
        tune.report({"loss": 1})
        signal.raise_signal(number)
        said.append(capsys.readouterr().out)  # the step goes on
        tune.report({"loss": 2})
        tune.report({"loss": 3})

    with pytest.raises((tune.Interrupted, SystemExit)):
        tune.run(long_step, storage_path=tmp_path, executor="inline", metric="loss")
    assert "at the trial's next report" in said[0]
    assert "at the trial's next report" not in capsys.readouterr().out, "it is said once"
