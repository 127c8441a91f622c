"""TensorBoard's files: right to the bit, without torch, and not in the way."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import tuner as tune
from trainables.tagged import BlobRef
from tuner.experiment.events import ErrorInfo
from tuner.experiment.standing import StandingResult
from tuner.logger import tensorboard
from tuner.logger.tensorboard import EventFile, TBXLoggerCallback


def records(directory: Path) -> list[bytes]:
    """The events of all files, their checksums checked by tensorboardX's own code."""
    from tensorboardX.crc32c import crc32c

    def masked(data: bytes) -> int:
        crc = crc32c(data)
        return ((crc >> 15) | (crc << 17)) + 0xA282EAD8 & 0xFFFFFFFF

    found = []
    for file in sorted(directory.glob("events.out.tfevents.*")):
        data = file.read_bytes()
        while data:
            (length,), (check,) = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
            assert check == masked(data[:8])
            body = data[12 : 12 + length]
            assert struct.unpack("<I", data[12 + length : 16 + length]) == (masked(body),)
            found.append(body)
            data = data[16 + length :]
    return found


def events(directory: Path) -> list[Any]:
    from tensorboardX.proto.event_pb2 import Event

    return [Event.FromString(record) for record in records(directory)]


def scalars(directory: Path) -> list[tuple[int, dict[str, float]]]:
    return [
        (event.step, {value.tag: value.simple_value for value in event.summary.value})
        for event in events(directory)
        if event.HasField("summary") and not event.summary.value[0].HasField("metadata")
    ]


def sessions(directory: Path) -> list[Any]:
    """What the plug-in HParams reads, by TensorBoard's own messages: experiment, start, end, of each end of a trial."""
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    return [
        (value.tag, HParamsPluginData.FromString(value.metadata.plugin_data.content))
        for event in events(directory)
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "hparams"
    ]


@pytest.mark.torch
def test_a_trial_that_ends_has_its_config_and_its_metrics_on_the_page_hparams(lab: Any) -> None:
    run = lab(TBXLoggerCallback())
    trial = run.trial(
        lr=np.float32(0.5),
        layers=np.int64(7),
        flag=np.bool_(True),
        plain=False,
        count=3,
        betas=(0.9, 0.99),
        widths=[4, 8],
        opt={"name": "sgd", "nesterov": True, 3: {"x": 1.5}},
        none=None,
        path=Path("/tmp/x"),
        thing=BlobRef("0" * 64, "app.Thing"),
        arr=np.array([0.0, 5e-5]),
        bad=math.nan,
        big=10**400,
        lone="a\ud800",
    )
    run.report(trial, loss=0.5, eval={"auc": 0.25}, text="x", pid=1)
    run.end(trial)
    run.finish()

    (first, experiment), (second, start), (third, end) = sessions(trial.directory)

    assert [first, second, third] == [
        f"_hparams_/{name}" for name in ("experiment", "session_start_info", "session_end_info")
    ]
    found = {
        key: getattr(value, str(value.WhichOneof("kind"))) for key, value in start.session_start_info.hparams.items()
    }
    numbers = {"lr": 0.5, "layers": 7.0, "count": 3.0, "opt/3/x": 1.5}
    flags = {"flag": True, "plain": False, "opt/nesterov": True}
    texts = {
        "betas": "[0.9, 0.99]", "widths": "[4, 8]", "opt/name": "sgd", "none": "None", "path": "/tmp/x", "bad": "nan",
        "thing": "<app.Thing 00000000>", "arr": "[0.0, 5e-05]", "big": str(10**400), "lone": "a\\ud800",
    }  # fmt: skip
    assert found == {**numbers, **flags, **texts}
    kinds = {info.name: info.type for info in experiment.experiment.hparam_infos}
    assert kinds == {**dict.fromkeys(texts, 1), **dict.fromkeys(flags, 2), **dict.fromkeys(numbers, 3)}
    assert [info.name.tag for info in experiment.experiment.metric_infos] == ["loss", "eval/auc"]
    assert end.session_end_info.status == 1
    assert tensorboard.steps(trial.directory) == {1}


@pytest.mark.torch
def test_a_trial_that_failed_is_marked_and_one_without_a_result_or_a_config_has_no_hparams(lab: Any) -> None:
    run = lab(TBXLoggerCallback())
    failed, silent, bare = run.trial(lr=0.1), run.trial(lr=0.1), run.trial()
    run.report(failed, loss=1.0)
    run.report(bare, loss=1.0)
    for trial in (failed, silent):
        run.end(trial, ErrorInfo("ValueError", "x", ""))
    run.end(bare)
    run.finish()

    assert sessions(failed.directory)[-1][1].session_end_info.status == 2
    assert sessions(silent.directory) == sessions(bare.directory) == []


@pytest.mark.torch
def test_what_a_killed_driver_had_not_written_of_a_trial_that_ended_follows_once(lab: Any) -> None:
    run = lab()
    trial = run.trial(lr=0.1)
    run.report(trial, loss=1.0)
    run.end(trial)
    standing = StandingResult({1: trial.raw_result})
    for _ in range(2):
        TBXLoggerCallback().complete(trial, standing)

    assert [tag for tag, _ in sessions(trial.directory)] == [
        f"_hparams_/{name}" for name in ("experiment", "session_start_info", "session_end_info")
    ]
    assert scalars(trial.directory) == [(1, {"loss": 1.0})]


