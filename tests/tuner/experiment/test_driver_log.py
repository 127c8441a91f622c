"""driver.log: one line for each warning, bounded, without secrets, and never a reason for a run to end."""

from __future__ import annotations

import datetime
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainables.validation import no_effect
from tuner.clock import VirtualClock
from tuner.experiment import driver_log
from tuner.experiment.driver_log import DriverLog, merge, read
from tuner.experiment.paths import ExperimentPaths
from tuner.progress.warn_once import WarnOnce

log = logging.getLogger("tuner.some.module")
WARNS = Path(__file__).parents[2] / "scripts" / "warns_around_a_driver_log.py"


@pytest.fixture
def paths(tmp_path: Path) -> ExperimentPaths:
    return ExperimentPaths(tmp_path)


@pytest.fixture
def handler(paths: ExperimentPaths) -> Iterator[DriverLog]:
    with DriverLog(VirtualClock()).attached() as attached:
        attached.open(paths)
        yield attached


def texts(paths: ExperimentPaths) -> list[str]:
    return [line.text for line in read(paths)]


def test_a_line_has_its_time_with_the_zone_its_level_and_its_text(paths: ExperimentPaths, handler: DriverLog) -> None:
    before = datetime.datetime.now(datetime.UTC)
    log.warning("checkpoint %s is damaged", "c1")
    logging.getLogger("trainables.store").error("worse")
    log.info("nothing to see")
    logging.getLogger("somebody.else").warning("of no concern")
    assert [(line.level, line.text) for line in read(paths)] == [
        ("WARNING", "checkpoint c1 is damaged"),
        ("ERROR", "worse"),
    ]
    at = datetime.datetime.fromisoformat(read(paths)[0].at)
    assert at.tzinfo is not None and datetime.timedelta(0) <= at - before + datetime.timedelta(milliseconds=1)
    assert paths.driver_log.read_text().splitlines()[1] == str(read(paths)[1])


def test_what_is_said_is_one_line_that_no_terminal_obeys(paths: ExperimentPaths, handler: DriverLog) -> None:
    log.warning("a\nb\r\x1b[31mred\x9b0m\u2028é \\n \udcff")
    assert paths.driver_log.read_text().count("\n") == 1
    assert texts(paths)[0].startswith("a\\nb\\r\\x1b[31mred\\x9b0m\\u2028é \\\\n ")
    assert paths.driver_log.read_bytes().isascii() is False


def test_secrets_are_masked_and_tracebacks_told(paths: ExperimentPaths, handler: DriverLog) -> None:
    try:
        raise RuntimeError("cannot open postgresql://me:hunter2@db/x")
    except RuntimeError:
        log.exception("with --token abcdef")
    (line,) = texts(paths)
    assert "RuntimeError: cannot open postgresql://me:***@db/x" in line and "hunter2" not in line
    assert "abcdef" not in line and "\\n" in line


def test_what_was_said_before_the_experiment_is_open_is_in_it(paths: ExperimentPaths) -> None:
    with pytest.warns(UserWarning, match="a has no effect"):
        no_effect("a", "of the weather")
    with DriverLog(VirtualClock()).attached() as attached:
        log.warning("early")
        assert not paths.driver_log.exists()
        attached.open(paths)
        attached.add("said in another way", at=0.0)
    assert texts(paths) == ["a has no effect: of the weather", "early", "said in another way"]
    assert read(paths)[2].at.startswith(("1970-01-01", "1969-12-31"))


def test_a_warning_that_a_filter_makes_an_error_was_not_passed_over(paths: ExperimentPaths) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            no_effect("b", "of the weather")
    with DriverLog(VirtualClock()).attached() as attached:
        attached.open(paths)
    assert not paths.driver_log.exists()


def test_a_start_that_is_refused_touches_nothing(paths: ExperimentPaths) -> None:
    with DriverLog(VirtualClock()).attached():
        log.warning("early")
    with DriverLog(VirtualClock()).attached() as attached:
        attached.open(paths)
        attached.let_go()
        log.warning("late")
    assert os.listdir(paths.root) == []


def test_both_files_together_are_bounded(
    paths: ExperimentPaths, handler: DriverLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_log, "LIMIT", 10_000)
    for number in range(3000):
        handler.add(f"number {number}")
    assert sorted(os.listdir(paths.root)) == ["driver.log", "driver.log.1"]
    assert all(path.stat().st_size <= 10_000 for path in paths.driver_logs)
    told = texts(paths)
    assert told == [f"number {number}" for number in range(3000 - len(told), 3000)]
    assert len(told) > 150


def test_the_limit_is_a_mebibyte() -> None:
    assert driver_log.LIMIT == 1024 * 1024


