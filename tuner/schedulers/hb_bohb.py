"""HyperBand for BOHB: the large brackets first."""

from __future__ import annotations

from tuner.schedulers.hyperband import HyperBandScheduler


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand in the order that suits a searcher with a model: each band begins with its largest bracket.

    The model is Optuna's TPE: `search_alg=OptunaSearch()` beside it.

    So a searcher soon has many results of short trainings to learn from. It is told every result, and `milestones` says
    at which times they are compared: those are the budgets that such a model is made of.

    Args and errors are those of `HyperBandScheduler`.

    Example:
        >>> HyperBandForBOHB(max_t=9).milestones
        [1, 3, 9]

    Source: Falkner et al. 2018, "BOHB: Robust and Efficient Hyperparameter Optimization at Scale", section 3.1.
    """

    _largest_first = True
