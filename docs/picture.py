"""`python docs/picture.py` draws docs/live.svg anew: the README's first example while it runs in a terminal."""

from __future__ import annotations

import re
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "live.svg"
COLUMNS, ROWS = 100, 24
FIRST = re.compile(r"```python\n(# (\S+)\n.*?)```", re.DOTALL)
DONE = re.compile(r"\b(\d+) of 20 trials done, [1-9]\d* running")
COLOURS = {"default": "", "brown": "yellow"}
"""Of the emulator, where they have other names than rich's."""


def first_example() -> tuple[str, str]:
    """The file that the README's first block of Python is to be, and what is in it."""
    found = FIRST.search((ROOT / "README.md").read_text("utf-8"))
    if found is None:
        raise SystemExit("the README has no block of Python whose first line names its file")
    return found[2], found[1]


def watched(home: Path) -> bytes:
    """What the example has written to its terminal when half of its trials were done."""
    from tests.tuner.progress.emulator import Emulator

    name, text = first_example()
    (home / name).write_text(text, "utf-8")
    command = ["sh", "-c", 'cd "$1" && echo "$ python $3" && exec "$2" "$3"', "sh", str(home), sys.executable, name]
    with Emulator(command, COLUMNS, ROWS, HOME=str(home), PYTHONPATH=str(ROOT)) as terminal:
        terminal.until(lambda seen: any(int(done) >= 9 for done in DONE.findall(seen.text)))
        return terminal.raw


def drawn(raw: bytes, home: Path) -> Any:
    """The screen after that was written to it, with its colours."""
    import pyte
    from rich.text import Text

    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(raw.replace(str(home).encode(), b"~"))
    text = Text()
    for number, line in enumerate(screen.display):
        if line.strip():
            cells = [screen.buffer[number][column] for column in range(COLUMNS)]
            for style, alike in groupby(cells, lambda cell: f"{'bold ' * cell.bold}{COLOURS.get(cell.fg, cell.fg)}"):
                text.append("".join(cell.data for cell in alike), style)
            text.append("\n")
    text.rstrip()
    return text


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.terminal_theme import MONOKAI

    with tempfile.TemporaryDirectory() as home:
        text = drawn(watched(Path(home)), Path(home))
    with open("/dev/null", "w") as nothing:
        console = Console(record=True, width=COLUMNS, file=nothing, force_terminal=True, color_system="truecolor")
        console.print(text, soft_wrap=True)
    # A picture of GitHub's loads nothing from elsewhere: the fonts are those that are there.
    shape = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    console.save_svg(str(TARGET), title="tuner", theme=MONOKAI, code_format=shape, unique_id="live")
    print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
