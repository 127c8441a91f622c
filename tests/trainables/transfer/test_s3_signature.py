"""Our signature is boto3's."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from trainables.transfer.s3_signature import authorization


@pytest.mark.parametrize("token", [None, "a/token+of=STS"])
@pytest.mark.parametrize("query", ["", f"partNumber=12&uploadId={quote('a.b-c_d~e/f+g=', safe='-_.~')}"])
@pytest.mark.parametrize("key", ["a/b.bin", "a b/(x)~ü/%0A+&=?#'", "a//b", "..hidden/-_.~"])
def test_a_put_is_signed_as_botocore_signs_it(key: str, query: str, token: str | None) -> None:
    path = "/bucket/" + quote(key, safe="/~")
    headers = {"if-none-match": "*", "x-amz-checksum-crc32": "jNwWgw==", "x-amz-sdk-checksum-algorithm": "CRC32"}
    url = f"https://s3.eu-central-1.amazonaws.com{path}{'?' if query else ''}{query}"
    request = AWSRequest("PUT", url, headers=dict(headers), data=b"content")
    S3SigV4Auth(Credentials("AKIA", "secret", token), "s3", "eu-central-1").add_auth(request)
    for name in ("X-Amz-Date", "X-Amz-Content-SHA256", "X-Amz-Security-Token"):
        if name in request.headers:
            headers[name.lower()] = request.headers[name]
    headers["host"] = "s3.eu-central-1.amazonaws.com"
    ours = authorization(path, query, headers, access_key="AKIA", secret_key="secret", region="eu-central-1")
    assert ours == request.headers["Authorization"]
    assert re.search(r"Signature=[0-9a-f]{64}$", ours)
