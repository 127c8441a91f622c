"""Places that only take and give whole directories: views, probes, and what failed once."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tests.trainables.transfer.harness import RSYNC, merging, program
from trainables.errors import (
    ObjectNotFoundError,
    TransferCorruptError,
    TransferError,
)
from trainables.transfer.backend import Backend
from trainables.transfer.command import CommandBackend, FunctionBackend


@pytest.mark.parametrize("make", [lambda uri: CommandBackend(RSYNC, uri), lambda uri: FunctionBackend(merging, uri)])
def test_both_ways_of_copying_give_the_same_tree(make: type[Backend], place: Path, tmp_path: Path) -> None:
    """One makes parents and the other does not, one would put the directory into the directory."""
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed: apt-get install rsync")
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


def test_a_function_that_never_returns_is_left_behind_at_the_start(place: Path) -> None:
    release = threading.Event()
    with pytest.raises(TransferError, match="did not answer within"):
        FunctionBackend(lambda *_: release.wait() and None, str(place)).check(timeout_s=0.5)
    release.set()


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
