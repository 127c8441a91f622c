"""What waits: a live view in order, whose first item and length cost the same with ten thousand as with ten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import tuner as tune
from tuner.driver.attempts import Waiting
from tuner.executors import SimulatedExecutor
from tuner.experiment.trial import Trial
from tuner.schedulers import FIFOScheduler


def trial(number: int) -> Trial:
    name = f"t{number:05d}"
    return Trial(name, number, "train", name, name, msgspec.Raw(b"{}"))


def test_the_view_follows_what_waits_and_cannot_change_it() -> None:
    trials = [trial(number) for number in range(5)]
    waiting = Waiting(trials[:3])
    view = waiting.view
    waiting.remove(trials[0])
    waiting.add(trials[4])
    waiting.add(trials[0])  # paused again: it waits from now on
    expected = [trials[1], trials[2], trials[4], trials[0]]
    assert list(view) == expected and len(view) == len(waiting) == 4
    assert [view[index] for index in (0, 1, 2, 3, -1, -4)] == [*expected, expected[-1], expected[0]]
    assert view[1:3] == expected[1:3] and trials[2] in view and trials[3] not in view
    with pytest.raises(IndexError):
        view[4]
    assert not {"append", "add", "remove", "pop", "__setitem__", "__delitem__"} & set(dir(view))


class Counting(OrderedDict[str, Trial]):
    """Counts the items that are taken out of it."""

    touched = 0

    def values(self) -> Any:
        def walk() -> Iterator[Trial]:
            for item in OrderedDict.values(self):
                self.touched += 1
                yield item

        return walk()

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.touched += 1
            yield key


@pytest.mark.parametrize("count", [10, 10_000])
def test_a_choice_touches_one_item_however_many_wait(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.driver.attempts.OrderedDict", Counting)
    waiting = Waiting(trial(number) for number in range(count))
    held: Any = waiting._trials
    scheduler = FIFOScheduler()
    for turn in range(1, 11):
        held.touched = 0
        chosen = scheduler.choose_trial_to_run(waiting.view)
        assert chosen is not None and chosen.index == (turn - 1) % count
        waiting.remove(chosen)
        waiting.add(chosen)
        assert held.touched == 1


class Watching(FIFOScheduler):
    """Remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[Any] = []
        self.lengths: list[int] = []

    def choose_trial_to_run(self, pending: Any) -> Any:
        self.shown.append(pending)
        self.lengths.append(len(pending))
        return super().choose_trial_to_run(pending)


def test_the_loop_shows_the_scheduler_one_live_view_and_never_a_copy(tmp_path: Any) -> None:
    def model(config: dict[str, Any]) -> list[tuple[float, dict[str, Any]]]:
        return [(1.0, {"loss": config["x"]})] * 3

    class Ends(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any) -> None:
            if len(trials) == 40:
                raise InterruptedError

    settings: dict[str, Any] = {"name": "e", "storage_path": tmp_path, "verbose": 0, "num_samples": 60}
    settings["config"] = {"x": tune.uniform(0, 1)}

    def train(config: dict[str, Any]) -> None:
        """The model says what happens."""

    with pytest.raises(InterruptedError):
        tune.run(train, executor=SimulatedExecutor(model, slots=40), callbacks=[Ends()], **settings)
    scheduler = Watching()
    analysis = tune.run(train, executor=SimulatedExecutor(model, slots=2), scheduler=scheduler, resume=True, **settings)
    assert [one.status for one in analysis.trials] == ["TERMINATED"] * 60
    assert scheduler.lengths[:3] == [40, 39, 38]
    assert len({id(pending) for pending in scheduler.shown}) == 1 and not isinstance(scheduler.shown[0], (list, tuple))
