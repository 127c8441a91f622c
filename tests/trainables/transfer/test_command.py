"""Command templates and functions: what the guide's two do, what a command can do wrong, and names as attacks."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from trainables.errors import (
    InvalidSettingError,
    MissingExtraError,
    ObjectNotFoundError,
    TransferCorruptError,
    TransferError,
)
from trainables.testing.backends import CHECKS, Check
from trainables.testing.files import ODD_NAMES
from trainables.transfer.backend import Backend
from trainables.transfer.command import CommandBackend, FunctionBackend

RSYNC = "rsync -savz {source} {target}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where things are copied to: there, and empty."""
    path = tmp_path / "the place"
    path.mkdir()
    return path


def program(tmp_path: Path, body: str) -> str:
    """A program in Python, as the first word of a template; `source` and `target` are its arguments."""
    path = tmp_path / "program.py"
    path.write_text(f"#!{sys.executable}\nimport os, shutil, sys, time\nsource, target = sys.argv[1:3]\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{path}"


def merging(source: str, target: str) -> None:
    """As `aws s3 sync` does it: contents to contents, parents made, nothing to copy is no error."""
    if os.path.isdir(source):
        shutil.copytree(source, target, dirs_exist_ok=True)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_template_conforms(check: Check, place: Path) -> None:
    check(CommandBackend(RSYNC, str(place)))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_template_that_can_delete_conforms(check: Check, place: Path) -> None:
    check(CommandBackend(RSYNC, str(place), "rm -rf -- {target}"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_function_conforms(check: Check, place: Path) -> None:
    check(FunctionBackend(merging, str(place)))


@pytest.mark.parametrize("make", [lambda uri: CommandBackend(RSYNC, uri), lambda uri: FunctionBackend(merging, uri)])
def test_both_ways_of_copying_give_the_same_tree(make: type[Backend], place: Path, tmp_path: Path) -> None:
    """One makes parents and the other does not, one would put the directory into the directory."""
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "large").write_bytes(b"x" * 1_000_000)
    (source / ".manifest.json").write_bytes(b"m")
    backend = make(str(place))
    backend.push(source, "exp/trial_1/checkpoint_000001", ["d/large"])
    backend.push(source, "exp/trial_1/checkpoint_000001", [".manifest.json"])
    backend.push(source, "exp/trial_2/checkpoint_000001", ["d/large"])
    found = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    assert found == [
        "exp/trial_1/checkpoint_000001/.manifest.json",
        "exp/trial_1/checkpoint_000001/d/large",
        "exp/trial_2/checkpoint_000001/d/large",
    ]
    assert sorted(os.listdir(tmp_path)) == ["source", "the place"], "the view is removed"
    assert os.stat(source / "d" / "large").st_nlink == 1


def test_the_view_holds_no_symlinks_and_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name in ("named", "other"):
        (tmp_path / "source" / name).write_bytes(b"x" * 1_000_000)
    seen: list[tuple[list[str], bool, int]] = []

    def look(source: str, target: str) -> None:
        file = Path(source) / "named"
        seen.append((os.listdir(source), file.is_symlink(), os.stat(source).st_dev))
        assert source.endswith("/") and target == "place/p/"

    FunctionBackend(look, "place").push(tmp_path / "source", "p", ["named"])
    assert seen == [(["named"], False, os.stat(tmp_path / "source").st_dev)]


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


def test_a_command_that_copies_nothing_is_found_out_at_the_start(place: Path) -> None:
    for backend in (CommandBackend("true {source} {target}", str(place)), FunctionBackend(lambda *_: None, str(place))):
        with pytest.raises(TransferError, match="did not come back"):
            backend.check()


def test_a_place_that_is_missing_is_made_by_a_template_that_makes_one_directory(tmp_path: Path) -> None:
    backend = CommandBackend(RSYNC, str(tmp_path / "not yet"))
    backend.check()
    backend.put("as/deep/as/this", b"a")

    assert (tmp_path / "not yet/as/deep/as/this").read_bytes() == b"a"


def test_a_function_that_does_not_say_what_went_wrong_gets_its_directories_made(tmp_path: Path) -> None:
    def silent(source: str, target: str) -> None:
        subprocess.run(["rsync", "-a", source, target], stderr=subprocess.DEVNULL, check=False)

    backend = FunctionBackend(silent, str(tmp_path / "not yet"))
    backend.check()
    backend.put("as/deep/as/this", b"a")

    assert (tmp_path / "not yet/as/deep/as/this").read_bytes() == b"a"


def test_nothing_there_is_told_from_a_place_that_does_not_answer(tmp_path: Path, place: Path) -> None:
    gone = tmp_path / "gone"
    broken = program(
        tmp_path,
        f"if os.path.exists({str(gone)!r}): sys.exit('down')\nos.execvp('rsync', ['rsync', '-sa', source, target])",
    )
    backend = CommandBackend(broken + " {source} {target}", str(place))
    backend.check()
    with pytest.raises(ObjectNotFoundError):
        backend.read("nowhere/a")
    backend.put("here/a", b"a")
    gone.touch()
    with pytest.raises(TransferError, match="down") as raised:
        backend.read("here/a")
    assert not isinstance(raised.value, ObjectNotFoundError), "a dead place is not an empty one"
    assert raised.value.transient
    gone.unlink()
    assert backend.read("here/a") == b"a"


@pytest.mark.parametrize("arrives", ["nothing", "an empty directory", "all but one file"])
def test_what_failed_once_is_not_taken_for_what_is_not_there(arrives: str, tmp_path: Path, place: Path) -> None:
    """A new run would be started over one that is there."""
    fails: list[str] = []

    def copy(source: str, target: str) -> None:
        if not os.path.isdir(source):
            raise OSError(f"there is no {source}")
        if source.endswith("/exp/") and fails:
            if arrives == "an empty directory":
                (Path(target) / "trial").mkdir()
            if arrives == "all but one file":
                shutil.copytree(source, target, dirs_exist_ok=True)
                (Path(target) / "experiment.json").unlink()
            raise OSError(fails.pop())
        shutil.copytree(source, target, dirs_exist_ok=True)

    backend = FunctionBackend(copy, str(place))
    backend.check()
    for name in ("experiment.json", "trial/params.json"):
        backend.put(f"exp/{name}", name.encode())

    fails.append("connection reset")
    if arrives == "all but one file":
        with pytest.raises(TransferError, match="connection reset") as raised:
            backend.exists("exp/experiment.json")
        assert raised.value.transient and not isinstance(raised.value, ObjectNotFoundError)
    else:
        assert backend.exists("exp/experiment.json")
    assert not fails

    assert backend.read("exp/experiment.json") == b"experiment.json"
    assert not backend.exists("other/experiment.json")


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


def test_a_function_that_never_returns_is_left_behind_at_the_start(place: Path) -> None:
    release = threading.Event()
    with pytest.raises(TransferError, match="did not answer within"):
        FunctionBackend(lambda *_: release.wait() and None, str(place)).check(timeout_s=0.5)
    release.set()


def test_an_error_of_a_function_is_chained(place: Path) -> None:
    def broken(source: str, target: str) -> None:
        raise RuntimeError("no way")

    with pytest.raises(TransferError, match="broken.*RuntimeError: no way") as raised:
        FunctionBackend(broken, str(place)).check()
    assert isinstance(raised.value.__cause__, RuntimeError)
    with pytest.raises(InvalidSettingError, match="a function"):
        FunctionBackend("rsync", str(place))  # type: ignore[arg-type]


@pytest.mark.parametrize("planted", ["file", "directory"])
def test_links_from_over_there_are_refused(planted: str, place: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (place / "p").mkdir()
    (place / "p" / "good").write_bytes(b"good")
    (place / "p" / "evil").symlink_to(outside / "secret" if planted == "file" else outside)
    target = tmp_path / "target"
    with pytest.raises(TransferCorruptError, match="evil is a link"):
        CommandBackend(RSYNC, str(place)).fetch("p", target)
    assert os.listdir(target) == []
    assert os.listdir(outside) == ["secret"]


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
    with pytest.raises(MissingExtraError, match=r'pip install "tuner\[rsync\]"'):
        CommandBackend(RSYNC, str(place)).check()


def test_a_function_may_have_a_delete_template(place: Path) -> None:
    backend = FunctionBackend(merging, str(place), "rm -rf -- {target}")
    assert backend.can.delete
    backend.put("a/b", b"b")
    backend.delete_tree("a")
    assert not (place / "a").exists()


DELETES = "rm -rf -- {target}"


@pytest.mark.parametrize("delete_template", [None, DELETES])
@pytest.mark.parametrize("there", ["the place", "not yet/deep"])
def test_d20_nothing_is_left_after_a_refusal(tmp_path: Path, there: str, delete_template: str | None) -> None:
    (tmp_path / "the place").mkdir()
    backwards = program(tmp_path, "import os\nif '.probe' in source: sys.exit('no way back')\nos.makedirs(target)")
    deletes_nothing = delete_template and "true {target}"
    before = sorted(tmp_path.rglob("*"))

    refused: list[Backend] = [
        CommandBackend("true {source} {target}", str(tmp_path / there), delete_template),
        CommandBackend(f"{backwards} {{source}} {{target}}", str(tmp_path / there), delete_template),
        FunctionBackend(lambda source, target: os.makedirs(target, exist_ok=True), str(tmp_path / there)),
        *([FunctionBackend(merging, str(tmp_path / there), deletes_nothing)] if deletes_nothing else []),
    ]
    for backend in refused:
        with pytest.raises(TransferError):
            backend.check()
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("delete_template", [None, DELETES])
@pytest.mark.parametrize("there", ["the place", "not yet"])
def test_d20_nothing_is_left_after_a_start(place: Path, there: str, delete_template: str | None) -> None:
    backend = CommandBackend(RSYNC, str(place.parent / there), delete_template)
    for _ in range(2):
        backend.check()
        with pytest.raises(ObjectNotFoundError):
            backend.read("nowhere/a")
    backend.put("as/deep/as/this", b"a")

    assert os.listdir(place.parent / there) == ["as"]


def elsewhere(tmp_path: Path, inside: Path) -> tuple[str, str]:
    """Two templates whose places are in the directory `inside`, which is not what they are called here."""
    copies = program(
        tmp_path,
        f"source, target = (str(path).replace('far:', {str(inside)!r} + '/') for path in (source, target))\n"
        "shutil.copytree(source, target, dirs_exist_ok=True)",
    )
    return f"{copies} {{source}} {{target}}", f"""sh -c 'rm -rf -- "{inside}/${{0#far:}}"' {{target}}"""


def test_d20_a_probe_that_cannot_be_deleted_has_one_name(tmp_path: Path, place: Path) -> None:
    copies, deletes = elsewhere(tmp_path, place)
    for _ in range(3):
        CommandBackend(copies, "far:runs").check()
    assert os.listdir(place / "runs") == [".probe"]

    CommandBackend(copies, "far:other", deletes).check()
    assert os.listdir(place / "other") == []
