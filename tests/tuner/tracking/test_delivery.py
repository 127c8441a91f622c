"""Deliveries to a tracker that is a file: whatever happens in whatever order, each (run, step) is there once."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tuner.tracking.recording import RecordingTracker, lines, steps
from trainables.checkpoint import Checkpoint
from tuner.tracking import delivery as module
from tuner.tracking.delivery import Delivery
from tuner.tracking.due import About, Due, SaveDue
from tuner.tracking.tracker import RunEnding


class Life:
    """A trial and its driver: rows in `result.json` as loggers write and cut them, and what is told of it."""

    def __init__(self, root: Path, *, at_once: bool = True, says: bool = True, hold_back: bool = True) -> None:
        self.directory = root / "experiment" / "trial"
        self.directory.mkdir(parents=True)
        self.place, self.how = root / "tracker", {"at_once": at_once, "says": says}
        self.hold_back = hold_back
        self.rows: list[dict[str, Any]] = []
        self.saved = self.attempt = 0
        self.config = {"lr": 1}
        self.due: Due | None = None
        self.driver()

    def driver(self) -> None:
        """A new driver: what the old one's memory held is gone."""
        self.tracker = RecordingTracker(self.place, **self.how)
        self.delivery = Delivery(self.tracker, hold_back=self.hold_back)
        self.due = None

    def tell(self, **what: Any) -> None:
        due = Due(About("id", "trial", self.directory, self.config, {}), **what)
        if self.due is None:
            self.due = due
        else:
            self.due.take_in(due)

    def deliver(self) -> bool:
        """What the thread does at some time: all that is due by then."""
        if self.due is None:
            return True
        try:
            arrived = self.delivery.deliver(self.due)
        except ConnectionError:
            return False
        if arrived:
            self.due = None
        return arrived

    def start(self) -> None:
        """An attempt, from the newest checkpoint."""
        self.rows = [row for row in self.rows if row["training_iteration"] <= self.saved]
        self._write()
        self.attempt += 1
        self.tell(covered=self.saved, standing=self.saved)

    def report(self) -> None:
        number = len(self.rows) + 1
        self.rows.append({"training_iteration": number, "loss": number, "life": self.attempt})
        self._write()
        if not self.hold_back:
            self.tell(covered=number)

    def save(self) -> None:
        self.saved = len(self.rows)
        self.tell(covered=self.saved)

    def end(self, ending: RunEnding = RunEnding.FINISHED) -> None:
        self.tell(covered=len(self.rows), ending=ending)

    def kill(self) -> None:
        self.driver()
        self.start()

    def _write(self) -> None:
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        (self.directory / "result.json").write_text(text)

    def sent(self, key: str = "id") -> list[tuple[int, int]]:
        return [(line["step"], line["life"]) for line in lines(self.place / f"{key}.jsonl") if "step" in line]

    @property
    def standing(self) -> list[tuple[int, int]]:
        return [(row["training_iteration"], row["life"]) for row in self.rows]


OPERATIONS = st.lists(
    st.sampled_from(
        ["report", "report", "report", "save", "deliver", "deliver", "crash", "kill", "down", "up", "ends"]
    ),
    max_size=40,
)


@example(operations=["report", "report", "deliver", "down", "save", "deliver"], at_once=True, small=False)
@example(operations=["report", "report", "deliver", "down", "save", "deliver"], at_once=False, small=False)
@given(operations=OPERATIONS, at_once=st.booleans(), small=st.booleans())
def test_each_step_arrives_once_and_none_is_void(operations: list[str], at_once: bool, small: bool) -> None:
    before = module.AT_ONCE
    module.AT_ONCE = 2 if small else before
    try:
        with tempfile.TemporaryDirectory() as root:
            life = Life(Path(root), at_once=at_once)
            life.start()
            for operation in operations:
                if operation == "crash":
                    life.start()
                elif operation in ("down", "up"):
                    life.tracker.down = operation == "down"
                elif operation == "ends":  # the driver, in order; and the next one begins
                    life.end(RunEnding.UNFINISHED)
                    life.due.covered = life.saved  # type: ignore[union-attr]
                    life.deliver()
                    life.kill()
                else:
                    getattr(life, operation)()
                assert life.sent() == life.standing[: len(life.sent())]
                assert len(life.sent()) <= life.saved
            life.tracker.down = False
            life.end()
            assert life.deliver()
            assert life.sent() == life.standing
            assert lines(life.place / "id.jsonl")[-1] == {"ended": "finished"}
    finally:
        module.AT_ONCE = before


