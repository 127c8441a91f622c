"""error.txt: every failure of a trial."""

from __future__ import annotations

from typing import Any

from tuner.experiment.events import ErrorInfo
from tuner.logger import ErrorFileCallback


def test_f52_every_failure_is_in_the_trials_error_txt(lab: Any) -> None:
    run = lab(ErrorFileCallback())
    trial = run.trial()
    run.end(trial, ErrorInfo("ValueError", "boom", 'Traceback (most ...):\n  File "x"\nValueError: boom\n'))
    run.end(trial, ErrorInfo("KeyError", "'a'"))

    text = (trial.directory / "error.txt").read_text()

    assert text.count("Failure #") == 2
    assert 'File "x"\nValueError: boom' in text
    assert "KeyError: 'a'" in text


def test_f52_a_trial_that_ends_well_after_all_has_no_error_txt(lab: Any) -> None:
    run = lab(ErrorFileCallback())
    trial = run.trial()
    run.end(trial, ErrorInfo("ValueError", "boom", "ValueError: boom"))
    run.end(trial)

    assert not (trial.directory / "error.txt").exists()
    assert "boom" in (trial.directory / "error_recovered.txt").read_text()
