"""`Reason` as users make it: whatever it is given, the journal can hold it and be read with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tuner as tune
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.base import Decision, Reasoned


class Stops(tune.Stopper):
    def __init__(self, said: Any) -> None:
        self.said = said

    def __call__(self, trial_id: str, result: dict[str, Any]) -> Any:
        return self.said

    def stop_all(self) -> bool:
        return False


class Says(tune.schedulers.TrialScheduler):
    def __init__(self, said: Any) -> None:
        super().__init__()
        self.said = said

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        return self.said


def train(config: dict[str, Any]) -> None:
    for count in range(3):
        tune.report({"count": count})


def run(place: Path, **more: Any) -> Any:
    return tune.run(
        train, storage_path=str(place), name="e", executor="inline", verbose=0, resume="AUTO", **more
    ).trials[0]  # fmt: skip


@pytest.mark.parametrize(
    "number", [np.float32(0.5), np.float64(0.5), np.array(0.5), np.array([0.5])[0]], ids=lambda each: str(type(each))
)
def test_numbers_of_numpy_are_written_down(tmp_path: Path, number: Any) -> None:
    reason = Reason(ReasonKind.CRITERION, metric="loss", value=number, rank=np.int64(2), of=np.uint8(4), cut=number)
    for _ in ("run", "read again"):
        why = run(tmp_path, stop=Stops(reason)).end_reason
        assert why == Reason(ReasonKind.CRITERION, "Stops", 1, "loss", 0.5, 2, 4, 0.5)
        assert (type(why.value), type(why.rank)) == (float, int)


def test_any_text_is_written_down(tmp_path: Path) -> None:
    reason = Reason(ReasonKind.CRITERION, by="\ud800 Größe", metric="\udcff")
    for _ in ("run", "read again"):
        assert run(tmp_path, stop=Stops(reason)).end_reason.by == "\\ud800 Größe"


@pytest.mark.parametrize(
    ("name", "value"), [("kind", "too slow"), ("value", "0.5"), ("rank", math.nan), ("by", 3), ("cut", object())]
)
def test_what_could_not_be_read_again_is_refused_where_it_is_made(name: str, value: Any) -> None:
    with pytest.raises(tune.error.SettingError, match=rf"Reason\({name}="):
        Reason(**{"kind": ReasonKind.WORSE, name: value})


def test_every_reason_comes_back_from_json() -> None:
    for kind in ReasonKind:
        reason = Reason(kind, "A", 3, "loss", 0.5, 1, 2, 0.25)
        assert msgspec.json.decode(msgspec.json.encode(reason), type=Reason) == reason


@pytest.mark.parametrize(
    "said", ["STOP", None, True, Reason(ReasonKind.LIMIT), Reasoned(Decision.STOP, "enough")], ids=repr  # type: ignore[arg-type]
)  # fmt: skip
def test_a_decision_that_is_none_is_an_error_that_names_who_made_it(tmp_path: Path, said: Any) -> None:
    with pytest.raises(tune.error.SettingError, match="Says decided .* accepted are TrialScheduler.CONTINUE, PAUSE"):
        run(tmp_path, scheduler=Says(said))


def test_a_reason_around_a_reasoned_decision_is_that_decision(tmp_path: Path) -> None:
    inner = Reasoned(Decision.STOP, Reason(ReasonKind.WORSE))
    trial = run(tmp_path, scheduler=Says(Reasoned(inner, Reason(ReasonKind.LIMIT))))  # type: ignore[arg-type]
    assert (trial.iteration, trial.end_reason.kind) == (1, ReasonKind.LIMIT)


def test_several_metrics_are_told_with_the_front_and_come_back_from_json() -> None:
    reason = Reason(
        ReasonKind.WORSE,
        "AsyncHyperBandScheduler",
        4,
        rank=9,
        of=12,
        values={"loss": np.float32(0.5), "ms": 3},
        front=2,
    )
    assert str(reason) == "stopped by ASHA at iteration 4: loss 0.5, ms 3, front 2, 9th of 12"
    assert reason.sentence(brief=True) == "stopped by ASHA at 4: front 2, 9th of 12"
    assert msgspec.json.decode(msgspec.json.encode(reason), type=Reason) == reason
    lost = Reason(ReasonKind.WORSE, values={"loss": math.nan, "\udcff": 1})
    back = msgspec.json.decode(msgspec.json.encode(lost), type=Reason)
    assert back.values == {"loss": None, "\\udcff": 1.0}
    with pytest.raises(tune.error.SettingError, match=r"Reason\(values="):
        Reason(ReasonKind.WORSE, values={"loss": "low"})  # type: ignore[dict-item]
