"""The driver in memory, and jobs for tests: what third parties test their trainables with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.testing import MemoryLink, example_job, run_trial
from trainables.wire import Answer, Finished, Listening, Preempted, Report, SavePublished


def test_a_job_can_be_made_for_tests(tmp_path: Path) -> None:
    assert example_job(tmp_path, {"x": 1}, attempt=3).attempt == 3


def test_a_job_has_its_directory_and_its_own_copy_of_the_config(tmp_path: Path) -> None:
    config = {"x": 1}
    job = example_job(tmp_path, config, trial_id="other", directory=tmp_path / "deep" / "er")

    assert job.directory.is_dir() and job.trial_id == "other"
    assert job.config == config and job.config is not config
    with pytest.raises(TypeError, match="no_such_field"):
        example_job(tmp_path, no_such_field=1)


def test_messages_are_kept_in_their_order_and_results_are_decoded(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(config["steps"]):
            session.report({"step": (step, step)}, checkpoint=Checkpoint.from_dict({"step": step}))

    link = run_trial(train, tmp_path, config={"steps": 2}, publish="blocking")

    assert [type(message) for message in link.messages] == [Report, SavePublished, Report, SavePublished, Finished]
    assert [result["step"] for result in link.results] == [(0, 0), (1, 1)]
    assert [ref.iteration for ref in link.published] == [1, 2]
    assert link.of(Finished) == [link.end]


def test_the_end_is_asked_for_where_there_is_one_exactly() -> None:
    link = MemoryLink()
    with pytest.raises(ValueError, match="not enough values"):
        link.end  # noqa: B018
    link.send(Preempted())
    assert link.end == Preempted()
    link.send(Finished())
    with pytest.raises(ValueError, match="too many values"):
        link.end  # noqa: B018


def test_who_waits_for_a_message_or_the_journal_is_woken() -> None:
    link, woken = MemoryLink(durable=False), []

    def wait(what: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=lambda: woken.append(what()))
        thread.start()
        return thread

    message, journal = wait(lambda: link.wait_for(Finished)), wait(lambda: link.wait_durable(3))
    link.make_durable(2)
    link.make_durable(1)  # an older word takes nothing back
    assert journal.is_alive() and message.is_alive()
    link.make_durable(3)
    link.send(Finished())
    for thread in (journal, message):
        thread.join(60)
    assert len(woken) == 2
    MemoryLink().wait_durable(10**9)


def test_a_driver_that_has_vanished_fails_every_call_and_wakes_who_waits() -> None:
    link, raised = MemoryLink(durable=False), []

    def wait() -> None:
        try:
            link.wait_durable(1)
        except ConnectionError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    link.vanish()
    thread.join(60)

    assert len(raised) == 1 and link.halted()
    for call in (lambda: link.send(Finished()), lambda: link.post(Listening(1)), lambda: link.wait_durable(0)):
        with pytest.raises(ConnectionError, match="the driver is gone"):
            call()
    assert link.messages == []


def test_a_halt_is_told_to_who_watches_and_so_is_an_answer_that_says_so(tmp_path: Path) -> None:
    link, told = MemoryLink(), []
    link.watch(lambda: told.append(link.halted()))
    link.halt()
    assert told == [True]

    stopping = MemoryLink(lambda report: Answer(should_stop=report.iteration == 2))
    run_trial(lambda config: [session.report({}) for _ in range(5)], tmp_path, link=stopping)
    assert stopping.halted() and len(stopping.results) == 2
    assert stopping.end == Preempted()
