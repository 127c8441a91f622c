"""The driver's ends of a trial's sockets and output pipes: all arrives, in order, and nothing blocks."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.wire import Finished, SavePublished
from tuner.executors.base import Message
from tuner.executors.local.lines import OutputPipe, TrialSocket, terminal
from tuner.executors.reactor import Reactor

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


def test_what_another_thread_may_say_comes_before_the_last_word(local: Any) -> None:
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


# --- sockets and pipes by themselves -------------------------------------------------------------------------------


class Ends:
    """Our end of a socket, and the trial's."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.reactor = Reactor()
        self.line = TrialSocket(ours, self.reactor, lambda events: None)

    def turn(self) -> None:
        self.reactor.wait(0.0, [])

    def read_all(self) -> bytes:
        """Everything that arrives until nothing more does."""
        self.theirs.setblocking(False)
        read = bytearray()
        while True:
            self.turn()
            try:
                data = self.theirs.recv(1 << 20)
            except BlockingIOError:
                return bytes(read)
            if not data:
                return bytes(read)
            read += data


@given(st.lists(st.integers(0, 400_000), max_size=8))
def test_what_is_sent_arrives_whole_and_in_order_however_much_it_is(sizes: list[int]) -> None:
    ends = Ends()
    sent = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    for data in sent:
        ends.line.send(data)  # nobody reads yet, and it does not block
    assert ends.read_all() == b"".join(sent)
    ends.line.send(b"again")
    assert ends.read_all() == b"again"
    ends.line.close()
    ends.theirs.close()


@pytest.mark.parametrize("full", [False, True])
def test_an_end_that_is_gone_is_no_error(full: bool) -> None:
    ends = Ends()
    if full:
        ends.line.send(bytes(10_000_000))
    ends.theirs.close()
    ends.line.send(b"nobody hears this")
    for _ in range(3):
        ends.turn()
    assert ends.line.read() == b""
    ends.line.close()


def test_reading_never_blocks_and_what_is_left_can_be_read_after_it_is_not_waited_for() -> None:
    ends = Ends()
    assert ends.line.read() is None
    ends.theirs.send(b"word")
    ends.line.hush()
    assert ends.line.read() == b"word"
    ends.theirs.close()
    assert ends.line.read() == b""
    ends.line.close()


class Shown:
    """A terminal; closed, it does not take anything."""

    def __init__(self) -> None:
        self.text, self.closed = "", False

    def write(self, text: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        self.text += text

    def flush(self) -> None:
        pass


def test_output_goes_to_its_file_and_is_shown_also_where_it_is_no_text(tmp_path: Path) -> None:
    shown, reactor = Shown(), Reactor()
    (tmp_path / "log").write_bytes(b"before ")
    output = OutputPipe(tmp_path / "log", shown, reactor)
    os.write(output.pipe, b"a\xffb")
    reactor.wait(1.0, [])
    assert (tmp_path / "log").read_bytes() == b"before a\xffb" and shown.text == "a\ufffdb"
    shown.closed = True
    os.write(output.pipe, b"more")
    assert output.pump() and not output.pump()
    assert (tmp_path / "log").read_bytes().endswith(b"bmore"), "a terminal that is gone does not stop the file"
    output.close()


def test_a_file_that_takes_nothing_does_not_keep_output_from_being_shown() -> None:
    shown, reactor = Shown(), Reactor()
    output = OutputPipe(Path("/dev/full"), shown, reactor)
    os.write(output.pipe, b"said")
    assert output.pump()
    assert shown.text == "said"
    output.close_pipe()
    output.close_pipe()  # once more is no error
    assert not output.pump(), "all of it was read"
    output.close()


def test_the_directory_of_an_output_file_is_made(tmp_path: Path) -> None:
    output = OutputPipe(tmp_path / "a" / "b" / "log", None, Reactor())
    os.write(output.pipe, b"x")
    output.pump()
    output.close()
    assert (tmp_path / "a" / "b" / "log").read_text() == "x"


def test_the_terminal_is_the_stream_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = io.StringIO()
    monkeypatch.setattr(sys, "stdout", mine)
    assert terminal("stdout") is mine and terminal("stderr") is sys.stderr
