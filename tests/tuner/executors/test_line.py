"""The connection between driver and agent: who has no key holds up nobody, and neither end waits for the other's."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import pytest

from tuner.executors.host_agent import line as lines
from tuner.executors.host_agent.line import AgentLine, connect, open_door

PATIENCE_S = 60.0
MB = 1 << 20


def both_ends() -> tuple[AgentLine, AgentLine]:
    met: queue.SimpleQueue[AgentLine] = queue.SimpleQueue()
    line = connect(open_door("127.0.0.1", met.put))
    assert line is not None
    return line, met.get(timeout=PATIENCE_S)


def read(line: AgentLine, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        batches = line.receive()
        assert batches is not None, "the line has ended"
        got += batches
    return got


def test_somebody_who_knocks_and_says_nothing_keeps_nobody_out() -> None:
    met: queue.SimpleQueue[AgentLine] = queue.SimpleQueue()
    ip, port, key = open_door("127.0.0.1", met.put)

    with socket.create_connection((ip, port)):  # a port scanner, for one
        assert connect((ip, port, b"another key")) is None
        line = connect((ip, port, key))

    assert line is not None
    line.send(b"orders")
    line.send(b"more")
    other = met.get(timeout=60)
    got: list[bytes] = []
    while len(got) < 2:
        got += other.receive() or []
    assert got == [b"orders", b"more"]
    other.close()
    assert line.receive() is None


def test_a_batch_that_comes_in_parts_is_handed_out_whole() -> None:
    met: queue.SimpleQueue[AgentLine] = queue.SimpleQueue()
    line = connect(open_door("127.0.0.1", met.put))
    assert line is not None
    other, batch = met.get(timeout=60), bytes(range(256)) * 10_000

    sender = threading.Thread(target=line.send, args=(batch,))
    sender.start()
    parts = [other.receive()]
    while parts[-1] == []:  # nothing whole yet, and nobody is kept waiting for the rest
        parts.append(other.receive())
    sender.join()

    assert parts[0] == []
    assert parts[-1] == [batch]
    line.close()
    assert other.receive() is None


def test_a_door_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ip, port = listener.getsockname()
        assert connect((ip, port, b"key")) is None


def test_one_who_is_held_up_after_he_has_shown_the_key_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_CONNECT_S", PATIENCE_S)  # this machine may be slow
    hung_up: list[bool] = []

    class HeldUp(Connection):
        def send_bytes(self, buf: Any, offset: int = 0, size: int | None = None) -> None:
            if bytes(buf) == b"#WELCOME#":  # his last word: he takes the line for made when it has gone out
                hung_up.append(self.poll(2 * lines._KNOCK_S))
            super().send_bytes(buf, offset, size)

    met: queue.SimpleQueue[AgentLine] = queue.SimpleQueue()
    ip, port, key = open_door("127.0.0.1", met.put)
    with HeldUp(socket.create_connection((ip, port)).detach()) as connection:
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
        assert hung_up == [False]
        met.get(timeout=PATIENCE_S).send(b"here")
        assert connection.poll(PATIENCE_S)


def test_both_ends_may_send_more_than_fits_before_either_reads() -> None:
    line, other = both_ends()
    batches = [b"a" * 32 * MB, b"then", b"b" * MB, b"the last word"]
    senders = [
        threading.Thread(target=lambda end=end: [end.send(batch) for batch in batches], daemon=True)  # type: ignore[misc]
        for end in (line, other)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(PATIENCE_S)
        assert not sender.is_alive(), "both wait for the other to read"

    assert read(line, len(batches)) == read(other, len(batches)) == batches
    line.send(b"and")
    assert read(other, 1) == [b"and"]
    line.close()
    assert other.receive() is None


def test_who_waits_for_room_is_held_up_until_the_other_end_reads_or_somebody_is_in_a_hurry() -> None:
    line, other = both_ends()
    line.wait_for_room()  # there is

    def held_up() -> threading.Thread:
        for _ in range(2):
            line.send(bytes(32 * MB))
        waits = threading.Thread(target=line.wait_for_room, daemon=True)
        waits.start()
        waits.join(0.2)
        assert waits.is_alive()
        return waits

    waits = held_up()
    assert len(read(other, 2)) == 2
    waits.join(PATIENCE_S)
    assert not waits.is_alive()

    waits = held_up()
    line.hurry()
    waits.join(PATIENCE_S)
    assert not waits.is_alive()
    assert len(read(other, 2)) == 2  # it goes out all the same


def test_a_line_that_ends_with_much_unsent_holds_up_nobody() -> None:
    line, other = both_ends()
    for _ in range(2):
        line.send(bytes(32 * MB))
    waits = threading.Thread(target=line.wait_for_room, daemon=True)
    waits.start()
    other.send(b"the last word")
    other.close()
    waits.join(PATIENCE_S)
    assert not waits.is_alive()
    assert read(line, 1) == [b"the last word"]
    assert line.receive() is None
    with pytest.raises(OSError):
        line.send(b"more")


AGENT = """
import os, sys, threading, time
from pathlib import Path
from trainables.job import Job
from tuner.executors.host_agent.service import HostAgent
from tuner.executors.base import Exited, Launch
from tuner.executors.local.pickled import pickle_job, write_trainable
from tuner.executors.host_agent.line import connect
from tuner.executors.host_agent.protocol import HEARTBEAT_S, KillTrial, Setup, pack_orders, unpack_heard

home, what = Path(sys.argv[1]), sys.argv[2]


def train(config):
    while True:
        print("x" * 1000)


def drive(line):
    job = Job(
        trial_id="t0", trial_name="t0", experiment_name="e", directory=home / "t0", temporary=home, config={},
        generation=1, original_cwd=home, index=0, attempt=1, seed=1,
    )
    out = home / "t0" / "stdout"
    launch = Launch(job, {"cpu": 1.0}, stdout=out, stderr=out, tee=True, packed=pickle_job(job, "the config"))
    line.send(pack_orders([launch]))
    size, since = 0, time.monotonic()
    while not size or time.monotonic() - since < 1:  # until the trial is held up: nobody reads what it writes
        time.sleep(0.05)
        if out.exists() and out.stat().st_size != size:
            size, since = out.stat().st_size, time.monotonic()
        if size > 512 << 20:
            sys.exit("the agent keeps in memory whatever a trial writes")
    print("held up", flush=True)
    if what == "orders":
        line.send(pack_orders([KillTrial("nobody" * (8 << 20)), KillTrial("t0")]))
        while True:
            for batch in line.receive():
                if any(isinstance(said, Exited) for said in unpack_heard(batch)):
                    return


def beat():
    while True:
        agent.alive()
        time.sleep(HEARTBEAT_S)


agent = HostAgent("127.0.0.1", lambda heard: None)  # there is no cluster
threading.Thread(target=beat, daemon=True).start()
written = write_trainable(train, home)
address = agent.begin(Setup(written.imports, str(home), home / "tmp", home), written.path.read_bytes(), b"")
drive(connect(address))
agent.end()
print("ended", flush=True)
os._exit(0)
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("what", ["orders", "end"])
def test_an_agent_whose_trial_writes_more_than_the_driver_reads_still_does_what_it_is_told(
    tmp_path: Path, what: str
) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", AGENT, tmp_path, what],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.stdout.splitlines() == ["held up", "ended"], done.stderr
