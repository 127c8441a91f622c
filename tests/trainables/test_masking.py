"""What looks like a secret is not in a masked text; what does not, stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.errors import InvalidSettingError, TransferError
from trainables.masking import MASK, masked
from tuner.error import SettingError, TrialError

SECRET = "hunter2SECRET"

HIDDEN = [
    f"cannot open postgresql+psycopg2://me:{SECRET}@db:5432/studies",
    f"'s3://key:{SECRET}/x+y@bucket/p' is not accepted",
    f"'s3://key:{SECRET}'q@bucket' is not accepted",
    f"redis://:{SECRET}@h:1/0",
    f"mysql://u:p@{SECRET}@h/x",
    f"ftp://u:{SECRET}?x@h/x",
    f"http://u:{SECRET}@h:80/a and http://v:{SECRET}@g/b",
    f"s3://bucket/p?secret={SECRET}",
    f"https://x.blob.core.windows.net/c?sv=1&sig={SECRET}&se=2",
    f"az://c?sas_token={SECRET}",
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET}==;EndpointSuffix=core",
    f"SharedAccessSignature={SECRET}",
    f"X-Amz-Security-Token={SECRET}",
    f"upload --token {SECRET} --to there",
    f"upload --password={SECRET}",
    f"RSYNC_PASSWORD={SECRET} rsync a b",
    f"PGPASSWORD={SECRET} psql",
    f"MYSQL_PWD={SECRET} mysql",
    f"sshpass -p {SECRET} ssh host",
    f"sshpass -p'{SECRET}' ssh host",
    f"curl -u me:{SECRET} http://host",
    f"Authorization: Bearer {SECRET}",
    f"Authorization: Basic {SECRET}",
    f"{{'password': '{SECRET} and {SECRET}', 'rate': 1}}",
    f'{{"api_key": "{SECRET}"}}',
    f'"{{\\"token\\": \\"{SECRET}\\"}}"',
    f"me:{SECRET}@host:/path is no place",
    f"password: {SECRET}",
    f"aws_secret_access_key = {SECRET}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    f"ghp_{SECRET}aaaaaaaa",
    f"hf_{SECRET}aaaaaaaa",
    f"eyJhbGciOiJI.{SECRET}.SflKxwRJ",
]
SHOWN = [
    "mkdir: cannot create directory '/etc/passwd': File exists",
    "worker@10.77.0.2:/etc/passwd: could not write there",
    "see ~/.ssh/secret_token: no such file",
    "s3://bucket/path",
    "http://127.0.0.1:5000/bucket",
    "http://localhost:8080/user@x",
    "http://[::1]:80/x",
    "http://me@host/x",
    "https://host:80: refused",
    "user@host:/path",
    "git@github.com:a/b.git",
    "/home/me@work/x:y",
    "loss=0.5 lr=1e-3 max_tokens=512 num_tokens: 5 tokenizer=bert monkey=3",
    "there are no usable credentials: none were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and others)",
    "the token: it is",
    "KeyError: 'token'",
    "ssh -i key.pem",
    "metric 'key' is missing",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_a_secret_is_masked(text: str) -> None:
    shown = masked(text)
    assert SECRET not in shown and "SECRET" not in shown and MASK in shown
    assert masked(shown) == shown


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


@given(st.text(alphabet="ab:/@?=&-_'\" .\\\npasswordtokenkey*#;", max_size=80))
def test_any_text_can_be_masked_and_a_second_time_changes_nothing(text: str) -> None:
    once = masked(text)
    assert masked(once) == once


PIECES = [
    "password=",
    "a://",
    "x:",
    "'\"token",
    "--token ",
    'password="',
    "@",
    "a:b@",
    "_",
    "?key",
    "-----BEGIN PRIVATE KEY",
]


@pytest.mark.parametrize("piece", PIECES)
def test_the_time_grows_with_the_length_only(piece: str) -> None:
    """If it grew with the square of the length, this would take longer than a test may."""
    masked(piece * (500_000 // len(piece)))


@pytest.mark.parametrize("kind", [InvalidSettingError, SettingError, TransferError, TrialError])
def test_errors_of_both_packages_say_no_secret(kind: type[Exception]) -> None:
    error = kind(f"cannot copy to s3://key:{SECRET}@bucket")
    assert str(error) == "cannot copy to s3://key:***@bucket"
    assert SECRET not in repr(error)
