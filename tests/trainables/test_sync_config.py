"""Where copies of an experiment go: what is accepted, and what would be ignored or told to everybody is not."""

from __future__ import annotations

import inspect
import math
import os
from typing import Any

import pytest

from trainables.config import (
    SyncConfig,
)
from trainables.errors import InvalidSettingError
from trainables.transfer.open import open_backend


def sync(source: str, target: str) -> None:
    """A user's sync function."""


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


@pytest.mark.parametrize(
    "place", ["s3://bucket/x?region=eu-west-1", "me@host:/x:y@z", "/runs/token=5", "./-x", "./h;x:/y"]
)
def test_places_without_a_password_are_accepted(place):
    assert SyncConfig(upload_dir=place).upload_dir == place


def test_what_was_given_is_held_as_it_counts() -> None:
    config = SyncConfig(excludes=["*.tmp", "a/**"], max_backlog="1.5GB", keep_local=3, ssh_port=22)

    assert config.excludes == ("*.tmp", "a/**")
    assert (config.max_backlog, config.backlog_bytes, config.keep_local) == (1_500_000_000, 1_500_000_000, 3)
    assert SyncConfig().backlog_bytes == 10_000_000_000
    assert SyncConfig(excludes={"x"}).excludes == ("x",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keep_local", 0), ("keep_local", "some"), ("keep_local", True), ("max_backlog", 0), ("max_backlog", "much"),
        ("max_backlog_s", 0), ("max_backlog_s", math.inf), ("options", None), ("options", 3), ("ssh_key", ""),
        ("delete_template", ""), ("delete_template", "rm -rf"), ("syncer", "cp {target}"), ("excludes", [1]),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidSettingError, match=f"SyncConfig: {name}="):
        SyncConfig(upload_dir="host:/x", **{name: value})


EXTRA = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/mine", "Metadata": {"team": "a b"}}


def test_extra_arguments_of_s3_are_those_of_a_bucket() -> None:
    config = SyncConfig(upload_dir="s3://bucket/x", s3_extra_args=EXTRA)
    assert config.s3_extra_args == config.place()["s3_extra_args"] == EXTRA
    assert config.s3_extra_args is not EXTRA and SyncConfig(s3_extra_args=EXTRA).upload_dir is None
    for other in ({"upload_dir": "gs://bucket/x"}, {"upload_dir": "/x"}, {"upload_dir": "me@host:/x"}):
        with pytest.raises(InvalidSettingError, match="s3_extra_args=.*unless upload_dir is a bucket of S3"):
            SyncConfig(**other, s3_extra_args=EXTRA)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettingError, match="s3_extra_args=.*and syncer is not given"):
        SyncConfig(upload_dir="s3://bucket/x", syncer=sync, s3_extra_args=EXTRA)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("aws:kms", "s3_extra_args='aws:kms' is not accepted"),
        ({"SSE": "aws:kms"}, "the argument='SSE' is not accepted.*ServerSideEncryption"),
        ({"ContentMD5": "x"}, "the argument='ContentMD5' is not accepted"),
        ({"SSECustomerKey": "hunter2"}, "the argument='SSECustomerKey' is not accepted.*stored with the experiment"),
        ({"StorageClass": 3}, "StorageClass=3 is not accepted"),
        ({"Tagging": "a=b\r\nx-amz-acl: public-read"}, "Tagging=.* is not accepted.*printable"),
        ({"CacheControl": "a  b"}, "CacheControl='a  b' is not accepted"),
        ({"BucketKeyEnabled": "yes"}, "BucketKeyEnabled='yes' is not accepted.*True or False"),
        ({"Metadata": "x"}, "Metadata='x' is not accepted"),
        ({"Metadata": {"a b": "x"}}, "Metadata=.*whose names are letters"),
        ({"Metadata": {"a": "é"}}, "Metadata: a='é' is not accepted"),
    ],
)
def test_extra_arguments_of_s3_that_cannot_be_sent_are_named(given: Any, said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said) as caught:
        SyncConfig(upload_dir="s3://bucket/x", s3_extra_args=given)
    assert "hunter2" not in str(caught.value)


class OfPaths(os.PathLike[str]):
    def __fspath__(self) -> str:
        return "/of paths"


def test_a_place_is_what_a_back_end_is_opened_with() -> None:
    given = {
        "syncer": sync, "delete_template": "rm {target} {options}", "options": "-r", "ssh_key": None, "ssh_port": None,
        "s3_extra_args": None,
    }  # fmt: skip

    assert SyncConfig(upload_dir=OfPaths(), **given).place() == {"place": "/of paths", **given}
    host = SyncConfig(upload_dir="me@host:/x", ssh_key=OfPaths(), ssh_port=22).place()
    assert (host["place"], host["ssh_key"], host["ssh_port"], host["syncer"]) == ("me@host:/x", "/of paths", 22, "auto")
    parameters = set(inspect.signature(open_backend).parameters)
    assert set(host) <= parameters


@pytest.mark.parametrize("place", ["-rf", "-x:/y"])
def test_a_directory_that_looks_like_an_option_is_told_how_it_is_written(place: str) -> None:
    with pytest.raises(InvalidSettingError, match="upload_dir="):
        SyncConfig(upload_dir=place)


def test_a_user_who_brings_his_own_syncer_may_call_the_place_what_he_likes() -> None:
    assert SyncConfig(upload_dir="odd place:x y", syncer=sync).upload_dir == "odd place:x y"
    with pytest.raises(InvalidSettingError, match=r"a directory with a colon in its name is \./odd place:x y"):
        SyncConfig(upload_dir="odd place:x y")
