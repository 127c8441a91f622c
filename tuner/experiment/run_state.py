"""The state of a run in words: running, finished, stopped by whom, or killed."""

from __future__ import annotations

from tuner.experiment.liveness import LastDriver, Liveness
from tuner.experiment.outcome import ENDS


def text(driver: LastDriver, run_ended: str | None) -> str:
    """One word or a few: "running (pid 7 on gpu01)", "finished", "stopped by you", "killed (pid 7 on gpu01)".

    Args:
        run_ended: what the journal says, if the run ended in order.
    """
    if run_ended is not None and driver.liveness is not Liveness.RUNNING:
        return ENDS.get(run_ended, run_ended)
    if driver.liveness is Liveness.ENDED:
        return "ended by an error"  # given up, and without a word in the journal
    return str(driver)


def brief(driver: LastDriver, run_ended: str | None) -> str:
    """The same without the process."""
    return text(LastDriver(driver.liveness), run_ended)


def to_go_on(driver: LastDriver, run_ended: str | None, resume: str, *, saved: bool) -> list[str]:
    """What to do about one that was killed, or ended before it was finished.

    Args:
        resume: the call that continues it.
        saved: there are checkpoints to go on from.
    """
    if run_ended == "finished" or driver.liveness not in (Liveness.KILLED, Liveness.ENDED):
        return []
    return [f"to continue{' from its checkpoints' if saved else ''}: {resume}"]


def note(driver: LastDriver, run_ended: str | None) -> str:
    """Why trials that have not ended do not go on; "" while the driver runs, and where nobody can tell."""
    if driver.liveness is Liveness.KILLED and run_ended is None:
        return "the driver was killed"
    if run_ended in (None, "finished") or driver.liveness is Liveness.RUNNING:
        return ""
    return ENDS.get(run_ended, run_ended)
