"""`results.plot`: each kind shows what there is, or says why not."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner as tune
from tests.tuner.analysis.harness import exploit, needs_chromium, tuned
from tests.tuner.lab import Lab
from trainables import tagged
from trainables.errors import MissingExtraError
from trainables.transfer.open import open_backend
from tuner.analysis import ResultGrid
from tuner.analysis.plots import KINDS
from tuner.analysis.spans import spans_of
from tuner.error import SettingError
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.schedulers import ASHAScheduler


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "schedule"])
def test_each_kind_is_a_figure(lab: Lab, kind: str) -> None:
    metrics = ["loss", "size"] if kind == "pareto" else "loss"
    analysis = tuned(lab).analysis(metrics, "min")

    made = analysis.plot(kind)

    assert made.data and made.layout.title.text
    assert made.to_json()


def test_a_curve_has_the_history_of_its_trial(lab: Lab) -> None:
    made = ResultGrid(tuned(lab).analysis()).plot("curves")

    assert [list(line.x) for line in made.data] == [[1, 2, 3]] * 6
    assert [list(line.y) for line in made.data] == [[number / step for step in (1, 2, 3)] for number in range(6)]
    assert made.layout.yaxis.title.text == "loss"
    assert ResultGrid(lab.analysis()).plot("curves", metric="size", mode="max").layout.yaxis.title.text == "size"
    assert lab.analysis("loss", "min").plot("learning_curves") == made


def test_of_many_trials_the_best_have_curves_and_the_title_says_so(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.analysis.curves.CURVES", 2)

    made = tuned(lab).analysis("loss", "max").plot("curves")

    assert [line.name for line in made.data] == ["4 TERMINATED", "5 TERMINATED"]
    assert "the best 2 of 6" in made.layout.title.text


def test_the_pareto_front_is_that_of_the_finished_trials(lab: Lab) -> None:
    made = tuned(lab).analysis(["loss", "size"], "min").plot("pareto")

    best = [trace for trace in made.data if "Best Trial" in trace.hovertemplate]
    assert sorted(point for trace in best for point in zip(trace.x, trace.y, strict=True)) == [
        (number / 3, 6.0 - number) for number in (0, 2, 3, 4, 5)
    ]


def test_the_schedule_shows_each_exploit_with_its_donor(lab: Lab) -> None:
    tuned(lab)
    exploit(lab, 0, 2, 2, lr=0.3, width=2, opt="sgd")
    exploit(lab, 0, 4, 3, lr=0.5, width=2, opt="sgd")

    made = lab.analysis().plot("schedule")

    assert [made.layout[axis].title.text for axis in ("yaxis", "yaxis2")] == ["lr", "width"]
    first = made.data[0]
    assert (list(first.x), list(first.y)) == ([0, 2, 3, 3], [0.1, 0.3, 0.5, 0.5])
    donor = lab.state.trials[2].trial_id
    assert f"from {donor} at iteration 3" in first.hovertext[1]
    assert list(made.data[1].y) == [0.2, 0.2]  # never changed


def test_the_timeline_has_lines_checkpoints_and_errors(lab: Lab) -> None:
    made = tuned(lab).analysis().plot("timeline")

    named = {trace.name: trace for trace in made.data}
    assert set(named) == {"running", "checkpoint (kept)", "error"}
    assert list(named["checkpoint (kept)"].y) == list(range(6))
    assert list(named["error"].y) == [1]
    ended = datetime.datetime.fromtimestamp(lab.state.trials[1].ended_at or 0)
    assert [str(at) for at in named["error"].x] == [str(ended)]


def live(state: ExperimentState, *facts: ev.AnyFact) -> Trial:
    for fact in facts:
        state.apply(fact)
    return state.trials[-1]


def heard(trial: Trial, iteration: int, timestamp: float) -> ev.ResultReported:
    raw = msgspec.Raw(tagged.dumps({"timestamp": timestamp}))
    return ev.ResultReported(trial.trial_id, trial.attempt, iteration, raw)


def seen(trial: Trial, until: float = 60.0) -> list[tuple[str, float, float]]:
    return [(span.kind, span.start, span.end) for span in spans_of(trial, until)]


def test_stretches_are_exact_and_outlive_a_compaction(lab: Lab) -> None:
    trial = lab.trial(x=1)
    live(
        lab.state,
        heard(trial, 5, 5),
        ev.AttemptEnded(trial.trial_id, 1, "paused", at=5.25),
        ev.AttemptStarted(trial.trial_id, 2, 1, 20.5, iteration=5),
        ev.AttemptEnded(trial.trial_id, 2, "failed", at=20.625),
        ev.AttemptStarted(trial.trial_id, 3, 1, 39.75, iteration=5),
        heard(trial, 7, 42),
    )
    compacted = ExperimentState.from_snapshot(lab.state.root, lab.state.snapshot({})).trials[0]

    for one in (trial, compacted):
        assert seen(one) == [
            ("running", 0.0, 5.25),
            ("paused", 5.25, 20.5),
            ("running", 20.5, 20.625),
            ("failed", 20.625, 39.75),
            ("running", 39.75, 42.0),
        ]
    assert [span.said for span in spans_of(trial, 60.0)][::2] == [
        "running: iterations 1-5",
        "running: no results",
        "running: iterations 6-7",
    ]


def test_of_a_killed_driver_and_in_an_older_journal_an_attempt_ends_with_its_last_result(lab: Lab) -> None:
    trial = lab.trial(x=1)
    older = b'{"kind":"attempt_ended","trial":"%s","attempt":1,"why":"paused"}' % trial.trial_id.encode()
    live(lab.state, heard(trial, 5, 5), ev.decode(older), ev.AttemptStarted(trial.trial_id, 2, 1, 20.5, iteration=5))
    live(lab.state, heard(trial, 8, 30), ev.AttemptEnded(trial.trial_id, 2, "halted"))
    live(lab.state, ev.RolledBack(trial.trial_id, 3, 5), ev.AttemptStarted(trial.trial_id, 3, 2, 50.0, iteration=5))
    live(lab.state, ev.AttemptEnded(trial.trial_id, 3, "halted"))

    assert seen(trial) == [
        ("running", 0.0, 5.0),
        ("paused", 5.0, 20.5),
        ("running", 20.5, 30.0),
        ("paused", 30.0, 50.0),
        ("paused", 50.0, 60.0),  # the third attempt was never heard of
    ]


def test_a_trial_that_was_ended_while_it_was_paused_did_not_run_until_then(lab: Lab) -> None:
    paused, ran = lab.trial(x=1), lab.trial(x=2)
    lab.state.apply(ev.AttemptEnded(paused.trial_id, 1, "paused", at=5.0))
    for trial in (paused, ran):
        lab.state.apply(ev.TrialEnded(trial.trial_id, "TERMINATED", 60.0))

    assert seen(paused, 70.0) == [("running", 0.0, 5.0), ("paused", 5.0, 60.0)]
    assert seen(ran, 70.0) == [("running", 0.0, 60.0)]


def test_an_errored_trial_that_is_taken_up_again_did_not_run_meanwhile(lab: Lab) -> None:
    broke, starved = lab.trial(x=1), lab.trial(x=2)
    lab.state.apply(ev.AttemptEnded(starved.trial_id, 1, "failed", at=5.0))
    for trial in (broke, starved):
        lab.state.apply(ev.TrialEnded(trial.trial_id, "ERROR", 10.0, ev.ErrorInfo("OSError", "")))
        lab.state.apply(ev.TrialReopened(trial.trial_id))
        lab.state.apply(ev.AttemptStarted(trial.trial_id, 2, 2, 50.0))
        lab.state.apply(ev.TrialEnded(trial.trial_id, "TERMINATED", 60.0))

    assert seen(broke) == [("running", 0.0, 10.0), ("failed", 10.0, 50.0), ("running", 50.0, 60.0)]
    assert seen(starved) == [("running", 0.0, 5.0), ("failed", 5.0, 50.0), ("running", 50.0, 60.0)]


def test_a_trial_that_is_paused_is_so_until_the_end(lab: Lab) -> None:
    trial = lab.trial(x=1)
    lab.report(trial, loss=1.0)
    lab.save(trial)
    lab.state.apply(ev.AttemptEnded(trial.trial_id, 1, "paused", at=5.0))

    assert seen(trial) == [("running", 0.0, 5.0), ("paused", 5.0, 60.0)]


def test_the_time_of_a_stretch_is_the_loops_clock(tmp_path: Path) -> None:
    """A whole run: what the journal says of the end of each attempt lies between its start and the next one's."""

    class Steps(tune.Trainable):
        def step(self) -> dict[str, float]:
            return {"loss": float(self.config["x"])}

        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, int]:
            return {}

        def load_checkpoint(self, checkpoint: dict[str, int]) -> None:
            """There is nothing to load."""

    trials = tune.run(
        Steps, scheduler=ASHAScheduler(max_t=4, reduction_factor=2, type="promotion"), metric="loss", mode="min",
        config={"x": tune.grid_search([1, 2, 3])}, storage_path=tmp_path, name="e", executor="inline", verbose=0,
    ).trials  # fmt: skip
    rested = [trial for trial in trials if trial.rests]
    assert rested and all(rest.why == "paused" for trial in rested for rest in trial.rests)
    for trial in trials:
        rests = [at for rest in trial.rests for at in (rest.since, rest.until)]
        assert [trial.started_at, *rests, trial.ended_at] == sorted([trial.started_at, *rests, trial.ended_at])
    loaded = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert [seen(trial) for trial in loaded] == [seen(trial) for trial in trials]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("curves", "no trial has reported a number 'loss'"),
        ("parallel", "two finished trials with loss; there are 0"),
        ("importances", "two finished trials"),
        ("contour", "two finished trials"),
        ("rank", "two finished trials"),
        ("pareto", "two or three metrics; there are 1"),
        ("schedule", "no trial was cloned"),
    ],
)
def test_a_kind_that_shows_nothing_says_why(lab: Lab, kind: str, reason: str) -> None:
    lab.report(lab.trial(x=1), other=1.0)

    with pytest.raises(SettingError, match=f"kind='{kind}' shows nothing of this experiment: .*{reason}"):
        lab.analysis().plot(kind)


