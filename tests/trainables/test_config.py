"""Every option: the documented literals pass, the rest is refused with name, value and what is accepted (D20)."""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from trainables.config import (
    Budget,
    CheckpointConfig,
    CheckpointStrategy,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
)
from trainables.errors import InvalidSettingError, TrainablesError
from trainables.store.retention import EveryN, Latest

Kind = Callable[..., Any]


def sync(source: str, target: str) -> None:
    """A user's sync function."""


class Uploader:
    def sync_up(self) -> bool:
        return True


POLICY = Latest(1)


ACCEPTED: list[tuple[Kind, str, list[Any]]] = [
    (CheckpointConfig, "num_to_keep", [None, 1, 2, 1000, numpy.int64(3)]),
    (CheckpointConfig, "checkpoint_score_attribute", [None, "auc", "eval/auc", "max-auc", "min-loss"]),
    (CheckpointConfig, "checkpoint_score_order", ["max", "min"]),
    (CheckpointConfig, "checkpoint_frequency", [0, 1, 10]),
    (CheckpointConfig, "checkpoint_at_end", [None, True, False]),
    (CheckpointConfig, "_checkpoint_keep_all_ranks", [True, False]),
    (CheckpointConfig, "_checkpoint_upload_from_workers", [True, False]),
    (CheckpointConfig, "keep", [None, (POLICY,), (POLICY, EveryN(5))]),
    (CheckpointConfig, "publish", ["background", "blocking"]),
    (CheckpointStrategy, "num_to_keep", [None, 0, 1, 2]),
    (CheckpointStrategy, "checkpoint_score_attribute", [None, "_timestamp", "loss"]),
    (CheckpointStrategy, "checkpoint_score_order", ["max", "min"]),
    (FailureConfig, "max_failures", [-1, 0, 1, 100]),
    (FailureConfig, "fail_fast", [True, False, "raise"]),
    (SyncConfig, "upload_dir", [None, "s3://bucket/path", "/shared", "host:/path", Path("/shared")]),
    (SyncConfig, "syncer", ["auto", None, "aws s3 sync {source} {target}", sync, Uploader()]),
    (SyncConfig, "sync_on_checkpoint", [True, False]),
    (SyncConfig, "sync_period", [0, 60, 300, 0.5]),
    (SyncConfig, "sync_timeout", [1, 1800, 0.5]),
    (SyncConfig, "sync_artifacts", [True, False]),
    (SyncConfig, "sync_artifacts_on_checkpoint", [True, False]),
    (SyncConfig, "excludes", [None, ("*.tmp",)]),
    (ScalingConfig, "num_workers", [0, 1, 8]),
    (ScalingConfig, "use_gpu", [True, False]),
    (ScalingConfig, "resources_per_worker", [None, {"CPU": 2}, {"CPU": 0.5, "disk": 3}]),
    (ScalingConfig, "trainer_resources", [None, {"CPU": 0}, {"CPU": 1}]),
    (ScalingConfig, "placement_strategy", ["PACK"]),
    (RunConfig, "name", [None, "exp"]),
    (RunConfig, "storage_path", [None, "~/x", "s3://bucket/x"]),
    (RunConfig, "local_dir", [None, "/tmp/mypath"]),
    (RunConfig, "failure_config", [FailureConfig(max_failures=2)]),
    (RunConfig, "checkpoint_config", [CheckpointConfig(num_to_keep=2), CheckpointStrategy(num_to_keep=0)]),
    (RunConfig, "sync_config", [SyncConfig(syncer=None)]),
    (RunConfig, "verbose", [None, 0, 1, 2, 3]),
    (RunConfig, "stop", [None, {"training_iteration": 2}, sync]),
    (RunConfig, "callbacks", [None, [], [Uploader()]]),
    (RunConfig, "log_to_file", [True, False, "all.log", ("out.log", "err.log")]),
    (RunConfig, "seed", [None, 0, 42]),
    (RunConfig, "trial_timeout_s", [None, 1, 0.5]),
    (RunConfig, "overwrite", [True, False]),
    (RunConfig, "takeover", [True, False]),
    (Budget, "top_k", [0, 1, 5]),
]


NOT_COUNTS: list[Any] = [-1, 0, True, False, 1.0, 2.5, "2", math.nan, [1]]


