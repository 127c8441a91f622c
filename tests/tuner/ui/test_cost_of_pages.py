"""What pages that are open cost the run that they show, in calls, which are the same on every machine."""

from __future__ import annotations

import cProfile
import gc
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.ui.served import client, data, serving, stream
from tuner.driver import loop
from tuner.executors import InlineExecutor

BEFORE, COUNTED, PAGES = 20, 200, 10


class _Counts(tune.Callback):
    """Profiles the driver's own thread from one result to a later one; before it begins, something can be done."""

    changes_results = False

    def __init__(self, before: Any) -> None:
        self.profile, self.seen, self._before = cProfile.Profile(), 0, before

    def on_trial_result(self, trial: Any, result: Any, **info: Any) -> None:
        self.seen += 1
        if self.seen == BEFORE:
            self._before()
            gc.disable()  # what ends with garbage is called whenever that is found
            self.profile.enable()
        elif self.seen == BEFORE + COUNTED:
            self.profile.disable()
            gc.enable()

    @property
    def calls(self) -> Counter[str]:
        """How often each function was called."""
        counts: Counter[str] = Counter()
        for each in self.profile.getstats():
            place = each.code if isinstance(each.code, str) else f"{each.code.co_filename}:{each.code.co_qualname}"
            counts[place] += each.callcount
        return counts


def _train(config: dict[str, Any]) -> None:
    for count in range(BEFORE + COUNTED + 5):
        tune.report({"loss": 1 / (count + 1)})


def _counted(storage: Path, before: Any = lambda: None) -> _Counts:
    counts = _Counts(before)
    tune.run(
        _train,
        name="run",
        storage_path=storage,
        metric="loss",
        mode="min",
        verbose=0,
        executor=InlineExecutor(),
        callbacks=[counts],
    )
    return counts


def test_ten_open_pages_cost_the_driver_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LOOK_S", 1e9)  # what is looked at once a second belongs to the clock, not to a result
    _counted(tmp_path / "first")  # what is imported and cached once is
    alone = _counted(tmp_path / "alone")
    told: list[int] = []

    with ExitStack() as stack:
        readers: list[threading.Thread] = []

        def open_pages() -> None:
            server = stack.enter_context(serving([tmp_path / "beside" / "run"]))
            for _ in range(PAGES):
                pages = stack.enter_context(client(server))
                events = stack.enter_context(stream(pages, "/e/run/events?since=0"))
                next(events)
                readers.append(threading.Thread(target=lambda events=events: told.append(_last_result(events))))
            for reader in readers:
                reader.start()

        beside = _counted(tmp_path / "beside", open_pages)
        for reader in readers:
            reader.join(60)
        with client(stack.enter_context(serving([tmp_path / "beside" / "run"]))) as pages:
            assert data(pages, "/e/run/overview.json")["results"] == BEFORE + COUNTED + 5

    assert told == [BEFORE + COUNTED + 5] * PAGES  # they were really told all of it meanwhile
    more = {place: count for place, count in (beside.calls - alone.calls).items() if count > COUNTED / 20}
    assert not more  # a few are of threads that met, or of a second that ended; one a result would be 200


def _last_result(events: Any) -> int:
    """How far a page has come when the last result was told to it."""
    seen = 0
    for event in events:
        if event.kind == "changes":  # between them a page is told how the run stands
            seen = max([seen, *event.data["results"]["iteration"]])
        if seen == BEFORE + COUNTED + 5:
            break
    return seen
