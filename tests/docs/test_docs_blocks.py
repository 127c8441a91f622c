"""Every code block of every page runs, in an empty directory; what is shown as printed was printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import PLAYED, ROOT, PageBlock, blocks_of, fences, pages
from tests.listings import environment

README = ROOT / "README.md"
"""Its blocks are run by tests/test_readme.py, twice."""
ALL = [block for page in pages() for block in blocks_of(page)]
READ = [page for page in pages() if page != README and any(block.is_run for block in blocks_of(page))]


def printed_by(page: Path, home: Path) -> dict[int, str]:
    """What the blocks of a page print, by their lines."""
    home.mkdir()
    program = [sys.executable, "-m", "tests.docs.reader", str(page.relative_to(ROOT))]
    done = subprocess.run(
        program, env=environment(home), cwd=home, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return {int(line): said for line, said in json.loads(done.stdout.splitlines()[-1]).items()}


def test_every_block_is_run_or_says_why_not() -> None:
    shown = [block for block in ALL if block.mark != "setup"]
    assert sum(fences(page) for page in pages()) == 2 * len(shown) > 150
    unclear = [
        f"{block.page}:{block.line}: {block.language or 'a block without a language'}"
        for block in ALL
        if not block.is_run and block.mark is None
    ]
    assert unclear == [], "mark them: <!-- printed -->, or <!-- not run: WHY -->"
    assert [f"{block.page}:{block.line}" for block in ALL if block.mark == "not run" and not block.said] == []
    assert not [block for block in ALL if str(ROOT) in block.text]


def test_a_test_that_runs_a_page_is_there() -> None:
    for block in ALL:
        if block.mark == "run by":
            assert block.said is not None
            test = (ROOT / block.said).read_text("utf-8")
            assert Path(block.page).name in test, f"{block.page}:{block.line}: {block.said} does not open this page"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_as_they_stand_and_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    said = printed_by(page, tmp_path / "home")

    blocks = blocks_of(page)
    for before, block in zip(blocks, blocks[1:], strict=False):
        if block.mark == "printed":
            assert said[before.line] == block.text, f"{block.page}:{block.line}: python -m tests.docs.write"


def test_what_a_block_is_said_to_be_is_seen(tmp_path: Path) -> None:
    page = ROOT / "docs" / "index.md"
    assert PageBlock(str(page), 1, "python", "# first.py\n").file == "first.py"
    assert PageBlock(str(page), 1, "python", "# of nothing\n").file is None
    assert not PageBlock(str(page), 1, "python", "", "not run", "why").is_run
    assert set(PLAYED) > {"python", "sh"}
