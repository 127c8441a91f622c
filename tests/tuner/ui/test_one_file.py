"""The page in one file: it fetches nothing, runs nothing of a config, and needs no server's libraries."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.ui.made import needs_page
from trainables.errors import MissingExtraError
from tuner.executors import SimulatedExecutor
from tuner.ui import one_file

HOSTILE = "</script><script>alert(1)</script>\u2028\u2029<!--{{data}}{{title}}"


def inside(page: str) -> dict[str, Any]:
    """Its data."""
    found = re.search(r'<script type="application/json" id="data">([^<]*)</script>', page)
    assert found is not None
    text = found[1] if found[1].startswith("{") else gzip.decompress(base64.b64decode(found[1])).decode()
    made: dict[str, Any] = json.loads(text)
    return made


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names, values, metrics and numbers as nobody would choose them."""
    storage = tmp_path_factory.mktemp("hostile")
    values = [1.0, float("nan"), float("inf"), 2.0**70]
    tune.run(
        lambda config: None,
        name="hostile",
        storage_path=storage,
        config={HOSTILE: tune.grid_search([HOSTILE, 10**30, None, "\ud800"]), "n": tune.grid_search([0])},
        executor=SimulatedExecutor(lambda config: [(1.0, {"loss": value, HOSTILE: 1.0}) for value in values]),
        metric="loss",
        mode="max",
        verbose=0,
    )
    return (storage / "hostile").rename(storage / "x<b>&{{data}}{{title}}")


@needs_page
def test_whatever_an_experiment_holds_is_text(hostile: Path) -> None:
    page = one_file.page(hostile).decode()
    assert page.count("<script") == page.count("</script>") == 2 and "alert(1)</" not in page
    assert f"<title>{html.escape(hostile.name)}</title>" in page
    told = inside(page)
    table = next(told for address, told in told.items() if address.endswith("/trials.json"))
    assert table["config"][HOSTILE][0] == HOSTILE and table["config"][HOSTILE][1] == 10**30
    curves = next(told for address, told in told.items() if address.endswith("/curves.json"))
    assert curves["points"]["value"][:4] == [1.0, None, None, 2.0**70]


@needs_page
def test_its_policy_allows_its_own_script_and_style_and_nothing_else(hostile: Path) -> None:
    page = one_file.page(hostile).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    script, style = (
        re.search(r'<script type="module">(.*?)</script>', page, re.S),
        re.search(r"<style>(.*?)</style>", page),
    )
    assert policy is not None and script is not None and style is not None
    hashes = [base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode() for text in (script, style)]
    assert f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'" in policy[1]
    assert not re.search(r"<(link|img|script src|iframe|base)\b", page) and "@import" not in page


@needs_page
def test_many_data_are_packed(experiment: Path) -> None:
    plain, packed = one_file.page(experiment), one_file.page(experiment, packed=True)
    first, second = inside(plain.decode()), inside(packed.decode())
    assert len(packed) < len(plain) and first.keys() == second.keys()
    assert first["e/first/trials.json"] == second["e/first/trials.json"]


@needs_page
def test_a_page_that_would_be_too_large_shows_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune.run(
        lambda config: None,
        name="many",
        storage_path=tmp_path,
        config={"x": tune.uniform(0, 1)},
        num_samples=400,
        seed=1,
        executor=SimulatedExecutor(lambda config: [(1.0, {"loss": config["x"]})], directories=False),
        metric="loss",
        mode="min",
        verbose=0,
    )
    whole = one_file.page(tmp_path / "many")
    monkeypatch.setattr(one_file, "FILE", int(len(whole) * 0.8))
    less = one_file.page(tmp_path / "many")
    assert len(less) <= one_file.FILE
    told = inside(less.decode())
    rows = len(told["e/many/trials.json"]["id"])
    assert rows < 400 and told["e/many/trials.json"]["best"] in told["e/many/trials.json"]["id"]
    assert told["e/many/overview.json"]["trials"] == 400
    assert f"The table and the plots have {rows} of 400 trials" in told["e/many/overview.json"]["left_out"][0]
    monkeypatch.setattr(one_file, "FILE", 1)
    assert len(inside(one_file.page(tmp_path / "many").decode())["e/many/trials.json"]["id"]) <= 50


@needs_page
def test_a_frame_is_a_box_of_its_own(experiment: Path) -> None:
    shown = tune.ExperimentAnalysis(experiment).ui(height=500)
    found = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" title="[^"]*" style="([^"]*)">', shown._repr_html_()[:-9]
    )
    assert found is not None and "height: 500px" in found[2]
    assert inside(html.unescape(found[1]))["e/first/overview.json"]["best"]["value"] == 0.25
    assert "notebook" in repr(shown) and "tuner ui" in repr(shown)
    with pytest.raises(tune.TuneError, match="height=0"):
        tune.ExperimentAnalysis(experiment).ui(height=0)


def test_without_the_page_the_command_that_makes_it_is_named(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_file, "TEMPLATE", tmp_path / "none.html")
    with pytest.raises(MissingExtraError, match="make web"):
        tune.ExperimentAnalysis(experiment).report(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


@needs_page
def test_neither_a_server_nor_plots_are_needed(experiment: Path, tmp_path: Path) -> None:
    script = """
import sys
for name in ("starlette", "uvicorn", "anyio", "plotly", "kaleido", "IPython"):
    sys.modules[name] = None
from tuner.cli import main
import tuner as tune
assert main(["report", sys.argv[1], "-o", sys.argv[2]]) == 0
assert tune.ResultGrid(sys.argv[1]).ui()._repr_html_().startswith("<iframe ")
"""
    command = [sys.executable, "-c", script, str(experiment), str(tmp_path / "report.html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert inside((tmp_path / "report.html").read_text())["e/first/overview.json"]["trials"] == 6
