from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import orjson
import pytest

from tests.listings import SCRIPTS
from trainables.errors import CheckpointError, PublishError
from trainables.store import delete, fs, manifest, publish, staging, verify
from trainables.wire import CheckpointRef

ROOT = Path(__file__).parents[3]
METRICS = msgspec.Raw(b'{"loss":{"$":"float","v":"nan"}}')


def reference(index: int = 1) -> CheckpointRef:
    return CheckpointRef("abc_00000", publish.checkpoint_name(index, 1, 1), 1, 1, index, index)


def staged_with(trial_dir: Path, files: dict[str, bytes]) -> Path:
    staged = staging.new_directory(trial_dir, "1")
    for name, data in files.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_bytes(data)
    return staged


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ((10, 1, 1), "checkpoint_000010"),
        ((10, 1, 1, 1), "checkpoint_000010.2"),
        ((10, 1, 2), "checkpoint_000010-1.2"),
        ((10, 3, 1), "checkpoint_000010-3.1"),
        ((10, 3, 1, 2), "checkpoint_000010-3.1.3"),
        ((12_345_678, 1, 1), "checkpoint_12345678"),
    ],
)
def test_names_are_unique_without_looking(place: tuple[int, ...], name: str) -> None:
    assert publish.checkpoint_name(*place) == name


def test_no_two_saves_of_a_trial_share_a_name() -> None:
    places = [(i, g, a, t) for i in (0, 1, 10) for g in (1, 2, 11) for a in (1, 2, 11) for t in (0, 1, 2)]
    assert len({publish.checkpoint_name(*place) for place in places}) == len(places)


def test_a_published_checkpoint_has_its_files_and_a_manifest_of_plain_json(trial_dir: Path) -> None:
    staged = staged_with(trial_dir, {"model.bin": b"m" * 2_000_000, "a/b.txt": b"b", "none": b""})
    (staged / "empty").mkdir()
    prepared = publish.prepare(staged, ref=reference(), metrics=METRICS, created=12.5, extra={"ranks": 2})
    assert verify.list_checkpoints(trial_dir) == [], "visible before it was committed"
    published = publish.commit(prepared, trial_dir / "checkpoint_000001")
    assert sorted(os.listdir(trial_dir)) == ["checkpoint_000001"]
    written = orjson.loads((published.path / ".manifest.json").read_bytes())
    assert [entry["name"] for entry in written["files"]] == ["a/b.txt", "model.bin", "none"]
    assert written["format"] == 1 and written["directories"] == ["empty"] and written["extra"] == {"ranks": 2}
    assert written["metrics"] == {"loss": {"$": "float", "v": "nan"}} and written["created"] == 12.5
    assert bytes(published.manifest.metrics) == bytes(METRICS)
    assert published.manifest.bytes == prepared.manifest.bytes == 2_000_001
    assert published.ref == reference() == manifest.read(published.path).ref
    assert published.digest == manifest.read(published.path).digest


