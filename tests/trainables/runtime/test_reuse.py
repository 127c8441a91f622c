"""The object of a class trainable between two attempts in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainables.runtime.reuse import ResetRefusedError, Reuse
from trainables.runtime.worker import run_job
from trainables.testing import MemoryLink, example_job
from trainables.trainable import Trainable
from trainables.wire import Answer, AttemptErrored, Finished, Preempted

CALLS: list[Any] = []


class Counter(Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        CALLS.append("setup")
        self.x = 0

    def reset_config(self, new_config: dict[str, Any]) -> Any:
        CALLS.append(("reset", new_config, self.config, self.trial_id, Path(self.logdir).name, self.iteration))
        new_config["nested"]["popped"] = True
        self.x = 0
        return self.config["answer"]

    def step(self) -> dict[str, Any]:
        if self.config.get("fails"):
            raise ValueError("on purpose")
        self.x += 1
        return {"x": self.x, "done": self.x == self.config.get("until", 1)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"x": self.x}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        CALLS.append(("load", checkpoint["x"]))
        self.x = checkpoint["x"]

    def cleanup(self) -> None:
        CALLS.append("cleanup")


@pytest.fixture(autouse=True)
def calls() -> list[Any]:
    CALLS.clear()
    return CALLS


def attempt(reuse: Reuse | None, root: Path, link: MemoryLink | None = None, **more: Any) -> MemoryLink:
    link = link or MemoryLink()
    config = {"answer": True, "nested": {}, **more.pop("config", {})}
    run_job(example_job(root, config, **more), Counter, link, own_process=False, reuse=reuse)
    return link


def test_the_next_attempt_is_reset_restored_and_counted_from_its_own_start(tmp_path: Path, calls: list[Any]) -> None:
    taken = []
    reuse = Reuse(lambda: taken.append(len(calls)))
    saving = MemoryLink(lambda report: Answer(save=True))
    first = attempt(reuse, tmp_path, saving, config={"until": 3})
    (ref, *_) = first.published
    assert (first.end, taken, calls) == (Finished(), [], ["setup"])
    where = {"checkpoint": ref, "checkpoint_path": tmp_path / "train_t1" / ref.name, "start_iteration": 4}
    second = attempt(reuse, tmp_path, trial_id="t2", directory=tmp_path / "train_t2", config={"until": 2}, **where)
    config = {"answer": True, "nested": {}, "until": 2}
    given = {**config, "nested": {"popped": True}}  # by reset_config, from a copy of its own
    assert calls[1:] == [("reset", given, config, "t2", "train_t2", 4), ("load", ref.iteration)]
    assert taken == [2]
    assert [(r["x"], r["training_iteration"], r["iterations_since_restore"]) for r in second.results] == [(2, 5, 1)]
    reuse.drop()
    reuse.drop()
    assert calls[3:] == ["cleanup"]


@pytest.mark.parametrize("answer", [False, None, 0])
def test_one_that_refuses_has_said_nothing(tmp_path: Path, calls: list[Any], answer: Any) -> None:
    reuse = Reuse(lambda: calls.append("accepted"))
    attempt(reuse, tmp_path)
    link = MemoryLink()
    with pytest.raises(ResetRefusedError):
        attempt(reuse, tmp_path, link, config={"answer": answer})
    assert link.messages == [] and "accepted" not in calls


def test_in_place_a_new_object_takes_over_where_the_old_one_refuses(tmp_path: Path, calls: list[Any]) -> None:
    reuse = Reuse(in_place=True)
    attempt(reuse, tmp_path)
    assert attempt(reuse, tmp_path, config={"answer": False}).end == Finished()
    assert [call if isinstance(call, str) else call[0] for call in calls] == ["setup", "reset", "cleanup", "setup"]


@pytest.mark.parametrize("how", ["fails", "leaves"])
def test_who_does_not_end_well_keeps_nothing(tmp_path: Path, calls: list[Any], how: str) -> None:
    reuse = Reuse()
    leaving = MemoryLink(lambda report: Answer(should_stop=True))
    link = attempt(reuse, tmp_path, leaving, config={"until": 9, "fails": how == "fails"})
    assert isinstance(link.end, AttemptErrored if how == "fails" else Preempted)
    assert reuse.kept is None and calls == ["setup", "cleanup"]


def test_without_it_each_attempt_has_its_own_object(tmp_path: Path, calls: list[Any]) -> None:
    for _ in range(2):
        attempt(None, tmp_path)
    assert calls == ["setup", "cleanup"] * 2
