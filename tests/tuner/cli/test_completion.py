"""tuner completion: what a real shell offers while somebody types."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tuner.replicated import answer
from tuner.cli import parser
from tuner.cli.completion import SHELLS, described

NAMES = {verb for verb, _ in described(parser())}


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    for name in ("digits_asha", "digits_pbt", "other"):
        (tmp_path / "results" / name).mkdir(parents=True)
    return tmp_path / "results"


def in_shell(command: list[str], storage: Path) -> list[str]:
    environ = {**os.environ, "TUNE_RESULT_DIR": str(storage)}
    made = subprocess.run(command, env=environ, cwd=storage.parent, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0 and not made.stderr, made.stderr
    return made.stdout.split("\n")


def offered_by_bash(script: Path, storage: Path, *lines: str) -> list[set[str]]:
    """For each line what bash offers for its last word, by the function that it calls on a tab."""
    commands = [f"source {script}", 'f=$(complete -p tuner | sed "s/.*-F \\([^ ]*\\).*/\\1/")']
    for line in lines:
        words = line.split(" ")
        commands.append(f"COMP_WORDS=({' '.join(word or repr('') for word in words)}) COMP_CWORD={len(words) - 1}")
        commands.append('$f tuner; echo "${COMPREPLY[@]}"')
    told = in_shell(["bash", "--norc", "-c", "\n".join(commands)], storage)
    return [set(line.split()) for line in told[: len(lines)]]


def test_bash_completes_verbs_names_options_and_values(
    storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(answer(capsys, "completion", "bash"))
    lines = ("tuner ", "tuner expo", "tuner show dig", "tuner show --w", "tuner report x --mode ", "tuner completion ")
    verbs, one, names, options, modes, shells = offered_by_bash(script, storage, *lines)
    assert verbs == NAMES | {"--help", "--version"}
    assert one == {"export"} and names == {"digits_asha", "digits_pbt"} and options == {"--why", "--warnings"}
    assert modes == {"min", "max"}
    assert shells >= set(SHELLS)


def test_every_option_of_every_verb_is_in_every_script(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = {shell: answer(capsys, "completion", shell) for shell in SHELLS}
    for name, verb in described(parser()):
        for option in verb.options:
            for flag in option.names:
                assert all(flag.lstrip("-") in script for script in scripts.values()), f"{name} {flag}"
        assert all(name in script for script in scripts.values())


def test_fish_completes(storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed: apt-get install fish")
    script = tmp_path / "tuner.fish"
    script.write_text(answer(capsys, "completion", "fish"))
    asked = "; echo ==; ".join(f'complete -C "{line}"' for line in ("tuner expo", "tuner show dig", "tuner show --wa"))
    told = "\n".join(in_shell(["fish", "--no-config", "-c", f"source {shlex.quote(str(script))}; {asked}"], storage))
    verbs, names, options = ({line.split("\t")[0] for line in part.split("\n") if line} for part in told.split("==\n"))
    assert verbs == {"export"} and names == {"digits_asha", "digits_pbt"} and options == {"--warnings"}


def test_zsh_takes_the_script(storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed: apt-get install zsh")
    script = tmp_path / "tuner.zsh"
    script.write_text(answer(capsys, "completion", "zsh"))
    told = in_shell(
        ["zsh", "-f", "-c", f"autoload -U compinit; compinit -u -D; source {script}; echo $_comps[tuner]"], storage
    )
    assert told[0] == "_tuner"


def test_a_tab_completes_in_a_terminal(storage: Path, tmp_path: Path) -> None:
    from tests.tuner.progress.emulator import Emulator

    script = tmp_path / "completion.bash"
    made = subprocess.run(
        [sys.executable, "-m", "tuner.cli", "completion", "bash"], capture_output=True, text=True, check=True
    )
    script.write_text(made.stdout)
    with Emulator(["bash", "--norc", "-i"], 100, TUNE_RESULT_DIR=str(storage), PS1="$ ") as terminal:
        terminal.type(f"source {script}; clear\n")
        terminal.type("tuner expo\tother")
        terminal.until(lambda seen: "tuner export other" in seen.text)
        terminal.type("\x15tuner show oth\t--wa\t")
        terminal.until(lambda seen: "tuner show other --warnings" in seen.text)
