"""Lines of metrics, read while they are written."""

from __future__ import annotations

import glob
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX import SummaryWriter

from trainables.command.metric_lines import JsonLines, OutputLines, TensorBoardLines, TrainerStateLines
from trainables.errors import MetricError


def moved(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def told(lines: list[Any]) -> list[Any]:
    return [(line.step, line.metrics) for line in lines]


@given(st.lists(st.dictionaries(st.text(), st.integers() | st.text())), st.integers(0, 2**32), st.booleans())
def test_every_line_comes_once_however_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, results: list[dict[str, Any]], seed: int, ended: bool
) -> None:
    path, draw = tmp_path_factory.mktemp("lines") / "log.jsonl", random.Random(seed)
    source, seen = JsonLines(path, None, moved), []
    data = b"".join(json.dumps(result).encode() + b"\n" for result in results)
    data = data[:-1] if ended else data  # a last line without its end
    with open(path, "ab", buffering=0) as file:
        while data:
            cut = draw.randint(1, len(data))
            file.write(data[:cut])
            data = data[cut:]
            seen += source.read(ended=False)
    seen += source.read(ended=True)
    assert [line.metrics for line in seen] == results


def test_what_stood_there_before_is_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"a": 1}\n')
    source = JsonLines(path, None, moved)
    assert source.read(ended=False) == [] and (tmp_path / "log.old").exists()
    path.write_text('{"a": 2}\n')
    assert told(source.read(ended=False)) == [(None, {"a": 2})]


def test_a_file_that_is_written_anew_each_time_gives_each_line_once(tmp_path: Path) -> None:
    path, rows, seen = tmp_path / "log.jsonl", [], []
    source = JsonLines(path, "n", moved)
    for n in range(5):
        rows.append(json.dumps({"n": n}))
        (tmp_path / "new").write_text("\n".join(rows) + "\n")
        (tmp_path / "new").rename(path)
        seen += source.read(ended=False)
    assert told(seen) == [(n, {"n": n}) for n in range(5)]


def test_a_file_that_is_rotated_loses_no_line(tmp_path: Path) -> None:
    path, seen = tmp_path / "log.jsonl", []
    source = JsonLines(path, "n", moved)
    for n in range(20):
        with open(path, "a") as file:
            print(json.dumps({"n": n}), file=file)
        if n % 3 == 0:
            seen += source.read(ended=False)
        if n % 4 == 0:
            path.rename(tmp_path / f"log.{n}")  # with a line that nobody has read yet
    seen += source.read(ended=True)
    assert [line.step for line in seen] == list(range(20))


def test_a_file_that_is_cut_and_written_on_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    source = JsonLines(path, "n", moved)
    path.write_text('{"n": 1}\n{"n": 2}\n')
    seen = source.read(ended=False)
    path.write_text('{"n": 3}\n')
    seen += source.read(ended=False)
    assert [line.step for line in seen] == [1, 2, 3]


@pytest.mark.parametrize("step", ["NaN", "Infinity", '"3"', "true", "null"])
def test_a_step_that_is_no_number_is_an_error(tmp_path: Path, step: str) -> None:
    path = tmp_path / "log.jsonl"
    source = JsonLines(path, "n", moved)
    path.write_text(f'{{"n": {step}, "loss": NaN}}\n')
    with pytest.raises(MetricError, match="which is no step; it has n, loss"):
        source.read(ended=False)


def test_what_is_no_object_is_passed_over_once_warned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log.jsonl"
    source = JsonLines(path, None, moved)
    path.write_text('start\n[1]\n\n{"a": 1}\n')
    assert told(source.read(ended=True)) == [(None, {"a": 1})]
    assert [record.message for record in caplog.records] == [
        f"{path}: a line is no JSON object, and is passed over: b'start'"
    ]


def test_a_line_without_its_step_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    source = JsonLines(path, "epoch", moved)
    path.write_text('{"loss": 1}\n')
    with pytest.raises(MetricError, match="epoch=None.*it has loss"):
        source.read(ended=True)


def test_the_output_gives_what_named_groups_match() -> None:
    source = OutputLines((r"epoch (?P<epoch>\d+)", r"loss=(?P<loss>[0-9.e+-]+)(?: (?P<note>\w+))?"), "epoch")
    for text in ("hello", "epoch 1 loss=0.5 good", "epoch 2 loss=1e-3"):
        source.hear(text)
    assert told(source.read(ended=False)) == [
        (1, {"epoch": 1, "loss": 0.5, "note": "good"}),
        (2, {"epoch": 2, "loss": 0.001}),
    ]
    assert source.read(ended=True) == []


def test_scalars_of_a_step_are_one_line(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "old")) as earlier:
        earlier.add_scalar("loss", 9.0, 1)
    source, seen = TensorBoardLines(tmp_path, 2), []
    with SummaryWriter(str(tmp_path / "new")) as writer:
        for step in range(1, 6):
            writer.add_scalar("loss", 1 / step, step)
            writer.add_scalar("accuracy", step / 8, step)
            writer.add_text("words", "are no scalar", step)
            writer.flush()
            seen += source.read(ended=False)
            assert step not in [line.step for line in seen]  # more of it may come
    seen += source.read(ended=True)
    assert [line.step for line in seen] == [3, 4, 5]
    assert [line.metrics["accuracy"] for line in seen] == [3 / 8, 4 / 8, 5 / 8]
    assert [line.metrics["loss"] for line in seen] == pytest.approx([1 / 3, 1 / 4, 1 / 5])


def test_an_event_that_is_half_written_waits_for_its_rest(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "whole")) as writer:
        for step in range(4):
            writer.add_scalar("loss", float(step), step)
    (file,) = (tmp_path / "whole").iterdir()
    data, seen = file.read_bytes(), []
    (tmp_path / "read").mkdir()
    source = TensorBoardLines(tmp_path / "read", -1)
    with open(tmp_path / "read" / file.name, "ab", buffering=0) as slowly:
        for at in range(0, len(data), 7):
            slowly.write(data[at : at + 7])
            seen += source.read(ended=False)
    seen += source.read(ended=True)
    assert told(seen) == [(step, {"step": step, "loss": float(step)}) for step in range(4)]


def test_the_trainers_state_gives_each_step_once(tmp_path: Path) -> None:
    source = TrainerStateLines(glob.escape(str(tmp_path)) + "/checkpoint-*/trainer_state.json", 10)
    history: list[dict[str, Any]] = []
    seen = []
    for step in (10, 20, 30):
        history += [{"step": step, "loss": 1 / step}, {"step": step, "eval_loss": 2 / step}]
        directory = tmp_path / f"checkpoint-{step}"
        directory.mkdir()
        (directory / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        seen += source.read(ended=False)
    assert told(seen) == [(s, {"step": s, "loss": 1 / s, "eval_loss": 2 / s}) for s in (20, 30)]
    assert source.read(ended=True) == []