@settings(max_examples=20)
@given(operations=st.lists(st.sampled_from(["report", "report", "save", "deliver", "crash", "kill"]), max_size=30))
def test_at_once_the_last_value_of_each_step_is_the_one_that_stands(operations: list[str]) -> None:
    with tempfile.TemporaryDirectory() as root:
        life = Life(Path(root), hold_back=False)
        life.start()
        for operation in operations:
            {"crash": life.start}.get(operation, getattr(life, operation, life.start))()
            if operation == "report":
                life.deliver()
                assert life.sent()[-1] == life.standing[-1]
        life.end()
        assert life.deliver()
        assert dict(life.sent()).items() >= dict(life.standing).items()


def test_a_failed_trial_that_is_continued_from_before_its_end_gets_another_run(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.start()
    life.report(), life.save(), life.report(), life.report()
    life.end(RunEnding.FAILED)
    assert life.deliver()
    life.kill()
    life.report()
    life.end()
    assert life.deliver()

    assert life.sent() == [(1, 1), (2, 1), (3, 1)]
    assert lines(life.place / "id.jsonl")[-1] == {"ended": "superseded"}
    assert life.sent("id-2") == life.standing == [(1, 1), (2, 2)]


def test_what_is_closed_is_not_opened_again(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.start(), life.report()
    life.end()
    assert life.deliver()
    life.driver()
    life.tracker.down = True
    life.end()
    assert life.deliver()


def test_a_tracker_that_cannot_say_what_it_has_is_believed_what_was_noted(tmp_path: Path) -> None:
    life = Life(tmp_path, says=False)
    life.start(), life.report(), life.report(), life.save()
    assert life.deliver()
    life.kill()
    life.report()
    life.end()
    assert life.deliver()
    assert life.sent() == life.standing


def test_a_row_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.start(), life.report()
    life.tell(covered=2)
    assert not life.deliver()
    assert life.sent() == [(1, 1)]
    life.report()
    assert life.deliver()
    assert life.sent() == life.standing


def test_a_result_that_nobody_has_is_passed(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.start()
    life.rows = [{"training_iteration": 1, "missing": True}]
    life.report()
    life.end()
    assert life.deliver()
    assert life.sent() == [(2, 1)]


def test_checkpoints_are_stored_once_and_one_that_has_gone_is_passed(tmp_path: Path) -> None:
    life = Life(tmp_path)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "weights").write_text("1")
    life.start(), life.report(), life.report()
    for number, path in ((1, tmp_path / "gone"), (2, kept)):
        life.tell(covered=number, saves=[SaveDue(number, number, Checkpoint(path))])
    assert life.deliver()
    life.tell(covered=2, saves=[SaveDue(2, 2, Checkpoint(kept))])
    assert life.deliver()
    saved = [line for line in lines(life.place / "id.jsonl") if "saved" in line]
    assert saved == [{"saved": 2, "files": ["weights"]}]


def test_a_clone_has_its_old_config_before_and_its_new_one_after(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.start(), life.report(), life.save()
    assert life.deliver()
    life.report(), life.report()
    life.config = {"lr": 2}
    life.tell(covered=2, cloned_at=2)
    life.end()
    assert life.deliver()
    told = [line.get("step") or line["changed"] for line in lines(life.place / "id.jsonl")[1:-1]]
    assert told == [1, 2, {"lr": 2}, 3]


def test_only_some_runs_are_open(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.start(), life.report(), life.save()
    assert life.deliver()
    for number in range(module.MAX_OPEN):
        about = About(f"other{number}", "other", tmp_path / "experiment" / f"other{number}", {}, {})
        about.directory.mkdir()
        assert life.delivery.deliver(Due(about, standing=0))
    assert lines(life.place / "id.jsonl")[-1] == {"ended": "unfinished"}
    life.report(), life.end()
    assert life.deliver()
    assert life.sent() == life.standing
    assert steps(life.place / "id.jsonl") == [1, 2]