def test_one_metric_of_several_goes_by_its_own_mode(lab: Lab) -> None:
    analysis = tuned(lab).analysis(["loss", "size"], ["min", "max"])

    assert analysis.plot("curves", metric="size").layout.yaxis.title.text == "size"
    assert analysis.plot("rank").layout.title.text == "Rank: loss"
    with pytest.raises(SettingError, match="mode=None"):
        analysis.plot("curves", metric="other")


def test_one_parameter_is_no_contour(lab: Lab) -> None:
    for number in range(3):
        trial = lab.trial(x=float(number), same=1)
        lab.report(trial, loss=float(number))
        lab.end(trial)

    assert lab.analysis().plot("importances").data
    with pytest.raises(SettingError, match="2 numeric parameters with several values; there are 1"):
        lab.analysis().plot("contour")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "curve"}, "kind='curve' is not accepted.*curves, parallel"),
        ({"kind": "curves", "metric": "loss", "mode": "least"}, "mode='least'"),
        ({"kind": "curves", "path": "curves.gif"}, r"'curves.gif' is not accepted; it ends in one of .html, .png"),
        ({"kind": None, "path": "all.png"}, "a page .* or a directory; an image shows one kind: history, curves"),
    ],
)
def test_what_cannot_be_shown_is_refused(lab: Lab, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        tuned(lab).analysis().plot(**arguments)


def test_without_plotly_the_extra_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)

    with pytest.raises(MissingExtraError, match=r'pip install .*\[plot\]"'):
        tuned(lab).analysis().plot("curves")


