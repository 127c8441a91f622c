"""`tuner doctor` on one machine, and where a cluster is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.cli import main


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
