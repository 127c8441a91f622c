"""Somebody who copies one block of a page after another, with nothing but the package installed.

`python -m tests.docs.reader PAGE` does the blocks of one page in the working directory, in one process, and prints what
each printed, as JSON. Blocks of Python that name a file become that file, and are run where nothing else of the page
imports or runs it; others share their names, as in a notebook. Commands that need the page of `tuner ui` are left out
where `make web` has not made it.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import re
import shlex
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener

from tests.docs.blocks import ROOT, PageBlock, blocks_of
from tests.tuner.ui.made import is_made
from tuner.cli import main
from tuner.cli.config_file import load


class PageReader:
    """Does what blocks say, in the working directory and with the environment that is given."""

    def __init__(self, place: Path, blocks: list[PageBlock], environment: dict[str, str]) -> None:
        self.place, self.blocks, self.environment = place, blocks, environment
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def copies(self, block: PageBlock) -> str:
        """Do what the block says; what was printed."""
        if block.file:
            (self.place / block.file).write_text(block.text, "utf-8")
            if block.language == "yaml" and not any(block.file in one.text for one in self.blocks if one is not block):
                load(self.place / block.file)  # what it says is accepted
            return self._types(["python", block.file]) if self._stands_alone(block) else ""
        if block.language in ("sh", "bash"):
            return "".join(self._types(shlex.split(line, comments=True)) for line in block.text.splitlines())
        if block.language == "python":
            return self._continues(block)
        if block.language == "json":
            json.loads(block.text)
            return ""
        raise AssertionError(f"a block of {block.language} has to name its file in its first line")

    def _stands_alone(self, block: PageBlock) -> bool:
        """A script that neither a command of the page runs nor another block imports: its reader runs it."""
        assert block.file is not None
        stem = block.file.partition(".")[0]
        used = re.compile(rf"python {re.escape(block.file)}|\b(?:from|import) {stem}\b|\b{re.escape(block.file)}:")
        return block.language == "python" and not any(used.search(one.text) for one in self.blocks if one is not block)

    def _continues(self, block: PageBlock) -> str:
        """Run it after those before it, in this process."""
        name = f"<{block.page}:{block.line}>"
        linecache.cache[name] = len(block.text), None, block.text.splitlines(keepends=True), name
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, name, "exec"), self.names)
        return printed.getvalue()

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
        if not words:
            return ""
        if words[:2] in (["tuner", "ui"], ["tuner", "report"]) and not is_made:
            return ""
        if words[:2] == ["tuner", "ui"]:
            return self._looks(words[1:])
        if words[0] == "tuner":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                try:
                    status = main(words[1:])
                except SystemExit as end:  # `--schema`, `--help`
                    status = end.code  # type: ignore[assignment]
            assert status == 0, (words, printed.getvalue()[-2000:])
            return printed.getvalue()
        assert words[0] == "python", f"another program would need a place in this test: {words}"
        program = [sys.executable, *words[1:]]
        done = subprocess.run(program, env=self.environment, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done.stdout


def read(page: Path, environment: dict[str, str]) -> dict[int, str]:
    """Do all blocks of a page here; line of a block -> what it printed."""
    blocks = [block for block in blocks_of(page) if block.is_run]
    reader, printed = PageReader(Path.cwd(), blocks, environment), {}
    sys.path.insert(0, str(Path.cwd()))
    for block in blocks:
        try:
            printed[block.line] = reader.copies(block)
        except BaseException:
            sys.exit(f"{block.page}:{block.line}: this block fails\n{block.text}\n{traceback.format_exc()[-4000:]}")
    return printed


if __name__ == "__main__":
    import os

    said = read(ROOT / sys.argv[1], dict(os.environ))
    print(json.dumps(said))
