"""The runs of `Trainer`: what they return, and results while they go on."""

from __future__ import annotations

from pathlib import Path

import pytest

import trainables as train
from tests.trainables.first_generation import STEPS, pairs, report_twice, trainer
from trainables.errors import SessionError


def test_an_iterator_gives_what_every_worker_reported_and_then_what_they_returned(tmp_path: Path) -> None:
    iterator = trainer(tmp_path).run_iterator(report_twice)

    with pytest.raises(SessionError, match="force=True"):
        iterator.get_final_results()
    assert [pairs(results) for results in iterator] == STEPS
    assert iterator.is_finished()
    assert iterator.get_final_results() == ["done", "done"]


def test_an_iterator_that_is_given_up_ends_its_run(tmp_path: Path) -> None:
    def endless() -> None:
        while True:
            train.report(step=0, rank=0)

    iterator = trainer(tmp_path).run_iterator(endless)
    next(iterator)

    iterator.close()

    assert iterator.is_finished()
