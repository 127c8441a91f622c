"""The thread: a tracker that is down or slow holds up nobody and loses nothing."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from tests.tuner.tracking.recording import RecordingTracker, steps
from tests.tuner.tracking.test_delivery import Life
from tuner.tracking.delivery import Delivery
from tuner.tracking.due import About, Due
from tuner.tracking.sender import Sender
from tuner.tracking.tracker import OpenRun, RunEnding, TrackedRun


def due_of(life: Life, covered: int, ending: RunEnding | None = None) -> Due:
    return Due(About("id", "trial", life.directory, {}, {}), covered=covered, ending=ending)


def test_a_tracker_that_is_down_gets_everything_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path)
    tracker = RecordingTracker(life.place)
    tracker.down = True
    tried = threading.Event()

    class Tried(Delivery):
        def deliver(self, due: Due) -> bool:
            try:
                return super().deliver(due)
            finally:
                tried.set()

    sender = Sender("recording", lambda: Tried(tracker, hold_back=True))
    for number in range(1, 4):
        life.report()
        sender.tell(due_of(life, number))
    assert tried.wait(10)
    assert sender.pending() == ["id"]
    tracker.down = False
    sender.tell(due_of(life, 3, RunEnding.FINISHED))
    sender.drain(20, "")
    assert steps(life.place / "id.jsonl") == [1, 2, 3]
    assert not sender.pending()
    assert [record.message for record in caplog.records if "cannot be reached" in record.message] == [
        "recording cannot be reached, or refuses: ConnectionError: no route to the tracker; the run goes on, "
        "and it is tried again"
    ]


def test_one_that_hangs_is_waited_for_so_long_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(tmp_path)
    released = threading.Event()

    class Hanging(RecordingTracker):
        def open(self, run: TrackedRun) -> OpenRun:
            released.wait(1000)
            return super().open(run)

    sender = Sender("recording", lambda: Delivery(Hanging(life.place), hold_back=True))
    life.report()
    for _ in range(1000):
        sender.tell(due_of(life, 1))  # and waits for nothing
    caplog.set_level(logging.WARNING)
    sender.drain(0.1, 'resume="AUTO"')
    assert caplog.messages == [
        'recording did not get everything: something of 1 trial is due; a resume of this experiment (resume="AUTO") '
        "sends it"
    ]
    assert sender.pending() == ["id"]
    released.set()


def test_a_result_whose_row_comes_later_is_sent_then(tmp_path: Path) -> None:
    life = Life(tmp_path)
    sender = Sender("recording", lambda: Delivery(RecordingTracker(life.place), hold_back=True))
    sender.tell(due_of(life, 1, RunEnding.FINISHED))
    life.report()
    sender.drain(20, "")
    assert steps(life.place / "id.jsonl") == [1]


def test_an_adapter_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    life = Life(tmp_path)
    made: list[int] = []

    def make() -> Delivery:
        made.append(1)
        if len(made) == 1:
            raise ConnectionError("not yet")
        return Delivery(RecordingTracker(life.place), hold_back=True)

    sender = Sender("recording", make)
    life.report()
    sender.tell(due_of(life, 1))
    sender.drain(20, "")
    assert steps(life.place / "id.jsonl") == [1]
