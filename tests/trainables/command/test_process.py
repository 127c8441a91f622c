"""The process of a command: what it prints is heard line by line, whatever it prints and however it ends."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from trainables.command.process import CommandError, CommandProcess


def heard(line: str, tmp_path: Path, *, kill: bool = False) -> tuple[list[str], CommandProcess]:
    """What a shell's line prints, once it has ended, or has been killed after its first line."""
    lines: list[str] = []
    first, ended = threading.Event(), threading.Event()

    def hear(text: str) -> None:
        lines.append(text)
        first.set()

    process = CommandProcess([line], shell=True, cwd=str(tmp_path), env=dict(os.environ), hear=hear, ended=ended.set)
    assert (first if kill else ended).wait(60)
    process.end(0)
    return lines, process


def test_lines_end_as_they_like(tmp_path: Path) -> None:
    lines, process = heard(r"printf 'a\r\nb\rc\n\nlast'", tmp_path)
    assert lines == ["a", "b", "c", "last"] and process.ended_well


def test_the_half_line_of_a_killed_command_is_none(tmp_path: Path) -> None:
    lines, process = heard(r"printf 'loss=0.25\nloss=0.1'; sleep 300", tmp_path, kill=True)
    assert lines == ["loss=0.25"] and not process.ended_well


def test_a_line_without_an_end_fills_no_memory_and_what_comes_after_it_is_heard(tmp_path: Path) -> None:
    lines, _ = heard(r"head -c 20000000 /dev/zero | tr '\0' x; printf '\nloss=1\n'", tmp_path)
    assert lines[-1] == "loss=1" and len(lines[0]) < 2_000_000


def test_characters_are_whole_wherever_the_pipe_cuts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import os, time\nfor byte in 'ü→x\\n'.encode():\n    os.write(1, bytes([byte])); time.sleep(0.01)"
    (tmp_path / "slow.py").write_text(code)
    lines, _ = heard(f"{sys.executable} slow.py; printf '\\377\\n'", tmp_path)
    assert lines == ["ü→x", "\ufffd"]
    assert capsys.readouterr().out == "ü→x\n\ufffd\n"


@pytest.mark.parametrize(
    ("words", "cwd", "said"),
    [(["nosuch"], "", "the command 'nosuch' cannot be started in"), (["true"], "none", "is no directory here")],
)
def test_what_cannot_be_started_is_named(tmp_path: Path, words: list[str], cwd: str, said: str) -> None:
    def hear(_: Any) -> None: ...

    with pytest.raises(CommandError, match=said):
        CommandProcess(words, shell=False, cwd=str(tmp_path / cwd), env={}, hear=hear, ended=lambda: None)
