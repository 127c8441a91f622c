"""What changes, as Server-Sent Events whose ids are the journal's numbers: a page that comes back misses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

from starlette.concurrency import run_in_threadpool

from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.point_log import as_columns
from tuner.ui.seen import Seen, as_json
from tuner.ui.views.orders import changed_orders
from tuner.ui.views.overview import changing

SILENCE_S = 15.0
"""After so long a line that says nothing keeps proxies from closing the connection."""
PAUSE_S = 0.1
"""Between two events, however many facts there are."""
STEP = 2_000
"""Rows in one event, at most: what is more comes as the next ones."""


def sse(kind: str, seq: int, data: bytes) -> bytes:
    """One event."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, kind.encode(), data)


class Deltas:
    """What is new since a fact, made once for all pages that ask for the same."""

    def __init__(self, live: LiveExperiment) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._made: dict[tuple[int, int, int, int, bool], tuple[int, bytes]] = {}

    def since(self, seq: int, standing: int | None) -> tuple[int, int, bytes]:
        """(the newest fact, which standing, the events; none if nothing is new).

        Args:
            standing: what the page knows of it; None: nothing, so that the part that time changes is told in any case.
        """
        live = self._live
        with self._lock, live.lock:
            now, stands = live.seq, live.standing
            noted = bool(live.note) if standing is None else standing < live.noted
            if seq == now and standing is None:
                # Time has changed it since somebody else asked.
                return now, stands, self._events(seq, now, True, bool(live.note))
            key = (live.epoch, seq, now, stands if standing != stands else -1, noted)
            if key not in self._made:
                if len(self._made) > 32:
                    self._made.clear()
                self._made[key] = now, self._events(seq, now, standing != stands, noted)
            return now, stands, self._made[key][1]

    def _events(self, seq: int, now: int, stands: bool, noted: bool) -> bytes:
        """Noted: why trials that have not ended do not go on is another reason than the page knows."""
        seen = Seen(self._live, self._live.picture)
        if now > seq or noted:
            return sse("changes", now, as_json(changes(seen, seq, noted)))
        if stands:
            return sse("overview", now, as_json({"seq": now, **changing(seen)}))
        return b""


def changes(seen: Seen, seq: int, noted: bool = False) -> dict[str, Any]:
    """What facts after that one have changed, as columns; noted: and the rows of all that have not ended."""
    picture, table = seen.picture, seen.picture.table
    results, void = as_columns(picture.points.since(seq))
    moving = changing(seen)
    rows = table.since(seq)
    if noted:
        rows = sorted({*rows, *(table.row_of[trial.trial_id] for trial in picture.state.unfinished)})
    return {
        "seq": picture.seq,
        "time": moving["time"],
        "counts": moving["counts"],
        "trials_in_all": len(table),
        "trials": table.some(rows),
        "results": results,
        "void": void,
        "orders": changed_orders(seen, seq),
        "checkpoints": [table.ids[row] for row in rows],
        "overview": moving,
    }


async def events(
    live: LiveExperiment, deltas: Deltas, given: int | None, closing: asyncio.Event
) -> AsyncIterator[bytes]:
    """The stream of one page.

    Args:
        given: the last fact that the page knows; None: it has just read everything.
        closing: set when the server ends.
    """
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def told() -> None:
        loop.call_soon_threadsafe(news.set)

    live.listen(told)
    try:
        yield b"retry: 1000\n\n"
        async for chunk in _until_read(live, news, closing):
            yield chunk
        if closing.is_set():
            return
        epoch = live.epoch
        seq, standing, first = await run_in_threadpool(_first, live, deltas, given)
        yield first
        while not closing.is_set():
            if live.epoch != epoch or not live.is_read:
                async for chunk in _until_read(live, news, closing):
                    yield chunk
                if closing.is_set():
                    return
                epoch, seq = live.epoch, live.seq
                yield sse("reset", seq, as_json({"seq": seq, "why": "the experiment was read again"}))
            news.clear()
            live.check_silence()
            if live.is_read:
                seq, standing, told_now = await run_in_threadpool(_since, live, deltas, seq, standing)
                if told_now:
                    yield told_now
                    await asyncio.sleep(PAUSE_S)
                    continue
            if not await _any(news, closing, SILENCE_S):
                yield b": alive\n\n"
    finally:
        live.unlisten(told)


def _since(live: LiveExperiment, deltas: Deltas, seq: int, standing: int | None) -> tuple[int, int | None, bytes]:
    with live.lock:
        if not live.is_read:
            return seq, standing, b""
        return deltas.since(seq, standing)


def _first(live: LiveExperiment, deltas: Deltas, given: int | None) -> tuple[int, int | None, bytes]:
    """The first event, which has the newest number, whatever the page has missed."""
    with live.lock:
        if not live.is_read:
            return 0, None, sse("reset", 0, as_json({"seq": 0, "why": "the experiment is being read again"}))
        now, kept = live.seq, live.picture.points.kept_from
        if given is None or given == now:
            return now, None, sse("hello", now, as_json({"seq": now, "time": live.clock.time()}))
        if given < kept or given > now:
            why = "that is older than what is kept" if given < kept else "there is no such fact yet"
            return now, None, sse("reset", now, as_json({"seq": now, "why": why}))
        return deltas.since(given, None)


async def _until_read(live: LiveExperiment, news: asyncio.Event, closing: asyncio.Event) -> AsyncIterator[bytes]:
    """How far the first reading is, until it is done."""
    said: tuple[float, str | None] | None = None
    while not live.is_read and not closing.is_set():
        news.clear()
        live.check_silence()
        now = (round(live.done, 2), live.error)
        if now != said and not live.is_read:
            said = now
            said_now = {"done": now[0], "said": now[1] or f"reading {now[0]:.0%}", "error": now[1]}
            yield sse("loading", 0, as_json(said_now))
        await _any(news, closing, 1.0)


async def _any(news: asyncio.Event, closing: asyncio.Event, timeout_s: float) -> bool:
    """Wait for one of both; False: neither came."""
    waits = [asyncio.ensure_future(event.wait()) for event in (news, closing)]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
