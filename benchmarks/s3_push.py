"""Pushing 1 GiB in 4 files, and 2,000 files of 50 kB, to S3: ours beside `aws s3 sync` and s5cmd.

Each is a fresh process, its start included, against the same local server (s3_sink.py), which throws away what it gets.
CPU is user and system time of the client's process tree. The clients run one after another, in random order, within
one measurement, so that a slow minute of the machine hits all of them. The ceiling is a process that sends the same
files over four sockets with sendfile, without checksum, signature or protocol but a head.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measuring import main, s3, sink, storage

HERE = Path(__file__).resolve().parent
GIB = 1024**3
OURS = """
import os, sys
from pathlib import Path
from trainables.transfer.s3 import S3Backend

source = Path(sys.argv[1])
names = [os.path.relpath(os.path.join(root, name), source) for root, _, files in os.walk(source) for name in files]
backend = S3Backend("s3://bench/prefix")
receipts = {}
backend.push(source, "checkpoint", names, receipts=receipts)
assert len(receipts) == len(names) and all(receipts.values())
backend.close()
"""
BARE = """
import os, socket, sys, threading
from pathlib import Path

def send(path):
    with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as peer, open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        peer.sendall(b"PUT /bench/k HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n" % size)
        peer.sendfile(file)
        assert peer.recv(65536).startswith(b"HTTP/1.1 200")

threads = [threading.Thread(target=send, args=(path,)) for path in Path(sys.argv[1]).iterdir()]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def write(directory: Path) -> None:
    """What is pushed; it does not compress, and lies in the page cache."""
    block = os.urandom(16 * 1024 * 1024)
    (directory / "large").mkdir()
    for number in range(4):
        with open(directory / "large" / f"{number}.bin", "wb") as file:
            for _ in range(GIB // 4 // len(block)):
                file.write(block)
    for number in range(2000):
        path = directory / "small" / f"{number % 20}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(block[number * 4096 : number * 4096 + 50_000])


def timed(command: list[str], port: int) -> tuple[float, float]:
    """Wall and CPU seconds of a client."""
    environment = {**os.environ, **s3(port), "PYTHONPATH": str(HERE.parent)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr[-2000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def program(name: str) -> str | None:
    """A program beside this interpreter, else wherever it is."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def clients(directory: str) -> dict[str, list[str]]:
    """The command of each client that is installed."""
    found = {"ours": [sys.executable, "-c", OURS, directory]}
    if aws := program("aws"):
        found["aws"] = [aws, "s3", "sync", "--only-show-errors", directory, "s3://bench/prefix"]
    if s5cmd := program("s5cmd"):
        found["s5cmd"] = [s5cmd, "--log", "error", "sync", f"{directory}/", "s3://bench/prefix/"]
    return found


def _ours() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with storage() as directory, sink() as port:
        write(Path(directory))
        for kind in ("large", "small"):
            runs = list(clients(f"{directory}/{kind}").items())
            random.shuffle(runs)
            took = {name: timed(command, port) for name, command in runs}
            gib = 1.0 if kind == "large" else 2000 * 50_000 / GIB
            for name, (wall, cpu) in took.items():
                found |= {f"{kind}_{name}_s": wall, f"{kind}_{name}_cpu_s_per_gib": cpu / gib}
                if name != "ours":
                    found[f"{kind}_of_{name}"] = took["ours"][0] / wall
                    found[f"{kind}_cpu_of_{name}"] = took["ours"][1] / cpu
        bare, _ = timed([sys.executable, "-c", BARE, f"{directory}/large", str(port)], port)
        found["of_bare"] = bare / found["large_ours_s"]
    return found


if __name__ == "__main__":
    main({"ours": _ours})
