from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from trainables.net.frames import Frames, frame
from trainables.socket_link import SocketLink
from trainables.wire import (
    Answer,
    AttemptErrored,
    CheckpointRef,
    Decided,
    Durable,
    FromTrial,
    Halt,
    Report,
    SaveFailed,
    ToTrial,
    decode_from_trial,
)

REF = CheckpointRef(trial_id="t1", name="checkpoint_000003", generation=2, attempt=1, index=3, iteration=3)


class Driver:
    """The other ends of a SocketLink's sockets."""

    def __init__(self) -> None:
        self.main, main = socket.socketpair()
        self.side, side = socket.socketpair()
        self.link = SocketLink(main, side)
        self._inner = main, side
        self._frames = {self.main: Frames(), self.side: Frames()}

    def tell(self, message: ToTrial) -> None:
        end = self.main if isinstance(message, Answer) else self.side
        end.sendall(frame(message))

    def hear(self, end: socket.socket) -> list[FromTrial]:
        while not (bodies := self._frames[end].feed(end.recv(65536))):
            pass
        return [decode_from_trial(body) for body in bodies]

    def close(self) -> None:
        self.main.close()
        self.side.close()

    def end(self) -> None:
        """Close the trial's ends too, once its reader has seen that the driver is gone."""
        self.close()
        for thread in threading.enumerate():
            if thread.name == "trial-side-reader":
                thread.join()
        for inner in self._inner:
            inner.close()


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.end()


def test_a_call_returns_the_answer_also_when_it_comes_in_pieces(driver: Driver) -> None:
    answer = frame(Answer(then="stop"))

    def drive() -> None:
        driver.hear(driver.main)
        for byte in answer:
            driver.main.sendall(bytes([byte]))

    thread = threading.Thread(target=drive)
    thread.start()
    assert driver.link.call(Report(iteration=1, metrics=msgspec.Raw(b"{}"))).then == "stop"
    thread.join()


def test_halt_is_seen_without_a_thread(driver: Driver) -> None:
    before = threading.active_count()
    assert not driver.link.halted()
    driver.tell(Halt())
    assert driver.link.halted()
    assert threading.active_count() == before


def test_a_halt_that_arrives_in_two_pieces_is_seen_once_it_is_whole(driver: Driver) -> None:
    data = frame(Halt())
    driver.side.sendall(data[:5])
    assert not driver.link.halted()
    driver.side.sendall(data[5:])
    assert driver.link.halted()


def test_should_stop_in_an_answer_counts_as_halt(driver: Driver) -> None:
    driver.tell(Answer(should_stop=True))
    driver.link.call(Report(iteration=1, metrics=msgspec.Raw(b"{}")))
    assert driver.link.halted()


def test_durable_before_the_wait_and_read_by_the_other_thread_is_not_lost(driver: Driver) -> None:
    driver.tell(Durable(4))
    assert not driver.link.halted()  # this thread read the Durable
    driver.link.wait_durable(4)


def test_publisher_and_trial_read_the_side_socket_at_once(driver: Driver) -> None:
    """The publisher waits for 50 results one after the other while the trial looks for Halt all the time."""
    published = threading.Event()
    seen_early = []

    def publish() -> None:
        for iteration in range(1, 51):
            driver.link.wait_durable(iteration)
            driver.link.post(SaveFailed(ref=REF, error=str(iteration)))
        published.set()

    def drive() -> None:
        for iteration in range(1, 51):
            driver.tell(Durable(iteration))
            driver.hear(driver.main)
        driver.tell(Halt())

    threads = [threading.Thread(target=publish), threading.Thread(target=drive)]
    for thread in threads:
        thread.start()
    while not driver.link.halted():
        seen_early.append(published.is_set())
    for thread in threads:
        thread.join()
    assert published.is_set()


def test_a_waiting_publisher_is_woken_when_the_driver_dies(driver: Driver) -> None:
    errors = []

    def publish() -> None:
        try:
            driver.link.wait_durable(1)
        except ConnectionError as error:
            errors.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    driver.close()
    thread.join()
    assert len(errors) == 1
    assert driver.link.halted()


def test_a_dead_driver_is_a_halt_and_fails_a_call(driver: Driver) -> None:
    driver.close()
    assert driver.link.halted()
    with pytest.raises(ConnectionError):
        driver.link.call(Report(iteration=1, metrics=msgspec.Raw(b"{}")))


def test_messages_of_two_threads_do_not_mix(driver: Driver) -> None:
    large = AttemptErrored(type="E", message="x" * 500_000, traceback="")
    threads = [threading.Thread(target=driver.link.send, args=(large,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    heard: list[FromTrial] = []
    while len(heard) < 4:
        heard += driver.hear(driver.main)
    for thread in threads:
        thread.join()
    assert heard == [large] * 4


def test_a_result_that_does_not_wait_arrives_and_nothing_was_decided(driver: Driver) -> None:
    driver.link.tell(Report(iteration=2, metrics=msgspec.Raw(b"{}"), waits=False))
    (heard,) = driver.hear(driver.main)
    assert isinstance(heard, Report) and (heard.iteration, heard.waits) == (2, False)
    assert driver.link.decided() is None


def test_what_was_decided_late_is_heard_once_and_a_later_save_is_void(driver: Driver) -> None:
    late = Decided(3, Answer(then="stop"))
    driver.tell(late)
    assert driver.link.decided() == late and driver.link.decided() is None
    driver.tell(Durable(3))
    driver.link.wait_durable(3)  # its own save counts
    with pytest.raises(ConnectionError):
        driver.link.wait_durable(4)
    assert not driver.link.halted()


def test_a_publisher_that_waits_for_a_result_after_the_end_is_woken(driver: Driver) -> None:
    errors = []

    def publish() -> None:
        try:
            driver.link.wait_durable(5)
        except ConnectionError as error:
            errors.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    driver.tell(Decided(4, Answer(should_checkpoint=True)))  # which ends nothing
    driver.tell(Decided(4, Answer(then="pause")))
    thread.join()
    assert len(errors) == 1
