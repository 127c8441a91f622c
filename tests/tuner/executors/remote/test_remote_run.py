"""One run on other hosts: what is found on them, what is said of them, and that one which is gone holds up nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.executors.remote.harness import (
    REF,
    NoRoom,
    PlayedAgent,
    Scene,
    silent,
)
from tuner.executors import RayExecutor
from tuner.executors.host_agent.protocol import HostSurvey
from tuner.executors.remote.hosts import Found
from tuner.executors.remote.remote_run import RemoteRun
from tuner.executors.remote_hosts import ExperimentPlace, Uploading
from tuner.experiment.state import ExperimentState
from tuner.opening.other_hosts import gather

# --- before the loop ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["silent", "gone"])
def test_a_host_that_dies_after_it_was_looked_at_does_not_keep_a_resume_from_going_on(
    tmp_path: Path, trouble: str
) -> None:
    scene = Scene(tmp_path)
    published = {node: scene.saved(node) for node in ("b", "c")}
    remote = RayExecutor().remote_hosts
    remote._hosts, remote._carrier, remote.root = scene.hosts, scene.carrier, scene.root
    remote.experiment = "e"
    remote.found = [(node, "t", REF, published[node].digest) for node in ("b", "c")]
    if trouble == "silent":
        scene.disk("b").asked = silent
    else:
        del scene.hosts["b"]

    notes = gather(remote, ExperimentState(scene.root), lambda trial, ref: False)

    assert published["b"].path.exists() and not published["c"].path.exists()
    assert [REF.name in note and "timed out" in note for note in notes] == [True] * (trouble == "silent")


# --- what is said of the hosts --------------------------------------------------------------------------------------


class Run(RemoteRun):
    """A run on hosts whose agents are played."""

    def __init__(self, *surveys: HostSurvey, uploads: Any = None) -> None:
        self.agents = {survey.hostname: PlayedAgent(look=survey, open_uploads=uploads) for survey in surveys}
        super().__init__(NoRoom(), self.agents.__getitem__, lambda node: True, lambda timeout: None)
        self.said: list[str] = []

    def survey(self, place: ExperimentPlace) -> list[Found]:
        return self.hosts.survey(place, [(node, f"{node}.invalid") for node in self.agents])

    def take(self, root: Path, *, upload_to: Uploading | None = None, **sync: Any) -> None:
        place = ExperimentPlace(root, root / "record", "owner", "e")
        self.take_place(place, sync=sync, upload_to=upload_to, keeps=lambda dirname, ref: True, say=self.said.append)


PLACE = Uploading({"place": "s3://key:secret@bucket/runs"}, 1.0, needed=False)


@pytest.mark.parametrize(
    ("hosts", "upload_to", "opens", "said", "uploads"),
    [
        ([HostSurvey("a", True)], None, None, ["1 node; every one sees {root}, so checkpoints are not copied"], False),
        ([HostSurvey("a", True), HostSurvey("b", True)], None, None, ["2 nodes; every one sees {root}"], False),
        ([HostSurvey("a", False)], PLACE, None, ["1 node; each copies its checkpoints to s3://"], True),
        (
            [HostSurvey("a", False)],
            PLACE,
            OSError("no credentials"),
            ["a (a.invalid) cannot copy its checkpoints itself", "1 node; checkpoints of a (a.invalid) are copied"],
            False,
        ),
    ],
)  # fmt: skip
def test_how_checkpoints_travel_is_said_once(
    hosts: list[HostSurvey], upload_to: Any, opens: Any, said: list[str], uploads: bool, tmp_path: Path
) -> None:
    run = Run(*hosts, uploads=opens)
    run.take(tmp_path, upload_to=upload_to)
    run.end_trials()
    assert run.uploads == uploads
    assert [line.startswith(start.format(root=tmp_path)) for line, start in zip(run.said, said, strict=True)] == [
        True
    ] * len(said)
    assert not any("secret" in line for line in run.said)
    run.hosts.release()


def test_a_way_that_was_chosen_and_does_not_work_is_an_error_of_the_start(tmp_path: Path) -> None:
    run = Run(HostSurvey("a", False))
    with pytest.raises(Exception, match="a.invalid"):
        run.take(tmp_path, syncer="false {source} {target}")
    run.hosts.release()


def test_what_is_found_is_the_experiments_own(tmp_path: Path) -> None:
    run = Run(HostSurvey("a", False, [("t", REF, "digest")]), HostSurvey("b", True))
    run.take(tmp_path)
    assert list(run.found) == [("a", "t", REF, "digest")] and run.experiment == "e"
    assert run.holds(tmp_path / "t" / REF.name) and not run.holds(tmp_path / "other" / REF.name)
    run.end_trials()
    run.hosts.release()
    assert all(agent.killed for agent in run.agents.values())
