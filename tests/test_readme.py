"""What the README shows runs as it stands there, in an empty directory, and a second time."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.reader import PageReader
from tests.listings import ROOT, environment
from tuner.cli import main

pytestmark = pytest.mark.docs
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = blocks_of(ROOT / "README.md")
FIRST = next(block for block in BLOCKS if block.language == "python")


def test_blocks_are_scripts_that_name_their_file_or_commands() -> None:
    for block in BLOCKS:
        assert block.file or block.language == "sh", f"a test could not run this:\n{block.text}"
        assert str(ROOT) not in block.text
    assert len(BLOCKS) == README.count("```") / 2 > 5


def a_reader(place: Path, monkeypatch: pytest.MonkeyPatch) -> PageReader:
    """Somebody in an empty directory, with a home of his own."""
    seen = environment(place / "home")
    monkeypatch.chdir(place)
    for name in ("HOME", "TMPDIR", "PATH"):
        monkeypatch.setenv(name, seen[name])
    return PageReader(place, BLOCKS, seen)


def test_every_block_runs_as_it_stands_and_a_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = a_reader(tmp_path, monkeypatch)
    new = [reader.copies(block) for block in BLOCKS]
    assert sum("starting new" in said for said in new) >= 3
    again = [reader.copies(block) for block in BLOCKS]
    assert [said for said in again if "starting new" in said] == [], "a script that begins anew"
    assert sum("resuming from" in said for said in again) >= 3
    made = {place.name for place in (tmp_path / "home" / "tuner_results").iterdir()}
    assert made - {".tmp"} == {"first", "walk", "asked", "copied", "wide"}


def test_the_first_example_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "`tuner prove train.py`" in README
    reader = a_reader(tmp_path, monkeypatch)
    (tmp_path / "train.py").write_text(FIRST.text.replace("num_samples=20", "num_samples=4"), "utf-8")

    assert main(["prove", "train.py", "--kills", "1"]) == 0
    assert reader.place == Path.cwd()


def test_every_example_continues_when_it_is_run_again() -> None:
    scripts = [*(ROOT / "examples").glob("*.py")]
    scripts.remove(ROOT / "examples" / "plain_program.py")  # which knows of nothing
    goes_on = re.compile(r'resume="AUTO"|can_restore|open_session\(|StdioServerParameters|override hydra/sweeper')
    anew = [script.name for script in scripts if not goes_on.search(script.read_text("utf-8"))]
    assert len(scripts) > 10 and anew == []


def test_the_picture_is_of_the_first_example() -> None:
    assert "(docs/live.svg)" in README.partition("\n## ")[0]
    picture = (ROOT / "docs" / "live.svg").read_text("utf-8")
    words = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    drawn = "".join(word.text or "" for word in words).replace("\xa0", " ")
    assert "$ python train.py" in drawn and "/tuner_results/first" in drawn
    assert "of 20 trials done" in drawn and "left" in drawn and "stopped by ASHA" in drawn
    assert "url(http" not in picture, "GitHub's pictures load nothing"
