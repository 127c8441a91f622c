"""Giving orders without a driver's help: what is refused before anything is written, and answers that are gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.clock import SystemClock
from tuner.error import OrderError, SettingError
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.orders.giving import GivenOrder, give
from tuner.orders.mailbox import Mailbox
from tuner.orders.order import StopOrder


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": 1.0})

    storage = tmp_path_factory.mktemp("storage")
    tune.run(train, name="e", storage_path=storage, executor="inline", verbose=0)
    return storage / "e"


def test_without_a_driver_it_is_refused_and_nothing_is_written(ended: Path) -> None:
    with pytest.raises(OrderError, match="has ended: returned"):
        give(ended, StopOrder("0"))
    with pytest.raises(OrderError, match="has ended: returned"):
        give(ended, StopOrder("0"), if_dead="wait")
    assert not ExperimentPaths(ended).orders.exists()


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"order": "stpo", "trial": "0"}, "did you mean 'stop'"),
        ({"order": "stop", "trial": object()}, "no plain JSON|Expected `str`"),
        ({"order": "stop", "trial": 0}, "Expected `str`"),
    ],
)
def test_what_is_no_order_is_refused_where_it_is_given(ended: Path, order: dict[str, Any], said: str) -> None:
    with pytest.raises(OrderError, match=said):
        give(ended, order, if_dead="wait")
    with pytest.raises(OrderError, match="8 to 64"):
        give(ended, StopOrder("0"), order_id="../x", if_dead="wait")
    with pytest.raises(SettingError, match="accepted are 'refuse', 'wait'"):
        give(ended, StopOrder("0"), if_dead="now")


def test_one_that_waits_is_answered_by_the_next_driver_and_known_when_the_answer_is_gone(
    ended: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(ended, tmp_path / "e"))
    Mailbox(root).put("waiting-order", b'{"order": "stop", "trial": "0"}')
    order = GivenOrder(root, "waiting-order")
    assert (order.state, order.wait(0.0), order.wait()) == ("waiting",) * 3  # nobody lives for whom it could wait
    contents = read_journal(ExperimentPaths(root))
    after: dict[str, Any] = {"next_seq": contents.last_seq + 1, "parents": contents.chain, "clock": SystemClock()}
    writer = JournalWriter(ExperimentPaths(root), contents.generation, sync="inline", **after)
    taken = ev.OrderTaken("waiting-order", ev.NO_RAW, 1.0)
    for fact in (taken, ev.OrderAnswered("waiting-order", 2.0, False, "it has ended")):
        writer.append(ev.encode(fact))
    writer.close()
    (root / "orders" / "waiting-order.json").unlink()
    assert repr(GivenOrder(root, "waiting-order")) == "<order waiting-order: refused: it has ended>"
    assert GivenOrder(root, "nobody-knows-it").state == "refused"
