"""What is said of a run that ends although trials wait."""

from __future__ import annotations

import logging

from tuner.driver.parts import LoopParts
from tuner.driver.plugins.calling import label
from tuner.error import SettingError
from tuner.progress import formatting as text

log = logging.getLogger(__name__)


def say_what_is_left(parts: LoopParts, *, more: bool) -> None:
    """A run that ends although there is more to do says why.

    Args:
        more: the searcher may have more trials.

    Raises:
        SettingError: the searcher may have, and has never given any.
    """
    held = sorted(parts.state.held.values(), key=lambda trial: trial.index)
    if held:
        few = ", ".join(str(trial.index) for trial in held[:5]) + (", ..." if len(held) > 5 else "")
        one = len(held) == 1
        log.warning(
            "%s for you (%s %s): `tuner go %s %d --if-dead wait`, then run again",
            f"{text.counted(len(held), 'trial')} {'waits' if one else 'wait'}",
            "trial" if one else "trials",
            few,
            parts.state.root,
            held[0].index,
        )
    if parts.waiting:
        log.warning(
            "the run ends with %d trials that wait: no trial runs, and the scheduler chooses none of them",
            len(parts.waiting),
        )
    elif more and not parts.state.trials:
        name = label(parts.plugins.searcher)
        raise SettingError(
            f"{name} has made no trial: {name}.suggest returned None, none now, and there is no trial whose "
            "result could change that; accepted are a config (a dict) and Searcher.FINISHED (never again)"
        )
    elif more:
        log.warning(
            "the run ends with %d trials: none runs any more, and the searcher has neither a config nor said that "
            "there are no more",
            len(parts.state.trials),
        )
