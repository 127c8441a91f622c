"""Messages over a byte stream: whole and in order, however the bytes arrive, until the other end is gone."""

from __future__ import annotations

import socket
import struct
import threading

import msgspec
import pytest

from trainables.net.frames import Frames, FrameSocket, encode, frame


class Said(msgspec.Struct, frozen=True):
    text: str


SAID = [Said(text) for text in ("", "a", "x" * 300, "\N{SNOWMAN}" * 5)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 10_000])
def test_frames_are_cut_right_however_the_bytes_arrive(size: int) -> None:
    stream = b"".join(map(frame, SAID * 3))
    frames = Frames()
    bodies = [body for at in range(0, len(stream), size) for body in frames.feed(stream[at : at + size])]
    assert bodies == [encode(said) for said in SAID * 3]


def test_messages_of_several_threads_do_not_mix_and_what_was_said_before_the_end_is_heard() -> None:
    ours, theirs = map(FrameSocket, socket.socketpair())
    many = Said("y" * 100_000)
    threads = [threading.Thread(target=lambda: [ours.send(many) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()

    def end() -> None:
        for thread in threads:
            thread.join()
        ours.end()

    ender = threading.Thread(target=end)
    ender.start()
    assert list(theirs.bodies()) == [encode(many)] * 20
    ender.join()
    ours.close()
    theirs.close()


def test_an_end_that_was_killed_with_something_unread_is_an_end() -> None:
    here, there = socket.socketpair()
    ours = FrameSocket(here)
    ours.send(SAID[1])  # never read
    there.sendall(frame(SAID[2]))
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    there.close()
    assert list(ours.bodies()) in ([encode(SAID[2])], [])
    ours.close()
