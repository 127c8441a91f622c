"""The examples of searching run, each in a fresh process and an own home, and say what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.listings import ROOT, run, said_by


def lines(name: str, home: Path, beginning: str) -> list[str]:
    said = said_by(run(ROOT / "examples" / f"{name}.py", home))
    return [line.removeprefix(beginning) for line in said.splitlines() if line.startswith(beginning)]


def test_tpe(tmp_path: Path) -> None:
    (loss,) = lines("tpe", tmp_path, "best loss: ")
    assert float(loss) < 0.3
    assert lines("tpe", tmp_path, "best loss: ") == [loss]  # a finished run shows its results at once


def test_auto_search(tmp_path: Path) -> None:
    (loss,) = lines("auto_search", tmp_path, "best loss: ")
    assert float(loss) < 0.2
    (trained,) = lines("auto_search", tmp_path, "epochs trained: ")
    done, _, all_of_them = trained.split()
    assert int(done) < int(all_of_them) / 2
    assert lines("auto_search", tmp_path, "best loss: ") == [loss]


def test_multi_objective(tmp_path: Path) -> None:
    front = [line.split() for line in lines("multi_objective", tmp_path, "front: error ")]
    assert len(front) >= 2
    errors, seconds = [float(words[0]) for words in front], [float(words[2]) for words in front]
    assert errors == sorted(errors) and seconds == sorted(seconds, reverse=True)
    assert max(seconds) <= 0.002 * 600


def test_define_by_run(tmp_path: Path) -> None:
    (config,) = lines("define_by_run", tmp_path, "best config: ")
    assert "'optimizer': 'sgd'" in config and "'epochs': 3" in config


def test_custom_searcher(tmp_path: Path) -> None:
    (x,) = lines("custom_searcher", tmp_path, "best x: ")
    assert float(x) == pytest.approx(2.0, abs=0.5)
