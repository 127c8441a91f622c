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
    parse_bytes,
    parse_score_attr,
)
from trainables.errors import InvalidSettingError, TrainablesError
from trainables.store.retention import EveryN, Latest
from trainables.validation import unknown_name

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


@pytest.mark.parametrize("value", [0, -1, True, "2", 1.5])
def test_f09_the_message_about_a_limit_names_what_is_accepted(value: Any) -> None:
    with pytest.raises(ValueError, match=r"None \(all are kept\), or a whole number >= 1"):
        CheckpointConfig(num_to_keep=value)


def test_f09_only_the_first_generation_accepts_zero() -> None:
    assert CheckpointStrategy(num_to_keep=0).num_to_keep == 0
    with pytest.raises(ValueError, match=r"0 \(none stays on disk\)"):
        CheckpointStrategy(num_to_keep=-1)


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


def test_unknown_names_without_a_near_one_list_all() -> None:
    assert unknown_name("option", "zzz", ["b", "a"]) == "unknown option 'zzz'. Accepted: a, b"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("auc", ("auc", "max")),
        ("max-auc", ("auc", "max")),
        ("min-loss", ("loss", "min")),
        ("min-eval/loss", ("eval/loss", "min")),
        ("max-min-gap", ("min-gap", "max")),
        ("minimal", ("minimal", "max")),
    ],
)
def test_d01_both_prefixes_of_a_score_attribute_work(text: str, parsed: tuple[str, str]) -> None:
    assert parse_score_attr(text) == parsed
    assert CheckpointConfig(checkpoint_score_attribute=text).score == parsed


@pytest.mark.parametrize("text", ["", "max-", "min-", None, 3])
def test_a_score_attribute_that_names_nothing_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"checkpoint_score_attr=.*accepted"):
        parse_score_attr(text)


def test_f07_order_and_prefix_may_not_contradict_each_other() -> None:
    assert CheckpointConfig(checkpoint_score_attribute="loss", checkpoint_score_order="min").score == ("loss", "min")
    assert CheckpointConfig(checkpoint_score_attribute="min-loss", checkpoint_score_order="min").score == (
        "loss",
        "min",
    )
    with pytest.raises(ValueError, match="checkpoint_score_order='min'"):
        CheckpointConfig(checkpoint_score_attribute="max-auc", checkpoint_score_order="min")


@pytest.mark.parametrize("value", [True, "raise", "RAISE"])
def test_d20_fail_fast_goes_with_no_retries_only(value: Any) -> None:
    assert FailureConfig(fail_fast=value).fail_fast in (True, "raise")
    with pytest.raises(ValueError, match="max_failures=1.*fail_fast"):
        FailureConfig(max_failures=1, fail_fast=value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        (5e9, 5_000_000_000),
        ("50GB", 50_000_000_000),
        ("50 gb", 50_000_000_000),
        ("50G", 50_000_000_000),
        ("1.5TB", 1_500_000_000_000),
        (".5 kB", 500),
        ("512MiB", 512 * 2**20),
        ("1_000B", 1000),
        ("1000", 1000),
        ("1.1PB", 1_100_000_000_000_000),
        ("1PiB", 2**50),
    ],
)
def test_sizes_are_read_as_people_write_them(text: Any, size: int) -> None:
    assert parse_bytes(text) == size
    assert Budget(text).size == size


@pytest.mark.parametrize("text", ["GB", "1e9", "-5GB", "5 5GB", "5EB", "0", "0.1B", "", "1..5GB"])
def test_sizes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="checkpoint_budget=.*50GB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("kind", "argument"),
    [
        (FailureConfig, {"controller_failure_limit": 3}),
        (ScalingConfig, {"accelerator_type": "A100"}),
        (ScalingConfig, {"use_tpu": True}),
        (RunConfig, {"storage_filesystem": object()}),
        (RunConfig, {"worker_runtime_env": {"pip": []}}),
    ],
)
def test_what_has_no_effect_here_is_accepted_with_one_warning_at_the_users_line(kind: Kind, argument: Any) -> None:
    with pytest.warns(UserWarning, match=f"{next(iter(argument))}.*has no effect") as caught:
        kind(**argument)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("delete_template", {"upload_dir": "s3://b", "delete_template": "rm {target}"}),
        ("delete_template", {"upload_dir": "/shared", "syncer": None, "delete_template": "rm {target}"}),
        ("options", {"upload_dir": "s3://b", "options": "-x"}),
        ("options", {"upload_dir": "/shared", "syncer": "cp {source} {target}", "options": "-x"}),
        ("options", {"upload_dir": "/shared", "syncer": sync, "options": "-x"}),
        ("ssh_key", {"upload_dir": "s3://b", "ssh_key": "/key"}),
        ("ssh_key", {"upload_dir": "host:/x", "syncer": "cp {source} {target}", "ssh_key": "/key"}),
        ("ssh_port", {"upload_dir": "/shared", "ssh_port": 22}),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"SyncConfig: {name}=.* is not accepted; accepted: .*None|: {name}=.*''"):
        SyncConfig(**given)


