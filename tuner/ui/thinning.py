"""Fewer of a trial's results, checkpoints and decisions, for a page in one file: the best and the last stay."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.ui.trial_story import TrialStory

LISTED = 200
"""Checkpoints that are gone, decisions and attempts: the newest so many."""


def thinned(story: TrialStory, metrics: Sequence[str], most: int) -> TrialStory:
    """The story with about so many results, by whose shape the line of the first metric looks as it did.

    Args:
        metrics: of each the lowest and the highest value stay, those that were made void apart from those that stand.
        most: results that stay; those of the metrics come on top.
    """
    places = _kept(story, metrics, most) if len(story.points) > most else range(len(story.points))
    by_iteration = {point.iteration: point for point in story.points}
    gone = [name for name, known in story.checkpoints.items() if known["fate"] != "kept"]
    too_old = set(gone[:-LISTED])
    checkpoints = {name: dict(known) for name, known in story.checkpoints.items() if name not in too_old}
    for known in checkpoints.values():
        point = by_iteration.get(known["iteration"])
        if known["value"] is None and point is not None and metrics:
            known["value"] = point.values.get(metrics[0])
    return TrialStory(
        points=[story.points[place] for place in places],
        void=[story.void[place] for place in places],
        checkpoints=checkpoints,
        decisions=story.decisions[-LISTED:],
        attempts=story.attempts[-LISTED:],
        is_whole=story.is_whole,
        at=story.at,
    )


def _kept(story: TrialStory, metrics: Sequence[str], most: int) -> list[int]:
    kept: set[int] = set()
    for flag in (False, True):
        own = [place for place, void in enumerate(story.void) if void is flag]
        if not own:
            continue
        kept |= {own[0], own[-1]}
        for name in metrics:
            kept |= _ends(story, name, own)
        parts = max(most * len(own) // len(story.points) // 2, 1)
        for part in range(parts):
            few = own[len(own) * part // parts : len(own) * (part + 1) // parts]
            kept |= (_ends(story, metrics[0], few) if metrics else set()) or set(few[:1])
    return sorted(kept)


def _ends(story: TrialStory, metric: str, places: Sequence[int]) -> set[int]:
    """The places of the lowest and the highest value; none, where there is no number."""
    known = [
        (value, place)
        for place in places
        if (value := story.points[place].values.get(metric)) is not None and not math.isnan(value)
    ]
    return {min(known)[1], max(known)[1]} if known else set()
