"""The interface of schedulers: decisions, their reasons, and what is ordered for trials that wait."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

from tuner.schedulers import base
from tuner.schedulers.base import Decision, Directive


def test_a_directive_that_was_stored_under_its_old_name_is_read() -> None:
    stored = pickle.dumps({"t_00001": Directive("t_00001", Decision.STOP)}, protocol=2)
    old = stored.replace(b"ctuner.schedulers.base\nDirective\n", b"ctuner.schedulers.base\nOrder\n")
    assert old != stored
    assert pickle.loads(old) == {"t_00001": Directive("t_00001", Decision.STOP)}


def test_a_scheduler_of_a_user_may_name_it_as_before() -> None:
    assert base.Order is Directive


def test_every_decision_says_what_happens_to_the_checkpoint() -> None:
    source = Path(inspect.getfile(Decision)).read_text("utf-8")
    body = source.split("class Decision(Enum)")[1].split("@dataclass")[0]
    for member in Decision:
        described = body.split(f"{member.name} = ")[1].split('"""')[1]
        assert "checkpoint" in described or "saved" in described