@pytest.mark.parametrize("name", ["syncer", "delete_template"])
def test_d20_a_field_that_nothing_fills_in_is_refused_with_those_that_there_are(name: str) -> None:
    given = {"syncer": "cp {source} {target} ${HOME} { x } {options}", name: "cp {source} {targt}"}
    with pytest.raises(ValueError, match=rf"{name}='cp .*fields are .*\{{target\}}.*unknown: .*\{{targt\}}"):
        SyncConfig(upload_dir="/x", **given)


def test_settings_of_a_host_and_of_commands_are_taken_where_they_hold() -> None:
    SyncConfig(upload_dir="me@host:/x", ssh_key="/key", ssh_port=2222)
    SyncConfig(ssh_key="/key")  # the place may come with storage_path
    SyncConfig(upload_dir="/x", syncer=sync, delete_template="rm {options} {target}", options="-r")


def test_what_is_deprecated_elsewhere_is_first_class_here() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RunConfig(local_dir="/tmp/x", sync_config=SyncConfig(upload_dir="s3://b", syncer="auto"))
        CheckpointConfig(_checkpoint_keep_all_ranks=True)


def test_one_policy_needs_no_list() -> None:
    assert CheckpointConfig(keep=Latest(2)).keep == (Latest(2),)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("place", "belongs"),
    [
        ("s3://key:hunter2@bucket/runs", "AWS_SECRET_ACCESS_KEY"),
        ("s3://key:hun ter2@bucket/runs", "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket/runs?secret=hunter2", "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket/runs?a=1&aws_session_token=hunter2", "AWS_SECRET_ACCESS_KEY"),
        ("az://box/runs?sv=2022&sig=hunter2", "AZURE_STORAGE_SAS_TOKEN"),
        ("gs://bucket/runs?api_key=hunter2", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("sftp://me:hunter2@host/runs", "FSSPEC_SFTP_PASSWORD"),
        ("ftp://host/runs?password=hunter2", "FSSPEC_FTP_PASSWORD"),
        ("file:///runs?password=hunter2", "environment"),
        ("me:hunter2@host:/runs", "ssh configuration"),
    ],
)
@pytest.mark.parametrize("syncer", ["auto", "copy {source} {target}"])
def test_a_password_in_upload_dir_is_refused_and_told_where_it_belongs(place, belongs, syncer):
    with pytest.raises(InvalidSettingError, match="SyncConfig: upload_dir=.* is not accepted") as caught:
        SyncConfig(upload_dir=place, syncer=syncer)
    assert belongs in str(caught.value)
    assert "hun" not in str(caught.value) and "ter2" not in str(caught.value)


@pytest.mark.parametrize("place", ["-oX:/y", "h;x:/y", "$(id):/y", "user@-oX:/y", "h x:/y", ":/y", "~me:/y", "-x"])
def test_what_is_neither_a_host_nor_a_directory_is_refused(place):
    with pytest.raises(InvalidSettingError, match=r"SyncConfig: upload_dir=.*is not accepted; accepted: a bucket"):
        SyncConfig(upload_dir=place)


@pytest.mark.parametrize("place", ["s3://bucket/x?versions=3", "me@host:/x:y@z", "/runs/token=5", "./-x", "./h;x:/y"])
def test_places_without_a_password_are_accepted(place):
    assert SyncConfig(upload_dir=place).upload_dir == place