def test_of_many_alike_the_first_are_told_and_the_others_counted(paths: ExperimentPaths) -> None:
    with DriverLog(VirtualClock()).attached() as attached:
        attached.open(paths)
        for number in range(1000):
            log.warning("again: %d", number)
        log.warning("something else")
    told = texts(paths)
    assert told[:100] == [f"again: {number}" for number in range(100)]
    assert told[100:] == ["something else", "900 more like: again: %d"]


def test_a_long_text_is_cut(paths: ExperimentPaths, handler: DriverLog) -> None:
    log.warning("x" * 10_000_000)
    assert paths.driver_log.stat().st_size < 20_000


def test_drivers_append_also_behind_half_a_line(paths: ExperimentPaths) -> None:
    for life in ("first", "second"):
        with DriverLog(VirtualClock()).attached() as attached:
            attached.open(paths)
            attached.add(life)
    with open(paths.driver_log, "ab") as file:
        file.write(b"2026-01-01T00:00:00+00:00 WARN")  # killed while it wrote
    with DriverLog(VirtualClock()).attached() as attached:
        attached.open(paths)
        attached.add("third")
    assert texts(paths) == ["first", "second", "third"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.root
def test_t17_a_full_disk_is_no_matter_and_what_was_not_written_is_counted(disk: Path) -> None:
    paths = ExperimentPaths(disk)
    with DriverLog(VirtualClock()).attached() as attached:
        attached.open(paths)
        log.warning("before")
        with open(disk / "ballast", "ab", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
            while ballast.write(bytes(4096)):
                pass
        for number in range(50):
            log.warning("meanwhile %d %s", number, "x" * 1000)
        (disk / "ballast").unlink()
        log.warning("after")
    told = texts(paths)
    assert told[0] == "before" and told[-1] == "after"
    written = sum(text.startswith("meanwhile") and text.endswith("x" * 1000) for text in told)
    assert re.fullmatch(r"\d+ warnings could not be written here", told[-2])
    assert int(told[-2].split()[0]) == 50 - written


def test_a_file_that_cannot_be_opened_is_no_matter(paths: ExperimentPaths, handler: DriverLog) -> None:
    paths.driver_log.mkdir()
    log.warning("lost")
    paths.driver_log.rmdir()
    log.warning("found")
    assert texts(paths) == ["1 warnings could not be written here", "found"]


# --- beside others who listen ----------------------------------------------------------------------------------


def test_it_takes_no_warning_from_anybody(paths: ExperimentPaths) -> None:
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, WARNS, paths.root], capture_output=True, text=True, check=True, env=search)
    assert done.stderr.split("\n") == ["one", "two", "three", "configured four", "configured five", ""]
    assert texts(paths) == ["two", "three", "four"]


def test_the_view_shows_what_it_showed(handler: DriverLog, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    shown: list[str] = []
    once = WarnOnce(shown.append)
    once.install()
    log.warning("seen %d", 1)
    log.warning("seen %d", 2)
    once.remove()
    assert shown == ["warning: seen 1"]


def test_nothing_stays_attached() -> None:
    before = [list(logging.getLogger(name).handlers) for name in driver_log.PACKAGES]
    with pytest.raises(ZeroDivisionError), DriverLog(VirtualClock()).attached():
        1 / 0  # noqa: B018
    assert [list(logging.getLogger(name).handlers) for name in driver_log.PACKAGES] == before


# --- two copies ---------------------------------------------------------------------------------------------------


def test_two_copies_become_one_by_time(tmp_path: Path) -> None:
    here, there = ExperimentPaths(tmp_path / "a"), ExperimentPaths(tmp_path / "b")
    for paths, told in ((here, (1, 2, 5)), (there, (1, 2, 3, 4))):
        paths.root.mkdir()
        lines = "".join(f"2026-01-01T00:00:0{second}.000+00:00 WARNING s{second}\n" for second in told)
        paths.driver_log.write_text(lines)
    merge(here, there)
    assert texts(here) == ["s1", "s2", "s3", "s4", "s5"]
    empty = ExperimentPaths(tmp_path / "c")
    empty.root.mkdir()
    merge(empty, here)
    assert empty.driver_log.read_bytes() == here.driver_log.read_bytes()
    merge(here, ExperimentPaths(tmp_path / "nowhere"))
    assert texts(here) == ["s1", "s2", "s3", "s4", "s5"]


def test_a_merge_keeps_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_log, "LIMIT", 1000)
    here, there = ExperimentPaths(tmp_path / "a"), ExperimentPaths(tmp_path / "b")
    for paths in (here, there):
        paths.root.mkdir()
    lines = [f"2026-01-01T00:00:00.{number:03}+00:00 WARNING number {number}" for number in range(100)]
    there.driver_log.write_text("".join(f"{line}\n" for line in lines))
    merge(here, there)
    assert [path.stat().st_size <= 1000 for path in here.driver_logs] == [True, True]
    told = [str(line) for line in read(here)]
    assert told == lines[-len(told) :] and len(told) > 30
