"""What stands at a start: looked at on this machine and in the replica, and left as it is."""

from __future__ import annotations

import errno
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.opening.harness import CLOCK, Opening, files, ran, train
from trainables.errors import StoreMissingError
from tuner.error import ExperimentDamagedError, NewerFormatError, SettingError, StorageError, StorageFullError
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.opening.survey import LocalStanding, RemoteStanding, StartStanding, survey, survey_local, usable
from tuner.spec import Spec
from tuner.syncer.relation import Relation


def spec(place: Path, **settings: Any) -> Spec:
    return Spec(trainable=train, name="e", storage_path=place, **settings)


def looked(place: Path, **settings: Any) -> LocalStanding:
    return survey_local(spec(place, **settings), ExperimentPaths(place / "e"))


# --- what the system says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.ECONNREFUSED])
def test_what_a_remote_disk_refuses_is_not_told_as_this_machines(tmp_path: Path, number: int) -> None:
    refused = StoreMissingError("s3://bucket did not take it", errno=number)
    with pytest.raises(StoreMissingError, match="did not take it"):
        with usable(Spec(trainable=train, name="e", storage_path=tmp_path), ExperimentPaths(tmp_path / "e")):
            raise refused


@pytest.mark.parametrize(
    ("number", "error", "said"),
    [
        (errno.ENOSPC, StorageFullError, "bytes free"),
        (errno.EDQUOT, StorageFullError, "bytes free"),
        (errno.EACCES, StorageError, "give a directory in which this user may make directories and files"),
        (errno.EROFS, StorageError, "cannot hold e"),
    ],
)
def test_what_the_system_refuses_names_the_setting(number: int, error: type, said: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=said) as caught:
        with usable(spec(tmp_path), ExperimentPaths(tmp_path / "e")):
            raise OSError(number, "refused", str(tmp_path / "e"))
    assert tmp_path.name in str(caught.value) and isinstance(caught.value.__cause__, OSError)


def test_what_is_no_word_of_the_system_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="somebody's own") as caught:
        with usable(spec(tmp_path), ExperimentPaths(tmp_path / "e")):
            raise OSError("somebody's own")
    assert not isinstance(caught.value, StorageError)


# --- on this machine ------------------------------------------------------------------------------------------------


def test_what_is_here_is_surveyed_by_looking_only(tmp_path: Path) -> None:
    paths = ExperimentPaths(tmp_path / "runs" / "e")
    nothing = survey_local(Spec(trainable=train, name="e"), paths)
    assert not nothing.exists and nothing.missing == [paths.root, paths.root.parent] and nothing.last is None
    ran(tmp_path / "runs")
    there = survey_local(Spec(trainable=train, name="e"), paths)
    assert there.exists and there.told and there.description["name"] == "e" and not there.missing
    ownership = claim(paths, clock=CLOCK)
    assert ownership.parent_id == there.last is not None
    ownership.release()


def test_files_that_are_not_ours_are_named_and_what_a_killed_start_left_is_ours(tmp_path: Path) -> None:
    for name in ("thesis.tex", "data", "journal", "generations", "blobs", "driver.log", ".incoming-1"):
        (tmp_path / "e" / name).mkdir(parents=True)
    there = looked(tmp_path)
    assert not there.exists and there.foreign == ["data", "thesis.tex"] and there.missing == []


def test_an_experiment_that_another_makes_just_now_is_not_taken_for_somebodys_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "e").mkdir()

    def too_early(paths: ExperimentPaths) -> bool:
        paths.experiment_json.write_text("{}")
        return False

    monkeypatch.setattr("tuner.opening.survey.is_experiment", too_early)
    there = looked(tmp_path)
    assert not there.exists and there.foreign == []


def test_other_experiments_are_named_only_where_one_has_to_be_there(tmp_path: Path) -> None:
    for name in ("b", "a"):
        ran(tmp_path, name=name)
    assert looked(tmp_path, resume=True).others == ["a", "b"]
    assert looked(tmp_path, resume="REMOTE").others == ["a", "b"]
    assert looked(tmp_path, resume="AUTO").others == () == looked(tmp_path).others
    assert survey_local(spec(tmp_path / "no", resume=True), ExperimentPaths(tmp_path / "no" / "e")).others == ()


def fails(config: dict[str, Any]) -> None:
    raise ValueError("before the first result")


@pytest.mark.parametrize(
    ("trainable", "settings", "told"),
    [
        (train, {}, True),
        (fails, {}, False),
        (fails, {"resume": "AUTO"}, True),  # nobody asks
        (fails, {"overwrite": True}, True),
    ],
)
def test_whether_there_ever_was_a_result_is_looked_at_where_it_decides(
    trainable: Any, settings: dict[str, Any], told: bool, tmp_path: Path
) -> None:
    ran(tmp_path, trainable=trainable, raise_on_failed_trial=False)
    assert looked(tmp_path, **settings).told == told


def test_places_at_which_no_experiment_can_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match="is a file, no directory"):
        survey_local(spec(tmp_path / "file" / "sub"), ExperimentPaths(tmp_path / "file" / "sub" / "e"))
    with pytest.raises(ExperimentDamagedError, match="is a file, not a directory"):
        survey_local(spec(tmp_path), ExperimentPaths(tmp_path / "file"))
    with pytest.raises(SettingError, match="the kernel's own filesystem"):
        survey_local(spec(Path("/proc/self")), ExperimentPaths(Path("/proc/self/e")))


