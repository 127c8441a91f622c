"""What the live view says of a run: every number is that of the trials, each trial says why it stands where it does."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.progress.harness import ERROR, terminal
from tuner.clock import VirtualClock
from tuner.experiment import events as ev
from tuner.experiment.outcome import ended_because, outcome
from tuner.experiment.reason import Reason, ReasonKind
from tuner.progress.counts import ProgressFacts, UnsavedWork
from tuner.progress.run_view import RunView


def look(progress: Any, trials: Any) -> RunView:
    """The view that would be drawn now."""
    drawn: list[RunView] = []
    progress._screen.show = drawn.append
    progress.look(trials)
    return drawn[-1]


def test_the_head_counts_and_says_what_is_best_what_failed_and_what_is_kept(lab: Any) -> None:
    clock = VirtualClock()
    progress, _ = terminal(clock)
    run = lab(progress)
    run.callbacks.setup(stop=None, num_samples=9, total_num_samples=9)
    first, second, third = run.trial(lr=1), run.trial(lr=2), run.trial(lr=3)
    run.report(first, loss=0.5)
    run.report(second, loss=0.25)
    clock.advance(60)
    run.end(second)
    run.end(third, ERROR)
    progress.facts = lambda: ProgressFacts(
        running=1, done=1, failed=1, checkpoints=3, checkpoint_bytes=1_500_000, to_copy=2, bytes_to_copy=10**6,
        copy_error="no route", used={"cpu": 1}, total={"cpu": 4}, memory=(3 * 10**9, 24 * 10**9),
        unsaved=UnsavedWork(1, 5, 34),
    )  # fmt: skip
    view = look(progress, run.state.trials)
    assert view.share == 2 / 9
    assert [line.text for line in view.head] == [
        "2 of 9 trials done, 1 running, 6 waiting, 1 failed, 2 results",
        "1:00 min, about 2:00 min left, a guess from 2 trials | cpu 1/4 | memory 3.0/24.0 GB",
        "best loss 0.25: trial 1, iteration 1: lr=2",
        "1 failed, the last: trial 2: ValueError: boom",
        "3 checkpoints kept, 1.5 MB | 2 to copy, 1.0 MB | a kill now would lose 5 results, 34.0 s of work",
        "not copied just now: no route",
    ]
    assert [row.number for row in view.rows] == ["1", "0"] and [row.number for row in view.failed] == ["2"]


def test_the_next_look_goes_by_how_many_trials_there_are_to_be_then(lab: Any) -> None:
    progress, _ = terminal(VirtualClock())
    run = lab(progress)
    run.callbacks.setup(stop=None, num_samples=2, total_num_samples=2)
    run.end(run.trial(lr=1))
    for planned, said in ((None, "1 of 2 trials done"), (20, "1 of 20 trials done"), (0, "1 trial done")):
        facts = ProgressFacts(done=1, planned=planned)
        progress.facts = lambda facts=facts: facts
        assert look(progress, run.state.trials).head[0].text.startswith(said)
        assert ("of 20 trials" in progress.headlines(run.state.trials)[0]) is (planned == 20)


def test_a_search_without_an_end_has_no_bar_and_no_time_left(lab: Any) -> None:
    progress, _ = terminal(VirtualClock())
    run = lab(progress)
    run.callbacks.setup(stop=None, num_samples=-1, total_num_samples=-1)
    run.report(run.trial(lr=1), loss=0.5)
    view = look(progress, run.state.trials)
    assert view.share is None and "the search has no end of its own" in view.head[1].text


def test_why_a_trial_stands_where_it_does(lab: Any) -> None:
    progress, _ = terminal(VirtualClock())
    run = lab(progress)
    trial = run.trial(lr=1)
    assert ended_because(trial) is None
    assert outcome(trial) == "running" and outcome(trial, "silent for 5:00 min") == "running: silent for 5:00 min"
    run.facts.apply(ev.TrialEnded(trial.trial_id, "TERMINATED", 9.0, reason=Reason(ReasonKind.DONE, "train", 3)))
    assert outcome(trial) == ended_because(trial) == "returned"
    trial.end_reason = Reason(ReasonKind.WORSE, "AsyncHyperBandScheduler", 3, "loss", 0.61, 9, 12, 0.5)
    assert outcome(trial) == "stopped by ASHA at 3: 9th of 12, needed 0.5"
    assert str(trial.end_reason) == "stopped by ASHA at iteration 3: loss 0.61, 9th of 12, needed 0.5"
    assert ended_because(trial) == str(trial.end_reason)
    trial.status, trial.told_reason = "PAUSED", Reason(ReasonKind.WORSE, "HyperBandScheduler", 3, rank=2, of=3)
    assert outcome(trial) == "paused by HyperBand at 3: 2nd of 3"
    trial.status, trial.error = "ERROR", ev.ErrorInfo("OSError", "\nno\nmore")
    assert outcome(trial) == "failed: OSError: no"
    trial.error = ev.ErrorInfo("OSError", "\nno\nmore", tries=3, of=3)
    assert outcome(trial) == ended_because(trial) == "failed (3 of 3 tries): OSError: no"
    trial.status, trial.error = "PENDING", ev.ErrorInfo("OSError", "no", tries=4)
    assert outcome(trial) == "waiting: failed (tries: 4): OSError: no" and ended_because(trial) is None
    assert outcome(trial, "its driver is dead") == "waiting: its driver is dead"


@given(st.lists(st.tuples(st.sampled_from("rsed"), st.floats(0, 1)), max_size=25))
def test_every_trial_is_counted_once(tmp_path_factory: Any, steps: list[tuple[str, float]]) -> None:
    """Whatever starts, reports, fails or ends: rows and hidden ones are all trials, the best scored one is first."""
    from tests.tuner.lab import Lab

    progress, _ = terminal(VirtualClock())
    run = Lab(tmp_path_factory.mktemp("experiment"), progress)
    running: list[Any] = []
    for what, number in steps:
        if what == "s" or not running:
            running.append(run.trial(lr=number))
        elif what == "r":
            run.report(running[0], loss=number)
        else:
            run.end(running.pop(), ERROR if what == "e" else None)
    view = look(progress, run.state.trials)
    assert len(view.rows) + len(view.failed) + view.hidden == len(run.state.trials)
    scores = [float(row.metric) for row in view.rows if row.metric]
    assert scores == sorted(scores)
    assert not {row.number for row in view.rows} & {row.number for row in view.failed}
