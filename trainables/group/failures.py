"""What goes wrong in a group, as errors and in words: one rank's exception, its silent end, one that does not come."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence
from typing import Any

from trainables.errors import RanksError
from trainables.group.rank import Rank, names, times
from trainables.group.rank_messages import Raised
from trainables.pickling import pickled
from trainables.user_frames import ELSEWHERE

_LONGER = "a longer wait is TorchConfig(timeout_s=...)"


def exception_of(raised: Raised) -> BaseException:
    """What a rank raised, of its own class where that came through, with its traceback as text."""
    import cloudpickle

    error: Any = None
    if raised.pickled:
        with contextlib.suppress(Exception, SystemExit):  # whatever its __reduce__ does
            error = cloudpickle.loads(raised.pickled)
    if isinstance(error, BaseException):
        return error
    plain = RanksError(f"{raised.type}: {raised.message}")
    plain.__dict__[ELSEWHERE] = raised.traceback
    return plain


def packed(error: Exception) -> bytes:
    """An exception for ranks to raise, cloudpickled; as a RanksError where it does not survive the way."""
    instead = RanksError(f"{type(error).__name__}: {error}")
    return pickled(error, limit=None, kind=Exception) or pickle.dumps(instead)


def add_line(error: BaseException, line: str) -> None:
    """Add a line to an exception, and to the text of its traceback."""
    error.add_note(line)
    text = error.__dict__.get(ELSEWHERE)
    if isinstance(text, str):
        error.__dict__[ELSEWHERE] = f"{text.rstrip()}\n{line}\n"


def tell_alone(error: RanksError) -> None:
    """Let the text of a leader's error be what it says, without the leader's own frames, and what a rank saw of it."""
    if ELSEWHERE in error.__dict__:
        return
    text = f"{type(error).__name__}: {error}\n"
    cause = error.__cause__
    if cause is not None:
        text += f"\nWhat another rank saw of it:\n\n{cause.__dict__.get(ELSEWHERE, cause)}"
    error.__dict__[ELSEWHERE] = text


def unequal(returned: Sequence[Rank], waiting: Sequence[Rank]) -> RanksError:
    """Some have returned while others wait for them in report()."""
    return RanksError(
        f"{names(returned)} returned after {times(returned[0].reports)} of report(), while {names(waiting)} "
        f"{'is' if len(waiting) == 1 else 'are'} in number {waiting[0].reports}: every rank has to call "
        "report() equally often"
    )


def late(ranks: Sequence[Rank], timeout_s: float) -> RanksError:
    """Some did not come to report(), or to the end, in time."""
    waiting = [rank for rank in ranks if rank.report is not None]
    if waiting:
        missing = [rank for rank in ranks if rank.report is None]
        return RanksError(
            f"{names(missing)} did not come to report() number {waiting[0].reports} within {timeout_s:g} s; "
            f"{names(waiting)} waited there. Every rank has to call report() equally often; {_LONGER}"
        )
    missing = [rank for rank in ranks if rank.last is None]
    returned = [rank for rank in ranks if rank.last is not None]
    return RanksError(
        f"{names(missing)} did not come to the end of the training function within {timeout_s:g} s after "
        f"{names(returned)}; {_LONGER}"
    )
