"""How a notebook shows plots: a frame that holds all it needs, small enough for a notebook's server."""

from __future__ import annotations

import copy
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tuner.analysis.harness import NASTY, needs_chromium, run_trials, tuned
from tests.tuner.lab import Lab
from tuner.analysis.plot_page import Plots, framed


def test_all_plots_are_one_frame_and_their_text_is_short(lab: Lab) -> None:
    run_trials(lab, [2.0, 1.0], [3.0])

    made = lab.analysis().plot()

    assert isinstance(made, Plots) and repr(made) == "Plots(history, curves, edf, timeline)"
    assert made._repr_html_().count("<iframe") == 1


def test_a_figure_is_copied_and_pickled_as_any_other(lab: Lab) -> None:
    run_trials(lab, [2.0, 1.0])
    made = lab.analysis().plot("curves")

    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)


def test_what_show_is_told_goes_to_plotly(lab: Lab) -> None:
    run_trials(lab, [2.0, 1.0])

    with pytest.raises(ValueError, match="nobody"):
        lab.analysis().plot("curves").show("nobody")


@needs_chromium
def test_a_browser_draws_what_is_in_the_frame_and_runs_nothing_of_a_config(lab: Lab, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    assert browser is not None
    made = framed(NASTY, [tuned(lab).analysis().plot("curves")], height=500)
    (tmp_path / "notebook.html").write_text(f"<!doctype html><title>notebook</title><body>{made}")

    shot, flags = tmp_path / "shot.png", ["--headless=new", "--no-sandbox", "--disable-gpu"]
    done = subprocess.run(
        [browser, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000"]
        + ["--enable-logging=stderr", f"--screenshot={shot}", f"file://{tmp_path}/notebook.html"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )

    assert "CONSOLE" not in done.stderr, "nothing failed in it"
    assert shot.stat().st_size > 20_000  # an empty frame has 3 kB
