"""What SIGTERM and its relatives mean to `tuner run` before and after its run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.cli import main
from tuner.cli.notices import Notices

CONFIG = """
trainable: notified:train
name: e
storage_path: {results}
executor: inline
verbose: 0
"""
NOTIFIED = """
import signal
import tuner as tune

def train(config):
    tune.report({"n": 1})
"""


@pytest.fixture(params=[signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A notice, to which this process has a handler."""
    before = signal.signal(request.param, lambda number, frame: None)
    yield request.param
    signal.signal(request.param, before)


def test_a_notice_before_the_run_ends_the_process_in_order(number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    with pytest.raises(SystemExit) as left, Notices():
        signal.raise_signal(number)
    assert left.value.code == (129 if number == signal.SIGHUP else 143)
    assert signal.getsignal(number) is handler


def test_a_notice_after_the_run_changes_nothing(number: signal.Signals) -> None:
    with Notices() as notices:
        notices.on_experiment_end()
        signal.raise_signal(number)


def test_a_notice_while_the_results_of_a_run_are_printed_does_not_change_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    (tmp_path / "notified.py").write_text(NOTIFIED)
    (tmp_path / "e.yaml").write_text(CONFIG.format(results=tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    printed: list[str] = []

    def say(text: str, *_: object) -> None:
        signal.raise_signal(number)
        printed.append(text)

    monkeypatch.setattr("tuner.cli.output.say", say)
    assert main(["run", "e.yaml", "--json"]) == 0
    assert len(printed) == 1 and "path" in printed[0]
