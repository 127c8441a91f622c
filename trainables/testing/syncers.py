"""Conformance suite for syncers: what every `Syncer` must do.

In a test of your own:

    def test_my_syncer_conforms():
        check_syncer(MySyncer(), "proto://an/empty/place")
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from trainables.testing.files import content_of, filled
from trainables.transfer.user import Syncer


def check_syncer(syncer: Syncer, remote_dir: str) -> None:
    """Run every check.

    Args:
        syncer: is left open.
        remote_dir: a place of the Syncer's under which nothing is yet; nothing is afterwards.

    Raises:
        AssertionError: an obligation of `Syncer` is not met; the message says which.
    """
    remote_dir = remote_dir.rstrip("/")
    with tempfile.TemporaryDirectory(prefix="syncer-") as root:
        here = Path(root)
        syncer.wait()  # nothing has been started: there is nothing to wait for
        _contents_arrive(syncer, f"{remote_dir}/tree", here)
        _a_second_copy_adds_and_replaces(syncer, f"{remote_dir}/tree", here)
        _patterns_are_left_out(syncer, f"{remote_dir}/tree", here)
        _odd_names_are_names(syncer, f"{remote_dir}/odd", here)
        _nothing_there_gives_nothing(syncer, f"{remote_dir}/nowhere", here)
        _a_failure_is_told(syncer, f"{remote_dir}/failure", here)
        _what_is_deleted_is_gone(syncer, remote_dir, here)


def _contents_arrive(syncer: Syncer, remote: str, here: Path) -> None:
    content = {"top": b"1", "empty": b"", "a/b/deep": b"22", "large": b"x" * 3_000_000}
    up = filled(here / "up", content)
    _done(syncer, syncer.sync_up(str(up), remote), "sync_up")
    assert content_of(up) == content, "sync_up leaves the source as it is"
    assert _down(syncer, remote, here / "down") == content, (
        "sync_down gives back the files that sync_up copied: contents to contents, at any depth"
    )


def _a_second_copy_adds_and_replaces(syncer: Syncer, remote: str, here: Path) -> None:
    up = filled(here / "second", {"top": b"other", "new": b"n"})
    _done(syncer, syncer.sync_up(str(up), remote), "sync_up")
    found = _down(syncer, remote, here / "down2")
    assert found.get("top") == b"other", "sync_up replaces what is there"
    assert found.get("new") == b"n"
    assert found.get("a/b/deep") == b"22", "sync_up leaves what is there and was not copied"


def _patterns_are_left_out(syncer: Syncer, remote: str, here: Path) -> None:
    up = filled(here / "third", {"kept.txt": b"k", "left.tmp": b"l", "checkpoint_1/file": b"c"})
    _done(syncer, syncer.sync_up(str(up), remote, exclude=["*.tmp", "*checkpoint_*"]), "sync_up")
    found = _down(syncer, remote, here / "down3")
    assert found.get("kept.txt") == b"k"
    assert "left.tmp" not in found and "checkpoint_1/file" not in found, "exclude=[...] leaves files out"
    found = _down(syncer, remote, here / "down4", exclude=["*.txt"])
    assert "kept.txt" not in found and "top" in found, "sync_down(exclude=[...]) leaves files out"


def _odd_names_are_names(syncer: Syncer, remote: str, here: Path) -> None:
    content = {"two words": b"1", "$(touch pwned)": b"2", "a;b": b"3", "ünï": b"4", "it's": b"5", "-rf": b"6"}
    up = filled(here / "odd", content)
    _done(syncer, syncer.sync_up(str(up), remote), "sync_up")
    assert _down(syncer, remote, here / "odd down") == content, "names with spaces and quotes are only names"
    assert not (here / "pwned").exists() and not Path("pwned").exists(), "a name was executed"


def _nothing_there_gives_nothing(syncer: Syncer, remote: str, here: Path) -> None:
    target = here / "nothing"
    target.mkdir(parents=True)
    try:
        _done(syncer, syncer.sync_down(remote, str(target)), "sync_down")
    except AssertionError:
        raise
    except Exception:
        pass  # it may say so
    assert content_of(target) == {}, "sync_down of nothing makes no files"


def _a_failure_is_told(syncer: Syncer, remote: str, here: Path) -> None:
    missing = str(here / "not there")
    try:
        started = syncer.sync_up(missing, remote)
        syncer.wait()
    except Exception:
        pass
    else:
        assert started is False, "sync_up of a directory that is not there raises, in wait() at the latest"
    up = filled(here / "after", {"a": b"a"})
    _done(syncer, syncer.sync_up(str(up), remote), "sync_up after one that failed")
    assert _down(syncer, remote, here / "after down") == {"a": b"a"}


def _what_is_deleted_is_gone(syncer: Syncer, remote_dir: str, here: Path) -> None:
    _done(syncer, syncer.delete(f"{remote_dir}/tree"), "delete")
    _nothing_there_gives_nothing(syncer, f"{remote_dir}/tree", here / "deleted")
    assert _down(syncer, f"{remote_dir}/odd", here / "beside").get("a;b") == b"3", "delete spares what is beside"
    for name in ("odd", "failure"):
        _done(syncer, syncer.delete(f"{remote_dir}/{name}"), "delete")


def _done(syncer: Syncer, started: bool | None, what: str) -> None:
    assert started is not False, f"{what} was not started, though nothing else was going on"
    syncer.wait()


def _down(syncer: Syncer, remote: str, target: Path, exclude: list[str] | None = None) -> dict[str, bytes]:
    target.mkdir()
    _done(syncer, syncer.sync_down(remote, str(target), exclude=exclude), "sync_down")
    return content_of(target)
