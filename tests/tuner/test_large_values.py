"""What is large in a config is stored once, read by everybody, and nothing is unpickled that JSON can hold."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import tuner as tune
from tests.listings import SCRIPTS
from trainables import Result, tagged
from tuner.cli import main
from tuner.experiment.blobs import Blobs
from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.search.space import fingerprint, space_difference

SIZE = 300_000
LARGE: dict[str, Any] = {
    "text": "ü" * (SIZE // 2),
    "bytes": bytes(SIZE),
    "list": [n + 0.5 for n in range(SIZE // 8)],
    "tuple": tuple(range(SIZE // 7)),
    "nested": {"a": {"b": [[1, (2, 3)]] * (SIZE // 50)}, "small": 1},
    "many keys": {f"key {n}": n for n in range(SIZE // 16)},
    "array": np.arange(SIZE // 8, dtype="f8"),
    "times": np.arange(SIZE // 8).astype("M8[ns]"),
}


class Net:
    """A user's class: JSON has it not."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Net)


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": float(len(config["d"]))})


def used(root: Path) -> int:
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file())


def run(tmp_path: Path, **more: Any) -> tune.ExperimentAnalysis:
    given = {"num_samples": 4, "executor": "inline", "name": "e", "storage_path": tmp_path, "verbose": 0} | more
    return tune.run(train, metric="loss", mode="min", **given)


@pytest.mark.parametrize("kind", LARGE)
def test_ten_trials_store_a_large_value_once_and_all_read_it(kind: str, tmp_path: Path) -> None:
    space = {"d": LARGE[kind], "lr": tune.uniform(0, 1)}
    found = run(tmp_path, config=space, num_samples=10)
    room = 4 if kind == "many keys" else 2  # each key is a place of the space, which experiment.json describes
    assert used(tmp_path / "e") < room * SIZE, "the value, and what ten small trials take"
    again = tune.ExperimentAnalysis(tmp_path / "e", default_metric="loss", default_mode="min")
    for config in (found.best_config, again.best_config, Result.from_path(again.trials[3].path).config):
        assert type(config["d"]) is type(LARGE[kind])
        assert pickle.dumps(config["d"]) == pickle.dumps(LARGE[kind]) or np.array_equal(config["d"], LARGE[kind])


def test_a_searched_value_that_is_large_is_stored_once(tmp_path: Path) -> None:
    space = {"d": tune.grid_search([f"{n}" * SIZE for n in range(3)])}
    run(tmp_path, config=space, num_samples=1)
    assert used(tmp_path / "e") < 3.5 * SIZE
    found = run(tmp_path, config=space, num_samples=2, resume=True)
    assert [trial.config["d"][0] for trial in found.trials] == ["0", "1", "2"] * 2


def test_a_resume_and_a_class_among_large_values(tmp_path: Path) -> None:
    space = {"d": LARGE["list"], "deep": {"net": Net(), "text": LARGE["text"]}}
    run(tmp_path, config=space, num_samples=1)
    found = run(tmp_path, config=space, num_samples=2, resume=True)
    assert [trial.config == space for trial in found.trials] == [True, True]


def test_a_restore_elsewhere_a_copy_and_verify_know_the_blobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "share"
    run(tmp_path / "a", config={"d": LARGE["tuple"]}, sync_config=tune.SyncConfig(upload_dir=str(place)))
    copy = tmp_path / "copy"
    assert main(["cp", str(place / "e"), str(copy)]) == 0
    for root in (place / "e", copy / "e" if (copy / "e").exists() else copy):
        assert main(["verify", str(root)]) == 0
        assert tune.ExperimentAnalysis(root).trials[0].config["d"] == LARGE["tuple"]
        assert main(["show", str(root), "0"]) == 0
        assert "tuple of" in capsys.readouterr().out
    blobs = ExperimentPaths(place / "e").blobs
    contents = read_journal(ExperimentPaths(place / "e"))
    bodies = [contents.snapshot or b"", *(body for _, body in contents.bodies)]
    names = {name.decode() for body in bodies for name in tagged.NAMED.findall(body)}
    assert len(names) == 1
    (blobs / names.pop()).unlink()
    assert main(["verify", str(place / "e")]) == 1
    assert "is missing: the config of a trial names it" in capsys.readouterr().out


