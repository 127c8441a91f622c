"""The scripted life does everything that a scheduler may ask for."""

from __future__ import annotations

from tests.tuner.testing.own_schedulers import Cloning
from tuner.schedulers import (
    Decision,
)
from tuner.schedulers.base import Exploit, Reallocate
from tuner.testing import check_scheduler
from tuner.testing.scripted_life import ScriptedLife


def test_a_scheduler_of_ones_own_may_do_everything() -> None:
    check_scheduler(Cloning)
    decisions = ScriptedLife(Cloning).play().decisions
    verdicts = [decision[2] for decision in decisions if len(decision) == 3]
    kinds = {type(verdict) if isinstance(verdict, (Exploit, Reallocate)) else verdict for verdict in verdicts}
    assert kinds == {Decision.CONTINUE, Decision.SAVE, Decision.PAUSE, Exploit, Reallocate}
    assert {decision[1].trial_id for decision in decisions if decision[0] == "order"} == {"t03", "t06"}