def test_all_of_them_as_a_directory_of_pages(lab: Lab, tmp_path: Path) -> None:
    analysis = tuned(lab).analysis(["loss", "eval/size"], ["min", "max"])

    made = analysis.plot(path=tmp_path / "plots")

    assert list(made) == ["history-loss", "curves-loss", "timeline"]  # no trial has an eval/size: none is complete
    written = sorted(file.name for file in (tmp_path / "plots").iterdir())
    assert written == ["curves-loss.html", "history-loss.html", "timeline.html"]


def test_a_plot_is_written_elsewhere_too(lab: Lab) -> None:
    tuned(lab).analysis().plot("curves", path="memory://plotted/here/curves.html")

    backend = open_backend("memory://plotted/here")
    assert b"Learning curves: loss" in backend.read("curves.html")


@needs_chromium
@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<svg")])
def test_an_image_is_drawn_by_the_browser_of_this_machine(lab: Lab, tmp_path: Path, suffix: str, begins: bytes) -> None:
    tuned(lab).analysis().plot("curves", path=tmp_path / f"curves.{suffix}")

    assert (tmp_path / f"curves.{suffix}").read_bytes().startswith(begins)


def test_without_a_browser_an_image_says_what_is_missing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "none"))

    with pytest.raises(MissingExtraError, match="need Chrome or Chromium on this machine"):
        tuned(lab).analysis().plot("curves", path=tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()