def test_a_value_that_was_read_closed_is_written_as_it_was(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    data = tagged.dumps({"d": LARGE["list"], "a": LARGE["array"], "net": Net()}, blobs=blobs)
    closed = tagged.loads(data)
    assert {key: ref.kind for key, ref in closed.items()} == {"d": "json", "a": "array", "net": "blob"}
    assert tagged.dumps(closed) == data
    opened = tagged.loads(data, blobs=blobs, pickles=False)
    assert opened["d"] == LARGE["list"] and opened["net"] == closed["net"]


def test_what_an_older_version_pickled_is_read(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    name = blobs.put(cloudpickle.dumps(LARGE["array"]))
    read = tagged.loads(b'{"d":{"$":"blob","v":["%s","numpy.ndarray"]}}' % name.encode(), blobs=blobs)
    assert np.array_equal(read["d"], LARGE["array"])


def test_a_space_with_large_categories_is_compared_by_a_digest_also_with_an_older_fingerprint() -> None:
    space = {"d": tune.choice(["a" * SIZE, "b" * SIZE])}
    (stored,) = fingerprint(space).values()
    assert len(stored) < 100_000
    assert space_difference({"d": f"choice([{'a' * SIZE!r}, {'b' * SIZE!r}])"}, fingerprint(space)) == []
    assert space_difference(fingerprint(space), fingerprint({"d": tune.choice(["a" * SIZE, "b" * SIZE + "x"])}))


# --- memory -----------------------------------------------------------------------------------------------


def peak(tmp_path: Path, space: str, samples: int) -> int:
    """Bytes that a process holds at most beyond what it held before the run."""
    command = [sys.executable, SCRIPTS / "memory_of_a_run.py", tmp_path, f"({space}, {samples})"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_ten_trials_hold_a_large_value_of_their_config_a_few_times_only(tmp_path: Path) -> None:
    assert peak(tmp_path, "{'d': 'x' * 20_000_000, 'lr': tune.uniform(0, 1)}", 10) < 7 * 20_000_000


def test_a_large_value_of_a_result_is_held_a_few_times_only(tmp_path: Path) -> None:
    space = "{'report': tune.sample_from(lambda spec: {'text': 'x' * 20_000_000})}"
    assert peak(tmp_path, space, 1) < 9 * 20_000_000


# --- what is unpickled ------------------------------------------------------------------------------------


class Bomb:
    """Ends the process that unpickles it, unless that is the one that made it."""

    def __init__(self) -> None:
        self.made_in = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["made_in"] != os.getpid():
            os._exit(77)
        self.__dict__ = state


def read(root: Path, what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "reads_configs.py"), str(root), what], capture_output=True, text=True
    )


OPENING = ("found.best_config", "found.trials[0].config")


@pytest.mark.parametrize("what", OPENING)
def test_r8_configs_that_json_can_hold_are_never_unpickled(what: str, tmp_path: Path) -> None:
    run(tmp_path, config={"d": LARGE["array"], "text": LARGE["text"]}, num_samples=1)
    for blob in ExperimentPaths(tmp_path / "e").blobs.iterdir():
        body = blob.read_bytes()
        if body[:1] == b"\x80":  # settings, space and states, which only a resume reads
            blob.write_bytes(pickle.dumps(Bomb()))
    done = read(tmp_path / "e", what)
    assert done.stdout.splitlines() == ["read", f"{SIZE // 8}"], done.stderr


@pytest.mark.parametrize("what", OPENING)
def test_r8_who_opens_a_pickled_config_is_told_and_nobody_else_opens_it(what: str, tmp_path: Path) -> None:
    run(tmp_path, config={"d": LARGE["list"], "model": Bomb()}, num_samples=1)
    done = read(tmp_path / "e", what)
    assert (done.returncode, done.stdout.splitlines()[0]) == (77, "read"), done.stderr
    assert "Bomb is unpickled, which runs its code" in done.stdout.splitlines()[1]


def test_the_process_that_runs_an_experiment_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert run(tmp_path, config={"d": "", "net": Net()}, num_samples=1).best_config == {"d": "", "net": Net()}
    assert "unpickled" not in caplog.text
