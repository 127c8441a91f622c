"""The lease on a replica: the owner's heartbeats, and whether somebody has taken over since."""

from __future__ import annotations

import logging

from trainables.errors import ObjectNotFoundError, TransferError
from trainables.transfer import transfer_jobs
from trainables.transfer.client import TransferClient
from tuner.error import OwnedElsewhereError
from tuner.experiment.ownership import STALE_S
from tuner.syncer.claim import RELEASE_S, encode_heartbeat, heartbeat_name
from tuner.syncer.streams.stream import Answer, ReplicaContext

log = logging.getLogger(__name__)

ANSWER_S = 10.0
"""So long an owner that was stopped waits to hear whether somebody has taken over."""


class RemoteLease:
    """A generation that was claimed in a replica."""

    def __init__(self, context: ReplicaContext, uploader: TransferClient) -> None:
        self.taken: str | None = None
        """Who has taken over, as a line for people."""
        self._context, self._uploader = context, uploader
        self._alone = not context.can.list  # nobody else can write there, and no heartbeat is needed
        self._at = context.clock.monotonic()
        self._beats = 0
        self._under_way = False

    def heartbeat(self) -> None:
        """Send the next heartbeat, and look whether somebody has taken over. Raises OwnedElsewhereError."""
        now = self._context.clock.monotonic()
        stopped, self._at = now - self._at > STALE_S / 2, now
        if self._alone:
            return
        if stopped:
            self._look()  # for so long that it may have been taken for dead
        self.check()
        if not self._under_way:
            self._under_way = True
            self._context.submit(self._signed("held"), self._sent)

    def taken_over(self, message: str) -> None:
        """The agent found the next owner's record."""
        self.taken = f"{self._context.uri}: {message}: it has taken over, and this one writes nothing more"

    def check(self) -> None:
        """Raise OwnedElsewhereError if somebody has taken over."""
        if self.taken is not None:
            raise OwnedElsewhereError(self.taken)

    def release(self) -> None:
        """Say in the replica that this owner is done, if it can be said soon; the next one waits otherwise."""
        if not self._alone and self.taken is None:
            try:
                self._uploader.call(self._signed("released"), timeout_s=RELEASE_S)
            except OSError as error:
                log.warning("%s: not released: %s", self._context.uri, error)

    def _sent(self, answer: Answer) -> None:
        self._under_way = False

    def _signed(self, state: str) -> transfer_jobs.Put:
        self._beats += 1
        key = self._context.key("generations", heartbeat_name(self._context.generation))
        return transfer_jobs.Put(key=key, data=encode_heartbeat(state, self._beats), guard=self._context.guard)

    def _look(self) -> None:
        uri = self._context.uri
        try:
            record = self._uploader.call(transfer_jobs.Read(key=self._context.guard), timeout_s=ANSWER_S)
        except ObjectNotFoundError:
            return
        except TransferError as error:
            log.warning("%s: could not look whether another driver has taken over: %s", uri, error)
            return
        self.taken = f"{uri} was taken over meanwhile ({record.decode(errors='replace'):.200}); this one stops"
