"""Kills a saver before each of its calls to the disk, one after the other, and looks what the next start makes of it.

    python kill_points.py DIRECTORY SAVES_BEFORE KEEP_LAST links|no-links

Prints one line of JSON: how many points there were, and what was wrong. It loads no torch, so that forking is cheap.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from trainables.store import fs, verify
from trainables.torch import AtomicDirectory

CALLS = ("mkdir", "chmod", "rename", "link", "symlink", "unlink", "rmdir", "create", "write", "close", "fsync")
CALLS += ("fsync_file", "fsync_dir")


def save(saver: AtomicDirectory, content: str, *, forced: bool = False) -> None:
    directory = saver.prepare_checkpoint_directory(force_save=forced)
    for name in ("checkpoint.pt", "more.pt"):
        Path(directory, name).write_text(content)
    saver.symlink_latest(directory)


def in_child(work: Any) -> int:
    """How a forked process ended that did it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Calls:
    """Counts this process's calls that change the disk, and kills it before one of them."""

    def __init__(self) -> None:
        self._due, self._numbers = 0, itertools.count(1)
        for name in CALLS:
            setattr(fs, name, self._counted(getattr(fs, name)))

    def kill_before(self, call: int) -> None:
        """Count anew from here on; 0: only count."""
        self._due, self._numbers = call, itertools.count(1)

    def count(self) -> int:
        """How many there were, and begin anew."""
        found = next(self._numbers) - 1
        self.kill_before(0)
        return found

    def _counted(self, real: Any) -> Any:
        def counted(*args: Any, **more: Any) -> Any:
            if next(self._numbers) == self._due:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **more)

        return counted


def refuse_links() -> None:
    def refused(target: Any, path: Any) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    fs.symlink = refused


def problems(output: Path, before: int, keep: int, links: bool) -> list[str]:
    """What is wrong after the kill, and after the next start."""
    wrong = []
    there = verify.scan(output)
    link = output / "run.latest_checkpoint"
    if before and not there.complete:
        wrong.append("no complete checkpoint was left")
    if links and before and not (Path(os.readlink(link)) / ".manifest.json").exists():
        wrong.append(f"the link dangles: {os.readlink(link)}")
    saver = AtomicDirectory(output, True, "run", keep)
    latest = saver.latest_checkpoint()
    if latest is None and before:
        wrong.append("the next start found nothing")
    if latest is not None:
        if Path(latest, "checkpoint.pt").read_text() not in (str(before - 1), "new"):
            wrong.append("the latest is an old one")
        if links and os.readlink(link) != latest:
            wrong.append(f"the link was not mended: {os.readlink(link)}")
        if (output / "run.latest_checkpoint.name").read_text() != os.path.basename(latest):
            wrong.append("the pointer was not mended")
    save(saver, "after")
    saver.close()
    names = sorted(entry for entry in os.listdir(output) if "_checkpoint_" in entry and "latest" not in entry)
    plain = [name for name in names if not name.endswith("_force")]
    if len(plain) > keep or (before > 1 and "run_checkpoint_0_force" not in names):
        wrong.append(f"not what was to be kept: {names}")
    rest = set(os.listdir(output)) - set(names) - {link.name, link.name + ".name", ".run.saving", ".run.owner"}
    if rest:
        wrong.append(f"leftovers: {sorted(rest)}")
    return wrong


def main() -> None:
    place, before, keep, links = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "links"
    if not links:
        refuse_links()
    found: list[str] = []
    call = 0
    while True:
        call += 1
        output = place / str(call)
        saver = AtomicDirectory(output, True, "run", keep) if before else None
        for number in range(before):
            assert saver is not None
            save(saver, str(number), forced=number == 0 and before > 1)
        if saver is not None:
            saver.close()

        def one_more(output: Path = output, call: int = call) -> None:
            Calls().kill_before(call)
            save(AtomicDirectory(output, True, "run", keep), "new")

        ended = in_child(one_more)
        if ended not in (0, -signal.SIGKILL):
            found.append(f"before call {call}: the save failed")
        found += [f"before call {call}: {each}" for each in problems(output, before, keep, links)]
        fs.rmtree(output)
        if ended == 0:
            break
    print(json.dumps({"points": call - 1, "wrong": found}))


if __name__ == "__main__":
    main()
