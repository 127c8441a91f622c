"""Places and names that cannot hold an experiment are refused at the start, with their value and the cause."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import in_child

import tuner as tune
from tuner.error import SettingError, StorageError, StorageFullError


def simple(config):
    tune.report({"a": 1})


def run(path, **settings):
    return tune.run(simple, **{"storage_path": path, "name": "e", "executor": "inline", "verbose": 0, **settings})


class ByteLike:
    def __fspath__(self):
        return b"/tmp"


@pytest.mark.parametrize("given", [3, b"/tmp", ["/tmp"], True, ByteLike()], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", ["storage_path", "local_dir"])
def test_d20_a_storage_path_that_is_no_path_is_refused(given, name):
    with pytest.raises(SettingError, match=r"not accepted; accepted.* file:///"):
        run(None, **{name: given})


@pytest.mark.parametrize("name", ["e", None])
@pytest.mark.parametrize(
    ("place", "cause"),
    [
        ("/proc/foo", "proc is the kernel's own filesystem"),
        ("/proc/foo/bar", "proc is the kernel's own filesystem"),
        ("/sys/foo", "sysfs is the kernel's own filesystem"),
        ("to proc/foo", "proc is the kernel's own filesystem"),
        ("x" * 300, "File name too long"),
        ("loop/x", "Too many levels of symbolic links"),
        ("file/x", "is a file, no directory"),
        ("half\ud800", "no file name"),
    ],
)
def test_f44_a_place_where_nothing_can_be_made_is_named_with_the_cause(tmp_path, monkeypatch, place, cause, name):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    Path("to proc").symlink_to("/proc")
    with pytest.raises((StorageError, SettingError), match=cause) as refused:
        run(place, name=name)
    assert repr(place) in str(refused.value)
    assert not isinstance(refused.value, StorageFullError)
    assert sorted(os.listdir()) == ["file", "loop", "to proc"]


@pytest.mark.parametrize("place", ["/proc/foo", "/sys/foo/bar", "file:///proc/foo"])
def test_f44_copies_to_a_filesystem_of_the_kernel_are_refused_at_the_start(tmp_path, place):
    with pytest.raises(ValueError, match="is the kernel's own filesystem"):
        run(tmp_path / "results", sync_config=tune.SyncConfig(upload_dir=place))
    assert not (tmp_path / "results").exists()


def refused_to_a_plain_user(place, **settings):
    """As `nobody`: what is raised names the setting and the cause, and does not speak of a full disk."""

    def act():
        os.setgid(65534)
        os.setuid(65534)
        with pytest.raises(StorageError) as refused:
            run(place, **settings)
        text = str(refused.value)
        assert f"storage_path={str(place)!r}" in text and "Permission denied" in text
        assert not isinstance(refused.value, StorageFullError) and "full" not in text

    return in_child(act) == 0


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user: needs root")
@pytest.mark.parametrize("name", ["e", None])
def test_f30_a_directory_of_others_is_not_a_full_disk(name):
    with tempfile.TemporaryDirectory(prefix="t", dir="/var/tmp") as open_to_all:
        os.chmod(open_to_all, 0o755)
        place = Path(open_to_all)
        for mode in (0o700, 0o555):
            (place / f"{mode:o}").mkdir(mode)
            assert refused_to_a_plain_user(place / f"{mode:o}", name=name)
            assert refused_to_a_plain_user(place / f"{mode:o}" / "below", name=name)
        run(place / "theirs")
        assert refused_to_a_plain_user(place / "theirs", resume=True)
        assert refused_to_a_plain_user(place / "theirs", overwrite=True)


@pytest.mark.parametrize("name", ["x" * 300, "x" * 121, "größe", "Größe" * 60, "a b", "-x", ".x", "\udc80", 7, b"e"])
def test_t09_the_text_about_names_says_what_is_accepted(tmp_path, name):
    accepted = "at most 120 characters of A-Z a-z 0-9 _ . -, the first neither . nor -"
    with pytest.raises(SettingError, match=re.escape(accepted)) as refused:
        run(tmp_path, name=name)
    assert f"name={name!r}" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 120, "_x", "A-Z.a_9"])
def test_t09_a_name_of_that_form_is_accepted(tmp_path, name):
    assert Path(run(tmp_path, name=name).experiment_path).name == name
