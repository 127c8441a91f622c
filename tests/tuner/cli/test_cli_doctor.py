"""`tuner doctor` on one machine, and what it makes of what was seen of others."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tuner.cli import main
from tuner.tools.cluster_nodes import ExaminedNode
from tuner.tools.findings import CLOCK_S, CheckFinding, CheckState, cluster_resources, machine, of_node
from tuner.tools.machine import MachineFacts, TriedDirectory

GB = 10**9
ROOM = TriedDirectory(Path("/data"), Path("/data"), free=100 * GB, locks=True, reflinks=True)
GOOD = MachineFacts("b", "3.11.9", {"tuner": "1.0", "torch": "2.1"}, ROOM, ROOM, 8 * GB, 65536, -1, 2 * GB)
NODE = ExaminedNode("10.0.0.2", {"cpu": 4.0}, False, GOOD, clock_s=0.01, uncertain_s=0.002)


def test_a_machine_that_is_ready_has_no_problem_and_nothing_is_left_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage, copies = tmp_path / "results" / "mine", tmp_path / "copies"
    copies.mkdir()
    (tmp_path / "beside.py").touch()
    script = tmp_path / "script.py"
    script.write_text("import os, tuner.search, beside\nfrom numpy import array\n")

    status = main(["doctor", str(script), "--storage-path", str(storage), "--upload-dir", str(copies)])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[-1].startswith("0 problems, ")
    assert (
        f"ok       here: {copies}: reach, write, read, list, create exclusively, delete, see what is deleted" in lines
    )
    assert any(line.startswith("ok       here: Python 3.") and "numpy " in line for line in lines)
    assert not any("beside" in line or "cluster" in line for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside.py", "copies", "script.py"]
    assert not list(copies.iterdir())


def test_what_is_in_the_way_is_a_problem_with_what_to_do_and_the_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "train.py").write_text("import no_such_package\n")
    config = tmp_path / "big.yaml"
    config.write_text(
        f"trainable: train.py:train\nresources_per_trial: {{cpu: 5000}}\nstorage_path: {tmp_path / 'file' / 'mine'}\n"
    )

    status = main(["doctor", str(config), "--upload-dir", str(tmp_path / "file" / "copies"), "--json"])

    found = json.loads(capsys.readouterr().out)
    problems = [check for check in found["checks"] if check["state"] == "problem"]
    assert status == 1 and found["problems"] == len(problems) == 4
    assert [check["todo"] for check in problems if "no_such_package cannot" in check["said"]] == [
        "install it: pip install no_such_package"
    ]
    assert any(
        "Not a directory" in check["said"] and "choose another storage path" in check["todo"] for check in problems
    )
    assert any("asks for 5000 cpu" in check["said"] for check in problems)
    assert any(f"{tmp_path}/file/copies: cannot reach" in check["said"] for check in problems)


def test_a_cluster_that_is_not_there_is_a_problem_and_the_rest_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    assert main(["doctor", "--address", "127.0.0.1:9"]) == 1
    said = capsys.readouterr().out
    assert "problem  cluster: executor='ray': there is no Ray cluster at '127.0.0.1:9'" in said
    assert "here: Python 3." in said


@pytest.mark.parametrize(
    "words",
    [
        ["doctor", "notes.txt"],
        ["doctor", "nothing.py"],
        ["doctor", "--executor", "local", "--address", "10.0.0.1:1"],
        ["doctor", "--storage-path", "s3://bucket/a", "--upload-dir", "s3://bucket/b"],
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str]) -> None:
    assert main(words) == 2


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
