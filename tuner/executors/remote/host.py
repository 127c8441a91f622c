"""A host as the driver knows it: its agent from start to end, what was ordered there, and what lies on its disk."""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import msgspec

from trainables.errors import CheckpointCorruptError, TransferError
from trainables.net.failed import FailureKind
from trainables.starting import start_thread
from trainables.transfer.transfer_jobs import AnyJob, Done, FetchCheckpoint, JobFailed, decode_answer
from trainables.user_frames import last_said
from tuner.error import SettingError, TuneError
from tuner.executors.host_agent.line import AgentLine, connect
from tuner.executors.host_agent.protocol import HostSurvey, Order, Setup, pack_orders
from tuner.executors.remote.handle import AgentHandle, AgentUnreachableError
from tuner.executors.remote_hosts import ExperimentPlace

_PATIENCE_S = 120.0
"""For the start of an agent, for which much may have to be installed, and for opening the replica's place."""
_DELETE_S = 30.0


class AgentError(TuneError):
    """An agent does not start."""


class HostStore:
    """Of one host. From any thread; what waits raises TransferError when the host is gone.

    Args:
        name: of the host, as messages call it.
        is_lost: whether the driver has given it up.
    """

    def __init__(self, agent: AgentHandle, name: Callable[[], str], is_lost: Callable[[], bool]) -> None:
        self._agent, self._name, self._is_lost = agent, name, is_lost
        self._held: set[Path] = set()

    def has(self, path: Path) -> None:
        """A checkpoint lies there."""
        self._held.add(_key(path))

    def holds(self, path: Path) -> bool:
        """Whether a checkpoint lies there, as far as is known."""
        return _key(path) in self._held

    def open_uploads(self, uploading: bytes) -> Callable[[], None]:
        """Start opening the replica's place over there; what is returned waits, and raises why it cannot be used."""
        opened = self._agent.call("open_uploads", uploading)
        return lambda: self._answer(opened, _PATIENCE_S)

    def upload(self, job: AnyJob, then: Callable[[Done | JobFailed], None]) -> None:
        """Have a job of the replica done over there; `then` gets its answer, from any thread.

        It is `CHECKPOINT_LOST` only when the host is gone: what else fails may do better later.
        """

        def answered(done: Future[bytes]) -> None:
            error = done.exception()
            if error is None:
                answer = decode_answer(done.result())
                assert isinstance(answer, (Done, JobFailed))
                then(answer)
            elif isinstance(error, AgentUnreachableError):
                cause = type(error.__cause__ or error).__name__
                text = f"{self._name()} is gone, and what only it had ({cause})"
                then(JobFailed(FailureKind.CHECKPOINT_LOST, text))
            else:
                then(JobFailed.of(error, f"{self._name()}: {error}"))

        self._agent.call("upload", msgspec.json.encode(job)).add_done_callback(answered)

    def fetch(self, key: str, path: Path, digest: str) -> None:
        """Have a checkpoint of the replica there. Raises TransferError, CheckpointError."""
        job = FetchCheckpoint(key=key, target=str(path), digest=digest)
        answer = decode_answer(self._call("upload", msgspec.json.encode(job)))
        if isinstance(answer, JobFailed):
            if answer.of_checkpoint:
                raise CheckpointCorruptError(answer.message)
            raise TransferError(answer.message, transient=answer.transient)
        self.has(path)

    def check(self, path: Path, digest: str) -> str | None:
        """Hash a checkpoint over there; what is wrong with it: "" when it is not there, None when it is whole."""
        problem: str | None = self._call("check", path, digest)
        if problem is None:
            self.has(path)
        return problem

    def delete(self, path: Path) -> bool:
        """Delete a checkpoint over there; False: it is open there. A host that is gone takes its own along."""
        try:
            done: bool = self._answer(self._agent.call("delete", path), _DELETE_S)
        except TransferError as error:
            if self._is_lost():
                return True
            raise OSError(str(error)) from error
        if done:
            self._held.discard(_key(path))
        return done

    def ask(self, what: str, *arguments: Any) -> Callable[[], Any]:
        """Start an operation on its files; see `EngineBackend`."""
        answer = self._agent.call("files", what, *arguments)
        return lambda: self._answer(answer)

    def _call(self, what: str, *arguments: Any) -> Any:
        return self._answer(self._agent.call(what, *arguments))

    def _answer(self, answer: Future[Any], timeout_s: float | None = None) -> Any:
        if not wait([answer], timeout_s).done:
            raise TransferError(f"{self._name()} does not answer within {timeout_s:g} s", transient=True)
        try:
            return answer.result()
        except AgentUnreachableError as error:
            raise TransferError(f"{self._name()}: {str(error).strip().splitlines()[0]}", transient=True) from error