def test_an_experiment_of_a_later_version_is_refused(tmp_path: Path) -> None:
    ran(tmp_path)
    file = tmp_path / "e" / "experiment.json"
    file.write_text(file.read_text().replace('"format": 2', '"format": 99').replace('"format":2', '"format":99'))
    with pytest.raises(NewerFormatError):
        looked(tmp_path, resume=True)


# --- in the replica -----------------------------------------------------------------------------------------------


def surveyed(opening: Opening, scratch: ExitStack) -> StartStanding:
    paths = ExperimentPaths(opening.settings.spec.storage / "e")
    return survey(opening.settings, paths, opening.connection, restores=False, clock=CLOCK, scratch=scratch)


def remote_of(results: Path, place: Path, **settings: Any) -> tuple[RemoteStanding, Path | None]:
    """What is seen there, and where what was brought to be looked at lay."""
    with ExitStack() as scratch:
        before = files(place) if place.exists() else {}
        standing = surveyed(Opening(results, place, **settings), scratch).remote
        assert standing is not None
        assert (files(place) if place.exists() else {}) == before, "looking leaves it as it was"
        fetched = standing.fetched.root if standing.fetched is not None else None
        assert fetched is None or (fetched / "experiment.json").exists()
    assert fetched is None or not fetched.exists()
    return standing, fetched


def test_without_a_place_for_copies_there_is_nothing_to_see(tmp_path: Path) -> None:
    with ExitStack() as scratch:
        assert surveyed(Opening(tmp_path, None), scratch).remote is None


def test_a_place_that_has_nothing(tmp_path: Path) -> None:
    standing, _ = remote_of(tmp_path / "here", tmp_path / "place")
    assert (standing.exists, standing.relation, standing.highest) == (False, Relation.ABSENT, 0)
    assert not standing.orphans and standing.void == ()


@pytest.mark.parametrize(
    ("settings", "compared"), [({"resume": "AUTO"}, True), ({}, False), ({"overwrite": True}, False)]
)
def test_what_only_the_replica_has_is_brought_to_be_looked_at_where_it_may_be_resumed(
    settings: dict[str, Any], compared: bool, tmp_path: Path
) -> None:
    ran(tmp_path / "there", tmp_path / "place")
    standing, fetched = remote_of(tmp_path / "here", tmp_path / "place", **settings)
    assert standing.relation is Relation.NEWER and standing.highest == 1
    assert (fetched is not None) == compared
    assert (standing.description.get("name") == "e") == compared


def test_the_same_here_and_there_is_not_brought_anywhere(tmp_path: Path) -> None:
    ran(tmp_path / "here", tmp_path / "place")
    standing, fetched = remote_of(tmp_path / "here", tmp_path / "place", resume="AUTO")
    assert standing.relation is Relation.OLDER and fetched is None


def test_checkpoints_without_an_experiment_are_seen_as_that(tmp_path: Path) -> None:
    ran(tmp_path / "there", tmp_path / "place")
    for gone in ("experiment.json", "journal", "generations"):
        path = tmp_path / "place" / "e" / gone
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    standing, _ = remote_of(tmp_path / "here", tmp_path / "place")
    assert standing.orphans and not standing.exists


def test_what_a_killed_replacement_left_there_is_void(tmp_path: Path) -> None:
    ran(tmp_path / "there", tmp_path / "place")
    there = tmp_path / "place" / "e"
    (there / "experiment.json").unlink()
    (there / ".replaced").touch()
    standing, _ = remote_of(tmp_path / "here", tmp_path / "place")
    assert not standing.exists and not standing.orphans
    assert ".replaced" in standing.void and any(key.startswith("journal/") for key in standing.void)
    assert not any(key.startswith("generations/") for key in standing.void), "they number the owners"
    assert standing.remote is not None and standing.remote.checkpoints() == {}


@pytest.mark.parametrize(("trainable", "told"), [(train, True), (fails, False)])
def test_a_new_run_looks_whether_what_is_there_ever_had_a_result(trainable: Any, told: bool, tmp_path: Path) -> None:
    ran(tmp_path / "there", tmp_path / "place", trainable=trainable, raise_on_failed_trial=False)
    standing, _ = remote_of(tmp_path / "here", tmp_path / "place")
    assert standing.told == told and standing.exists


def test_a_replica_without_a_journal_is_seen_as_that(tmp_path: Path) -> None:
    ran(tmp_path / "there", tmp_path / "place")
    shutil.rmtree(tmp_path / "place" / "e" / "journal")
    standing, _ = remote_of(tmp_path / "here", tmp_path / "place", resume="AUTO")
    assert standing.exists and not standing.has_journal


def test_an_owner_that_lives_is_in_the_way_only_of_who_may_use_what_is_there(tmp_path: Path) -> None:
    ran(tmp_path / "there", tmp_path / "place")
    owned = Opening(tmp_path / "there", tmp_path / "place", resume="AUTO").start()
    assert owned is not None
    with pytest.raises(tune.error.OwnedElsewhereError):
        remote_of(tmp_path / "here", tmp_path / "place", overwrite=True)
    standing, _ = remote_of(tmp_path / "other", tmp_path / "place", resume="LOCAL")
    assert standing.exists
    owned.life.close()
