"""Replicas on real servers: what is there, what goes wrong on the way there, and a script that copies to one."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from lifecycle_scripts import PATIENCE_S, Script, Stage

from tests.servers.forward import Answer, Forwarder
from tests.servers.s3 import ENVIRONMENT
from trainables.errors import ObjectNotFoundError
from trainables.store import manifest, verify
from trainables.store.manifest import MANIFEST_NAME, Manifest
from trainables.transfer.backend import Backend
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.experiment.state import ExperimentState

SCRIPT = """
import json, os
from pathlib import Path

gated = json.loads(os.environ["GATED"])

def train(config):
    checkpoint, n = tune.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            n = int(Path(directory, "count").read_text())
    tell("started", config["i"], n, os.getpid())
    for n in range(n + 1, config["n"] + 1):
        with tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(n))
            for part in range(config["files"]):
                name = f"{os.environ['LIFE']}-{part}"
                Path(directory, name).write_bytes(os.urandom(config["size"]))
        tune.report(n=n, score=float(config["scores"][n - 1]) if config.get("scores") else float(n))
        tell("saved", config["i"], n)
        if n >= gated.get(str(config["i"]), gated.get("all", 10**9)):
            gate()
    tune.get_checkpoint()
    tell("done", config["i"])

config = {"i": tune.grid_search([1]), "n": 3, "size": 1000, "files": 1, **json.loads(os.environ.get("CONFIG", "{}"))}
analysis = tune.run(
    train,
    **{
        "name": "e",
        "config": config,
        "storage_path": os.environ["RESULTS"],
        "resume": "AUTO",
        "resources_per_trial": {"cpu": 0.5},
        "sync_config": tune.SyncConfig(**json.loads(os.environ["SYNC"])) if os.environ.get("SYNC") else None,
        **json.loads(os.environ.get("MORE", "{}")),
    },
)
print("STATUS", *sorted(trial.status for trial in analysis.trials))
"""


class Store:
    """The place of a replica, looked at past everything that stands between it and the runs."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.uri = backend, backend.uri
        self._manifests: dict[str, Manifest] = {}

    def keys(self, name: str = "e") -> dict[str, int]:
        """Every key of an experiment, with its size."""
        return {entry.key: entry.size for entry in self.backend.list(name)}

    def checkpoints(self, name: str = "e") -> dict[str, dict[int, str]]:
        """Trial directory -> iteration -> key of the complete checkpoints of one look; none of them may be torn."""
        while True:
            keys = self.keys(name)
            try:
                found = {key: self._manifest(key) for key in keys if key.endswith(f"/{MANIFEST_NAME}")}
            except ObjectNotFoundError:
                continue  # deleted between the two looks
            break
        complete: dict[str, dict[int, str]] = {}
        for key, content in found.items():
            directory = key.rpartition("/")[0]
            sizes = {entry.name: entry.size for entry in content.files}
            there = {name: keys.get(f"{directory}/{name}") for name in sizes}
            assert there == sizes, f"{directory} has a manifest and is not whole: {there}"
            complete.setdefault(directory.split("/")[1], {})[content.ref.iteration] = directory
        return complete

    def iterations(self, name: str = "e") -> list[list[int]]:
        """The iterations of the complete checkpoints, trial by trial."""
        return [sorted(found) for _, found in sorted(self.checkpoints(name).items())]

    def without_manifest(self, name: str = "e") -> set[str]:
        """Directories of files that belong to no complete checkpoint."""
        keys = self.keys(name)
        deep = [key for key in keys if key.count("/") > 2 and not key.startswith(f"{name}/journal/")]
        directories = {"/".join(key.split("/")[:3]) for key in deep}
        return {directory for directory in directories if f"{directory}/{MANIFEST_NAME}" not in keys}

    def bring(self, target: Path, name: str = "e") -> Path:
        """Copy everything, file by file, as `cp -r` would; every checkpoint is hashed."""
        self.backend.fetch(name, target)
        for published in target.rglob(MANIFEST_NAME):
            verify.check(published.parent)
        return target

    def state(self, target: Path, name: str = "e") -> ExperimentState:
        """What the books over there add up to."""
        names = [key.partition("/")[2] for key in self.keys(name)]
        books = [name for name in names if name.split("/")[0] in ("experiment.json", "generations", "journal")]
        self.backend.fetch(name, target, books)
        return load_state(ExperimentPaths(target))

    def _manifest(self, key: str) -> Manifest:
        if key not in self._manifests:
            self._manifests[key] = manifest.decode(self.backend.read(key), Path(key))
        return self._manifests[key]


