"""Real processes, really killed, at points drawn by a seed: driver, trial, fork server, keepers, all at once (F01)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import killed_script as script
from crash_processes import require_gone, start, wait
from crash_rules import LEFT_OVER

import tuner as tune
from tests.soak.counts import count
from trainables.store import verify
from tuner.error import OwnedElsewhereError
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state

HERE = Path(__file__).parent
VICTIMS = ["driver", "driver", "trial", "server", "keepers", "all"]
FACTS = {
    "generation": 1, "created": 4, "attempt": 4, "rolled_back": 1, "result": 20, "published": 20, "forgotten": 10,
    "deleted": 10, "ended": 4,
}  # fmt: skip
"""Kind -> how many of them there are, about."""
QUICK = 6


def drawn(seed: int) -> list[dict[str, Any]]:
    """Where the first few lives of an experiment end."""
    rng = random.Random(seed)
    points = []
    for life in range(rng.choice([1, 1, 2, 3])):
        victim = VICTIMS[seed % len(VICTIMS)] if life == 0 else rng.choice(VICTIMS)
        point: dict[str, Any] = {"id": life, "victim": victim, "where": rng.choice(["driver", "trial"])}
        if point["where"] == "driver" and rng.random() < 0.5:
            kind = rng.choice(list(FACTS))
            point.update(fact=kind, nth=rng.randint(1, FACTS[kind]))
        else:
            point["call"] = rng.randint(1, 120 if point["where"] == "driver" else 45)
        points.append(point)
    return points


SEEDS = [seed if seed < QUICK else pytest.param(seed, marks=pytest.mark.soak) for seed in range(50)]


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """What an uninterrupted run with that seed draws."""
    seen = []
    tune.run(
        lambda config: {"x": seen.append(config["x"]) or config["x"]},
        config={"x": tune.uniform(0, 1), "storage": ""},
        num_samples=script.TRIALS,
        seed=script.SEED,
        storage_path=tmp_path_factory.mktemp("configs"),
        executor="inline",
        verbose=0,
    )
    return seen


def told(storage: Path) -> dict[str, list[dict[str, Any]]]:
    by_trial: dict[str, list[dict[str, Any]]] = {}
    for line in (storage / "told").read_text().splitlines():
        what = json.loads(line)
        by_trial.setdefault(what["trial"], []).append(what)
    return by_trial


def check_starts(storage: Path) -> None:
    """Each attempt began with the newest complete checkpoint, and lost no more than the one in flight."""
    for trial, lines in told(storage).items():
        reported = 0
        for line in lines:
            if line["kind"] == "report":
                reported = line["epoch"]
                continue
            assert line["epoch"] == line["newest"], f"{trial} starts at {line['epoch']}, on disk is {line['newest']}"
            assert line["epoch"] >= reported - 1, f"{trial} had reported {reported} and starts at {line['epoch']}"


def check_end(storage: Path, configs: list[float]) -> None:
    state = load_state(ExperimentPaths(storage / "e"))
    assert [trial.config["x"] for trial in state.trials] == configs
    for trial in state.trials:
        assert trial.status == "TERMINATED", trial.error
        directory = Path(trial.path)
        values = {epoch: script.value_of(trial.config["x"], epoch) for epoch in range(1, script.EPOCHS + 1)}
        rows = [json.loads(line) for line in (directory / "result.json").read_text().splitlines()]
        assert [(row["training_iteration"], row["v"]) for row in rows] == list(values.items())
        table = (directory / "progress.csv").read_text().splitlines()
        assert len(table) == script.EPOCHS + 1
        listing = verify.scan(directory)
        assert not listing.broken and not listing.unknown
        assert not [problem for published in listing.complete for problem in verify.problems(published.path)]
        best = sorted(values, key=lambda epoch: (-values[epoch], epoch))[:2]
        assert {published.ref.iteration for published in listing.complete} == {*best, script.EPOCHS}
        assert {record.ref for record in trial.checkpoints} == {published.ref for published in listing.complete}
    assert not [path for path in (storage / "e").rglob("*") if LEFT_OVER.search(path.name)]
    assert not list((storage / ".tmp").glob("*/*"))


@pytest.mark.parametrize("seed", SEEDS)
def test_f01_killed_for_real_and_continued(seed: int, tmp_path: Path, configs: list[float]) -> None:
    points = drawn(seed)
    print(points)
    for point in points:
        driver = start(tmp_path, point)
        status = wait(driver, tmp_path)
        if (tmp_path / f"once-{point['id']}").exists():
            count(f"kills of {point['victim']}")
        output = (tmp_path / "output").read_text()
        assert status == (-signal.SIGKILL if status else 0), output
        if status and point["victim"] != "all":
            require_gone(tmp_path, within_s=10)
        if status:
            for directory in (path for path in (tmp_path / "e").glob("train_*") if path.is_dir()):
                listing = verify.scan(directory)
                assert not listing.broken and not listing.unknown
                assert not [problem for each in listing.complete for problem in verify.problems(each.path)]
    assert wait(start(tmp_path), tmp_path) == 0, (tmp_path / "output").read_text()
    check_starts(tmp_path)
    check_end(tmp_path, configs)
    require_gone(tmp_path, within_s=10)


class Halfway(tune.Callback):
    """Stops, or ends, its own driver after so many results."""

    def __init__(self, count: int, number: int) -> None:
        self.count, self.number = count, number

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self.count -= 1
        if self.count == 0:
            os.kill(os.getpid(), self.number)


def save_twenty(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    first = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 1
    for epoch in range(first, 21):
        tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch}))


def run_twenty(storage: Path, **more: Any) -> tune.ExperimentAnalysis:
    settings = {"name": "e", "num_samples": 2, "resume": "AUTO", "verbose": 0, "executor": "inline", **more}
    return tune.run(save_twenty, storage_path=storage, **settings)


def in_child(storage: Path, callback: tune.Callback, **more: Any) -> subprocess.Popen[bytes]:
    """Run it in a process of its own, with this callback."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    work = storage / "work"
    work.write_bytes(cloudpickle.dumps(lambda: run_twenty(storage, callbacks=[callback], **more)))
    code = f"import cloudpickle; cloudpickle.loads(open({str(work)!r}, 'rb').read())()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])}
    with open(storage / "output", "ab") as output:
        return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=output, stderr=output)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_d09_no_checkpoint_on_disk_is_invisible_to_a_resume(number: int, status: int, tmp_path: Path) -> None:
    assert wait(in_child(tmp_path, Halfway(33, number), executor="local"), tmp_path) == status
    before = {path.name: _on_disk(path) for path in (tmp_path / "e").glob("save_twenty_*")}
    assert sum(map(len, before.values())) >= 20
    seen: dict[str, int] = {}

    class Starts(tune.Callback):
        def on_trial_restore(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            seen[Path(trial.path).name] = trial.iteration

    analysis = run_twenty(tmp_path, callbacks=[Starts()])
    for trial in analysis.trials:
        name = Path(trial.path).name
        assert set(before.get(name, [])) <= set(_on_disk(Path(trial.path)))
        assert [record.iteration for record in trial.checkpoints] == list(range(1, 21))
        if name in seen:
            assert seen[name] == len(before[name])


def _on_disk(directory: Path) -> list[str]:
    return [published.ref.name for published in verify.list_checkpoints(directory)]


def test_d16_a_torn_tail_is_cut_and_reported_and_the_rest_reads(tmp_path: Path, capsys: Any) -> None:
    run_twenty(tmp_path, num_samples=1)
    segment = max((tmp_path / "e" / "journal").glob("*.jsonl"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[: whole.rindex(b'"kind":"ended"')])  # torn within the fact that the trial has ended
    facts = len(load_state(ExperimentPaths(tmp_path / "e")).trials[0].checkpoints)
    assert facts == 20
    capsys.readouterr()
    analysis = run_twenty(tmp_path, num_samples=2, verbose=1)
    assert f"{segment.name}: a torn line at its end was cut" in "".join(capsys.readouterr())
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    assert len(analysis.trials[0].checkpoints) == 20
    again = run_twenty(tmp_path, num_samples=3)  # what was appended after the torn tail reads too
    assert [len(trial.checkpoints) for trial in again.trials] == [20, 20, 20]


def test_t04_while_a_stopped_driver_lives_a_second_one_is_refused(tmp_path: Path) -> None:
    driver = in_child(tmp_path, Halfway(7, signal.SIGSTOP))
    try:
        _, how = os.waitpid(driver.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(how)
        before = {path: path.read_bytes() for path in _files(tmp_path / "e")}
        for more in ({}, {"takeover": True}):
            with pytest.raises(OwnedElsewhereError, match=f"pid {driver.pid} on "):
                run_twenty(tmp_path, **more)
        assert {path: path.read_bytes() for path in _files(tmp_path / "e")} == before
        driver.send_signal(signal.SIGCONT)
        assert wait(driver, tmp_path) == 0, (tmp_path / "output").read_text()
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
    state = load_state(ExperimentPaths(tmp_path / "e"))
    assert [(trial.status, trial.attempt) for trial in state.trials] == [("TERMINATED", 1)] * 2


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file())
