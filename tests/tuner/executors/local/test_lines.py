"""The driver's ends of a trial's sockets and output pipes: all arrives, in order, and nothing blocks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from trainables.wire import Finished, SavePublished
from tuner.executors.base import Message

cloudpickle.register_pickle_by_value(sys.modules[__name__])


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


# --- output ----------------------------------------------------------------------------------------------------


def talks(config: Any, talk: Any) -> None:
    print("to stdout", config.get("n"))
    print("to stderr", file=sys.stderr)
    os.write(1, b"by write(2)\n")
    subprocess.run(["echo", "by a child"], check=True)


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