@pytest.mark.torch
def test_tensorboard_reads_every_number(lab: Any) -> None:
    run = lab(TBXLoggerCallback())
    trial = run.trial(lr=0.1)
    run.report(trial, loss=0.5, name="text", flag=True, eval={"auc": 0.25}, big=10**300, pid=1)
    run.report(trial, loss=math.nan, low=-math.inf, count=3)
    run.end(trial)
    run.finish()

    first, second = scalars(trial.directory)

    assert first == (1, {"loss": 0.5, "eval/auc": 0.25, "big": math.inf})
    assert second[0] == 2
    assert math.isnan(second[1].pop("loss"))
    assert second[1] == {"low": -math.inf, "count": 3.0}
    assert events(trial.directory)[0].file_version == "brain.Event:2"


@pytest.mark.torch
def test_t03_tensorboard_is_told_what_to_drop(lab: Any) -> None:
    run = lab(TBXLoggerCallback())
    trial = run.trial()
    for number in range(5):
        run.report(trial, loss=number)
    run.rollback(trial, 3)
    run.report(trial, loss=9)
    run.finish()

    (purge,) = [event for event in events(trial.directory) if event.HasField("session_log")]

    assert (purge.step, purge.session_log.status) == (4, 1)
    assert [step for step, _ in scalars(trial.directory)] == [1, 2, 3, 4, 5, 4]


@pytest.mark.torch
@pytest.mark.parametrize("key", ["loss", "a" * 300, "ünï", "a/b c"])
@pytest.mark.parametrize("step", [0, 1, 127, 128, 300, 2**40])
def test_lengths_and_steps_of_every_size(tmp_path: Path, key: str, step: int) -> None:
    file = EventFile(tmp_path)
    file.scalars(step, {key: 1.5, "more": 2})
    file.close()

    assert scalars(tmp_path) == [(step, {key: 1.5, "more": 2.0})]


def test_what_a_driver_writes_in_the_second_of_the_one_before_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard.time, "time", lambda: 1e9)
    for made, purges in ((7, True), (0, False)):  # a new process counts its files from 1
        monkeypatch.setattr(EventFile, "_made", made)
        with contextlib.closing(EventFile(tmp_path)) as file:
            file.scalars(1, {"x": 1})
            if purges:
                file.purge(1)
    assert tensorboard.steps(tmp_path) == {1}


def test_what_is_no_number_makes_no_event(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    size = next(tmp_path.iterdir()).stat().st_size
    file.scalars(1, {"name": "x", "flag": True, "none": None, "list": [1]})
    file.close()

    assert next(tmp_path.iterdir()).stat().st_size == size


def test_a_result_that_is_changed_later_is_written_as_it_was(lab: Any) -> None:
    run = lab(TBXLoggerCallback())
    trial = run.trial()
    result = {"loss": 1.0, "training_iteration": 1}
    run.callbacks.after_trial_result(0, run.state.trials, trial, result)
    result.clear()
    run.finish()

    assert b"loss" in next(trial.directory.glob("events*")).read_bytes()


def test_f30_a_directory_that_is_gone_does_not_end_the_run(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = lab(TBXLoggerCallback())
    trial = run.trial()
    trial.directory.rmdir()
    run.report(trial, loss=1)
    run.report(trial, loss=2)
    run.finish()

    assert len(caplog.records) == 1


def test_f30_a_full_disk_takes_no_descriptor_and_no_file_per_result(
    lab: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = lab(TBXLoggerCallback())
    trial = run.trial()
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(EventFile, "_write", full_disk)
        for number in range(20):
            run.report(trial, loss=number)
        run.finish()

    assert len(os.listdir("/proc/self/fd")) <= before
    assert not list(trial.directory.glob("events*"))
    assert len(caplog.records) == 1


def full_disk(file: EventFile, event: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_run_without_results_starts_no_thread(lab: Any) -> None:
    callback = TBXLoggerCallback()
    run = lab(callback)
    run.end(run.trial())
    run.finish()

    assert callback._thread is None


def test_writing_event_files_imports_neither_torch_nor_tensorboard(tmp_path: Path) -> None:
    code = (
        "import sys; from tuner.logger import default_loggers; from tuner.logger.tensorboard import EventFile;"
        "import pathlib; default_loggers([]); file = EventFile(pathlib.Path(sys.argv[1]));"
        "file.scalars(1, {'loss': 1.0}); file.close();"
        "bad = {'torch', 'tensorboard', 'tensorboardX', 'google.protobuf', 'pandas'} & set(sys.modules);"
        "sys.exit(' '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=Path.cwd())

    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir())


def test_what_is_written_when_a_trial_has_ended_long_since_is_copied_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tensorboard._write_all

    def late(waiting: SimpleQueue[Any]) -> None:
        items = [*iter(waiting.get, None), None]
        for item in items:
            waiting.put(item)
        written(waiting)

    monkeypatch.setattr(tensorboard, "_write_all", late)
    monkeypatch.delenv("TUNE_DISABLE_TENSORBOARD", raising=False)
    analysis = tune.run(
        lambda config: [tune.report({"v": step}) for step in range(3)] and None,
        num_samples=2,
        name="e",
        storage_path=tmp_path / "here",
        sync_config=tune.SyncConfig(upload_dir=str(tmp_path / "there")),
        executor="inline",
        verbose=0,
    )
    for trial in analysis.trials:
        assert tensorboard.steps(tmp_path / "there" / "e" / trial.dirname) == {1, 2, 3}
