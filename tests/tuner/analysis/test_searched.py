"""Which finished trials and which parameters the plots about parameters draw."""

from __future__ import annotations

import pytest

from tests.tuner.lab import Lab
from tuner.analysis.searched import DRAWN
from tuner.error import SettingError


def test_of_very_many_trials_the_best_half_is_drawn_and_the_title_says_how_many(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.analysis.searched.DRAWN", 10)
    for number in range(35):
        trial = lab.trial(x=float(number), y=float(number % 5))
        lab.report(trial, loss=float(number))
        lab.end(trial)

    made = lab.analysis().plot("rank")
    assert made.layout.title.text == "Rank: loss (10 of 35 trials)"
    drawn = [int(text.split()[1].rstrip(":")) for text in made.data[0].text[::-1]]
    assert drawn[:5] == [0, 1, 2, 3, 4] and DRAWN == 500


def test_one_numeric_parameter_beside_words_is_no_contour(lab: Lab) -> None:
    for number in range(4):
        trial = lab.trial(x=float(number), opt="ab"[number % 2])
        lab.report(trial, loss=float(number))
        lab.end(trial)

    assert lab.analysis().plot("parallel").data
    with pytest.raises(SettingError, match="2 numeric parameters with several values; there are 1"):
        lab.analysis().plot("rank")
