"""What a scheduler orders for a trial that waits: `Directive`, which was `Order` before."""

from __future__ import annotations

import pickle

from tuner.schedulers import base
from tuner.schedulers.base import Decision, Directive


def test_a_directive_that_was_stored_under_its_old_name_is_read() -> None:
    stored = pickle.dumps({"t_00001": Directive("t_00001", Decision.STOP)}, protocol=2)
    old = stored.replace(b"ctuner.schedulers.base\nDirective\n", b"ctuner.schedulers.base\nOrder\n")
    assert old != stored
    assert pickle.loads(old) == {"t_00001": Directive("t_00001", Decision.STOP)}


def test_a_scheduler_of_a_user_may_name_it_as_before() -> None:
    assert base.Order is Directive
