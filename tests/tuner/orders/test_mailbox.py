"""The directory of orders: what is taken from it, what is set aside, and who may write there."""

from __future__ import annotations

import logging
import os
import resource
import socket
import stat
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tuner.error import OrderError
from tuner.orders.mailbox import ANSWERS_KEPT_S, AT_ONCE, MAX_BYTES, Mailbox, OrderAnswer, OrderState, _read

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


def test_of_callers_with_one_id_one_is_first(tmp_path: Path) -> None:
    """Processes that begin together, and there is no directory for orders yet."""
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        box, (gate, opens) = Mailbox(tmp_path / str(number)), os.pipe()
        bodies = [BODY.replace(b'"0"', b'"%d"' % caller) for caller in range(5)]

        def put(body: bytes, box: Mailbox = box, gate: int = gate) -> None:
            os.read(gate, 1)
            box.put("same-order", body)

        callers = [forked(partial(put, body)) for body in bodies]
        os.write(opens, b"." * len(callers))
        assert [os.waitpid(pid, 0)[1] for pid in callers] == [0] * len(callers)
        os.close(gate)
        os.close(opens)
        assert [letter.body in bodies for letter in box.take()] == [True]
        assert [path.name for path in box.directory.iterdir()] == ["same-order.json"]
        assert os.listdir(tmp_path / str(number)) == ["orders"]


def forked(call: Callable[[], object]) -> int:
    """Call it in another process; returns its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def test_answers_are_removed_after_a_day(mailbox: Mailbox) -> None:
    mailbox.put("first-order", BODY)
    for name in ("older-order", "newer-order"):
        mailbox.reply(OrderAnswer(name, OrderState.TAKEN))
    os.utime(mailbox.directory / "older-order.answer.json", (0, 0))
    now = os.stat(mailbox.directory / "newer-order.answer.json").st_mtime
    mailbox.forget_answers(now)
    assert mailbox.answer("older-order") is None and mailbox.answer("newer-order") is not None
    assert mailbox.is_waiting("first-order")
    mailbox.forget_answers(now + ANSWERS_KEPT_S + 1)
    assert mailbox.answer("newer-order") is None


def test_orders_of_one_process_are_taken_as_they_were_given(mailbox: Mailbox) -> None:
    given = [f"order-{number:05d}" for number in reversed(range(50))]
    for order_id in given:
        mailbox.put(order_id, BODY)  # many within one step of the file system's clock
    assert [letter.id for letter in mailbox.take()] == given


@pytest.mark.root
def test_a_group_orders_whatever_the_umask_and_root_orders_for_the_owner(mailbox: Mailbox, tmp_path: Path) -> None:
    team, root = 4242, tmp_path / "team"
    root.mkdir()
    os.chown(root, 1001, team)
    root.chmod(0o2775)
    place = Path(os.path.realpath(tmp_path))
    while place != place.parent:  # others reach it
        place.chmod(place.stat().st_mode | 0o011)
        place = place.parent

    def member(order_id: str) -> None:
        Mailbox(root).put(order_id, BODY)

    def owner() -> None:
        box = Mailbox(root)
        assert [letter.body for letter in box.take()] == [BODY] * 2
        box.reply(OrderAnswer("first-order", OrderState.DONE))
        box.done_with("first-order")

    def reads() -> None:
        answer = Mailbox(root).answer("first-order")
        assert answer is not None and answer.state is OrderState.DONE
        assert [letter.id for letter in Mailbox(root).waiting()] == ["second-order"]

    def stranger() -> None:
        with pytest.raises(OrderError, match="no order can be given at .*Permission denied"):
            Mailbox(root).put("third-order", BODY)

    as_user(1002, team, lambda: member("first-order"))
    as_user(1003, team, lambda: member("second-order"))
    as_user(1001, team, owner)
    as_user(1002, team, reads)
    as_user(1004, 1004, stranger)
    os.chown(mailbox.directory.parent, 1001, 1001)
    mailbox.put("roots-order", BODY)  # by root, before anybody else has

    def alone() -> None:
        assert [letter.id for letter in Mailbox(mailbox.directory.parent).take()] == ["roots-order"]

    as_user(1001, 1001, alone)


def as_user(uid: int, gid: int, call: Callable[[], None]) -> None:
    """Call it in a process of that user, who keeps files to himself."""

    def as_him() -> None:
        os.setgroups([gid])
        os.setgid(uid)  # his own group is another one
        os.setuid(uid)
        os.umask(0o077)
        call()

    assert os.waitpid(forked(as_him), 0)[1] == 0


def test_what_cannot_be_set_aside_is_named_once_and_what_is_busy_later(
    mailbox: Mailbox, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox.put("good-order", BODY)
    (mailbox.directory / "set-aside").write_text("in its place")
    (mailbox.directory / os.fsdecode(b"\xff\xfe.json")).write_bytes(BODY)
    (mailbox.directory / ("\u20ac" * 80 + ".json")).write_bytes(BODY)
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(mailbox.directory)
    listener.bind("socket-order.json")  # a longer path might not fit
    with caplog.at_level(logging.WARNING):
        assert len(mailbox.take()) == len(mailbox.take()) == 1
        assert [record.getMessage().count("it cannot be set aside") for record in caplog.records] == [1, 1, 1]
        caplog.records[0].getMessage().encode()
        (mailbox.directory / "set-aside").unlink()
        caplog.clear()
        again = Mailbox(mailbox.directory.parent)
        assert len(again.take()) == 1 and len(os.listdir(mailbox.directory / "set-aside")) == 3
    listener.close()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        listing = os.scandir(mailbox.directory)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, limit[1]))
        assert _read(mailbox.directory / "good-order.json") is None  # too many open files: nobody's fault
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        listing.close()
    assert len(mailbox.take()) == 1


def test_an_answer_is_written_into_no_file_that_somebody_made_a_link_of(mailbox: Mailbox, tmp_path: Path) -> None:
    mailbox.put("first-order", BODY)
    (tmp_path / "mine").write_text("mine")
    for name in (".first-order.answer.json.tmp", "first-order.answer.json"):
        (mailbox.directory / name).symlink_to(tmp_path / "mine")
    mailbox.reply(OrderAnswer("first-order", OrderState.DONE))
    assert (tmp_path / "mine").read_text() == "mine"
    answer = mailbox.answer("first-order")
    assert answer is not None and answer.state is OrderState.DONE
