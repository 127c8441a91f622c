"""What the README shows runs as it stands there, in an empty directory, and a second time."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener
from xml.etree import ElementTree

import pytest

from tests.listings import ROOT, environment
from tuner.cli import main

README = (ROOT / "README.md").read_text("utf-8")


@dataclass(frozen=True)
class ReadmeBlock:
    """Of code: its language, and its text as it stands."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that its first line says it is."""
        named = re.match(r"# ([\w.]+)", self.text)
        return named[1] if named and self.language != "sh" else None


BLOCKS = [ReadmeBlock(*found) for found in re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)]
ALONE = {
    block.file
    for block in BLOCKS
    if block.language == "python" and not any(f"python {block.file}" in one.text for one in BLOCKS if one.file is None)
}
"""Scripts that no command of the README runs: their reader does."""
FIRST = next(block for block in BLOCKS if block.language == "python")


def test_blocks_are_scripts_that_name_their_file_or_commands() -> None:
    for block in BLOCKS:
        assert block.file or block.language == "sh", f"a test could not run this:\n{block.text}"
        assert str(ROOT) not in block.text
    assert len(BLOCKS) == README.count("```") / 2 > 5


class ReadmeReader:
    """Somebody who copies one block after another, with nothing but the package installed."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.environment = place, environment(place / "home")
        monkeypatch.chdir(place)
        for name in ("HOME", "TMPDIR", "PATH"):
            monkeypatch.setenv(name, self.environment[name])

    def copies(self, block: ReadmeBlock) -> str:
        """Do what the block says; what was said."""
        if block.file:
            (self.place / block.file).write_text(block.text, "utf-8")
        if block.language == "sh":
            return "".join(self._types(shlex.split(line, comments=True)) for line in block.text.splitlines())
        return self._types(["python", str(block.file)]) if block.file in ALONE else ""

    def _looks(self, words: list[str]) -> str:
        """Open the page, and end its server."""
        program = [sys.executable, "-c", "import sys; from tuner.cli import main; sys.exit(main(sys.argv[1:]))"]
        with subprocess.Popen([*program, *words], env=self.environment, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                address = server.stdout.readline().strip()
                with build_opener(HTTPCookieProcessor()).open(address, timeout=30) as page:
                    assert page.status == 200 and "<html" in page.read().decode()
                server.send_signal(signal.SIGTERM)
                assert server.wait(30) == 0
            finally:
                server.kill()
        return ""

    def _types(self, words: list[str]) -> str:
        if words[:2] == ["tuner", "ui"]:
            return self._looks(words[1:])
        if words[:1] == ["tuner"]:
            assert main(words[1:]) == 0, words
            return ""
        assert words[0] == "python", "another program would need a place in this test"
        program = [sys.executable, *words[1:]]
        done = subprocess.run(program, env=self.environment, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done.stdout


def test_every_block_runs_as_it_stands_and_a_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ReadmeReader(tmp_path, monkeypatch)
    new = [reader.copies(block) for block in BLOCKS]
    assert sum("starting new" in said for said in new) >= 3
    again = [reader.copies(block) for block in BLOCKS]
    assert [said for said in again if "starting new" in said] == [], "a script that begins anew"
    assert sum("resuming from" in said for said in again) >= 3
    made = {place.name for place in (tmp_path / "home" / "tuner_results").iterdir()}
    assert made - {".tmp"} == {"first", "walk", "copied", "wide"}


def test_the_first_example_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "`tuner prove train.py`" in README
    reader = ReadmeReader(tmp_path, monkeypatch)
    (tmp_path / "train.py").write_text(FIRST.text.replace("num_samples=20", "num_samples=4"), "utf-8")

    assert main(["prove", "train.py", "--kills", "1"]) == 0
    assert reader.place == Path.cwd()


def test_every_example_continues_when_it_is_run_again() -> None:
    scripts = [*(ROOT / "examples").glob("*.py")]
    anew = [script.name for script in scripts if not re.search(r'resume="AUTO"|can_restore', script.read_text("utf-8"))]
    assert len(scripts) > 10 and anew == []


def test_the_picture_is_of_the_first_example() -> None:
    assert "(docs/live.svg)" in README.partition("\n## ")[0]
    picture = (ROOT / "docs" / "live.svg").read_text("utf-8")
    words = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    drawn = "".join(word.text or "" for word in words).replace("\xa0", " ")
    assert "$ python train.py" in drawn and "/tuner_results/first" in drawn
    assert "of 20 trials done" in drawn and "left" in drawn and "stopped by ASHA" in drawn
    assert "url(http" not in picture, "GitHub's pictures load nothing"
