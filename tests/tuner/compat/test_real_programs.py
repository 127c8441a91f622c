"""Programs that others wrote for Ray Tune: the list, the table made of it, and one of them run, killed and resumed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
sys.path.append(str(DOCS))
import program_list  # noqa: E402

CAME = json.loads(program_list.RESULTS.read_text("utf-8"))


def test_the_table_of_the_page_is_the_one_that_is_made_of_the_list() -> None:
    assert "\n".join(program_list.table()) in (DOCS / "migrating.md").read_text("utf-8")


def test_of_25_programs_at_least_22_of_25_run_as_they_are_and_the_others_say_which_line() -> None:
    every = program_list.programs()
    assert len({program.name for program in every}) == len(every) >= 25
    assert {program.wrote_for for program in every} >= {"1.13", "2.0", "2.9", "2.60"}
    plain = [program for program in every if CAME[program.name]["resumed"] and not program.change]
    assert len(plain) >= 22 / 25 * len(every)
    assert all(program.why for program in every if program.change)
    assert CAME.keys() == {program.name for program in every}


def test_a_program_that_was_not_run_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, *rest = CAME
    (tmp_path / "came.json").write_text(json.dumps({name: CAME[name] for name in rest}))
    monkeypatch.setattr(program_list, "RESULTS", tmp_path / "came.json")
    with pytest.raises(ValueError, match=rf"what came of {one}: run make programs"):
        list(program_list.table())


def test_one_of_them_is_run_killed_and_resumed(tmp_path: Path) -> None:
    try:
        installed = version("ray")
    except PackageNotFoundError:
        installed = "none"
    name = "custom_func_checkpointing-2.60"
    program = next(each for each in program_list.programs() if each.name == name)
    if program.package != f"ray=={installed}":
        pytest.skip(f"{program.package} ships it, installed is {installed}")
    came = tmp_path / "came.json"
    script = [sys.executable, DOCS / "real_programs.py", name, "--folder", tmp_path, "--results", came]
    done = subprocess.run(script, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(came.read_text())[name] == CAME[name]
