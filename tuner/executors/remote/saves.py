"""What attempts on other hosts save: copied here, and told in order once it has come."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable

from trainables.net.failed import DISK
from trainables.wire import AttemptErrored, SaveFailed, SavePublished
from tuner.executors.base import Event, Message
from tuner.executors.host_agent.protocol import TellTrial
from tuner.executors.reactor import Reactor
from tuner.executors.remote import handle
from tuner.executors.remote.arriving import Coming
from tuner.executors.remote.remote_attempt import RemoteAttempt
from tuner.executors.remote.stores import Stores
from tuner.executors.remote.transfers import Carrier

log = logging.getLogger(__name__)


class SaveFetcher:
    """Of all attempts. It belongs to the driver's thread.

    Args:
        stores: where the experiment lies, and who deletes over there what did not come.
        all_came: called when an attempt that is over has nothing more to come.
    """

    def __init__(
        self, reactor: Reactor, stores: Stores, carrier: Carrier, all_came: Callable[[RemoteAttempt, list[Event]], None]
    ) -> None:
        self._reactor, self._stores, self._carrier, self._all_came = reactor, stores, carrier, all_came
        self._told_slow: set[str] = set()
        """Nodes of which was said that the way from there is slow."""

    def fetch(self, attempt: RemoteAttempt, message: Message, body: SavePublished) -> None:
        """Copy what was just saved here; then it is told."""
        coming = attempt.coming.add(message, body.ref)
        path = attempt.launch.job.directory / body.ref.name

        def arrived(problem: Exception | None) -> None:
            self._reactor.call_soon(lambda events: self._arrived(attempt, coming, problem, events))

        host, landing = attempt.host, attempt.landing
        self._carrier.beside(
            host, lambda: self._carrier.bring_here(host, path, self._stores.root, body.digest, landing), arrived
        )

    def let_go_on(self, attempt: RemoteAttempt, *, at_once: bool = False) -> None:
        """A trial that had to wait for its checkpoints need not any more."""
        if (freed := attempt.coming.freed(time.monotonic(), at_once=at_once)) is None:
            return
        answer, long = freed
        if long and attempt.host.node not in self._told_slow:
            self._told_slow.add(attempt.host.node)
            log.warning(
                "checkpoints are saved on %s faster than they come here: its trials wait for them", attempt.host.name
            )
        attempt.order(TellTrial(attempt.trial_id, answer))

    def _arrived(self, attempt: RemoteAttempt, coming: Coming, problem: Exception | None, events: list[Event]) -> None:
        if coming not in attempt.coming or handle.died(problem):
            return  # that the host is lost is all that is to be said
        arriving = attempt.coming
        if problem is None:
            coming.told, arriving.failed = coming.message, 0
        else:
            failed = SaveFailed(coming.ref, f"it could not be copied from {attempt.host.name}: {problem}")
            self._stores.drop_later(attempt.host, attempt.launch.job.directory / coming.ref.name)
            coming.told = dataclasses.replace(coming.message, body=failed)
            arriving.failed += 1
            if arriving.failed >= max(attempt.launch.job.max_publish_failures, 1):
                attempt.fail(_too_many(attempt, problem))
        events += arriving.take()
        self.let_go_on(attempt)
        if attempt.exited is not None and not arriving:
            self._all_came(attempt, events)


def _too_many(attempt: RemoteAttempt, problem: Exception) -> AttemptErrored:
    """What it saves does not come here, again and again: it fails, as it does where that is its own disk."""
    text = f"{attempt.coming.failed} checkpoints in a row were not copied from {attempt.host.name}; the last one: "
    disk = isinstance(problem, OSError) and problem.errno in DISK
    return AttemptErrored("PublishError", text + str(problem), "", disk=disk)
