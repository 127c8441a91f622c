"""Lasting orders where no driver lives: whoever gives one owns the experiment briefly, and does it.

The order lies in the mailbox before anything is claimed: a kill loses none. Of two who do this at once, or beside a
driver that starts, one is the owner; the other one waits until it has an answer, or the experiment is free again.
"""

from __future__ import annotations

import logging
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.config import SyncConfig
from trainables.errors import TransferError
from trainables.masking import MASK
from trainables.places import parent_and_name
from trainables.transfer.open import shown
from tuner.clock import Clock, SystemClock
from tuner.error import ExperimentNotFoundError, OrderError, OwnedElsewhereError
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import Processes
from tuner.experiment.reader import load_state, read_settings
from tuner.orders import lasting
from tuner.orders.mailbox import Letter, Mailbox, OrderAnswer, OrderState
from tuner.syncer import views
from tuner.syncer.brief_owner import owned_briefly
from tuner.syncer.claim import RemoteClaim
from tuner.syncer.remote_experiment import RemoteExperiment

log = logging.getLogger(__name__)

REPLICA_S = 60.0
"""So long a replica may be silent before it is left to the next run."""
_OWN_MACHINE = "No order reaches a driver through a copy: give it on its machine, in the directory where it runs"
_NOWHERE = ExperimentPaths(Path("/nonexistent"))


def attend(root: Path, clock: Clock) -> None:
    """Own an experiment briefly, do the lasting orders that lie there, and bring the journal to its replica.

    Raises OwnedElsewhereError where somebody else owns it, OrderError where its replica cannot be claimed.
    """
    paths, mailbox = ExperimentPaths(root), Mailbox(root)
    config = _replica_of(paths)
    try:
        with owned_briefly(paths, config, clock=clock, journal_only=True) as owner:
            answers = lasting.settle(owner, mailbox.waiting(), clock.time())
            owner.sync()
            lasting.hand_over(mailbox, answers)
            if missing := owner.push():
                place = "" if owner.replica is None else owner.replica.place
                log.warning("%s lacks %s; `tuner sync %s`, or the next run, brings it", place, missing[0], root)
    except TransferError as error:
        raise OrderError(
            f"{root} has a copy, which has to be claimed too and cannot be: {error}; --if-dead wait (if_dead='wait' in "
            "Python) has the order wait for the next start"
        ) from error


def _replica_of(paths: ExperimentPaths) -> SyncConfig | None:
    """Where copies go, by what can be read without running anything of it. Raises OrderError."""
    settings = read_settings(paths)
    place = settings.get("upload_dir")
    if settings.get("sync_command") or (place is not None and MASK in place):
        raise OrderError(
            f"{paths.root} is copied by a command, code or with a password, which only a run uses: --if-dead wait "
            "(if_dead='wait' in Python) has the order wait for the next start"
        )
    return None if place is None else _briefly(place, settings)


def _briefly(place: str, settings: Mapping[str, Any]) -> SyncConfig:
    """The settings of a replica that is owned for an order."""
    return SyncConfig(upload_dir=place, sync_timeout=REPLICA_S, s3_extra_args=settings.get("s3_extra_args"))


# --- where only the replica is ----------------------------------------------------------------------------------


def attend_elsewhere(uri: str, letter: Letter, clock: Clock) -> OrderAnswer:
    """Do a lasting order to an experiment of which only the replica is at hand; an id that it knows has its answer.

    Raises OrderError where its driver lives, or nobody can claim it there; ExperimentNotFoundError, TransferError.
    """
    with tempfile.TemporaryDirectory(prefix="order-") as directory:
        place, name = parent_and_name(uri)
        paths = ExperimentPaths(Path(directory, name))
        with views.opened(uri) as remote:
            _check_claimable(remote, uri)
            remote.fetch_journal(paths.root)
        known = load_state(paths).orders.get(letter.id)
        if known is not None and known.state != "taken":
            return OrderAnswer(letter.id, OrderState(known.state), known.why)
        config = _briefly(place, read_settings(paths))
        try:
            # Of the owner that is named here the replica says whether it lives.
            with owned_briefly(paths, config, clock=clock, takeover=True, journal_only=True) as owner:
                answers = lasting.settle(owner, [letter], clock.time())
                owner.sync()
                if missing := owner.push():
                    raise OrderError(f"{shown(uri)} did not get it: {missing[0]}")
        except OwnedElsewhereError as error:
            raise OrderError(f"{error}. {_OWN_MACHINE}") from error
    return next(answer for answer in answers if answer.id == letter.id)


def refusal_elsewhere(uri: str) -> OrderError:
    """Why an order that needs a driver is not taken behind a bucket, and where it is given.

    Raises ExperimentNotFoundError, TransferError.
    """
    with views.opened(uri) as remote:
        _check_is_there(remote)
        owner = RemoteClaim(remote, _NOWHERE, SystemClock()).last_owner()
        command = f"tuner sync {shlex.quote(remote.name)} --from {shlex.quote(shown(uri))}"
        bring = f"`{command}` brings it here, where it can be given"
    why = f"{shown(uri)} is a copy, through which no order reaches a driver"
    if owner.record is None or owner.released:
        return OrderError(f"{why}; none runs it: {bring}")
    host, pid, seen = owner.record.owner.host, owner.record.owner.pid, Processes()
    if seen.sees(owner.record.owner):
        if not seen.lives(owner.record.owner):
            return OrderError(f"{why}; the last one, pid {pid} on {host}, was killed: {bring}")
        return OrderError(f"{why}: pid {pid} on {host} runs it; {_give_there(host)}")
    return OrderError(
        f"{why}: pid {pid} on {host} runs it, or was killed, which cannot be seen from here. {_give_there(host)}; if "
        f"{host} is gone, {bring}"
    )


def _give_there(host: str) -> str:
    return f"give the order on {host}, in the directory where it runs"


def _check_is_there(remote: RemoteExperiment) -> None:
    if not remote.exists:
        raise ExperimentNotFoundError(f"there is no experiment at {remote.uri}")


def _check_claimable(remote: RemoteExperiment, uri: str) -> None:
    _check_is_there(remote)
    can = remote.uploader.can
    if not (can.list and can.exclusive):
        raise OrderError(
            f"{shown(uri)} is at a place where nobody can claim it, so that two could write it at once: "
            f"`tuner sync {shlex.quote(remote.name)} --from {shlex.quote(shown(uri))}` brings it here, where the order "
            "can be given"
        )
