"""What the views behind the table show of experiments that have ended."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.scripts.runs_for_the_page import Grows
from tests.tuner.ui.stories.conftest import Visit, drawn, trial_ids
from tuner.schedulers import PopulationBasedTrainingReplay

NASTY = "<img src=x onerror=\"document.title='owned'\">"


def test_curves_are_drawn_and_fewer_with_a_filter(visit: Visit) -> None:
    page = visit.to("e/asha/curves")
    page.get_by_text("50 trials").wait_for()
    all_of_them = drawn(page, "loss of 50 lines")

    page.get_by_label("Filter").fill("iteration = 8 width = 64")

    page.get_by_role("img", name="loss of 50 lines").wait_for(state="detached")
    name = page.get_by_role("img", name="loss of").get_attribute("aria-label")
    assert 0 < int(name.split()[2]) < 30
    assert 2000 < drawn(page, name) < all_of_them


def test_curves_change_to_a_log_scale_over_time_of_another_metric(visit: Visit) -> None:
    page = visit.to("e/asha/curves")

    page.get_by_label("log scale").check()
    page.get_by_label("over").select_option("time")
    page.get_by_label("metric").select_option("size")

    page.get_by_role("img", name="size of 50 lines").wait_for()
    assert "log=1" in page.url and "x=time" in page.url and "metric=size" in page.url


@pytest.mark.parametrize(
    ("plot", "picture"),
    [
        ("parallel", "Parallel coordinates of 60 trials over"),
        ("scatter", "loss over"),
        ("slice", "loss over lr"),
        ("contour", "Contour over"),
        ("pareto", "Pareto front"),
    ],
)
def test_parameters_are_drawn(visit: Visit, plot: str, picture: str) -> None:
    page = visit.to(f"e/asha/parameters?plot={plot}")

    assert drawn(page, picture) > 500
    assert page.get_by_role("link", name=plot, exact=True).get_attribute("aria-current") == "true"


def test_importance_is_told_in_numbers(visit: Visit) -> None:
    page = visit.to("e/asha/parameters?plot=importance")

    page.get_by_role("table", name="Importance").get_by_role("rowheader", name="lr").wait_for()
    assert page.get_by_role("meter").count() == 2


def test_a_brush_along_an_axis_is_a_filter(visit: Visit) -> None:
    page = visit.to("e/asha/parameters")
    canvas = page.get_by_role("img", name="Parallel coordinates")
    canvas.wait_for()
    drawn(page, "Parallel coordinates")
    box = canvas.bounding_box()

    page.mouse.move(box["x"] + 46, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 46, box["y"] + 250)
    page.mouse.up()

    page.get_by_text(" of 60").wait_for()
    assert ">=" in page.get_by_label("Filter").input_value()
    left = int(page.locator("#filtered").inner_text().split()[0])
    assert 0 < left < 60
    page.get_by_role("link", name="trials", exact=True).click()
    page.locator(f'table[aria-rowcount="{left + 1}"]').wait_for()


def test_the_pareto_front_names_its_members(visit: Visit, results: Path) -> None:
    page = visit.to("e/asha/parameters?plot=pareto")

    rows = page.get_by_role("region", name="Pareto front").locator("tr[data-trial]")
    rows.first.wait_for()
    assert {row.get_attribute("data-trial") for row in rows.all()} <= set(trial_ids(results, "asha"))


def test_the_lineage_says_what_an_exploit_changed(visit: Visit, results: Path) -> None:
    page = visit.to("e/pbt/lineage")
    ids = trial_ids(results, "pbt")
    page.locator(f'svg [data-trial="{ids[0]}"]').wait_for()
    assert page.locator("svg [data-trial]").count() == 4
    exploits = page.locator("svg .edge.exploit")
    said = exploits.first.text_content()

    page.locator(f'svg [data-trial="{said.split()[1]}"]').press("Enter")

    page.get_by_role("heading", name="exploit at iteration").first.wait_for()
    assert page.get_by_role("table", name="What changed").first.get_by_role("rowheader", name="rate").count() == 1


def test_the_policy_of_a_leaf_replays_the_way_to_its_weights(visit: Visit, results: Path, tmp_path: Path) -> None:
    exploited = visit.page.request.get(f"{visit.served.root}e/pbt/lineage.json").json()["edges"]
    leaf = next(child for child, kind in zip(exploited["child"], exploited["kind"], strict=True) if kind == "exploit")
    whys = [why for why, kind in zip(exploited["why"], exploited["kind"], strict=True) if kind == "exploit"]
    assert all(re.fullmatch(r"exploit of trial \d+ at \d+", why) for why in whys), whys
    page = visit.to(f"e/pbt/lineage?trial={leaf}")

    policy = page.get_by_label("policy").inner_text()
    (tmp_path / "policy.txt").write_text(policy + "\n")
    trials = {trial.trial_id: trial for trial in tune.ExperimentAnalysis(results / "pbt").trials}
    replay = PopulationBasedTrainingReplay(str(tmp_path / "policy.txt"))
    replayed = tune.run(
        Grows, name="replay", storage_path=tmp_path, config=replay.config, scheduler=replay, checkpoint_freq=1,
        metric="score", mode="max", stop={"training_iteration": 8}, executor="inline", verbose=0,
    ).trials[0]  # fmt: skip

    assert replayed.config == trials[leaf].config
    assert replayed.last_result["score"] == pytest.approx(trials[leaf].last_result["score"])


BETWEEN = """(canvas) => {
  const { width, height } = canvas;
  const pixels = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  let [inked, changes, before] = [0, 0, false];
  for (let y = Math.round(height * 0.2); y < height * 0.7; y++) {
    let coloured = false;
    for (let x = 0; x < width && !coloured; x++) {
      const at = (y * width + x) * 4;
      coloured = pixels[at + 3] > 60 && Math.abs(pixels[at] - pixels[at + 2]) > 40;
    }
    inked += coloured;
    changes += coloured !== before;
    before = coloured;
  }
  return [inked / (height * 0.5), changes];
}"""
"""Of the rows between what stands below and what was far above: the share with a colour, and the changes of that."""


@pytest.mark.parametrize("view", ["curves", "trial"])
def test_a_result_that_a_rollback_took_back_is_dashed(visit: Visit, results: Path, view: str) -> None:
    (trial,) = trial_ids(results, "again")
    page = visit.to(f"e/again/{view}" + (f"/{trial}" if view == "trial" else ""))
    page.get_by_text("dashed: void, a rollback took it back").wait_for()
    label = "score of 2 lines" if view == "curves" else "score by iteration"

    assert drawn(page, label) > 500
    inked, changes = page.get_by_role("img", name=label).evaluate(BETWEEN)
    assert 0.2 < inked < 0.8 and changes > 10


WRITTEN = """
window.written = [];
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
  window.written.push(text);
  return fillText.call(this, text, ...at);
};
"""


@pytest.mark.parametrize(("x", "is_linear"), [("drop", True), ("rate", False), ("loss", True)])
def test_an_axis_has_the_scale_and_the_choices_of_the_space(visit: Visit, x: str, is_linear: bool) -> None:
    """All of them were tried over three powers of ten or more."""
    visit.page.add_init_script(WRITTEN)
    page = visit.to(f"e/space/parameters?plot=scatter&x={x}&y=batch")
    drawn(page, f"batch over {x}")

    ticks = {float(text) for text in page.evaluate("written") if text[0].isdigit()}
    assert {tick for tick in ticks if tick > 1} == {32, 64}
    along = sorted(ticks - {32, 64})
    steps = {round(after - before, 9) for before, after in pairwise(along)}
    assert len(along) > 3 and (len(steps) == 1) is is_linear


def test_an_axis_has_another_scale_where_that_is_chosen(visit: Visit) -> None:
    visit.page.add_init_script(WRITTEN)
    page = visit.to("e/space/parameters?plot=scatter&x=drop&y=loss")
    drawn(page, "loss over drop")
    page.evaluate("written.splice(0)")

    page.get_by_label("scale").select_option("log")

    page.wait_for_url("**scale=log")
    drawn(page, "loss over drop")
    assert {"1e-4", "0.001", "0.01"} < set(page.evaluate("written"))


def test_the_overview_draws_a_metric_over_a_log_scale_where_that_is_chosen(visit: Visit) -> None:
    visit.page.add_init_script(WRITTEN)
    page = visit.to("e/space/")
    drawn(page, "loss of each trial")
    assert "1e-4" not in page.evaluate("written.splice(0)")

    page.get_by_label("log scale").check()

    page.wait_for_url("**log=1")
    drawn(page, "loss of each trial")
    assert "1e-4" in page.evaluate("written")


def test_the_bar_of_progress_begins_with_what_has_ended(visit: Visit) -> None:
    page = visit.to("e/asha/?at=60")
    progress = page.get_by_role("region", name="Progress")
    progress.get_by_text("of 60 trials ended").wait_for()

    ended = int(progress.locator("strong").inner_text())
    bar = progress.locator(".bar")
    states = bar.locator("i").evaluate_all("all => all.map((each) => [each.className, each.offsetWidth])")
    whole = bar.evaluate("bar => bar.offsetWidth")
    assert states[0][0] == "TERMINATED" and 0 < ended < 60
    assert states[0][1] == pytest.approx(whole * ended / 60, abs=2)
    assert sum(width for _, width in states) < whole * 0.9, "what is not created yet is empty"


def test_an_axis_of_counts_has_whole_ticks_also_where_a_drag_has_zoomed_in(visit: Visit) -> None:
    def ticks() -> set[str]:
        return {text for text in page.evaluate("written.splice(0)") if text[0].isdigit()}

    visit.page.add_init_script(WRITTEN)
    page = visit.to("e/again/curves")
    drawn(page, "score of 2 lines")
    assert {"2", "3", "4", "5", "6", "7", "20", "40"} < ticks()
    box = page.get_by_role("img", name="score of 2 lines").bounding_box()

    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 200)
    page.evaluate("written.splice(0)")
    page.mouse.up()

    page.get_by_role("button", name="Show all").or_(page.locator("figcaption")).first.wait_for()
    drawn(page, "score of 2 lines")
    zoomed = ticks()
    assert "3" in zoomed and "7" not in zoomed and all(tick.isdigit() for tick in zoomed)


def test_verify_reads_a_checkpoint_and_tells_a_whole_one_from_a_damaged_one(visit: Visit, results: Path) -> None:
    (trial,) = tune.ExperimentAnalysis(results / "again").trials
    state = Path(trial.path, "checkpoint_000002", "state")
    held = state.read_text()
    state.write_text(held[::-1])
    page = visit.to(f"e/again/trial/{trial.trial_id}")
    shelf = page.get_by_role("region", name="Checkpoints", exact=True)

    for name, said in (("checkpoint_000002", "damaged"), ("checkpoint_000008", "verified")):
        row = shelf.get_by_role("row", name=name)
        row.get_by_text("sizes fit").wait_for()
        row.get_by_role("button", name=f"Verify {name}").click()
        row.get_by_text(said).wait_for()
    state.write_text(held)


def test_machines_show_their_slots(visit: Visit) -> None:
    page = visit.to("e/pbt/machines")

    assert drawn(page, "Slots of 1 host over time") > 1000
    assert page.get_by_role("region", name="Hosts").first.get_by_role("row").count() == 2


def test_two_experiments_stand_over_each_other(visit: Visit) -> None:
    page = visit.to("e/pbt/compare")

    page.get_by_label("compare with").select_option("mixed")

    page.get_by_role("region", name="Best configs").first.wait_for()
    assert drawn(page, "best so far of both") > 500
    legend = page.get_by_role("region", name="Best so far").locator(".legend")
    assert re.findall(r"(\w+): \w+ \(max\)", legend.inner_text()) == ["pbt", "mixed"]


def test_a_trial_tells_config_results_checkpoints_and_why(visit: Visit, results: Path) -> None:
    ids = trial_ids(results, "mixed")
    page = visit.to(f"e/mixed/trial/{ids[3]}")

    assert NASTY in page.get_by_role("table", name="config").inner_text()
    assert drawn(page, "score by iteration") > 300
    shelf = page.get_by_role("region", name="Checkpoints", exact=True).get_by_role("table")
    assert shelf.get_by_role("row").count() == 5
    assert (
        shelf.locator("tr.gone").count() == 3
        and "checkpoint_000004" in shelf.locator("tr:not(.gone)").last.inner_text()
    )
    page.get_by_role("log").get_by_text("a line of output").wait_for()
    assert NASTY in page.get_by_role("log").inner_text()
    assert page.locator("img").count() == 0


def test_a_failed_trial_shows_its_traceback(visit: Visit, results: Path) -> None:
    page = visit.to(f"e/mixed/trial/{trial_ids(results, 'mixed')[1]}")

    error = page.get_by_role("region", name="Error")
    error.get_by_text("Traceback (most recent call last)").wait_for()
    assert f"no more {NASTY}\nthe second line" in error.inner_text()


def test_a_checkpoint_is_downloaded(visit: Visit, results: Path, tmp_path: Path) -> None:
    page = visit.to(f"e/mixed/trial/{trial_ids(results, 'mixed')[0]}")

    with page.expect_download() as download:
        page.get_by_role("link", name="Download checkpoint_000004").click()

    download.value.save_as(tmp_path / "it.tar")
    import tarfile

    with tarfile.open(tmp_path / "it.tar") as packed:
        assert any(name.endswith("state") for name in packed.getnames())


def test_a_trial_that_an_algorithm_stopped_says_by_which_rule(visit: Visit, results: Path) -> None:
    stopped = next(
        trial
        for trial in tune.ExperimentAnalysis(results / "asha").trials
        if trial.iteration < 8 and trial.is_finished()
    )
    page = visit.to(f"e/asha/trial/{stopped.trial_id}")

    decisions = page.get_by_role("region", name="Decisions").first
    decisions.get_by_role("cell", name="stop", exact=True).first.wait_for()
    assert "ASHA" in decisions.inner_text()


def test_an_earlier_moment_is_a_page_of_its_own(visit: Visit) -> None:
    page = visit.to("e/asha/")
    slider = page.get_by_role("slider", name="Moment")
    slider.wait_for()
    middle = int(slider.get_attribute("max")) // 2

    slider.fill(str(middle))

    page.get_by_text(f"As it was at fact {middle}").wait_for()
    assert f"at={middle}" in page.url
    progress = page.get_by_role("region", name="Progress").inner_text()
    assert "running" in progress or "waiting" in progress
    page.get_by_role("button", name="Now").click()
    page.get_by_text("As it was at fact").wait_for(state="detached")
    assert "60 done" in page.get_by_role("region", name="Progress").inner_text()


@pytest.mark.parametrize("view", ["curves", "parameters", "lineage", "machines"])
def test_every_view_fits_into_400_pixels(visit: Visit, view: str) -> None:
    visit.page.set_viewport_size({"width": 400, "height": 800})
    page: Any = visit.to(f"e/pbt/{view}")

    page.locator("main :is(canvas, svg)").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 400
