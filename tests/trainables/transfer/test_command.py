"""Command templates and functions: what the guide's two do, what a command can do wrong, and names as attacks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.transfer.harness import RSYNC, merging, program
from trainables.errors import (
    InvalidSettingError,
    MissingExtraError,
    ObjectNotFoundError,
    TransferError,
)
from trainables.testing.backends import CHECKS, Check
from trainables.testing.files import ODD_NAMES
from trainables.transfer.command import CommandBackend, FunctionBackend


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_template_conforms(check: Check, place: Path) -> None:
    check(CommandBackend(RSYNC, str(place)))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_template_that_can_delete_conforms(check: Check, place: Path) -> None:
    check(CommandBackend(RSYNC, str(place), "rm -rf -- {target}"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_function_conforms(check: Check, place: Path) -> None:
    check(FunctionBackend(merging, str(place)))


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("aws s3 sync {source}", r"lacks \{target\}"),
        ("aws s3 sync", r"lacks \{source\} and \{target\}"),
        ("cp {source} {targt}", r"has \{targt\}, .* fields are \{source\}, \{target\}, \{options\}"),
        ("{source} {target}", "the program comes first"),
        ('rsync "{source} {target}', "cannot be read as a command"),
        ("aws s3 sync --delete {source} {target}", "has --delete"),
        ("rsync -a --delete-after {source} {target}", "has --delete-after"),
        ("rsync -a --remove-source-files {source} {target}", "has --remove-source-files"),
    ],
)
def test_a_template_that_cannot_work_is_refused(template: str, said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        CommandBackend(template, "s3://bucket/path")


def test_a_delete_template_needs_a_target() -> None:
    with pytest.raises(InvalidSettingError, match=r"lacks \{target\}"):
        CommandBackend(RSYNC, "place", "rm -rf")
    with pytest.raises(InvalidSettingError, match="an option"):
        CommandBackend(RSYNC, "--place")


@pytest.mark.parametrize(
    "make",
    [
        lambda *more, **named: CommandBackend(RSYNC, *more, **named),
        lambda *more, **named: FunctionBackend(merging, *more, **named),
    ],
)
def test_options_go_to_the_command_that_deletes_too(make: Any, place: Path) -> None:
    (place / "e").mkdir()
    (place / "e" / "file").write_bytes(b"x")
    make(str(place), "rm {options} -- {target}", options="-r -f").delete(["e"])
    assert not list(place.iterdir())
    with pytest.raises(InvalidSettingError, match=r"has \{source\}, .* fields are \{target\}, \{options\}"):
        make(str(place), "rm -rf {target} {source}")


def test_a_delete_template_that_leaves_single_files_is_found_out_at_the_start(place: Path) -> None:
    """As `aws s3 rm --recursive` does: the manifest would go with its checkpoint, and not before it."""
    only_directories = """sh -c 'test ! -d "$0" || rm -rf -- "$0"' {target}"""
    with pytest.raises(TransferError, match="did not remove a single file"):
        CommandBackend(RSYNC, str(place), only_directories).check()

    CommandBackend(RSYNC, str(place), "rm -rf -- {target}").check()


def test_options_are_arguments_of_their_own(tmp_path: Path) -> None:
    echo = program(tmp_path, "sys.exit(repr(sys.argv[3:]))")
    for options in ("-x 'two words' {source}", ["-x", "two words", "{source}"]):
        backend = CommandBackend(echo + " {source} {target} {options}", "place", options=options)
        with pytest.raises(TransferError, match=r"\['-x', 'two words', '\{source\}'\]"):
            backend.check()


def test_values_are_whole_arguments_and_not_read_again(tmp_path: Path) -> None:
    """A place that is called {source} is no field, and a place with spaces is one argument."""
    echo = program(tmp_path, "sys.exit(repr(sys.argv[3:]))")
    backend = CommandBackend(echo + " {source} {target} --to={target} '{ other }'", "{source} $(touch pwned)'")
    with pytest.raises(TransferError) as raised:
        backend.check()
    assert """["--to={source} $(touch pwned)'/", '{ other }']""" in str(raised.value)
    assert not Path("pwned").exists()


def test_a_failure_says_what_the_command_said(tmp_path: Path, place: Path) -> None:
    fails = program(tmp_path, "sys.exit('first\\nAccessDenied: you may not')")
    with pytest.raises(TransferError, match=r"exit status 1: first \| AccessDenied: you may not") as raised:
        CommandBackend(fails + " {source} {target}", str(place)).check()
    assert raised.value.transient


def test_a_missing_program_is_named(place: Path) -> None:
    with pytest.raises(TransferError, match="no program 'no-such-program'") as raised:
        CommandBackend("no-such-program {source} {target}", str(place)).check()
    assert not raised.value.transient


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, place: Path) -> None:
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    body = f"child = os.fork()\nif child == 0:\n    held = open({str(pipe)!r}, 'w')\ntime.sleep(1000)"
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    try:
        with pytest.raises(TransferError, match="did not end in time") as raised:
            CommandBackend(program(tmp_path, body) + " {source} {target}", str(place)).check(timeout_s=2)
        assert raised.value.transient
        assert os.read(reader, 1) == b"", "its child has ended too"
    finally:
        os.close(reader)


def test_a_command_that_fails_in_the_middle_says_what_it_said(tmp_path: Path, place: Path) -> None:
    broken = program(
        tmp_path,
        "if not os.path.isdir(source): sys.exit('nothing there')\n"
        "shutil.copytree(source, target, dirs_exist_ok=True)\n"
        f"if source.startswith({str(place / 'exp')!r}): sys.exit('quota of requests exceeded')",
    )
    backend = CommandBackend(broken + " {source} {target}", str(place))
    backend.put("exp/a", b"a")
    with pytest.raises(TransferError, match="quota of requests exceeded") as raised:
        backend.read("exp/b")
    assert not isinstance(raised.value, ObjectNotFoundError) and raised.value.transient
    with pytest.raises(ObjectNotFoundError, match="nothing there"):
        backend.read("other/b")


def test_an_error_of_a_function_is_chained(place: Path) -> None:
    def broken(source: str, target: str) -> None:
        raise RuntimeError("no way")

    with pytest.raises(TransferError, match="broken.*RuntimeError: no way") as raised:
        FunctionBackend(broken, str(place)).check()
    assert isinstance(raised.value.__cause__, RuntimeError)
    with pytest.raises(InvalidSettingError, match="a function"):
        FunctionBackend("rsync", str(place))  # type: ignore[arg-type]


def test_odd_names_are_arguments_and_never_commands(place: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ODD_NAMES:
        (source / name).write_bytes(name.encode())
    before = set(os.listdir())
    backend = CommandBackend(RSYNC, str(place))
    for prefix in ODD_NAMES:
        backend.push(source, prefix, [prefix])
    assert sorted(os.listdir(place)) == sorted(ODD_NAMES)
    assert all((place / name / name).read_bytes() == name.encode() for name in ODD_NAMES)
    assert set(os.listdir()) == before


def test_the_extra_is_named_when_it_is_missing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sh", None)
    with pytest.raises(MissingExtraError, match=r'pip install .*\[rsync\]"'):
        CommandBackend(RSYNC, str(place)).check()


def test_a_function_may_have_a_delete_template(place: Path) -> None:
    backend = FunctionBackend(merging, str(place), "rm -rf -- {target}")
    assert backend.can.delete
    backend.put("a/b", b"b")
    backend.delete_tree("a")
    assert not (place / "a").exists()
