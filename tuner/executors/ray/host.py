"""A node as the driver knows it: its agent, what was ordered, what lies there."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trainables.errors import CheckpointCorruptError, TransferError
from trainables.net.failed import FailureKind
from trainables.starting import start_thread
from trainables.transfer.transfer_jobs import AnyJob, Done, FetchCheckpoint, JobFailed, decode_answer
from tuner.error import SettingError, TuneError
from tuner.executors.ray import connection
from tuner.executors.ray.line import AgentLine, connect
from tuner.executors.ray.node_agent import Agent
from tuner.executors.ray.protocol import Looked, Order, Setup, pack_orders
from tuner.executors.remote_hosts import ExperimentPlace

_PATIENCE_S = 120.0
"""For the start of an agent: Ray may have to install what `runtime_env` names."""
_DELETE_S = 30.0


class AgentError(TuneError):
    """An agent does not start."""


class Host:
    """One node of the cluster, from its agent's start to its end.

    Args:
        node: Ray's id of it.
        ip: its address, as ssh would use it.
        runtime_env: for the agent and its trials.
        place: where the experiment lies.
        number: of the hosts of this run, from 1.
        busy: directories of trials that run on other hosts.
    """

    def __init__(
        self,
        node: str,
        ip: str,
        runtime_env: Mapping[str, Any] | None,
        place: ExperimentPlace,
        *,
        number: int,
        busy: frozenset[str] = frozenset(),
    ) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.node, self.ip = node, ip
        self.lost = False
        self.useful = False
        """A trial has said something there: its agent works."""
        self._mark = f"{place.id}.{node}"
        self._name = f"{number}-{place.id[:4]}"  # of this run alone: what a killed one leaves may be removed late
        self.orders: list[Order] = []
        """To be sent with the next `flush`."""
        self._held: set[Path] = set()
        self._looked: Looked | None = None
        self._number = 0
        self._begun = False
        self._line: AgentLine | None = None
        environment = {"runtime_env": dict(runtime_env)} if runtime_env else {}
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        self._actor = _agent_class().options(num_cpus=0, scheduling_strategy=there, **environment).remote()
        self._looking = self._actor.look.remote(place, self._mark, busy)
        self._refs: list[Any] = []
        self._ending: Any = None
        self._uploads: set[Any] = set()

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self._looked.hostname} ({self.ip})" if self._looked is not None else self.ip

    @property
    def ready(self) -> bool:
        """Its agent runs, and has looked around."""
        return self._looked is not None

    @property
    def shared(self) -> bool:
        """It sees the driver's own directory."""
        return self.looked().shared

    def temporary(self, run: Path) -> Path:
        """Its part of a run's directory for temporary files, which other hosts may see."""
        return run / self._name

    def looked(self) -> Looked:
        """What its agent found; waits for it. Raises SettingError, TuneError."""
        if self._looked is None:
            ray = connection.load()
            try:
                looked: Looked = ray.get(self._looking, timeout=_PATIENCE_S)
            except ray.exceptions.RayError as error:
                text = str(error).strip().splitlines()
                why = text[-1] if text else repr(error)
                raise AgentError(f"node {self.ip}: its agent does not start: {why}") from error
            if looked.problem:
                raise SettingError(
                    f"node {self.ip} ({looked.hostname}): {looked.problem}; choose a storage_path that every node can "
                    "write, shared or of its own"
                )
            self._looked = looked
            self._held = {Path(dirname) / ref.name for dirname, ref, _ in looked.found}
        return self._looked

    def when_looked(self, then: Callable[[Any], None]) -> None:
        """Have `then` called, from any thread, when `looked` does not wait any more."""
        self._looking.future().add_done_callback(then)

    def begin(
        self,
        setup: Setup,
        pickled: Any,
        modules: Any,
        begun: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Have it get ready for trials; `begun` or `failed` is called then, from any thread."""
        temporary = self.temporary(setup.temporary)
        setup = dataclasses.replace(setup, marker=self._mark, temporary=temporary, shared=self.shared)
        self._refs = [self._actor.begin.remote(setup, pickled, modules)]

        def answered(done: Any) -> None:
            if (error := done.exception()) is not None:
                failed(error)
                return
            self._line = connect(done.result())
            self._begun = True
            begun()

        # Connecting may take a while, and the thread that brings answers has others to bring.
        self._refs[0].future().add_done_callback(
            lambda done: start_thread(answered, name="tuner-answered", args=(done,))
        )

    @property
    def line(self) -> AgentLine | None:
        """What events come over, once it has begun; None: `listen` brings them."""
        return self._line

    def listen(self, heard: Callable[[Any], None]) -> None:
        """Have `heard` called, from any thread, with an exception when the agent is dead; before, without a line, with
        each batch of events.
        """

        def answered(done: Any) -> None:
            error = done.exception()
            if error is None:
                self.listen(heard)
            elif self._line is not None:
                self._line.close()  # what is still to be sent is not waited for
            heard(error or done.result())

        ref = self._actor.events.remote()
        self._refs[1:] = [ref]  # an answer that nobody refers to is thrown away
        ref.future().add_done_callback(answered)

    def flush(self) -> None:
        """Send what was ordered."""
        if not self.orders or not self._begun:
            return
        orders, self.orders = self.orders, []
        data = pack_orders(orders)
        if self._line is not None:
            with contextlib.suppress(OSError):  # that it has ended is told by itself
                self._line.send(data)
        else:
            self._number += 1
            self._actor.orders.remote(self._number, data)

    def beat(self) -> None:
        """Say that the driver lives."""
        self._actor.alive.remote()

    # --- its store --------------------------------------------------------------------------------------

    def has(self, path: Path) -> None:
        """A checkpoint lies there."""
        self._held.add(_key(path))

    def holds(self, path: Path) -> bool:
        """Whether a checkpoint lies there, as far as is known."""
        return _key(path) in self._held

    def open_uploads(self, uploading: bytes) -> Callable[[], None]:
        """Start opening the replica's place over there; what is returned waits, and raises why it cannot be used."""
        ref = self._actor.open_uploads.remote(uploading)
        return lambda: self._get(ref, _PATIENCE_S)

    def upload(self, job: AnyJob, then: Callable[[Done | JobFailed], None]) -> None:
        """Have a job of the replica done over there; `then` gets its answer, from any thread.

        It is `CHECKPOINT_LOST` only when the host is gone: what else fails may do better later.
        """
        ref = self._actor.upload.remote(msgspec.json.encode(job))
        self._uploads.add(ref)

        def answered(done: Any) -> None:
            self._uploads.discard(ref)
            error = done.exception()
            if error is None:
                answer = decode_answer(done.result())
                assert isinstance(answer, (Done, JobFailed))
                then(answer)
            elif connection.is_death(error):
                text = f"{self.name} is gone, and what only it had ({type(error).__name__})"
                then(JobFailed(FailureKind.CHECKPOINT_LOST, text))
            else:
                cause = _cause(error)
                then(JobFailed.of(cause, f"{self.name}: {cause}"))

        ref.future().add_done_callback(answered)

    def fetch(self, key: str, path: Path, digest: str) -> None:
        """Have a checkpoint of the replica there. Raises TransferError, CheckpointError."""
        job = FetchCheckpoint(key=key, target=str(path), digest=digest)
        answer = decode_answer(self._get(self._actor.upload.remote(msgspec.json.encode(job)), None))
        if isinstance(answer, JobFailed):
            if answer.of_checkpoint:
                raise CheckpointCorruptError(answer.message)
            raise TransferError(answer.message, transient=answer.transient)
        self.has(path)

    def check(self, path: Path, digest: str) -> str | None:
        """Hash a checkpoint over there; what is wrong with it: "" when it is not there, None when it is whole."""
        problem: str | None = self._get(self._actor.check.remote(path, digest), None)
        if problem is None:
            self.has(path)
        return problem

    def delete(self, path: Path) -> bool:
        """Delete a checkpoint over there; False: it is open there. A host that is gone takes its own along."""
        try:
            done: bool = self._get(self._actor.delete.remote(path), _DELETE_S)
        except TransferError as error:
            if self.lost:
                return True
            raise OSError(str(error)) from error
        if done:
            self._held.discard(_key(path))
        return done

    def ask(self, what: str, *arguments: Any) -> Callable[[], Any]:
        """Start an operation on its files; see `EngineBackend`."""
        ref = self._actor.files.remote(what, *arguments)
        return lambda: self._get(ref, None)

    def _get(self, ref: Any, timeout_s: float | None) -> Any:
        ray = connection.load()
        try:
            return ray.get(ref, timeout=timeout_s)
        except ray.exceptions.RayTaskError as error:
            raise _cause(error) from None
        except ray.exceptions.RayError as error:
            text = str(error).strip().splitlines()
            raise TransferError(f"{self.name}: {text[0] if text else error!r}", transient=True) from error

    # --- the end ------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Have it end its trials; `ended` waits for that."""
        self.orders.clear()
        self._ending = self._actor.end.remote()

    def ended(self, timeout_s: float = 10.0) -> None:
        ray = connection.load()
        try:
            ray.get(self._ending, timeout=timeout_s)
        except ray.exceptions.RayError:
            pass  # gone already, and its trials with it

    def release(self) -> None:
        """End the agent at once, and with it whatever trials it has."""
        if self._line is not None:
            self._line.close()
        connection.load().kill(self._actor)


@functools.cache
def _agent_class() -> Any:
    """What Ray makes of the class, once: for each new one it looks through all of the code, which takes 30 ms."""
    return connection.load().remote(Agent)


def _cause(error: BaseException) -> BaseException:
    """What was raised over there."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def _key(path: Path) -> Path:
    return Path(*path.parts[-2:])