REFUSED: list[tuple[Kind, str, list[Any]]] = [
    (CheckpointConfig, "num_to_keep", NOT_COUNTS),
    (CheckpointConfig, "checkpoint_score_attribute", ["", 3, True, "max-", "min-"]),
    (CheckpointConfig, "checkpoint_score_order", ["maximum", "MAX", None, 1, True, ""]),
    (CheckpointConfig, "checkpoint_frequency", [-1, True, 1.0, "10"]),
    (CheckpointConfig, "checkpoint_at_end", [1, 0, "yes"]),
    (CheckpointConfig, "_checkpoint_keep_all_ranks", ["all", 1]),
    (CheckpointConfig, "keep", [[], (), "latest", [Latest], ["latest"], [3], 3, {"a": POLICY}]),
    (CheckpointConfig, "publish", ["Background", None, True, "async"]),
    (CheckpointStrategy, "num_to_keep", [-1, True, False, 1.0, "2"]),
    (CheckpointStrategy, "checkpoint_score_attribute", ["", 3]),
    (CheckpointStrategy, "checkpoint_score_order", ["best", None]),
    (FailureConfig, "max_failures", [-2, True, 1.5, "3", None]),
    (FailureConfig, "fail_fast", ["fail", 1, 0, None, ""]),
    (SyncConfig, "upload_dir", ["", " ", 3, True]),
    (SyncConfig, "syncer", ["aws s3 sync", "cp {source}", 3, True, False]),
    (SyncConfig, "sync_on_checkpoint", [1, None, "yes"]),
    (SyncConfig, "sync_period", [-1, math.nan, math.inf, True, "300", None]),
    (SyncConfig, "sync_timeout", [0, -1, math.nan, True, "300", None]),
    (SyncConfig, "excludes", ["*.tmp", [3], 5, {}]),
    (SyncConfig, "ssh_port", [0, 65536, "22", True]),
    (ScalingConfig, "num_workers", [-1, True, 1.5, "2"]),
    (ScalingConfig, "use_gpu", [1, 0, None, "yes"]),
    (ScalingConfig, "resources_per_worker", ["CPU", 3, {"CPU": -1}, {"CPU": True}, {"CPU": math.nan}, [1]]),
    (ScalingConfig, "placement_strategy", ["pack", None, ""]),
    (RunConfig, "name", ["", 3]),
    (RunConfig, "storage_path", ["", 3]),
    (RunConfig, "failure_config", ["raise", 3, CheckpointConfig()]),
    (RunConfig, "checkpoint_config", [{"num_to_keep": 2}, CheckpointConfig]),
    (RunConfig, "sync_config", ["s3://bucket"]),
    (RunConfig, "verbose", [-1, 4, "loud", 1.5]),
    (RunConfig, "callbacks", [Uploader, [Uploader], "x", Uploader()]),
    (RunConfig, "log_to_file", ["", ("one",), ("a", "b", "c"), ("a", ""), 3, None]),
    (RunConfig, "checkpoint_budget", ["50 XB", 0, -1, True, "", [1]]),
    (RunConfig, "seed", [-1, True, 1.5, "7"]),
    (RunConfig, "trial_timeout_s", [0, -1, math.nan, "60"]),
    (RunConfig, "overwrite", [1, None]),
    (Budget, "top_k", [-1, True, 1.5, None]),
    (Budget, "bytes", [0, -1, True, None, "lots", "5 0GB", math.nan, math.inf]),
]


def flat(table: list[tuple[Kind, str, list[Any]]]) -> list[Any]:
    return [
        pytest.param(kind, name, value, id=f"{kind.__name__}-{name}-{number}")
        for kind, name, values in table
        for number, value in enumerate(values)
    ]


def make(kind: Kind, name: str, value: Any) -> Any:
    return kind(**({"bytes": 1} | {name: value} if kind is Budget else {name: value}))


@pytest.mark.parametrize(("kind", "name", "value"), flat(ACCEPTED))
def test_d20_every_documented_value_is_accepted(kind: Kind, name: str, value: Any) -> None:
    assert getattr(make(kind, name, value), name) == value


@pytest.mark.parametrize(("kind", "name", "value"), flat(REFUSED))
def test_other_values_are_refused_with_name_value_and_what_is_accepted(kind: Kind, name: str, value: Any) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        make(kind, name, value)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, TrainablesError)
    assert "accepted" in message
    assert name in message
    assert repr(value) in message or name == "callbacks" or "bytes" in message


