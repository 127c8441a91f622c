from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import cloudpickle
import pytest

import tuner as tune
from trainables.errors import InvalidSettingError, MissingExtraError, TransferError
from trainables.net.frames import frame
from trainables.sync_config import SyncConfig
from trainables.transfer import transfer_jobs
from trainables.transfer.fsspec import FsspecBackend
from trainables.transfer.open import check_scheme, open_backend, shown
from tuner.error import SettingError


@pytest.mark.parametrize(
    ("place", "kind", "uri"),
    [
        ("/mnt/share/", "LocalBackend", "/mnt/share"),
        ("file:///mnt/my%20share", "LocalBackend", "file:///mnt/my%20share"),
        ("gs://bucket/path/", "GcsBackend", "gs://bucket/path"),
        ("az://container/path", "AzureBackend", "az://container/path"),
        (
            "abfs://container@account.dfs.core.windows.net/path",
            "AzureBackend",
            "abfs://container@account.dfs.core.windows.net/path",
        ),
        ("memory://place", "MemoryBackend", "memory://place"),
        ("user@host:/path", "RsyncBackend", "user@host:/path"),
    ],
)
def test_a_place_is_known_by_its_form(place: str, kind: str, uri: str) -> None:
    backend = open_backend(place)
    assert (type(backend).__name__, backend.uri) == (kind, uri)
    backend.close()


def test_a_file_address_is_decoded_and_a_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for place in (f"{tmp_path.as_uri()}/a%20b", f"file://localhost{quote(str(tmp_path))}/a%20b", "~/a b"):
        backend = open_backend(place)
        backend.put("key", place.encode())
        assert (tmp_path / "a b" / "key").read_bytes() == place.encode()


def test_what_the_user_gave_comes_first(tmp_path: Path) -> None:
    template = open_backend(f"{tmp_path}/x", syncer="cp -r {source} {target}")
    function = open_backend("s3://bucket/x", syncer=lambda source, target: None)
    assert type(template).__name__ == "CommandBackend"
    assert type(function).__name__ == "FunctionBackend"


def test_an_unknown_scheme_lists_the_known_ones_and_the_extras() -> None:
    with pytest.raises(InvalidSettingError) as caught:
        open_backend("s4://bucket/path?secret=hunter2")
    text = str(caught.value)
    for part in ("'s4'", "s3:// (tuner[s3])", "gs:// (tuner[gcs])", "az:// (tuner[azure])", "user@host:/path", "sftp"):
        assert part in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "place",
    [
        "",
        "gs://",
        "gs://bucket/../other",
        "s3://bucket/../other",
        "s3a://bucket/./other",
        "az://c/p//q",
        "file://elsewhere/path",
        "az://c/p?sas=hunter2",
        "gs://me:hunter2@bucket/p",
        "s3://me:hunter2@bucket/p",
        "s3://bucket/p?access_key=me&secret_key=hunter2",
        "s3://bucket/p?endpoint_override=http://me:hunter2@host:9000",
        "s3://bucket/p?endpoint_override=me%3Ahunter2%40host",
        "s3://bucket/a//b?region=eu-west-1",
    ],
)
def test_what_cannot_be_meant_is_an_error_without_secrets(place: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        open_backend(place)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "parameter", "accepted"),
    [
        ("s3://bucket/p?versions=3", "'versions'", "endpoint_override=http://host:9000"),
        ("s3://bucket/p?region=eu-west-1&endpoint_url=http://host", "'endpoint_url'", "endpoint_override="),
        ("s3a://bucket/p?access_key=me", "'access_key'", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("gs://bucket/p?project=mine", "'project'", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://container/p?account=mine", "'account'", "AZURE_STORAGE_CONNECTION_STRING"),
        ("memory://place?x=1", "'x'", "memory:// addresses have no query"),
    ],
)
def test_a_query_that_no_back_end_reads_is_refused_by_name(place: str, parameter: str, accepted: str) -> None:
    for look in (open_backend, check_scheme):
        with pytest.raises(InvalidSettingError) as caught:
            look(place)
        assert accepted in str(caught.value)
        assert parameter in str(caught.value) or "with a password in it" in str(caught.value)


def test_a_query_that_a_filesystem_of_fsspecs_does_not_read_is_never_part_of_a_name() -> None:
    with pytest.raises(InvalidSettingError, match="the query of the address is not accepted"):
        FsspecBackend("memory://place?x=1")


@pytest.mark.parametrize(
    ("place", "meant"),
    [
        ("S3://bucket/Path", "write s3://bucket/Path"),
        ("Gs://bucket", "write gs://bucket"),
        ("s3:/bucket/path", "write s3://bucket/path (or, for a host of that name, user@s3:/bucket/path)"),
        ("s3:bucket", "write s3://bucket (or"),
        ("S3:bucket", "write s3://bucket"),
        ("s3//bucket/path", "write s3://bucket/path"),
        ("file:/mnt/share", "write file:///mnt/share"),
        ("https://bucket.s3.amazonaws.com/runs/", "write s3://bucket/runs"),
        ("https://my-bucket.s3.eu-west-1.amazonaws.com", "write s3://my-bucket"),
        ("https://s3.eu-west-1.amazonaws.com/bucket/runs?X-Token=hunter2", "write s3://bucket/runs"),
        ("https://storage.googleapis.com/bucket/runs", "write gs://bucket/runs"),
        ("https://account.blob.core.windows.net/container/runs", "write az://container/runs"),
        ("http://example.org/runs", "nothing can be written to a web address"),
    ],
)
def test_d20_what_is_nearly_right_is_told_how_it_is_written(place: str, meant: str) -> None:
    for look in (open_backend, check_scheme):
        with pytest.raises(InvalidSettingError, match="is not accepted") as caught:
            look(place)
        assert meant in str(caught.value) and "hunter2" not in str(caught.value)
        assert "user@s3//" not in str(caught.value)


def test_a_secret_in_the_address_of_a_run_is_not_shown() -> None:
    copies = SyncConfig(upload_dir="s3://bucket/other")
    for given in ({}, {"sync_config": copies}):
        for place in ("s3://bucket/p?secret_key=hunter2", "s3://me:hunter2@bucket/p"):
            with pytest.raises((InvalidSettingError, SettingError)) as caught:
                tune.run(lambda config: None, storage_path=place, verbose=0, **given)
            assert "hunter2" not in str(caught.value)


def test_a_query_that_names_a_server_is_shown_and_no_other() -> None:
    query = "?scheme=http&endpoint_override=127.0.0.1%3A9000&region=eu-west-1"
    assert shown(f"s3://bucket/p{query}") == f"s3://bucket/p{query}"
    for secret in ("&secret_key=hunter2", "&endpoint_override=hunter2", "&x=hunter2"):
        assert shown(f"s3://bucket/p{query}{secret}") == "s3://bucket/p"
    assert shown("s3://bucket/p?endpoint_override=http://me:hunter2@host") == "s3://bucket/p"


def test_a_password_is_never_shown() -> None:
    assert shown("sftp://me:hunter2@host/path?token=hunter2") == "sftp://me@host/path"
    assert shown("abfs://container@account.dfs.core.windows.net/path") == (
        "abfs://container@account.dfs.core.windows.net/path"
    )
    assert shown("/mnt/what?/a@b:c") == "/mnt/what?/a@b:c"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("sftp://me:hun@ter2@host/path", "sftp://me@host/path"),
        ("sftp://me:hun/ter2@host/path", "sftp://me@host/path"),
        ("sftp://me:/hunter2@host/path", "sftp://me@host/path"),
        ("sftp://me:h@un/te@r2@host:22/path", "sftp://me@host:22/path"),
        ("sftp://me:hun?ter2@host/path", "sftp://me@host/path"),
        ("sftp://me:hun:ter2@host/path", "sftp://me@host/path"),
        ("sftp://me:12345@host/path", "sftp://me@host/path"),
        ("sftp://me@corp.org:hunter2@host/path", "sftp://me@corp.org@host/path"),
        ("sftp://:hunter2@host/path", "sftp://@host/path"),
        ("sftp://me:hunter2@[::1]:22/path?token=ter2", "sftp://me@[::1]:22/path"),
    ],
)
def test_a_password_with_odd_characters_is_not_shown_either(place: str, told: str) -> None:
    assert shown(place) == told
    with pytest.raises(InvalidSettingError, match="passwords in an address") as caught:
        open_backend(place.replace("sftp://", "gs://"))
    assert not any(part in str(caught.value) for part in ("hun", "ter2", "12345"))


