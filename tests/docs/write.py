"""Put what blocks print into the pages that show it: `python -m tests.docs.write [PAGE ...]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs.blocks import ROOT, blocks_of, pages
from tests.docs.test_docs_blocks import printed_by


def written(page: Path) -> bool:
    """Whether the page showed something else."""
    blocks = blocks_of(page)
    with tempfile.TemporaryDirectory() as place:
        said = printed_by(page, Path(place) / "home")
    lines = page.read_text("utf-8").splitlines(keepends=True)
    before = list(lines)
    for shown, block in reversed(list(zip(blocks, blocks[1:], strict=False))):
        if block.mark == "printed":
            lines[block.line : block.line + block.text.count("\n")] = said[shown.line].splitlines(keepends=True)
    page.write_text("".join(lines), "utf-8")
    return lines != before


if __name__ == "__main__":
    for page in [ROOT / name for name in sys.argv[1:]] or pages():
        if any(block.mark == "printed" for block in blocks_of(page)) and written(page):
            print(page.relative_to(ROOT))
