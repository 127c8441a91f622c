"""What a plug-in's state is made of, and what takes it up again."""

from __future__ import annotations

import threading
from pathlib import Path

import cloudpickle

from tuner.search.pickled_state import Stateful


class Inner(Stateful):
    _remembered = ("_count",)

    def __init__(self) -> None:
        self._count = 0


class Plugin(Stateful):
    _remembered = ("_seed", "_live", "_order", "_scores", "_last", "inner")

    def __init__(self, seed: int | None = None) -> None:
        self._given_seed, self._seed = seed, seed or 1
        self._live: set[str] = set()
        self._order: dict[str, None] = {}
        self._scores: list[float] = []
        self._last: float | None = None
        self.inner = Inner()
        self.never_stored = threading.Lock()


def used() -> Plugin:
    plugin = Plugin()
    plugin._seed, plugin._last, plugin.inner._count = 5, 0.25, 3
    plugin._live |= {"b", "a"}
    plugin._order |= {"y": None, "x": None}
    plugin._scores += [0.5, 0.25]
    return plugin


def test_what_is_remembered_comes_back_and_nothing_else() -> None:
    state = cloudpickle.loads(cloudpickle.dumps(used().get_state()))
    again = Plugin()
    again.set_state(state)

    assert set(state) == {"seed", "live", "order", "scores", "last", "inner"}
    assert (again._seed, again._last, again.inner._count) == (5, 0.25, 3)
    assert (again._live, list(again._order), again._scores) == ({"a", "b"}, ["y", "x"], [0.5, 0.25])


def test_a_state_stays_as_it_is_when_the_plug_in_goes_on() -> None:
    plugin = used()
    state = plugin.get_state()
    again = Plugin()
    again.set_state(state)
    for each in (plugin, again):
        each._scores.append(1.0)
        each._live.add("c")
        each._order["z"] = None

    assert (state["scores"], state["live"], list(state["order"])) == ([0.5, 0.25], ["a", "b"], ["y", "x"])


def test_what_the_constructor_was_given_wins_over_the_state() -> None:
    again = Plugin(seed=7)
    again.set_state(used().get_state())

    assert again._seed == 7


def test_a_dict_may_have_been_stored_as_the_list_of_its_keys() -> None:
    """As version 0.1.0 did where only the keys and their order mattered."""
    again = Plugin()
    again.set_state(used().get_state() | {"order": ["q", "p"]})

    assert again._order == {"q": None, "p": None}


def test_who_names_nothing_keeps_all_that_can_be_pickled(tmp_path: Path) -> None:
    class Own(Stateful):
        def __init__(self) -> None:
            self.seen, self.lock = [1, 2], threading.Lock()

    Own().save(tmp_path / "state")
    again = Own()
    again.seen = []
    again.restore(tmp_path / "state")

    assert again.seen == [1, 2]
