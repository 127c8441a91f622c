"""What a plug-in raises stays its own error, and says whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness, Proposer, plugin_set
from tuner.callback import Callback
from tuner.schedulers import FIFOScheduler
from tuner.search import ConcurrencyLimiter
from tuner.stopper import CombinedStopper, FunctionStopper, NoopStopper


class Mine(Exception):
    pass


def raises(*arguments: Any, **named: Any) -> Any:
    raise Mine


class Fails(FIFOScheduler):
    on_trial_result = raises


class Speechless(Proposer):
    suggest = raises


class Stops(NoopStopper):
    __call__ = raises


class Forgets(Proposer):
    on_trial_complete = raises


def ended(tmp_path: Path, **plugins: Any) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(**plugins)).turn()
    harness.report(harness.trial(), loss=1.0)
    harness.exit(harness.trial())


@pytest.mark.parametrize(
    ("plugins", "note"),
    [
        ({"searcher": Speechless()}, "raised by Speechless.suggest('ab_00000')"),
        ({"searcher": ConcurrencyLimiter(Speechless(), 2)}, "raised by Speechless.suggest('ab_00000')"),
        ({"searcher": Forgets()}, "raised by Forgets.on_trial_complete"),
        ({"scheduler": Fails()}, "raised by Fails.on_trial_result"),
        ({"stopper": FunctionStopper(raises)}, "raised by stop=raises"),
        ({"stopper": CombinedStopper(NoopStopper(), FunctionStopper(raises))}, "raised by stop=raises"),
        ({"stopper": CombinedStopper(NoopStopper(), Stops())}, "raised by Stops.__call__"),
    ],
)
def test_what_a_plug_in_raises_is_its_own_error_with_its_name(
    plugins: dict[str, Any], note: str, tmp_path: Path
) -> None:
    with pytest.raises(Mine) as caught:
        ended(tmp_path, **plugins)
    assert caught.value.__notes__ == [note]


def test_what_a_callback_raises_is_told_under_its_name(tmp_path: Path) -> None:
    class Notes(Callback):
        on_trial_result = raises

    harness = DriverHarness(tmp_path / "e", plugin_set(Notes())).turn()
    with pytest.raises(Mine) as caught:
        harness.report(harness.trial())
    assert any("Notes.on_trial_result" in note for note in getattr(caught.value, "__notes__", []))
