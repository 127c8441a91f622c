"""What a person sees of experiments that are not a healthy local directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.tuner.ui.stories.conftest import Served, Visit, serving


def _train(config: dict[str, int]) -> None:
    print("a line of <b>output</b>")
    with tune.checkpoint_dir() as directory:
        Path(directory, "weights").write_text("1")
    tune.report(loss=config["x"])


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    """Where copies go: a bucket that this process and its children find."""
    with s3_server() as port, pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        make_bucket(port, "models")
        yield "s3://models/runs"


@pytest.fixture(scope="module")
def served(uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """ "copied" in the bucket; here "bare", whose trial's directory is gone, "young" without a trial, and "broken"."""
    home, where = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("odd")
    tune.run(
        _train,
        name="copied",
        storage_path=where,
        config={"x": 1},
        metric="loss",
        mode="min",
        sync_config=tune.SyncConfig(upload_dir=uri),
        resources_per_trial={"cpu": 0.3},
        log_to_file=True,
        verbose=0,
    )
    for name in ("bare", "young", "broken"):
        shutil.copytree(where / "copied", where / name)
    shutil.rmtree(where / "copied")
    (gone,) = (where / "bare").glob("_train*")
    shutil.rmtree(gone)
    first, *later = sorted((where / "young" / "journal").glob("*.jsonl"))
    first.write_bytes(first.read_bytes().splitlines(keepends=True)[0])
    for path in later:
        path.unlink()
    (where / "broken" / "experiment.json").write_text("{")
    with serving(where, f"{uri}/copied", "s3://no-such-bucket/runs", home=home) as it:
        yield it


def _trial(page: Any) -> None:
    page.locator("tr[data-trial] a").first.click()
    page.get_by_role("heading", name="Trial").wait_for()


def test_the_list_says_which_cannot_be_read(visit: Visit) -> None:
    page = visit.to("")
    page.get_by_role("row", name="broken").filter(has_text="cannot be read").wait_for()
    page.get_by_role("row", name="copied").filter(has_text="s3://models/runs/copied").wait_for()
    page.get_by_role("status").filter(has_text="no-such-bucket").wait_for()


def test_a_trial_in_a_bucket_has_its_output_and_takes_a_tag(visit: Visit, uri: str) -> None:
    page = visit.to("e/copied/trials")
    _trial(page)
    page.get_by_role("log", name="stdout").filter(has_text="a line of <b>output</b>").wait_for()
    page.get_by_text("as far as it was copied").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download checkpoint_000001").click()
    assert Path(download.value.path()).stat().st_size > 1000
    assert not page.get_by_role("button", name="Stop", exact=True).count()
    page.get_by_role("button", name="Tag checkpoint_000001").click()
    page.get_by_label("a name for checkpoint_000001").fill("golden")
    page.get_by_role("button", name="Give the name").click()
    page.locator("b.tag", has_text="golden").wait_for()
    (trial,) = tune.ExperimentAnalysis(f"{uri}/copied").trials
    assert [record.tags for record in trial.checkpoints] == [["golden"]]


def test_a_trial_whose_directory_is_gone_is_shown(visit: Visit) -> None:
    page = visit.to("e/bare/trials")
    _trial(page)
    page.locator("code", has_text="checkpoint_000001").first.wait_for()
    assert not page.get_by_role("log").count() and not page.get_by_role("link", name="Download").count()


def test_no_trial_yet_says_what_comes(visit: Visit) -> None:
    page = visit.to("e/young/")
    page.get_by_text("No trial yet. The first one appears here by itself").wait_for()
    page.goto(page.url + "trials")
    page.get_by_text("No trial yet. The first one appears here by itself").wait_for()
