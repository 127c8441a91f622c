"""How far copying, verifying and proving have come: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.progress.emulator import Emulator
from tests.tuner.replicated import ran
from tuner.cli import main
from tuner.clock import VirtualClock
from tuner.progress import task_bar
from tuner.progress.task_bar import LINE_EVERY_S, TaskBar

SCRIPT = """
import os, sys, time
from tuner.progress.task_bar import TaskBar

with TaskBar("copying", "checkpoint").shown() as work:
    work.of(12, 3_400_000_000)
    for number in range(12):
        work.begin(283_333_333)
        work.moved(100_000_000)
        if number == 4:
            work.aside(print, "a line that stays")
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.01)
        work.item()
print("done")
"""


@pytest.mark.parametrize(("columns", "colour"), [(80, True), (40, True), (80, False)])
def test_a_bar_fits_the_terminal_and_leaves_nothing_behind(columns: int, colour: bool, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Emulator([sys.executable, "-c", SCRIPT, str(go)], columns, NO_COLOR="" if colour else "1") as terminal:
        terminal.until(lambda seen: "4 of 12" in seen.text)
        (line,) = [line for line in terminal.lines if "4 of 12" in line]
        assert len(line) <= columns and ("4 of 12 checkpoints, 1.2 GB of 3.4 GB" in line or columns < 80)
        assert terminal.lines[0] == "a line that stays"
        assert columns < 80 or (terminal.colours("4 of 12") == {"default"}) is not colour
        go.touch()
        assert terminal.ended() == 0
        assert [line for line in terminal.lines if line] == ["a line that stays", "done"]


def test_without_a_terminal_a_line_is_said_each_half_minute() -> None:
    said: list[str] = []
    clock = VirtualClock()
    work = TaskBar("copying", "checkpoint", say=said.append, clock=clock)
    with work.shown():
        work.of(3, 30)
        work.item(10)
        assert said == [], "what is over soon says nothing"
        clock.advance(LINE_EVERY_S)
        work.item(10)
        work.moved(1)
    assert said == ["copying: 2 of 3 checkpoints, 20 B of 30 B"]


@given(st.lists(st.tuples(st.integers(0, 1000), st.lists(st.integers(0, 600), max_size=4)), max_size=6))
def test_it_never_comes_to_more_than_all(items: list[tuple[int, list[int]]]) -> None:
    """Bytes that are gone over twice, or never told of, count as the item's."""
    work, whole, before = TaskBar("copying", "file"), sum(size for size, _ in items), 0
    work.of(len(items), whole)
    for size, parts in items:
        work.begin(size)
        for part in parts:
            work.moved(part)
            assert before <= work._done_bytes <= before + size
        work.item()
        before += size
        assert work._done_bytes == before
    assert work._done_bytes == whole


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(None, tmp_path_factory.mktemp("bar"))


@pytest.mark.parametrize("verb", ["cp", "verify", "sync"])
def test_what_takes_long_tells_of_every_checkpoint(
    verb: str, experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_bar, "LINE_EVERY_S", 0.0)
    target = f"{tmp_path}/copy/mine"
    more = {"cp": [target], "verify": [], "sync": ["--to", target]}[verb]
    assert main([verb, str(experiment), *more]) == 0
    told = re.findall(rf"tuner {verb}: (\w+): (\d) of (\d) checkpoints, \d+ B of (\d+) B", capsys.readouterr().err)
    word = "verifying" if verb == "verify" else "copying"
    assert told[0][0] == word and told[-1][1:3] == ("6", "6"), told