class RemoteHost:
    """One host of a run.

    Args:
        node: the id of it.
        ip: its address, as ssh would use it.
        number: of the hosts of this run, from 1.
        busy: directories of trials that run on other hosts.
    """

    def __init__(
        self,
        node: str,
        ip: str,
        agent: AgentHandle,
        place: ExperimentPlace,
        *,
        number: int,
        busy: frozenset[str] = frozenset(),
    ) -> None:
        self.node, self.ip = node, ip
        self.lost = False
        self.useful = False
        """A trial has said something there: its agent works."""
        self.orders: list[Order] = []
        """To be sent with the next `flush`."""
        self.line: AgentLine | None = None
        """What events come over, once it has begun; None: `listen` brings them."""
        self.store = HostStore(agent, lambda: self.name, lambda: self.lost)
        self._mark = f"{place.id}.{node}"
        self._temporary = f"{number}-{place.id[:4]}"  # of this run alone: what a killed one leaves may be removed late
        self._survey: HostSurvey | None = None
        self._batches = 0
        self._begun = False
        self._agent = agent
        self._looking = agent.call("look", place, self._mark, busy)
        self._ending: Future[Any] = Future()

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self._survey.hostname} ({self.ip})" if self._survey is not None else self.ip

    @property
    def ready(self) -> bool:
        """Its agent runs, and has looked around."""
        return self._survey is not None

    @property
    def shared(self) -> bool:
        """It sees the driver's own directory."""
        return self.survey().shared

    def temporary(self, run: Path) -> Path:
        """Its part of a run's directory for temporary files, which other hosts may see."""
        return run / self._temporary

    def survey(self) -> HostSurvey:
        """What its agent found; waits for it. Raises SettingError, TuneError."""
        if self._survey is None:
            try:
                survey: HostSurvey = self._looking.result(_PATIENCE_S)
            except Exception as error:  # whatever was raised over there, or that it takes too long
                silent = f"nothing came of it within {_PATIENCE_S:g} s"
                why = last_line(error) if self._looking.done() else silent
                raise AgentError(f"node {self.ip}: its agent does not start: {why}") from error
            if survey.problem:
                raise SettingError(
                    f"node {self.ip} ({survey.hostname}): {survey.problem}; choose a storage_path that every node can "
                    "write, shared or of its own"
                )
            self._survey = survey
            for dirname, ref, _ in survey.found:
                self.store.has(Path(dirname) / ref.name)
        return self._survey

    def when_looked(self, then: Callable[[Any], None]) -> None:
        """Have `then` called, from any thread, when `survey` does not wait any more."""
        self._looking.add_done_callback(then)

    def begin(self, setup: Setup, pickled: Any, modules: Any, then: Callable[[BaseException | None], None]) -> None:
        """Have it get ready for trials; `then` is called, from any thread, with what went wrong, or None."""
        temporary = self.temporary(setup.temporary)
        setup = dataclasses.replace(setup, marker=self._mark, temporary=temporary, shared=self.shared)

        def answered(done: Future[Any]) -> None:
            if (error := done.exception()) is None:
                self.line = connect(done.result())
                self._begun = True
            then(error)

        # Connecting may take a while, and the thread that brings answers has others to bring.
        self._agent.call("begin", setup, pickled, modules).add_done_callback(
            lambda done: start_thread(answered, name="tuner-answered", args=(done,))
        )

    def listen(self, heard: Callable[[Any], None]) -> None:
        """Have `heard` called, from any thread, with an exception when the agent is dead; before, without a line, with
        each batch of events.
        """

        def answered(done: Future[bytes]) -> None:
            error = done.exception()
            if error is None:
                self.listen(heard)
            elif self.line is not None:
                self.line.close()  # what is still to be sent is not waited for
            heard(error or done.result())

        self._agent.call("events").add_done_callback(answered)

    def flush(self) -> None:
        """Send what was ordered."""
        if not self.orders or not self._begun:
            return
        orders, self.orders = self.orders, []
        data = pack_orders(orders)
        if self.line is not None:
            with contextlib.suppress(OSError):  # that it has ended is told by itself
                self.line.send(data)
        else:
            self._batches += 1
            self._agent.call("orders", self._batches, data)

    def beat(self) -> None:
        """Say that the driver lives."""
        self._agent.call("alive")

    def end(self) -> None:
        """Have it end its trials; `ended` waits for that."""
        self.orders.clear()
        self._ending = self._agent.call("end")

    def ended(self, timeout_s: float = 10.0) -> None:
        """Wait for it; one that is gone has taken its trials along."""
        wait([self._ending], timeout_s)

    def release(self) -> None:
        """End the agent at once, and with it whatever trials it has."""
        if self.line is not None:
            self.line.close()
        self._agent.kill()


def last_line(error: BaseException) -> str:
    """What went wrong, in the words that say most of it: of what was raised over there, and of a start that failed."""
    lines = [str(error)] if isinstance(error, AgentUnreachableError) else traceback.format_exception_only(error)
    return last_said("".join(lines))


def _key(path: Path) -> Path:
    return Path(*path.parts[-2:])
