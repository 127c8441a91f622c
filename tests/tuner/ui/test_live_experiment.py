"""An experiment is read once and followed: what pages see is what its journal adds up to."""

from __future__ import annotations

import queue
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tuner.ui.served import client, data, serving, stream
from tuner.experiment import events as ev
from tuner.experiment import journal_format as form
from tuner.experiment.paths import ExperimentPaths
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.point_log import Point, PointLog
from tuner.ui.sources import LocalSource

SCRIPT = Path(__file__).parents[2] / "scripts" / "live_run.py"


@contextmanager
def read(experiment: Path) -> Iterator[LiveExperiment]:
    live = LiveExperiment("one", LocalSource(ExperimentPaths(experiment)))
    live.start()
    try:
        assert live.ready.wait(60)
        yield live
    finally:
        live.close()


def test_a_trial_that_cannot_be_read_is_a_row_that_says_so(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "one")
    (segment,) = (tmp_path / "one" / "journal").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    facts = form.parse_lines(b"".join(lines))[0]
    damaged = [
        body.replace(b'"loss":1.0', b'"loss":{"$":"tuple","v":7}') if b'"kind":"result"' in body else body
        for _, body in facts
    ]
    segment.write_bytes(b"".join(form.line(seq, body) for (seq, _), body in zip(facts, damaged, strict=True)))
    with read(tmp_path / "one") as live, live.lock:
        assert live.is_read and len(live.picture.table) == 6


def test_what_a_user_has_set_counts(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "one")
    (segment,) = (tmp_path / "one" / "journal").glob("*.jsonl")
    last = form.parse_lines(segment.read_bytes())[0][-1][0]
    changes = (("num_samples", 2, 12), ("max_concurrent", 3, None))
    with segment.open("ab") as file:
        for number, (name, value, total) in enumerate(changes, start=last + 1):
            file.write(form.line(number, ev.encode(ev.SettingChanged(name, value, 1, 1e9, total))))
    with serving([tmp_path / "one"]) as one, client(one) as pages:
        told = data(pages, "e/one/overview.json")
    assert told["total"] == 12 and told["slots"]["limit"] == 3


def test_a_run_under_open_pages(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, str(SCRIPT), str(tmp_path), str(tmp_path / "go")]) as run:
        try:
            with serving([tmp_path]) as one, client(one) as pages:
                while "live" not in data(pages, "experiments.json")["experiments"]["name"]:
                    assert run.poll() is None
                with stream(pages, "e/live/events?since=0") as events:
                    rows: dict[str, str] = {}
                    points: list[tuple[str, int]] = []
                    last = 0
                    for event in events:
                        if event.kind != "changes":
                            continue
                        assert event.id > last
                        last = event.id
                        changed = event.data["trials"]
                        rows |= dict(zip(changed["id"], changed["state"], strict=True))
                        told = event.data["results"]
                        points += zip(told["id"], told["iteration"], strict=True)
                        if event.data["counts"]["RUNNING"] == 2 and not (tmp_path / "go").exists():
                            (tmp_path / "go").touch()
                        if event.data["overview"]["run_ended"]:
                            break
                assert run.wait(60) == 0
                now = data(pages, "e/live/trials.json")
                assert rows == dict(zip(now["id"], now["state"], strict=True)) and now["seq"] == last
                done = zip(now["id"], now["iteration"], strict=True)
                wanted = [(trial, step + 1) for trial, steps in done for step in range(steps)]
                assert sorted(points) == sorted(wanted), "each result once"
        finally:
            run.kill()


def test_what_a_kill_made_void_is_marked_and_the_time_until_the_resume_was_lost(tmp_path: Path) -> None:
    """Trials have a checkpoint of their third result when the driver is killed, and a fourth result behind it."""
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(tmp_path / "go")]
    with serving([tmp_path]) as one, client(one) as pages:
        with subprocess.Popen(command) as run:
            try:
                while "live" not in data(pages, "experiments.json")["experiments"]["name"]:
                    assert run.poll() is None
                with stream(pages, "e/live/events?since=0") as events:
                    behind: set[str] = set()
                    for event in events:
                        if event.kind != "changes":
                            continue
                        rows = event.data["trials"]
                        told = zip(rows["id"], rows["iteration"], rows["checkpoints"], strict=True)
                        behind |= {trial for trial, iteration, saved in told if iteration == 4 and saved}
                        if len(behind) == 2:
                            break
                    run.kill()
                    assert run.wait(60)
                    while (event := next(events)).data.get("overview", {}).get("liveness") != "killed":
                        pass
                    assert set(event.data["trials"]["said"]) == {"running: the driver was killed"}
            finally:
                run.kill()
        spans = data(pages, "e/live/machines.json")["spans"]
        lost = [number for number, what in enumerate(spans["what"]) if what == "lost"]
        assert {spans["id"][number] for number in lost} == behind and {spans["end"][number] for number in lost} == {
            None
        }
        (tmp_path / "go").touch()
        assert subprocess.run(command, timeout=120, check=False).returncode == 0
        while data(pages, "e/live/overview.json")["run_ended"] is None:
            pass
        told = data(pages, f"e/live/curves.json?trials={','.join(sorted(behind))}")
        for start, count in zip(told["trials"]["start"], told["trials"]["count"], strict=True):
            points = {name: values[start : start + count] for name, values in told["points"].items()}
            assert points["iteration"] == [1, 2, 3, 4, *range(4, 10)] and points["void"] == [0, 0, 0, 1, *[0] * 6]
        page = data(pages, f"e/live/trial/{min(behind)}.json")
        assert page["results"]["void"] == [0, 0, 0, 1, *[0] * 6] and page["iteration"] == 9
        spans = data(pages, "e/live/machines.json")["spans"]
        assert None not in spans["end"] and "saving" in spans["what"]


def test_results_per_minute_of_a_run_that_began_just_now() -> None:
    log = PointLog(0)
    for second in range(10):
        log.add(Point(second, "a", second, None, 1000.0 + second, {}))
    assert log.per_minute(1009.0, since=999.0) == 60 and log.per_minute(1100.0, since=999.0) == 0
    assert log.per_minute(1009.0) == 10, "it began long ago"


def test_who_listens_is_told_and_who_has_left_is_not(experiment: Path) -> None:
    told: queue.Queue[int] = queue.Queue()
    live = LiveExperiment("one", LocalSource(ExperimentPaths(experiment)))

    def listener() -> None:
        told.put(1)

    live.listen(listener)
    live.start()
    assert told.get(timeout=60)
    live.unlisten(listener)
    live.close()
