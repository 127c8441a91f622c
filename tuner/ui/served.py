"""What all requests share: the experiments, what was made for others already, and threads that may wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from functools import partial
from typing import Any, TypeVar

from trainables.starting import start_thread
from tuner.ui.event_stream import Deltas
from tuner.ui.guard import Access
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.served_places import Places
from tuner.ui.view_answers import ViewAnswer, ViewAnswers
from tuner.ui.views.data import data_of

AT_ONCE = 4
"""Threads that wait for the files of one experiment."""
OF_ITS_TIME = ("overview", "orders", "compare", "trial")
"""Views of which not only facts make another one."""

T = TypeVar("T")


class Served:
    """What all requests share.

    Args:
        places: the experiments.
        access: who may do what.
    """

    def __init__(self, places: Places, access: Access) -> None:
        self.places, self.access = places, access
        self.closing = asyncio.Event()
        self._deltas: dict[str, Deltas] = {}
        self._answers = ViewAnswers()
        self._waiting: dict[str, asyncio.Semaphore] = {}

    def deltas(self, live: LiveExperiment) -> Deltas:
        return self._deltas.setdefault(live.name, Deltas(live))

    async def beside(self, live: LiveExperiment, work: Callable[..., T], *given: object) -> T:
        """Done by a thread that may wait for a disk, or for a store that does not answer; others have their own."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def tell(error: Exception | None, made: Any = None) -> None:
            if not done.done():
                done.set_exception(error) if error is not None else done.set_result(made)

        def run() -> None:
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                try:
                    made = work(*given)
                except Exception as error:
                    loop.call_soon_threadsafe(tell, error)
                else:
                    loop.call_soon_threadsafe(tell, None, made)

        async with self._waiting.setdefault(live.name, asyncio.Semaphore(AT_ONCE)):
            start_thread(run, name=f"ui-beside-{live.name}")
            return await done

    async def streamed(self, live: LiveExperiment, pieces: Generator[bytes, None, None]) -> AsyncIterator[bytes]:
        """What such a thread makes piece by piece; whatever it holds is let go when nobody takes them any more."""
        try:
            while (piece := await self.beside(live, next, pieces, None)) is not None:
                yield piece
        finally:
            with contextlib.suppress(ValueError):  # a piece is being made: it ends with that
                pieces.close()

    def data(self, live: LiveExperiment, view: str, query: Mapping[str, str]) -> ViewAnswer:
        """The JSON of a view. Raises what its data raises."""
        live.check_silence()
        others = {one.name: one for one in self.places.all()} if view == "compare" else {}
        make = partial(data_of, live, view, query, others, takes_orders=self.access.takes_orders)
        if view in OF_ITS_TIME:
            return ViewAnswer(make())
        with live.lock:
            key = (live.name, view, live.epoch, live.seq, live.standing, *sorted(query.items()))
        return self._answers.get(key, make)
