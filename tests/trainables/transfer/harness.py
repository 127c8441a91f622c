"""Back ends for tests: the shipped suite on one, programs and functions that copy, an agent whose jobs can be held."""

from __future__ import annotations

import functools
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainables.testing.backends import CHECKS, Check
from trainables.transfer import transfer_jobs
from trainables.transfer.backend import Backend
from trainables.transfer.client import ProcessClient
from trainables.transfer.transfer_jobs import Done, JobFailed

checks = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


def run(check: Check, backend: Backend) -> None:
    try:
        check(backend)
    finally:
        backend.close()


RSYNC = "rsync -savz {source} {target}"


def program(tmp_path: Path, body: str) -> str:
    """A program in Python, as the first word of a template; `source` and `target` are its arguments."""
    path = tmp_path / "program.py"
    path.write_text(f"#!{sys.executable}\nimport os, shutil, sys, time\nsource, target = sys.argv[1:3]\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{path}"


def merging(source: str, target: str) -> None:
    """As `aws s3 sync` does it: contents to contents, parents made, nothing to copy is no error."""
    if os.path.isdir(source):
        shutil.copytree(source, target, dirs_exist_ok=True)


DEADLINE_S = 60.0


def gated(gates: Path, source: str, target: str) -> None:
    """A syncer that copies a directory `NAME-gated` when there is a file NAME in `gates`."""
    if not os.path.isdir(source):
        raise OSError("there is nothing")
    name, _, kind = os.path.basename(source.rstrip("/")).partition("-")
    while kind == "gated" and not (gates / name).exists():
        time.sleep(0.005)
    shutil.copytree(source, target, dirs_exist_ok=True)


class Scene:
    """A place, an agent, and gates that hold what is fetched from there."""

    def __init__(self, root: Path) -> None:
        self.root, self.gates = root, root / "gates"
        (root / "place").mkdir()
        self.gates.mkdir()
        syncer = functools.partial(gated, self.gates)
        self.uploader = ProcessClient({"place": str(root / "place"), "syncer": syncer})
        self.ended: dict[int, Done | JobFailed] = {}

    def fetch(self, name: str) -> int:
        source = self.root / "place" / f"{name}-gated"
        source.mkdir()
        (source / "x").write_text("x")
        target = str(self.root / name)
        return self.uploader.submit(transfer_jobs.FetchFiles(prefix=source.name, target=target, names=["x"]))

    def open(self, name: str) -> None:
        (self.gates / name).touch()

    def until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline
            self.uploader.wait(0.01)
            self.ended.update({answer.id: answer for answer in self.uploader.answers()})
