"""The directory of orders: what is taken from it, what is set aside, and who may write there."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from tuner.orders.mailbox import ANSWERS_KEPT_S, AT_ONCE, MAX_BYTES, Mailbox, OrderAnswer, OrderState

BODY = b'{"order": "stop", "trial": "0"}'


@pytest.fixture
def mailbox(tmp_path: Path) -> Mailbox:
    (tmp_path / "e").mkdir(mode=0o755)
    return Mailbox(tmp_path / "e")


def test_an_order_is_taken_with_its_bytes_until_it_is_done_with(mailbox: Mailbox) -> None:
    assert mailbox.take() == [] and not mailbox.is_open()
    mailbox.put("first-order", BODY)
    assert mailbox.is_waiting("first-order")
    assert [letter.body for letter in mailbox.take()] == [BODY]
    assert len(mailbox.take()) == 1
    mailbox.done_with("first-order")
    assert mailbox.take() == [] and not mailbox.is_waiting("first-order")
    mailbox.reply(OrderAnswer("first-order", OrderState.DONE, "there"))
    assert mailbox.answer("first-order") == OrderAnswer("first-order", OrderState.DONE, "there")
    assert mailbox.take() == []  # an answer is no order
    mailbox.put("first-order", BODY)
    assert not mailbox.is_waiting("first-order")  # it has its answer


def test_who_may_write_the_experiment_may_order(mailbox: Mailbox, tmp_path: Path) -> None:
    mailbox.put("first-order", BODY)
    assert stat.S_IMODE(mailbox.directory.stat().st_mode) == 0o700
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o775)
    shared = Mailbox(tmp_path / "shared")
    shared.put("first-order", BODY)
    assert stat.S_IMODE(shared.directory.stat().st_mode) == 0o2770


def test_a_directory_that_everybody_may_write_is_not_read(mailbox: Mailbox, caplog: pytest.LogCaptureFixture) -> None:
    mailbox.put("first-order", BODY)
    mailbox.directory.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert mailbox.take() == mailbox.take() == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # once
    mailbox.directory.chmod(0o700)
    assert len(mailbox.take()) == 1


def test_a_link_in_place_of_the_directory_is_not_followed(mailbox: Mailbox, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "some-order.json").write_bytes(BODY)
    mailbox.directory.symlink_to(tmp_path / "elsewhere")
    assert mailbox.take() == []


def test_rubbish_is_set_aside(mailbox: Mailbox, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mailbox.put("good-order", BODY)
    box = mailbox.directory
    (tmp_path / "secret").write_text("not yours")
    (box / "linked-order.json").symlink_to(tmp_path / "secret")
    os.mkfifo(box / "fifo-order.json")
    (box / "large-order.json").write_bytes(b" " * (2 * MAX_BYTES))
    (box / "directory-order.json").mkdir()
    (box / "bad name.json").write_bytes(BODY)
    (box / "notes.txt").write_bytes(BODY)
    (box / ".staged-by-somebody").write_bytes(BODY)
    with caplog.at_level(logging.WARNING):
        assert [letter.id for letter in mailbox.take()] == ["good-order"]  # nobody waits for the FIFO's other end
    assert len(caplog.records) == 6 and len(list((box / "set-aside").iterdir())) == 6
    assert {path.name for path in box.iterdir()} == {"good-order.json", "set-aside", ".staged-by-somebody"}
    assert (tmp_path / "secret").read_text() == "not yours"


def test_at_most_a_hundred_are_taken_at_once_the_oldest_first(mailbox: Mailbox) -> None:
    for number in range(AT_ONCE + 20):
        mailbox.put(f"order-{number:05d}", BODY)
        os.utime(mailbox.directory / f"order-{number:05d}.json", (1e9 - number, 1e9 - number))
    taken = [letter.id for letter in mailbox.take()]
    assert taken == [f"order-{number:05d}" for number in range(AT_ONCE + 19, 19, -1)]


def test_of_two_callers_with_one_id_one_is_first(mailbox: Mailbox) -> None:
    bodies = [BODY.replace(b'"0"', b'"%d"' % number) for number in range(8)]
    start = threading.Barrier(8)

    def put(body: bytes) -> None:
        start.wait()
        mailbox.put("same-order", body)

    callers = [threading.Thread(target=put, args=(body,)) for body in bodies]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [letter.body in bodies for letter in mailbox.take()] == [True]
    assert [path.name for path in mailbox.directory.iterdir()] == ["same-order.json"]


def test_answers_are_removed_after_a_day(mailbox: Mailbox) -> None:
    mailbox.put("first-order", BODY)
    for name in ("older-order", "newer-order"):
        mailbox.reply(OrderAnswer(name, OrderState.TAKEN))
    os.utime(mailbox.directory / "older-order.answer.json", (0, 0))
    mailbox.forget_answers(time.time())
    assert mailbox.answer("older-order") is None and mailbox.answer("newer-order") is not None
    assert mailbox.is_waiting("first-order")
    mailbox.forget_answers(time.time() + ANSWERS_KEPT_S + 1)
    assert mailbox.answer("newer-order") is None
