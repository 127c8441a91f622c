"""Experiments of which this machine has nothing: results, checkpoints and a restore from a place elsewhere."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import boto3
import pytest

import trainables as train
import tuner as tune
from tests.tuner.replicated import bucket, cache, server  # noqa: F401  the fixtures
from trainables.errors import InvalidSettingError
from trainables.transfer.open import open_backend
from tuner.cli import main
from tuner.error import ExperimentNotFoundError, SettingError

_NUMBERS = itertools.count()


@pytest.fixture(params=["s3", "memory"])
def uri(request: pytest.FixtureRequest) -> str:
    return address(request)


def address(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"memory://elsewhere-{next(_NUMBERS)}/runs"
    found: str = request.getfixturevalue("bucket")
    return found


@pytest.fixture(params=["s3", "memory", "directory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "share") if request.param == "directory" else address(request)


def counts(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    done = 0 if checkpoint is None else checkpoint.to_dict()["n"]
    for n in range(done + 1, config["n"] + 1):
        tune.report(
            {"n": n, "loss": abs(n - 2) + config["i"]}, checkpoint=tune.Checkpoint.from_dict({"n": n, "i": config["i"]})
        )


def ran(place: str | None, storage: Path, **more: Any) -> tune.ExperimentAnalysis:
    return tune.run(
        **{
            "run_or_experiment": counts,
            "name": "mine",
            "config": {"i": tune.grid_search([0, 1]), "n": 3},
            "metric": "loss",
            "mode": "min",
            "storage_path": storage,
            "sync_config": tune.SyncConfig(upload_dir=place),
            "keep_checkpoints_num": 2,
            "checkpoint_score_attr": "min-loss",
            "executor": "inline",
            "verbose": 0,
            **more,
        },
    )


def test_an_analysis_of_a_place_elsewhere_is_that_of_the_run(place: str, tmp_path: Path) -> None:
    here = ran(place, tmp_path / "results")
    shutil.rmtree(tmp_path / "results")

    analysis = tune.ExperimentAnalysis(f"{place}/mine")

    assert analysis.experiment_path == f"{place}/mine"
    assert analysis.best_config == {"i": 0, "n": 3}
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    assert analysis.best_checkpoint.to_dict() == {"n": 2, "i": 0}
    assert analysis.best_checkpoint.uri.endswith("/checkpoint_000002")
    assert [list(frame["loss"]) for frame in analysis.trial_dataframes.values()] == [[1, 0, 1], [2, 1, 2]]
    assert analysis.get_last_checkpoint(analysis.trials[1]).to_dict() == {"n": 3, "i": 1}
    assert [value for _, value in analysis.get_trial_checkpoints_paths(analysis.trials[0])] == [1, 0, 1]
    assert analysis.results_df.loc[here.trials[0].trial_id]["loss"] == 1


def test_a_grid_of_a_place_elsewhere_has_its_checkpoints(place: str, tmp_path: Path) -> None:
    ran(place, tmp_path / "results")
    shutil.rmtree(tmp_path / "results")

    result = tune.ResultGrid(f"{place}/mine").get_best_result()

    assert result.checkpoint.to_dict() == {"n": 3, "i": 0}
    assert [(made.to_dict()["n"], metrics["loss"]) for made, metrics in result.best_checkpoints] == [(1, 1), (2, 0)]
    assert result.get_best_checkpoint("loss", "min").to_dict()["n"] == 2
    assert list(result.metrics_dataframe["n"]) == [1, 2, 3]


def test_the_address_of_a_bucket_may_name_its_server(
    bucket: str,  # noqa: F811
    server: int,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.chdir(tmp_path)
    query = f"?scheme=http&endpoint_override=127.0.0.1:{server}"
    place, mine = f"{bucket}{query}", f"{bucket}/mine{query}"
    ran(None, place, verbose=0)  # type: ignore[arg-type]

    again = tune.Tuner.restore(mine, counts).fit()
    found = tune.ExperimentAnalysis(mine)
    best = found.best_checkpoint
    assert len(again) == 2 and found.experiment_path == mine
    assert best is not None and best.uri is not None and best.uri.endswith(query)
    assert best.uri.startswith(f"{bucket}/mine/") and best.to_dict() == {"n": 2, "i": 0}
    directory = best.uri.rpartition("/checkpoint")[0] + query
    assert train.Result.from_path(directory).metrics["n"] == 3
    copied = f"{bucket}/copy{query}"
    assert best.to_uri(copied) == copied and tune.Checkpoint(copied).to_dict() == {"n": 2, "i": 0}

    assert main(["ls", place]) == 0 and "mine" in capsys.readouterr().out
    assert main(["show", mine]) == 0 and f"copies at {mine}: 6 checkpoints" in capsys.readouterr().out
    assert main(["show", f"{bucket}/mine@0@2{query}"]) == 0
    assert f"address: {bucket}/mine@0@2{query}" in capsys.readouterr().out
    assert main(["verify", mine]) == 0 and "no problems" in capsys.readouterr().out
    assert main(["diff", f"{bucket}/mine/0{query}", f"{bucket}/mine/1{query}"]) == 1
    assert (
        main(["cp", mine, f"{bucket}/more/{query}"]) == 0 and f"{bucket}/more/mine{query}: 6" in capsys.readouterr().out
    )
    assert main(["sync", "mine", "--from", mine]) == 0 and (tmp_path / "mine" / "experiment.json").exists()
    with open_backend(f"{bucket}{query}") as backend:
        assert {"?", "="}.isdisjoint("".join(entry.key for entry in backend.list()))
        assert {"copy/", "mine/", "more/"} == set(backend.children())


def test_extra_arguments_of_s3_go_with_all_that_is_copied_and_are_stored(
    bucket: str,  # noqa: F811
    server: int,  # noqa: F811
    tmp_path: Path,
) -> None:
    extra = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/mine"}
    sync = tune.SyncConfig(upload_dir=bucket, s3_extra_args=extra)
    ran(bucket, tmp_path / "results", sync_config=sync)
    root = tmp_path / "results" / "mine"
    with open_backend(bucket) as backend:
        backend.delete_tree("mine")
    assert json.loads((root / "experiment.json").read_text())["s3_extra_args"] == extra
    assert main(["sync", str(root)]) == 0  # by what is stored

    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
    client = boto3.session.Session(**keys).client("s3", endpoint_url=f"http://127.0.0.1:{server}")  # type: ignore[call-overload]
    name = bucket.split("/")[2]
    found = [entry["Key"] for entry in client.list_objects_v2(Bucket=name)["Contents"]]
    assert any(key.endswith(".manifest.json") for key in found) and any("/journal/" in key for key in found)
    assert {client.head_object(Bucket=name, Key=key).get("ServerSideEncryption") for key in found} == {"aws:kms"}
    client.close()
    with pytest.raises(SettingError, match="s3_extra_args=.*without a bucket of S3"):
        ran(None, tmp_path / "others", sync_config=tune.SyncConfig(s3_extra_args=extra))


def test_a_moved_copy_uses_its_own_place(tmp_path: Path) -> None:
    """R7: what the journal says of the old place does not count."""
    old, new = (f"memory://elsewhere-{next(_NUMBERS)}/runs" for _ in range(2))
    ran(old, tmp_path / "results")
    shutil.rmtree(tmp_path / "results")
    source, target = open_backend(old), open_backend(new)
    source.fetch("mine", tmp_path / "copy")
    names = [
        path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*") if path.is_file()
    ]
    target.push(tmp_path / "copy", "renamed", names)
    source.delete_tree("mine")

    analysis = tune.ExperimentAnalysis(f"{new}/renamed")

    assert analysis.best_checkpoint.uri.startswith(f"{new}/renamed/")
    assert analysis.best_checkpoint.to_dict() == {"n": 2, "i": 0}


def test_what_was_given_up_here_is_found_there(place: str, tmp_path: Path) -> None:
    more = {"sync_config": tune.SyncConfig(upload_dir=place, keep_local=1), "keep_checkpoints_num": None}
    analysis = ran(place, tmp_path / "results", **more)

    for found in (analysis, tune.ExperimentAnalysis(tmp_path / "results" / "mine")):
        trial = found.trials[0]
        here = [(trial.directory / record.ref.name).is_dir() for record in trial.checkpoints]
        assert here == [False, False, True]
        assert [trial.open_checkpoint(record).to_dict()["n"] for record in trial.checkpoints] == [1, 2, 3]
        result = tune.ResultGrid(found)[0]
        assert [made.to_dict()["n"] for made, _ in result.best_checkpoints] == [3, 1, 2]
        assert found.best_checkpoint.to_dict() == {"n": 2, "i": 0}


def test_what_only_the_bucket_has_is_known_after_a_resume(uri: str, tmp_path: Path) -> None:
    """Also where the driver that copied it was killed before its journal said so."""
    experiment = ran(None, tmp_path / "first").experiment_path
    assert main(["cp", experiment, f"{uri}/mine"]) == 0

    analysis = ran(uri, tmp_path / "second", resume="AUTO")

    for found in (analysis, tune.ExperimentAnalysis(tmp_path / "second" / "mine")):
        assert not (found.trials[0].directory / "checkpoint_000003").exists()
        assert found.trials[0].checkpoint.to_dict() == {"n": 3, "i": 0}


def test_a_trial_starts_from_a_checkpoint_elsewhere(uri: str, tmp_path: Path) -> None:
    tune.Checkpoint.from_dict({"n": 2, "i": 9}).to_uri(f"{uri}/checkpoint_000002")

    for restore in (f"{uri}/checkpoint_000002", tune.Checkpoint.from_uri(f"{uri}/checkpoint_000002")):
        analysis = ran(None, tmp_path / "results", restore=restore, overwrite=True)
        assert [list(frame["n"]) for frame in analysis.trial_dataframes.values()] == [[3], [3]]


def reports_again(config: dict[str, Any]) -> None:
    tune.report({"n": 1}, checkpoint=tune.Checkpoint(config["uri"]))


def test_a_checkpoint_elsewhere_can_be_reported(uri: str, tmp_path: Path) -> None:
    there = tune.Checkpoint.from_dict({"n": 2}).to_uri(f"{uri}/base")

    more = {"run_or_experiment": reports_again, "config": {"uri": there}, "metric": "n", "checkpoint_score_attr": "n"}
    analysis = ran(None, tmp_path / "results", **more)

    assert analysis.trials[0].checkpoint.to_dict() == {"n": 2}
    assert Path(analysis.trials[0].checkpoint.path).parent == analysis.trials[0].directory


def test_a_result_is_read_from_a_trials_directory_elsewhere(place: str, tmp_path: Path) -> None:
    trial = ran(place, tmp_path / "results").trials[1]
    shutil.rmtree(tmp_path / "results")

    for _ in range(2):
        result = train.Result.from_path(f"{place}/mine/{trial.dirname}")

        assert result.config == {"i": 1, "n": 3} and result.error is None
        assert result.checkpoint.to_dict() == {"n": 3, "i": 1}
        assert list(result.metrics_dataframe["loss"]) == [2, 1, 2]
    with pytest.raises(FileNotFoundError, match="nobody"):
        train.Result.from_path(f"{place}/mine/nobody")


def fails(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    tune.report({"n": 1}, checkpoint=tune.Checkpoint.from_dict({"n": 1}))
    if checkpoint is None or config["always"]:
        raise RuntimeError("as told")


def test_a_result_elsewhere_tells_its_failure(uri: str, tmp_path: Path) -> None:
    analysis = tune.run(
        fails,
        name="mine",
        config={"always": True},
        storage_path=tmp_path / "results",
        sync_config=tune.SyncConfig(upload_dir=uri),
        executor="inline",
        verbose=0,
        raise_on_failed_trial=False,
    )
    shutil.rmtree(tmp_path / "results")

    result = train.Result.from_path(f"{uri}/mine/{analysis.trials[0].dirname}")

    assert "as told" in str(result.error)
    assert "as told" in str(tune.ResultGrid(tune.ExperimentAnalysis(f"{uri}/mine")).errors[0])


def interrupted(config: dict[str, Any]) -> None:
    """Is told to go with its second result."""
    counts({**config, "n": 1})
    os.kill(os.getpid(), signal.SIGINT)
    tune.report({"n": 2, "loss": 0.0}, checkpoint=tune.Checkpoint.from_dict({"n": 2, "i": config["i"]}))


def test_a_restore_goes_on_over_there(uri: str, tmp_path: Path) -> None:
    tune.register_trainable("counts", interrupted)
    with pytest.raises(tune.Interrupted, match="to continue: the same call"):
        ran(uri, tmp_path / "results", run_or_experiment="counts")
    shutil.rmtree(tmp_path / "results")
    tune.register_trainable("counts", counts)
    assert tune.Tuner.can_restore(f"{uri}/mine") and not tune.Tuner.can_restore(f"{uri}/other")

    run_config = tune.RunConfig(executor="inline", verbose=0)
    tuner = tune.Tuner.restore(f"{uri}/mine", "counts", run_config=run_config)
    assert [result.metrics.get("n") for result in tuner.get_results()][0] == 2
    grid = tuner.fit()

    assert [result.metrics["n"] for result in grid] == [3, 3]
    assert [result.metrics["iterations_since_restore"] for result in grid] == [1, 3]  # the second one had not begun
    there = tune.ExperimentAnalysis(f"{uri}/mine")
    assert [trial.status for trial in there.trials] == ["TERMINATED"] * 2
    assert there.trials[0].checkpoint.to_dict() == {"n": 3, "i": 0}
    assert Path(grid.experiment_path).is_relative_to(os.environ["TUNE_CACHE_DIR"])


def test_a_restore_here_copies_to_where_it_did_before(tmp_path: Path) -> None:
    place = f"memory://elsewhere-{next(_NUMBERS)}/runs"
    ran(place, tmp_path / "results", num_samples=1)
    (tmp_path / "results").rename(tmp_path / "moved")

    tuner = tune.Tuner.restore(
        tmp_path / "moved" / "mine",
        counts,
        tune_config=tune.TuneConfig(num_samples=2, metric="loss", mode="min"),
    )
    tuner._spec = dataclasses.replace(tuner._spec, executor="inline")
    tuner.fit()

    assert len(tune.ExperimentAnalysis(f"{place}/mine").trials) == 4


def test_a_restore_of_the_copy_itself_does_not_copy_to_itself(tmp_path: Path) -> None:
    """A shared directory holds an experiment like any other: it may be continued where it is."""
    ran(str(tmp_path / "share"), tmp_path / "results")

    assert tune.Tuner.restore(tmp_path / "share" / "mine", counts)._spec.sync_config.upload_dir is None
    kept = tune.Tuner.restore(tmp_path / "results" / "mine", counts)._spec.sync_config
    assert kept.upload_dir == str(tmp_path / "share")


def test_what_is_not_there_is_named(place: str, tmp_path: Path) -> None:
    for ask in (tune.ExperimentAnalysis, lambda uri: tune.Tuner.restore(uri, counts)):
        with pytest.raises(ExperimentNotFoundError, match="nobody"):
            ask(f"{place}/nobody")


@pytest.mark.parametrize("uri", ["s3://bucket", "nope://bucket/mine"])
def test_what_is_no_place_of_an_experiment_is_named(uri: str) -> None:
    for ask in (tune.ExperimentAnalysis, tune.Tuner.can_restore, lambda uri: tune.Tuner.restore(uri, counts)):
        with pytest.raises((SettingError, InvalidSettingError), match=uri.partition("/mine")[0]):
            ask(uri)
