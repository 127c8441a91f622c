"""Telling a new searcher of earlier experiments: `warm_start=` of a searcher."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

from tuner.analysis import ExperimentAnalysis
from tuner.error import SettingError
from tuner.experiment.trial import Trial
from tuner.search import Searcher

log = logging.getLogger(__name__)


def learn_from_earlier(searcher: Searcher) -> bool:
    """Tell a searcher of the finished trials of the experiments that it names. True: it named some.

    Raises:
        SettingError: what is named is no experiment, or not one of its trials fits.
        TuneError: an experiment cannot be read.
    """
    if searcher.warm_start is None:
        return False
    for source in _listed(searcher.warm_start):
        trials = [trial for trial in _trials(source) if trial.status == Trial.TERMINATED]
        problems = [problem for trial in trials if (problem := searcher.learn_from(trial)) is not None]
        if len(problems) == len(trials):
            why = f"; {problems[0]}" if problems else ""
            raise SettingError(
                f"warm_start={_named(source)!r}: nothing can be learned from its {len(trials)} trials{why}"
            )
        if problems:
            log.warning(
                "warm_start=%r: %d of its %d finished trials do not fit and are left out; %s",
                _named(source),
                len(problems),
                len(trials),
                problems[0],
            )
    return True


def _listed(source: Any) -> Sequence[Any]:
    return list(source) if isinstance(source, (list, tuple)) else [source]


def _named(source: Any) -> str:
    return str(getattr(source, "experiment_path", source))


def _trials(source: Any) -> Iterable[Trial]:
    if isinstance(source, (str, os.PathLike)):
        return ExperimentAnalysis(source).trials
    analysis = getattr(source, "_analysis", source)  # a ResultGrid's
    if not isinstance(analysis, ExperimentAnalysis):
        raise SettingError(
            f"warm_start={source!r} is not accepted; accepted are an experiment's path or URI, an analysis, and a list "
            "of them"
        )
    return analysis.trials
