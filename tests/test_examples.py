"""The examples run, each in a fresh process and an own home, and leave on disk what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.listings import BUCKETS, ROOT, SEEDS, as_written, checkpoints, environment, run, said_by

# Directories of checkpoints that each of the guides' listings leaves, over all its trials. The last is the latest.
KEPT = {
    "s001_shared_directory": [f"checkpoint_{step:06d}" for step in range(8)],
    "s001_custom_sync_function": [f"checkpoint_{step:06d}" for step in range(8)],
    "s001_rsync_template": [f"checkpoint_{step:06d}" for step in range(8)],
    "s001_local_checkpointing": [f"checkpoint_{step:06d}" for step in range(3, 8)],
    "s001_disable_syncing": [f"checkpoint_{step:06d}" for step in range(8)],
    "s002_saving": [f"checkpoint_{epoch:06d}" for epoch in range(1, 6)],
    "s003_function_api": [f"checkpoint_{epoch:06d}" for epoch in range(1, 6)],
    "s003_function_every_three": [f"checkpoint_{epoch:06d}" for epoch in (3, 6, 9, 12)],
    "s003_class_api": ["checkpoint_000002"],
    "s003_periodic": [],
    "s003_at_end": ["checkpoint_000002"],
    "s003_manual_by_callback": [f"checkpoint_{step:06d}" for step in (1, 3, 5)],
}


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(KEPT))
def test_the_guides_listing_runs_as_written(name: str, tmp_path: Path) -> None:
    said_by(run(as_written(name, tmp_path), tmp_path))

    assert checkpoints(tmp_path) == KEPT[name]


def test_a_trainable_that_detects_preemption_saves_by_itself(tmp_path: Path) -> None:
    script = as_written("s003_manual_by_trainable", tmp_path)
    # 1 % of 200 steps is a matter of luck; a seed is not in the listing, so it is put before it.
    script.write_text(script.read_text().replace("choice <= 1", "choice <= 10"))

    said_by(run(script, tmp_path))

    assert checkpoints(tmp_path)


@pytest.mark.torch
def test_a_trainer_that_resumes_prints_what_the_guide_shows(tmp_path: Path) -> None:
    said = said_by(run(as_written("s002_loading", tmp_path), tmp_path)).splitlines()[-1]

    assert said.startswith("{'epoch': 3, 'model_weights': OrderedDict(")
    assert "('bias', tensor([" in said
    assert "('weight', tensor([[" in said
    assert "'_timestamp': 1" in said
    assert said.endswith("'_preprocessor': None, '_current_checkpoint_id': 2}")
    first, second = sorted((tmp_path / "tuner_results").iterdir(), key=lambda path: path.name)
    assert checkpoints(first) == ["checkpoint_000001", "checkpoint_000002"]
    assert checkpoints(second) == ["checkpoint_000003", "checkpoint_000004"]


@pytest.mark.torch
def test_the_first_generations_trainer_keeps_the_two_best_where_the_guide_shows_them(tmp_path: Path) -> None:
    said = said_by(run(as_written("s000_checkpoint_strategy", tmp_path), tmp_path)).splitlines()

    (directory,) = (tmp_path / "tuner_results").glob("train_????-??-??_??-??-??/run_001/checkpoints")
    assert said[0] == str(directory / "checkpoint_000003")
    assert said[1] == str(directory)
    kept = [repr(directory / name) for name in ("checkpoint_000001", "checkpoint_000003")]
    assert said[2] in (f"[{', '.join(kept)}]", f"[{', '.join(reversed(kept))}]")  # a directory has no order


@pytest.mark.parametrize("name", ["s001_rsync_template", "s001_custom_sync_function"])
def test_a_template_or_function_without_upload_dir_says_that_it_has_nothing_to_copy(name: str, tmp_path: Path) -> None:
    done = run(as_written(name, tmp_path), tmp_path)

    said_by(done)
    assert done.stderr.count("has nothing to copy") == 1


@pytest.mark.torch
def test_a_sampler_that_is_killed_goes_on_with_the_next_sample(tmp_path: Path) -> None:
    script = as_written("s004_interruptable_sampling", tmp_path)
    stopped = run(script, tmp_path, STOP_AFTER="4", PYTHONUNBUFFERED="1")
    assert stopped.returncode == -9
    said = said_by(run(script, tmp_path))

    samples = stopped.stdout.splitlines() + said.splitlines()
    assert (len(stopped.stdout.splitlines()), len(samples)) == (4, 10)
    assert sorted(samples) == [f"sample {number}" for number in range(10)]


@pytest.mark.torch
def test_ranks_hold_their_part_of_a_folder_of_images(tmp_path: Path) -> None:
    said = said_by(run(as_written("s004_dataset_sharding", tmp_path), tmp_path))

    assert said.splitlines() == [f"rank {rank} held 6 samples of ['blue', 'green', 'red']" for rank in range(2)]


@pytest.mark.torch
def test_an_atomic_save_stands_where_torch_save_stood(tmp_path: Path) -> None:
    assert said_by(run(as_written("s004_atomic_saving", tmp_path), tmp_path)) == "['model', 'optimizer']\n"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".pt") == ["latest.pt"]


@pytest.mark.torch
def test_an_atomic_directory_is_continued_by_the_same_command(tmp_path: Path) -> None:
    script = as_written("s004_atomic_directory", tmp_path)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    place = tmp_path / "out"
    place.mkdir()

    first = said_by(run(script, tmp_path, launcher=torchrun, CHECKPOINT_ARTIFACT_PATH=str(place)))
    again = said_by(run(script, tmp_path, launcher=torchrun, CHECKPOINT_ARTIFACT_PATH=str(place)))

    assert (first, again) == ("epoch 0\nepoch 1\n", "")
    latest = place / "AtomicDirectory.latest_checkpoint"
    assert latest.readlink() == place / "AtomicDirectory_checkpoint_1"


def test_every_listing_is_tested() -> None:
    listings = {path.stem for path in SEEDS.glob("s0*.py")}

    assert listings == set(KEPT) | set(BUCKETS) | {
        "s000_checkpoint_strategy",
        "s002_loading",
        "s003_manual_by_trainable",
        "s004_atomic_directory",
        "s004_atomic_saving",
        "s004_dataset_sharding",
        "s004_interruptable_sampling",
    }


def test_running_the_local_listing_again_shows_its_results_and_runs_nothing(tmp_path: Path) -> None:
    script = as_written("s001_local_checkpointing", tmp_path)
    said_by(run(script, tmp_path))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoint_*/*")}

    said_by(run(script, tmp_path))

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoint_*/*")} == before


def test_function_trainable(tmp_path: Path) -> None:
    said = said_by(run(ROOT / "examples" / "function_trainable.py", tmp_path))

    assert "best config: {'lr': 0.4}" in said
    assert "'step': 20" in said


def test_class_trainable(tmp_path: Path) -> None:
    said = said_by(run(ROOT / "examples" / "class_trainable.py", tmp_path))

    assert "best loss:" in said
    assert len(checkpoints(tmp_path)) == 4 * 2


def test_partial_fit(tmp_path: Path) -> None:
    said = said_by(run(ROOT / "examples" / "partial_fit.py", tmp_path))

    assert float(said.rpartition(" ")[2]) > 0.85
    assert "accuracy of its estimator" in said


def test_xgboost_rounds(tmp_path: Path) -> None:
    said = said_by(run(ROOT / "examples" / "xgboost_rounds.py", tmp_path))

    assert "best config: {'max_depth': 4, 'eta': 0.3}" in said
    assert "rounds of its model: 30" in said


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_torch_trainer_run_again_shows_what_the_first_run_made(tmp_path: Path) -> None:
    script = ROOT / "examples" / "torch_trainer.py"
    first = said_by(run(script, tmp_path, timeout=180)).splitlines()
    assert first[-2].split() == ["steps", "282"]
    assert float(first[-1].rpartition(" ")[2]) > 0.85
    kept = [manifest.parent for manifest in tmp_path.rglob("checkpoint_*/.manifest.json")]
    assert sorted(path.name for path in kept) == ["checkpoint_000014", "checkpoint_000015"]
    assert all({"rank_0.pt", "rank_1.pt"} < {file.name for file in path.iterdir()} for path in kept)

    again = said_by(run(script, tmp_path, timeout=180)).splitlines()

    assert again[-3:] == first[-3:]


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_the_main_job_killed_in_the_middle_and_run_again_ends_with_a_good_model(tmp_path: Path) -> None:
    script = ROOT / "examples" / "digits_asha.py"
    with subprocess.Popen(
        [sys.executable, str(script)], env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        next(line for line in first.stdout if "finished" in line)
        first.kill()

    said = said_by(run(script, tmp_path, timeout=380))

    assert "resuming from" in said
    closing = said.strip().splitlines()[-1]
    assert closing.startswith("accuracy of the model loaded back from it, on held-out data: ")
    assert float(closing.rpartition(" ")[2]) > 0.9
    assert "best config" in said
    assert "best checkpoint" in said
    trials = [trial for trial in tmp_path.rglob("train_*") if trial.is_dir()]
    assert len(trials) == 24
    for trial in trials:
        assert len(list(trial.glob("checkpoint_*"))) <= 3
        rows = [json.loads(line)["training_iteration"] for line in (trial / "result.json").read_text().splitlines()]
        assert rows == list(range(1, len(rows) + 1))