class Watch:
    """Looks without a pause: of a trial that had a complete checkpoint there, one is there at every look."""

    def __init__(self, store: Store, name: str = "e") -> None:
        self.looks = 0
        self.had: set[str] = set()
        self._store, self._name = store, name
        self._wrong: list[str] = []
        self._end = threading.Event()
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def wait_for_one(self) -> None:
        """Return when something is there to be looked at."""
        assert self._first.wait(60), "no checkpoint ever became complete over there"

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()
        if kind is None:
            assert not self._wrong, self._wrong
            assert self.looks

    def _work(self) -> None:
        while not self._end.wait(0.05):
            try:
                found = self._store.checkpoints(self._name)
            except AssertionError as error:
                self._wrong.append(str(error))
                continue
            self._wrong += [f"look {self.looks}: nothing of {name}" for name in self.had - set(found)]
            self.had |= set(found)
            self.looks += 1
            if self.had:
                self._first.set()


class Watched(Forwarder):
    """An HTTP proxy that counts what changes the store, and lets a test refuse it, or do something before or after."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.writes: list[tuple[str, str]] = []
        """(method, key) of all that came, refused ones too."""
        self.before: Callable[[str, str, dict[str, str]], Answer | None] = lambda method, key, headers: None
        self.after: Callable[[str, str], None] = lambda method, key: None
        self.hold: Callable[[str, str], object] = lambda method, path: None
        """May keep one request waiting while others go on."""
        self._arrived: list[str] = []
        self._one_by_one = threading.Lock()
        self._more = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_one(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        self.hold(method, path)
        if method in ("GET", "HEAD"):
            refused = self.before(method, path, headers)
            if refused is not None and method == "HEAD":
                return refused[0], {}, b""  # as S3 does: nothing says why
            return refused or self.ask(method, path, headers, body)
        with self._one_by_one:  # so that there is an order
            key = path.partition("?")[0] if "?delete" not in path else f"{path}\n{body.decode(errors='replace')}"
            self.writes.append((method, key))
            refused = self.before(method, key, headers)
            if refused is not None:
                return refused
            answer = self.ask(method, path, headers, body)
            self.after(method, key)
            with self._more:
                self._arrived.append(f"{method} {key}")
                self._more.notify_all()
            return answer

    def wait_for(self, text: str, script: Script) -> None:
        """Return when a change whose method and key hold that text has been made; meanwhile the script runs."""
        deadline = time.monotonic() + PATIENCE_S
        with self._more:
            while not any(text in done for done in self._arrived):
                self._more.wait(1.0)
                assert script.process.poll() is None, script.output
                assert time.monotonic() < deadline, f"{text!r} never came: {self._arrived}\n{script.output}"


def refusal(status: int, code: str) -> Answer:
    """An answer of S3 that refuses."""
    text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>refused by the test</Message></Error>'
    return status, {"Content-Type": "application/xml"}, text.encode()


@contextmanager
def stage_of(place: Path, extra: str = "") -> Iterator[Stage]:
    """A stage with `SCRIPT`; `extra` is done before it runs."""
    place.mkdir(exist_ok=True)
    with Stage(place) as stage:
        stage.gate()
        stage.write(extra + SCRIPT)
        yield stage


def start(
    stage: Stage,
    upload_dir: str | None,
    endpoint: str = "",
    *,
    results: str = "results",
    sync: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    life: str = "part",
    gated: int | dict[str, int] | None = None,
    script: str = "script.py",
    **more: Any,
) -> Script:
    """Start the script on a machine whose disk is the directory `results`.

    Args:
        life: how the files of its checkpoints are called.
        gated: from that count on each waits for a gate; or that count by trial (its `i`).
    """
    environment = dict(ENVIRONMENT)
    if endpoint:
        environment["AWS_ENDPOINT_URL"] = endpoint
    if upload_dir is not None:
        environment["SYNC"] = json.dumps({"upload_dir": upload_dir, **(sync or {})})
    environment |= {"CONFIG": json.dumps(config or {}), "LIFE": life}
    environment["GATED"] = json.dumps(gated if isinstance(gated, dict) else {"all": gated or 10**9})
    environment |= {"MORE": json.dumps(more), "RESULTS": str(stage.place / results)}
    return stage.start(script, **environment)


def agents_of(script: Script) -> list[psutil.Process]:
    """The processes that copy for a driver."""
    try:
        children = psutil.Process(script.process.pid).children()
        return [child for child in children if "trainables.transfer.agent" in " ".join(child.cmdline())]
    except psutil.NoSuchProcess:
        return []


def kill_agents(script: Script) -> None:
    for agent in agents_of(script):
        os.kill(agent.pid, signal.SIGKILL)


def copied(root: Path) -> list[int]:
    """The iterations of which the books say that they were copied."""
    (trial,) = load_state(ExperimentPaths(root)).trials
    return [record.iteration for record in trial.checkpoints if record.copies]
