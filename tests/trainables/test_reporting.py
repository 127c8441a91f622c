"""What the callbacks for other libraries share."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from trainables import reporting, session
from trainables.context import TrainContext
from trainables.errors import InvalidSettingError, MetricError, MissingExtraError

FOUND = {"valid-loss": 0.5, "valid-error": 0.25}


class Ranked(TrainContext):
    """The context of one rank of two."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def get_world_rank(self) -> int:
        return self.rank


class Recorded:
    """A session that remembers what was reported, and what was in the checkpoint."""

    def __init__(self, rank: int) -> None:
        self.context = Ranked(rank)
        self.reports: list[tuple[dict[str, Any], dict[str, Any] | None]] = []

    def report(self, metrics: Any, checkpoint: Any = None) -> None:
        self.reports.append((metrics, None if checkpoint is None else checkpoint.get_metadata()))


@pytest.mark.parametrize(
    ("metrics", "picked"),
    [
        (None, FOUND),
        ([], FOUND),
        ("valid-loss", {"valid-loss": 0.5}),
        (["valid-error"], {"valid-error": 0.25}),
        ({"loss": "valid-loss"}, {"loss": 0.5}),
    ],
)
def test_metrics_are_chosen_by_name_names_or_a_new_name(metrics: Any, picked: dict[str, float]) -> None:
    assert reporting.chosen(metrics, FOUND, "it") == picked


def test_a_metric_that_is_not_there_is_an_error_or_left_out_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(MetricError, match="no metric 'valid_loss' of it; did you mean 'valid-loss'"):
        reporting.chosen("valid_loss", FOUND, "it")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert reporting.chosen(["absent!", "valid-loss"], FOUND, "this test", strict=False) == {"valid-loss": 0.5}
    assert caplog.text.count("absent!") == 1


@pytest.mark.parametrize(("rank", "saved"), [(0, {"epochs": 3}), (1, None)])
def test_in_a_group_only_rank_0_saves(rank: int, saved: dict[str, Any] | None) -> None:
    recorded, places = Recorded(rank), []

    def save(directory: Path) -> None:
        (directory / "model").write_text("weights")
        places.append(directory)

    with session.activated(recorded):  # type: ignore[arg-type]
        reporting.report_saved({"loss": 1.0}, save, metadata={"epochs": 3})

    assert recorded.reports == [({"loss": 1.0}, saved)]
    assert len(places) == (1 if rank == 0 else 0)
    assert not any(place.exists() for place in places)


def test_a_library_that_is_not_installed_is_named_with_its_extra() -> None:
    assert reporting.library("not_there_at_all", "json", extra="x").__name__ == "json"
    with pytest.raises(MissingExtraError, match=r'not_there_at_all.part is not installed: pip install .*\[x\]"'):
        reporting.library("not_there_at_all.part", extra="x")


def test_a_library_that_lacks_something_of_its_own_says_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import its_dependency")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ModuleNotFoundError, match="its_dependency"):
        reporting.library("half_installed", "json", extra="x")


def test_an_event_that_is_not_known_is_named_with_the_nearest() -> None:
    assert reporting.events(["a_end", "b_end"], ["a_end", "b_end", "c"], "It") == {"a_end", "b_end"}
    with pytest.raises(InvalidSettingError, match="It: on='epoch_ends' is not accepted; accepted: 'epoch_end'"):
        reporting.events("epoch_ends", ["epoch_end", "train_end"], "It")
