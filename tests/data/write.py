"""Writes the samples of what a version of the package stores: `python -m tests.data.write [NAME ...]`, as root.

Run it once for a format (`tuner.experiment.formats`), in a checkout that writes it, and commit what it wrote under
tests/data/<version>-format-<format>/ (the first format's are in 0.1.0/). A sample is never written again and never
removed: a format once written is read. tests/tuner/experiment/test_stored_samples.py reads and continues all of them.

Each experiment is run twice: once to its end, which index.json keeps as what the sample is to come to, and once as
its `killed` says, with real SIGKILLs of its driver; what is on disk then is the sample. No name of the machine that
wrote it is in one: it runs in namespaces of its own, with another host name, and from another directory.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.data import ends
from tests.data.experiment import Experiment
from tests.data.experiments import BY_NAME, LATER

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MOUNT = "/srv"
"""Where the checkout seems to lie while samples are written."""
CHECKPOINT = re.compile(r"checkpoint_\d{6}[\d.-]*")
BUCKET = "samples"


# --- one life of a driver, in a process of its own ------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(kill: list[Any], facts: Path) -> None:
    """Kill this process at that point; count its facts in any case."""
    from trainables.store import fs
    from tuner.experiment.journal import JournalWriter

    append = JournalWriter.append
    seen = {"facts": 0, "copied": 0}

    def counted(journal: JournalWriter, body: bytes, **more: Any) -> int:
        seq = append(journal, body, **more)
        seen["facts"] += 1
        seen["copied"] += body.startswith(b'{"kind":"copied"')
        facts.write_text(str(seen["facts"]))
        if kill[0] in seen and seen[kill[0]] == kill[1]:
            if seen["facts"] % 2 == 0 or kill[0] == "copied":
                journal.flush()  # what it is about is known and not done
            die()
        if kill[0] == "interrupt" and seen["facts"] == kill[1]:
            os.kill(os.getpid(), signal.SIGINT)
        return seq

    JournalWriter.append = counted  # type: ignore[method-assign]
    if kill[0] in ("before", "after"):
        setattr(fs, kill[1], deadly(getattr(fs, kill[1]), kill[0], kill[2]))


def deadly(real: Callable[..., Any], when: str, nth: int) -> Callable[..., Any]:
    """A function of `fs` that kills at its n-th call for a checkpoint: for its manifest, or its name."""
    left = nth

    def called(*arguments: Any, **more: Any) -> Any:
        nonlocal left
        name = Path(arguments[-1] if isinstance(arguments[-1], Path) else arguments[0]).name
        left -= name == ".manifest.json" or CHECKPOINT.fullmatch(name) is not None
        if left == 0 and when == "before":
            die()
        result = real(*arguments, **more)
        if left == 0:
            die()
        return result

    return called


def live(name: str, place: Path, replica: str | None, kill: list[Any]) -> None:
    import tuner as tune
    from tuner.experiment import journal_writer

    experiment = BY_NAME[name]
    if experiment.compacts:
        journal_writer.COMPACT_BYTES = 3000
    if experiment.packs:
        journal_writer.JournalWriter.compact.__kwdefaults__["grace_s"] = 0.0
    more = kill.pop() if isinstance(kill[-1], dict) else {}
    arm(kill, place / "facts")
    try:
        tune.run(experiment.trainable, **experiment.call(place, replica, **more))
    except KeyboardInterrupt:
        assert kill[0] == "interrupt"


# --- the samples ------------------------------------------------------------------------------------------------------


def lived(experiment: Experiment, place: Path, replica: str | None, kill: list[Any]) -> int:
    """One life; returns how many facts it journaled."""
    from tests.failures.checkpoint_faults import wait_for_its_processes

    words = [
        sys.executable,
        "-m",
        "tests.data.write",
        "--life",
        experiment.name,
        str(place),
        replica or "",
        json.dumps(kill),
    ]
    environment = {**os.environ, "TUNE_ON_INTERRUPT": "return", **experiment.environment}
    ended = subprocess.run(words, env=environment, timeout=300, check=False)
    expected = 0 if kill[0] in ("whole", "interrupt") else -signal.SIGKILL
    assert ended.returncode == expected, f"{experiment.name}: {ended.returncode} and not {expected}"
    wait_for_its_processes(place / "storage" / experiment.name)
    facts = place / "facts"
    count = int(facts.read_text())
    facts.unlink()
    return count


def sample(experiment: Experiment, scratch: Path, port: int | None, target: Path) -> dict[str, Any]:
    """Make the sample of one experiment; returns what the index says of it."""
    whole, cut = scratch / "whole", scratch / "cut"
    for place in (whole, cut):
        (place / "storage").mkdir(parents=True)
    facts = lived(experiment, whole, _replica(experiment, whole, port), ["whole"])
    end = ends.end_of(whole / "storage" / experiment.name)
    for how in experiment.killed or (("whole",),):
        if how == ("damage",):
            _damage(cut / "storage" / experiment.name)
            continue
        kill = ["facts", max(1, round(how * facts))] if isinstance(how, float) else list(how)
        lived(experiment, cut, _replica(experiment, cut, port), kill)
    if experiment.replica == "s3":
        _download(port, f"{BUCKET}-cut", cut / "replica")
    file = target / f"{experiment.name}.tar.xz"
    _pack(cut, file)
    return {
        "name": experiment.name,
        "version": target.name,
        "holds": experiment.holds,
        "state": "killed" if experiment.killed else "finished",
        "replica": experiment.replica,
        "stored": ends.stored_of(cut / "storage" / experiment.name),
        "alike": experiment.alike,
        "end": end,
    }


def _damage(experiment: Path) -> None:
    """Change a byte of the newest checkpoint of a trial that has not ended."""
    trial = next(trial for trial in ends.stored_of(experiment)["trials"] if trial[1] == "RUNNING")
    (directory,) = experiment.glob(f"*_{trial[0]}")
    file = next(file for file in sorted((directory / trial[3][-1]).iterdir()) if not file.name.startswith("."))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def _replica(experiment: Experiment, place: Path, port: int | None) -> str | None:
    if experiment.replica == "s3":
        return f"s3://{BUCKET}-{place.name}"
    return str(place / "replica") if experiment.replica else None


def _download(port: int | None, bucket: str, target: Path) -> None:
    from trainables.transfer.open import open_backend

    backend = open_backend(f"s3://{bucket}")
    for entry in backend.list(""):
        file = target / entry.key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(backend.read(entry.key))
    backend.close()


def _pack(place: Path, file: Path) -> None:
    """Everything with its times, and nothing of who wrote it."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with (
        lzma.open(file, "wb", preset=9) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(os.listdir(place)):
            tar.add(place / name, arcname=name, filter=anonymous)


