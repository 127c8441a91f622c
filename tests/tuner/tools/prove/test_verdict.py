"""What is said of two runs: each cause by what can be seen of it. Kills are written down here, and not carried out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.tools.prove.verdict import before_kills, judge

WHOLE = [1.0, 2.0, 3.0, 4.0]


def unasked() -> Path:
    raise AssertionError("nothing differs, and yet another run is made")


def test_two_runs_that_are_the_same_prove_it(made: Callable[..., Path]) -> None:
    verdict = judge(made("whole", WHOLE), made("killed", WHOLE, kills=[3]), ignore=["seconds"], control=unasked)
    assert verdict.proven
    assert "killed once (trial 0 at iteration 3, went on from 2)" in verdict.text
    assert "all 4 results and the last checkpoints of 1 trial " in verdict.text


@pytest.mark.parametrize(
    ("killed", "words"),
    [
        ([1.0, 2.0, 9.0, 4.0], ["loss at iteration 3: 3.0, now 9.0", "Two runs without a kill are the same"]),
        ([1.0, 2.0, 1.0, 2.0], ["loss at iteration 3: 3.0, now 1.0 (and 1 more)", "as if the training began anew"]),
        ([1.0, 2.0, 3.0], ["the result at iteration 4: never came"]),
        ([1.0, 2.0, 3.0, 4.0, 5.0], ["the result at iteration 5: came, and does not without a kill"]),
    ],
)
def test_of_results_the_first_that_differs_is_named(
    made: Callable[..., Path], killed: list[float], words: list[str]
) -> None:
    """The config holds the losses here, so that it differs too."""
    whole = made("whole", WHOLE)
    verdict = judge(whole, made("killed", killed, kills=[3]), ignore=["seconds"], control=lambda: whole)
    assert not verdict.proven
    assert "not proven: trial 0 (losses=[1.0, 2.0, 3.0, 4.0]) does not go on as without a kill" in verdict.text
    assert "its config differs: losses" in verdict.text
    assert all(word in verdict.text for word in words), verdict.text


def test_a_script_that_does_not_repeat_itself_is_told_apart(made: Callable[..., Path]) -> None:
    whole, killed, again = made("whole", WHOLE), made("killed", WHOLE[::-1], kills=[3]), made("again", WHOLE[1:])
    verdict = judge(whole, killed, ignore=["seconds"], control=lambda: again)
    assert "Nobody can tell whether it continues: two runs without any kill differ as well" in verdict.text
    assert "fixed seed" in verdict.text and "cudnn" in verdict.text


def test_a_trial_that_fails_after_its_kill_and_one_that_is_missing_are_named(made: Callable[..., Path]) -> None:
    whole = made("whole", WHOLE, WHOLE)
    failed = made("failed", WHOLE, WHOLE, fails="no momentum", kills=[4])
    verdict = judge(whole, failed, ignore=["seconds"], control=lambda: whole)
    assert "it failed after it was continued" in verdict.text and "ValueError: no momentum" in verdict.text
    missing = judge(whole, made("missing", WHOLE, kills=[3]), ignore=["seconds"], control=lambda: whole)
    assert "not proven: trial 1" in missing.text and "the trial is missing" in missing.text


def test_a_run_that_was_not_killed_proves_nothing(made: Callable[..., Path]) -> None:
    verdict = judge(made("whole", WHOLE), made("killed", WHOLE), ignore=["seconds"], control=unasked)
    assert not verdict.proven and "no kill happened" in verdict.text


TIMING = "ASHA decides by the order\ntime_budget_s ends it"


def test_of_runs_that_timing_leads_elsewhere_only_what_they_share_is_compared(made: Callable[..., Path]) -> None:
    """One of them is ended earlier, as a scheduler does it; what a clone reports is not what it would have been."""
    whole = made("whole", WHOLE, WHOLE, timing=TIMING)
    shorter = judge(whole, made("shorter", WHOLE, WHOLE, ends=3, kills=[3]), ignore=["seconds"], control=unasked)
    assert shorter.proven
    assert "proven as far as the runs can be compared: killed at trial 0 at iteration 3, went on from 2" in shorter.text
    assert "the 6 results that both have" in shorter.text and shorter.text.endswith(
        "how long things take:\n  - ASHA decides by the order\n  - time_budget_s ends it"
    )
    again = made("again", WHOLE, WHOLE, timing=TIMING)
    wrong = judge(whole, made("wrong", WHOLE, ends=3, wrong=3, kills=[3]), ignore=["seconds"], control=lambda: again)
    assert not wrong.proven and "loss at iteration 3: 3.0, now 4.0" in wrong.text
    assert "Two runs without a kill are the same" in wrong.text
    other = judge(whole, made("other", WHOLE[::-1], kills=[3]), ignore=["seconds"], control=unasked)
    assert not other.proven and "Nobody can tell whether it continues" in other.text and "ASHA" in other.text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"every": 9}, "nothing was saved"),
        ({"every": 4}, "no trial reports anything after its first checkpoint"),
        ({"fails": "ill"}, "failed without any kill"),
    ],
)
def test_what_hinders_a_proof_is_seen_before_any_kill(
    made: Callable[..., Path], more: dict[str, Any], words: str
) -> None:
    verdict = before_kills(made("whole", WHOLE, **more))
    assert verdict is not None and not verdict.proven and words in verdict.text