def test_everything_is_durable_before_the_manifest_and_the_manifest_before_the_name(
    trial_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = staged_with(trial_dir, {"model.bin": b"m", "a/b.txt": b"b"})
    calls: list[str] = []

    def record(name: str) -> None:
        original = getattr(fs, name)

        def recorded(*args, **kwargs):
            calls.append(f"{name} {os.path.basename(args[0]) if isinstance(args[0], (str, Path)) else 'fd'}")
            return original(*args, **kwargs)

        monkeypatch.setattr(fs, name, recorded)

    for name in ("fsync_file", "fsync_dir", "create", "fsync", "rename", "write", "unlink", "mkdir"):
        record(name)
    publish.commit(
        publish.prepare(staged, ref=reference(), metrics=METRICS, created=1.0), trial_dir / "checkpoint_000001"
    )
    assert calls == [
        "fsync_file b.txt",
        "fsync_file model.bin",
        "fsync_dir a",
        "create .manifest.json",
        "write fd",
        "fsync fd",
        f"fsync_dir {staged.name}",
        f"rename {staged.name}",
        f"fsync_dir {trial_dir.name}",
    ]


def test_a_name_that_is_taken_is_an_error_and_keeps_what_is_there(save, trial_dir: Path) -> None:
    save(1, {"model.bin": b"first"})
    staged = staged_with(trial_dir, {"model.bin": b"second"})
    prepared = publish.prepare(staged, ref=reference(), metrics=METRICS, created=1.0)
    with pytest.raises(PublishError, match="checkpoint_000001.*already"):
        publish.commit(prepared, trial_dir / "checkpoint_000001")
    assert (trial_dir / "checkpoint_000001" / "model.bin").read_bytes() == b"first"
    assert os.listdir(trial_dir) == ["checkpoint_000001"]


def test_a_symlink_in_a_directory_that_was_written_for_us_becomes_its_content(trial_dir: Path) -> None:
    staged = staged_with(trial_dir, {"model.bin": b"m"})
    (staged / "best").symlink_to("model.bin")
    prepared = publish.prepare(staged, ref=reference(), metrics=METRICS, created=1.0)
    assert [entry.name for entry in prepared.manifest.files] == ["best", "model.bin"]
    assert not (staged / "best").is_symlink()


def test_a_file_of_the_manifests_name_is_refused(trial_dir: Path) -> None:
    staged = staged_with(trial_dir, {".manifest.json": b"{}"})
    with pytest.raises(CheckpointError, match="reserved"):
        publish.prepare(staged, ref=reference(), metrics=METRICS, created=1.0)
    assert os.listdir(trial_dir) == []


@pytest.mark.parametrize("call", ["fsync_file", "fsync_dir", "create", "write", "fsync", "rename"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_a_disk_that_fails_leaves_nothing_visible(
    call: str, code: int, save, trial_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(1)
    staged = staged_with(trial_dir, {"model.bin": b"m"})

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(fs, call, fail)
        with pytest.raises(PublishError) as caught:
            prepared = publish.prepare(staged, ref=reference(2), metrics=METRICS, created=1.0)
            publish.commit(prepared, trial_dir / "checkpoint_000002")
    assert caught.value.errno == code and str(trial_dir) in str(caught.value)
    assert ("bytes are free" in str(caught.value)) == (code != errno.EIO)
    assert os.listdir(trial_dir) == ["checkpoint_000001"]
    assert verify.problems(trial_dir / "checkpoint_000001") == []


def test_a_checkpoint_whose_name_may_not_survive_a_power_cut_is_taken_back(
    trial_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = staged_with(trial_dir, {"model.bin": b"m"})
    prepared = publish.prepare(staged, ref=reference(), metrics=METRICS, created=1.0)

    def fail(path: fs.PathLike) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fs, "fsync_dir", fail)
    with pytest.raises(PublishError):
        publish.commit(prepared, trial_dir / "checkpoint_000001")
    assert os.listdir(trial_dir) == []


@pytest.mark.parametrize("stage", [staging.lend, staging.hand_over], ids=["lent", "handed over"])
def test_f30_a_disk_that_fills_while_staging_names_path_and_free_bytes_and_harms_nothing(
    stage, tmp_path: Path, small_disk: Path
) -> None:
    trial_dir, big = small_disk / "trial", tmp_path / "big"
    big.mkdir()
    (big / "model.bin").write_bytes(b"m" * 4_000_000)
    first = staged_with(trial_dir, {"model.bin": b"first" * 1000})
    publish.commit(publish.prepare(first, ref=reference(), metrics=METRICS, created=1.0), trial_dir / reference().name)
    with pytest.raises(PublishError, match=r"No space left.* \d+ bytes are free") as caught:
        stage(big, trial_dir, "2")
    assert str(trial_dir) in str(caught.value) and caught.value.errno == errno.ENOSPC
    assert os.listdir(trial_dir) == ["checkpoint_000001"]
    assert verify.problems(trial_dir / "checkpoint_000001") == []
    assert (big / "model.bin").stat().st_size == 4_000_000


def test_f30_a_disk_without_room_for_the_manifest_is_left_as_it_was(small_disk: Path) -> None:
    trial_dir = small_disk / "trial"
    staged = staged_with(trial_dir, {"model.bin": b"m" * 100_000})
    with open(small_disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(b"f" * 4096)
    with pytest.raises(PublishError, match="0 bytes are free"):
        publish.prepare(staged, ref=reference(), metrics=METRICS, created=1.0)
    assert os.listdir(trial_dir) == []


@pytest.mark.parametrize("stage", [staging.lend, staging.hand_over], ids=["lent", "handed over"])
def test_f30_a_read_only_disk_is_named(stage, tmp_path: Path, small_disk: Path) -> None:
    trial_dir, mine = small_disk / "trial", tmp_path / "mine"
    trial_dir.mkdir()
    mine.mkdir()
    (mine / "model.bin").write_bytes(b"m")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(PublishError, match="Read-only.*bytes are free"):
        stage(mine, trial_dir, "1")
    assert (mine / "model.bin").read_bytes() == b"m"


KILLED = SCRIPTS / "killed_in_a_save.py"


def _kill_at_every_instant(tmp_path: Path, size: int, how: str) -> None:
    lives, seen = 0, set()
    with subprocess.Popen(
        [sys.executable, KILLED, tmp_path, str(size), how],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in process.stdout:
            lives += 1
            trial_dir = Path(line.rstrip("\n"))
            seen.add(_look_at_a_killed_life(trial_dir))
            shutil.rmtree(trial_dir.parent)
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0 and lives > 15
    assert len(seen) == 3, "the kills did not come before, between and after"


def _look_at_a_killed_life(trial_dir: Path) -> tuple[str, ...]:
    listed = verify.list_checkpoints(trial_dir)
    names = [published.ref.name for published in listed]
    assert names in (["checkpoint_000001"], ["checkpoint_000001", "checkpoint_000002"], ["checkpoint_000002"])
    for published in listed:
        assert verify.problems(published.path) == []
        verify.check(published.path)
        assert (published.path / "model.bin").read_bytes()[::997].strip(bytes([published.ref.index])) == b""
    # F29: the next start leaves nothing else
    delete.finish_deletes(trial_dir)
    for path in verify.leftovers(trial_dir):
        fs.rmtree(path)
    assert sorted(os.listdir(trial_dir)) == names
    return tuple(names)


@pytest.mark.parametrize("how", ["lent", "handed over"])
def test_f02_f29_killed_at_every_instant_of_a_save_only_loadable_checkpoints_are_listed(
    tmp_path: Path, how: str
) -> None:
    _kill_at_every_instant(tmp_path, 40_000, how)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["lent", "handed over"])
def test_f02_killed_at_every_instant_of_a_save_of_200_mb(tmp_path: Path, how: str) -> None:
    _kill_at_every_instant(tmp_path, 200_000_000, how)


SAVING = SCRIPTS / "saving_for_ever.py"


@pytest.mark.parametrize("after", [1, 2, 3])
def test_f02_killed_from_outside_while_threads_sync_every_listed_checkpoint_verifies(
    trial_dir: Path, after: int
) -> None:
    with subprocess.Popen([sys.executable, SAVING, trial_dir], cwd=ROOT, stdout=subprocess.PIPE) as saving:
        assert saving.stdout is not None
        for _ in range(after):
            assert saving.stdout.readline()
        saving.send_signal(signal.SIGKILL)
    listed = verify.list_checkpoints(trial_dir)
    assert len(listed) >= after, "a published checkpoint is lost"
    for published in listed:
        assert verify.problems(published.path) == []
    assert verify.scan(trial_dir).broken == verify.scan(trial_dir).unknown == []
