"""What `tuner doctor` makes of what was seen of machines and nodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tuner.tools.cluster_nodes import ExaminedNode
from tuner.tools.findings import CLOCK_S, CheckFinding, CheckState, cluster_resources, machine, of_node
from tuner.tools.machine import MachineFacts, TriedDirectory

GB = 10**9
ROOM = TriedDirectory(Path("/data"), Path("/data"), free=100 * GB, locks=True, reflinks=True)
GOOD = MachineFacts("b", "3.11.9", {"tuner": "1.0", "torch": "2.1"}, ROOM, ROOM, 8 * GB, 65536, -1, 2 * GB)
NODE = ExaminedNode("10.0.0.2", {"cpu": 4.0}, False, GOOD, clock_s=0.01, uncertain_s=0.002)


def worst(findings: list[CheckFinding]) -> list[tuple[CheckState, str]]:
    """Everything that is not well."""
    return [(found.state, f"{found.said}; {found.todo}") for found in findings if found.state is not CheckState.OK]


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        (
            {"clock_s": CLOCK_S + 0.5},
            CheckState.WARNING,
            "its clock is 1.5 s ahead of the one here; have both set by NTP",
        ),
        ({"clock_s": -CLOCK_S - 2}, CheckState.WARNING, "its clock is 3.0 s behind"),
        ({"facts": None, "problem": "No module named 'tuner'"}, CheckState.PROBLEM, "install tuner there"),
    ],
)
def test_a_node_that_differs(change: dict[str, object], state: CheckState, said: str) -> None:
    assert worst(list(of_node(NODE, GOOD, [], None))) == []
    ((found, words),) = worst(list(of_node(dataclasses.replace(NODE, **change), GOOD, [], None)))
    assert found is state
    assert said in words


def test_a_clock_that_cannot_be_told_that_well_is_no_warning() -> None:
    slow = dataclasses.replace(NODE, clock_s=CLOCK_S + 0.5, uncertain_s=0.6)
    assert worst(list(of_node(slow, GOOD, [], None))) == []


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({"python": "3.12.1"}, CheckState.PROBLEM, "Python 3.12.1, here 3.11.9; use the same version"),
        (
            {"versions": {"tuner": "0.9", "torch": "2.1"}},
            CheckState.PROBLEM,
            "tuner 0.9, here 1.0; install the same there",
        ),
        ({"versions": {"tuner": "1.0", "torch": "2.2"}}, CheckState.WARNING, "torch 2.2, here 2.1"),
        ({"versions": {"tuner": "1.0", "torch": None}}, CheckState.WARNING, "no torch, here is 2.1"),
        ({"rights": [("reach", ""), ("write", "denied")]}, CheckState.PROBLEM, "s3://b/x: cannot write: denied"),
    ],
)
def test_a_node_with_other_packages_or_without_rights(change: dict[str, object], state: CheckState, said: str) -> None:
    node = dataclasses.replace(NODE, facts=dataclasses.replace(GOOD, **change))
    ((found, words),) = worst(list(of_node(node, GOOD, [], "s3://b/x")))
    assert found is state
    assert said in words


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({"storage": dataclasses.replace(ROOM, free=10**6)}, CheckState.PROBLEM, "1.0 MB free; free some space"),
        ({"storage": dataclasses.replace(ROOM, free=GB)}, CheckState.WARNING, "1.0 GB free; free some space"),
        ({"storage": dataclasses.replace(ROOM, locks=False)}, CheckState.WARNING, "no file locks"),
        (
            {"temporary": TriedDirectory(Path("/tmp"), Path("/tmp"), "Read-only file system")},
            CheckState.PROBLEM,
            "set TMPDIR",
        ),
        ({"files": 1024}, CheckState.WARNING, "open files: up to 1024; raise it: ulimit -n"),
        ({"processes": 100}, CheckState.WARNING, "processes: up to 100; raise it: ulimit -u"),
        ({"shm": 64 * 2**20}, CheckState.WARNING, "--shm-size"),
    ],
)
def test_a_machine_that_is_tight(change: dict[str, object], state: CheckState, said: str) -> None:
    assert worst(list(machine("here", GOOD, []))) == []
    ((found, words),) = worst(list(machine("here", dataclasses.replace(GOOD, **change), [])))
    assert found is state
    assert said in words


def test_f41_what_fits_on_no_node_is_a_problem_though_all_together_have_it() -> None:
    nodes = [{"cpu": 2.0, "memory": 5.0}, {"cpu": 2.0, "gpu": 1.0, "memory": 4.0}]
    assert [found.said for found in cluster_resources({"cpu": 1}, nodes)][-1] == "a trial asks for 1 cpu: 4 at once"
    ((state, said),) = worst(list(cluster_resources({"cpu": 2, "gpu": 2}, nodes)))
    assert state is CheckState.PROBLEM
    assert "asks for cpu: 2, gpu: 2" in said and "cpu: 2, gpu: 1" in said
