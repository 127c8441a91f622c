"""What earlier versions stored is read for good: each sample of tests/data is listed, shown, verified and continued.

How the samples came about is said in tests/data/write.py; what each comes to, in the index.json beside them: the end of
the same run, by the same version, that nobody killed. Of the formats after the first, `make test` takes those that have
no like among the first's, and a few others; `make soak` takes all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.data import ends
from tests.data.experiment import Experiment
from tests.data.experiments import BY_NAME, is_new
from tests.data.unpacking import INDEX, unpack
from tests.servers import s3
from tests.tuner.ui.made import needs_page
from trainables.transfer.open import open_backend
from tuner.cli import main
from tuner.experiment import lock

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
_OTHERS = {"compacted", "damaged", "finished", "replica_killed", "rolled_back"}


def each(entries: Iterable[dict[str, Any]]) -> pytest.MarkDecorator:
    """A test of each of these samples."""
    params = []
    for entry in entries:
        name, version = entry["name"], entry["version"]
        marks = [pytest.mark.torch] if name == "gp" else []
        if name not in _OTHERS and not is_new(name, version):
            marks.append(pytest.mark.soak)
        params.append(pytest.param(entry, marks=marks, id=f"{version}-{name}"))
    return pytest.mark.parametrize("entry", params)


samples = each(INDEX)


@pytest.fixture(scope="module")
def bucket_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3.s3_server() as port:
        yield port


@pytest.fixture
def place(entry: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where the sample lies, unpacked; its bucket is there too, if it has one."""
    unpack(entry["version"], entry["name"], tmp_path)
    if entry["replica"] == "s3":
        patch, port = request.getfixturevalue("monkeypatch"), request.getfixturevalue("bucket_server")
        for name, value in {**s3.ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            patch.setenv(name, value)
        _fill(s3.make_bucket(port, f"{entry['name'].replace('_', '-')}-{os.urandom(4).hex()}"), tmp_path)
    return tmp_path


def _fill(bucket: str, place: Path) -> None:
    backend = open_backend(f"s3://{bucket}")
    for path in sorted((place / "replica").rglob("*")):
        if path.is_file():
            backend.put(str(path.relative_to(place / "replica")), path.read_bytes())
    backend.close()
    (place / "bucket").write_text(bucket)


def replica_of(entry: dict[str, Any], place: Path) -> str | None:
    if entry["replica"] == "s3":
        return f"s3://{(place / 'bucket').read_text()}"
    return str(place / "replica") if entry["replica"] else None


def run_again(experiment: Experiment, place: Path, replica: str | None, **more: Any) -> None:
    """What its user does: the same call again."""
    if experiment.restores:
        tune.Tuner.restore(place / "storage" / experiment.name, experiment.trainable).fit()
    else:
        tune.run(experiment.trainable, **experiment.call(place, replica, **more))


def end_on_this_processor(entry: dict[str, Any], place: Path) -> Any:
    """What the same run comes to here when nobody kills it: what was recorded, but for last digits of configs."""
    experiment = BY_NAME[entry["name"]]
    tune.run(experiment.trainable, **experiment.call(place))
    end = ends.end_of(place / "storage" / entry["name"])
    for mine, theirs in zip(end["trials"], entry["end"]["trials"], strict=True):
        assert mine == theirs or mine["config"] != theirs["config"], "what is trained goes by the config alone"
        assert mine["status"] == theirs["status"]
        for (key, value), (name, recorded) in zip(mine["config"]["dict"], theirs["config"]["dict"], strict=True):
            assert key == name
            assert value == (pytest.approx(recorded, rel=1e-9) if isinstance(recorded, float) else recorded)
    return end


def check_end(entry: dict[str, Any], experiment: Path, place: Path) -> None:
    """It has come to where it comes to when nobody kills it."""
    expected, end = entry["end"], ends.end_of(experiment)
    if entry["alike"] and end != expected:  # the last digits are the processor's, and scores go by every digit
        expected = end_on_this_processor(entry, place / "anew")
    assert len(end["trials"]) == len(expected["trials"])
    for trial in end["trials"]:
        assert list(map(int, trial["scores"])) == list(range(1, len(trial["scores"]) + 1)), "each iteration once"
    if entry["alike"]:
        assert end == expected
    else:  # what is decided goes by who has come how far, which a kill changes
        assert [trial["status"] for trial in end["trials"]] == [trial["status"] for trial in expected["trials"]]


def tree_of(root: Path) -> dict[str, str]:
    """Every file, with a hash of its bytes and its time."""
    return {
        str(path.relative_to(root)): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def say(*words: Any) -> int:
    return main([str(word) for word in words])


def verified(address: Any, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    say("verify", address, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@samples
def test_it_is_read(entry: dict[str, Any], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, before = entry["name"], tree_of(place)
    experiment = place / "storage" / name
    assert ends.stored_of(experiment) == entry["stored"]
    assert say("ls", place / "storage", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["trials"]) == (name, len(entry["stored"]["trials"]))
    assert say("show", experiment, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    shown["trials"].sort(key=lambda trial: trial["index"])  # they come best first
    assert [trial["status"] for trial in shown["trials"]] == [trial[1] for trial in entry["stored"]["trials"]]
    assert say("show", experiment) == 0
    assert say("retention", experiment, "--policy", "latest:1") == 0
    if entry["stored"]["trials"]:
        assert say("show", experiment, 0, "--why") == 0
    assert verified(experiment, capsys)["problems"] == []
    assert tree_of(place) == before, "nothing was changed"


@needs_page
@each(entry for entry in INDEX if entry["name"] in ("errors_killed", "odd_values_killed"))
def test_a_report_is_made_of_it(entry: dict[str, Any], place: Path, tmp_path: Path) -> None:
    assert say("report", place / "storage" / entry["name"], "--output", tmp_path / "report.html") == 0
    assert entry["stored"]["trials"][0][0] in (tmp_path / "report.html").read_text()


@samples
def test_it_is_continued_to_its_right_end(
    entry: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lock, "STALE_S", 0.05)  # its owner is on another host, and was seen there last
    run_again(BY_NAME[entry["name"]], place, replica_of(entry, place))
    check_end(entry, place / "storage" / entry["name"], place)
    assert verified(place / "storage" / entry["name"], capsys)["problems"] == []


@each(entry for entry in INDEX if entry["replica"])
@pytest.mark.parametrize("resume", ["AUTO", "REMOTE"])
def test_its_copy_is_continued_on_a_machine_that_has_nothing(
    entry: dict[str, Any], place: Path, resume: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(place / "storage")
    replica = replica_of(entry, place)
    run_again(BY_NAME[entry["name"]], place, replica, resume=resume)
    check_end(entry, place / "storage" / entry["name"], place)
    assert verified(f"{replica}/{entry['name']}", capsys)["problems"] == []