def test_the_defaults_are_rays() -> None:
    config = CheckpointConfig()
    assert (config.num_to_keep, config.checkpoint_score_attribute, config.checkpoint_score_order) == (None, None, "max")
    assert (config.checkpoint_frequency, config.checkpoint_at_end) == (0, None)
    assert CheckpointConfig(checkpoint_frequency=None).checkpoint_frequency == 0  # type: ignore[arg-type]
    assert CheckpointStrategy().checkpoint_score_attribute == "_timestamp"
    assert (FailureConfig().max_failures, FailureConfig().fail_fast) == (0, False)
    sync_config = SyncConfig()
    assert (sync_config.upload_dir, sync_config.syncer, sync_config.sync_on_checkpoint) == (None, "auto", True)
    assert (sync_config.sync_period, sync_config.sync_timeout) == (300, 1800)
    assert (sync_config.sync_artifacts, sync_config.sync_artifacts_on_checkpoint) == (False, True)
    assert (ScalingConfig().num_workers, ScalingConfig().use_gpu) == (1, False)


def test_a_run_config_fills_in_the_defaults_of_its_parts() -> None:
    config = RunConfig()
    assert config.checkpoint_config == CheckpointConfig()
    assert config.failure_config == FailureConfig()
    assert config.sync_config == SyncConfig()
    assert RunConfig(storage_path=Path("/tmp/x")).storage_path == "/tmp/x"
    assert RunConfig(checkpoint_budget="5GB").checkpoint_budget == Budget(5_000_000_000)
    assert RunConfig("exp").name == "exp"


@pytest.mark.parametrize(
    "config",
    [
        CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="min-loss"),
        CheckpointStrategy(0),
        FailureConfig(fail_fast="raise"),
        SyncConfig("s3://b", sync_period=60),
        ScalingConfig(num_workers=2),
        RunConfig("e", checkpoint_config=CheckpointConfig(num_to_keep=1), checkpoint_budget="5GB"),
        RunConfig(),
        Budget("1GB", 3),
    ],
)
def test_a_config_survives_repr_and_pickle(config: Any) -> None:
    assert eval(repr(config)) == config
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        (CheckpointConfig, "num_to_kep", "num_to_keep"),
        (CheckpointConfig, "score_attribute", "checkpoint_score_attribute"),
        (CheckpointStrategy, "keep", "num_to_keep"),
        (FailureConfig, "max_failure", "max_failures"),
        (SyncConfig, "sync_periods", "sync_period"),
        (ScalingConfig, "num_worker", "num_workers"),
        (RunConfig, "checkpoint_cfg", "checkpoint_config"),
    ],
)
def test_an_unknown_argument_is_an_error_with_the_nearest_name(kind: Kind, wrong: str, right: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"{wrong}.*{right}"):
        kind(**{wrong: 1})


@pytest.mark.parametrize("value", [True, "raise", "RAISE"])
def test_d20_fail_fast_goes_with_no_retries_only(value: Any) -> None:
    assert FailureConfig(fail_fast=value).fail_fast in (True, "raise")
    with pytest.raises(ValueError, match="max_failures=1.*fail_fast"):
        FailureConfig(max_failures=1, fail_fast=value)


def test_what_is_deprecated_elsewhere_is_first_class_here() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RunConfig(local_dir="/tmp/x", sync_config=SyncConfig(upload_dir="s3://b", syncer="auto"))
        CheckpointConfig(_checkpoint_keep_all_ranks=True)


def test_workers_get_a_cpu_or_a_gpu_unless_told_otherwise() -> None:
    assert ScalingConfig(num_workers=2).total_resources == {"CPU": 2}
    gpu = ScalingConfig(
        num_workers=2, use_gpu=True, resources_per_worker={"CPU": 2, "disk": 1}, trainer_resources={"CPU": 1}
    )
    assert (gpu.num_cpus_per_worker, gpu.num_gpus_per_worker) == (2, 1)
    assert gpu.additional_resources_per_worker == {"disk": 1}
    assert gpu.total_resources == {"CPU": 5, "GPU": 2, "disk": 2}
    with pytest.raises(ValueError, match="use_gpu"):
        ScalingConfig(resources_per_worker={"GPU": 1})
    with pytest.raises(ValueError, match="use_gpu"):
        ScalingConfig(use_gpu=True, resources_per_worker={"GPU": 0})


def test_scaling_values_may_be_domains_of_a_search_space() -> None:
    domain = object()
    config = ScalingConfig(num_workers=domain, use_gpu=domain, resources_per_worker={"CPU": domain})
    assert config.num_workers is domain
    assert ScalingConfig(num_workers=None).num_workers == 1
