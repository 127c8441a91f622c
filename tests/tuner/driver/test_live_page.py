"""`ui=True`: a page that lives as long as the run, in a process of its own."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import tuner as tune
from tuner.executors import InlineExecutor

FOUND: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    FOUND.clear()
    yield


class Looks(tune.Callback):
    """Opens the page that was printed while the run goes on."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def on_trial_result(self, trial: Any, result: dict[str, Any], **info: Any) -> None:
        if "address" in FOUND:
            return
        said = self._capsys.readouterr().out
        (FOUND["address"],) = re.findall(r"live page: (\S+)", said)
        base, _, token = FOUND["address"].partition("?token=")
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60) as pages:
            FOUND["overview"] = pages.get(f"{base}e/one/overview.json").json()


@pytest.mark.parametrize(("by", "verbose"), [("run", None), ("run", 0), ("Tuner", None)])
def test_a_run_has_a_page_as_long_as_it_lasts(
    by: str, verbose: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {"name": "one", "storage_path": str(tmp_path), "callbacks": [Looks(capsys)]}
    given |= {"executor": InlineExecutor(), "ui": True, "verbose": verbose}
    if by == "run":
        tune.run(lambda config: tune.report({"loss": 1.0}), **given)
    else:
        tune.Tuner(lambda config: tune.report({"loss": 1.0}), run_config=tune.RunConfig(**given)).fit()
    assert FOUND["overview"]["trials"] == 1 and FOUND["overview"]["liveness"] == "running"
    with pytest.raises(httpx.ConnectError):
        httpx.get(FOUND["address"], trust_env=False)
    assert threading.active_count() < 20
    assert verbose != 0 or capsys.readouterr().out == ""


def test_without_the_word_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune.run(lambda config: tune.report({"loss": 1.0}), name="two", storage_path=tmp_path, executor=InlineExecutor())
    assert "live page" not in capsys.readouterr().out