def write(names: list[str]) -> None:
    from importlib.metadata import version

    from tests.servers import s3
    from tuner.experiment.formats import FORMAT

    target = HERE / f"{version('tuner')}-format-{FORMAT}"
    target.mkdir(exist_ok=True)
    index_file = target / "index.json"
    index = {entry["name"]: entry for entry in json.loads(index_file.read_text())} if index_file.exists() else {}
    for experiment in LATER:
        if experiment.name in index or (names and experiment.name not in names):
            continue
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="samples-")))
            port = None
            if experiment.replica == "s3":
                port = stack.enter_context(s3.s3_server())
                os.environ.update({**s3.ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"})
                for place in ("whole", "cut"):
                    s3.make_bucket(port, f"{BUCKET}-{place}")
            index[experiment.name] = sample(experiment, scratch, port, target)
        print(experiment.name, (target / f"{experiment.name}.tar.xz").stat().st_size, flush=True)
        index_file.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in index.values()) + "\n]\n")


def main() -> None:
    if sys.argv[1:2] == ["--life"]:
        name, place, replica, kill = sys.argv[2:]
        return live(name, Path(place), replica or None, json.loads(kill))
    if os.getcwd() != MOUNT:
        inside = f'hostname samples && mount --bind "$0" {MOUNT} && cd {MOUNT} && exec "$@"'
        words = [".venv/bin/python", "-m", "tests.data.write", *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--mount", "--uts", "sh", "-c", inside, str(ROOT), *words])
    write(sys.argv[1:])


if __name__ == "__main__":
    main()