@pytest.mark.parametrize("password", ["hun/ter2", "hun[ter2", "hun?ter2"])
def test_a_password_that_fsspec_cannot_read_is_not_in_its_complaint(password: str) -> None:
    with pytest.raises(TransferError, match="ftp://me@host/x cannot be opened.* %2F") as caught:
        open_backend(f"ftp://me:{password}@host/x")
    assert not any(part in str(caught.value) for part in ("hun", "ter2"))
    assert caught.value.__suppress_context__ and not caught.value.transient


@pytest.mark.parametrize(
    "place",
    [
        "sftp://host:22/home/me@corp/a:b@c",
        "sftp://me@host:22/home/me@corp",
        "sftp://[::1]/a@b",
        "sftp://[::1]:22/a@b",
        "s3://bucket/lr=0.1:me@host/x",
        "memory://me@host/x",
    ],
)
def test_what_is_no_password_is_shown(place: str) -> None:
    assert shown(place) == place


@pytest.mark.parametrize(
    ("place", "module", "extra"),
    [
        ("gs://bucket", "google.cloud.storage", "gcs"),
        ("az://container", "azure.storage.blob", "azure"),
        ("memory://x", "fsspec", "fsspec"),
    ],
)
def test_a_missing_library_names_its_extra(
    place: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, _, name = module.rpartition(".")
    monkeypatch.setitem(sys.modules, module, None)
    if parent:
        monkeypatch.delattr(sys.modules[parent], name, raising=False) if parent in sys.modules else None
    with pytest.raises(MissingExtraError, match=rf"\[{extra}\]"):
        open_backend(place)


def test_a_delete_template_goes_with_a_command_and_a_function() -> None:
    for syncer in ("cp -r {source} {target}", lambda source, target: None):
        assert not open_backend("/x", syncer=syncer).can.delete
        assert open_backend("/x", syncer=syncer, delete_template="rm -r {target}").can.delete
    own = type("Own", (), {"sync_up": print, "sync_down": print, "delete": print})()
    with pytest.raises(InvalidSettingError, match="has its own delete"):
        open_backend("/x", syncer=own, delete_template="rm -r {target}")


@pytest.mark.parametrize("place", ["there", "foo://there"])
def test_a_driver_that_was_killed_while_the_place_was_opened_leaves_no_traceback(tmp_path: Path, place: str) -> None:
    ours, theirs = socket.socketpair()
    where = place if "://" in place else str(tmp_path / place)
    ours.sendall(frame(transfer_jobs.OpenPlace(cloudpickle.dumps({"place": where}), sys.path)))
    ours.close()
    with theirs:
        ended = subprocess.run(
            [sys.executable, "-m", "trainables.transfer.agent", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, "")
