"""Fewer results of a trial: the best, the worst, the first and the last of each metric stay."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tuner.ui.point_log import Point
from tuner.ui.thinning import LISTED, thinned
from tuner.ui.trial_story import TrialStory

NUMBERS = st.none() | st.floats()


@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS, st.booleans()), max_size=120), most=st.integers(1, 60))
def test_the_ends_of_each_metric_stay(rows: list[tuple[float | None, float | None, bool]], most: int) -> None:
    points = [
        Point(seq, "t", seq, None, None, {name: value for name, value in (("a", a), ("b", b)) if value is not None})
        for seq, (a, b, _) in enumerate(rows)
    ]
    story = TrialStory(points=points, void=[void for _, _, void in rows])
    made = thinned(story, ["a", "b"], most)
    kept = {point.seq for point in made.points}
    assert [point.seq for point in made.points] == sorted(kept)
    assert [story.void[point.seq] for point in made.points] == made.void
    assert len(kept) <= max(most + 2 * (2 + 4) + 4, 0) and (len(rows) > most or len(kept) == len(rows))
    for flag in (False, True):
        own = [point for point, void in zip(points, story.void, strict=True) if void is flag]
        if not own:
            continue
        assert {own[0].seq, own[-1].seq} <= kept
        for name in ("a", "b"):
            numbers = [point.values[name] for point in own if not math.isnan(point.values.get(name, math.nan))]
            left = [point.values.get(name) for point in own if point.seq in kept]
            assert not numbers or {min(numbers), max(numbers)} <= set(left)


def test_the_newest_of_long_lists_stay_and_every_checkpoint_that_is_kept() -> None:
    fates = ["kept", *["deleted"] * 500, "kept"]
    checkpoints = {
        f"c{number}": {"name": f"c{number}", "iteration": number, "fate": fate, "value": None}
        for number, fate in enumerate(fates)
    }
    points = [Point(number, "t", number, None, None, {"a": float(number)}) for number in range(502)]
    story = TrialStory(
        points=points, void=[False] * 502, checkpoints=checkpoints, decisions=[{"n": n} for n in range(900)]
    )
    made = thinned(story, ["a"], 10)
    assert list(made.checkpoints) == ["c0", *(f"c{number}" for number in range(501 - LISTED, 501)), "c501"]
    assert made.checkpoints["c400"]["value"] == 400.0 and len(made.points) < 20
    assert made.decisions == [{"n": number} for number in range(900 - LISTED, 900)]
