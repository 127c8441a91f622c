"""A proxy before moto that does what moto leaves out: it computes checksums and compares them, as S3 does.

moto echoes the checksum that it is sent. Here a body that is not what its headers or trailers say is refused with
BadDigest or XAmzContentSHA256Mismatch, the CRC-32 of the whole of an upload in parts is compared and answered, and HEAD
and copies tell the CRC-32 of what is really held. A conditional write is one step. Faults: `refuse` answers in the
server's place, `flip` changes bodies on their way, `lose_answers` does what is asked and hangs up.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import zlib
from collections.abc import Callable
from urllib.parse import parse_qs, quote, urlsplit

from tests.servers.forward import Answer, Forwarder

Refuse = Callable[[str, str, dict[str, str]], "Answer | None"]


def refusal(status: int, code: str) -> Answer:
    """An error as S3 answers it."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>said the proxy</Message></Error>"
    return status, {"Content-Type": "application/xml"}, body.encode()


class ChecksumProxy(Forwarder):
    """Verifies before moto does anything."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.refuse: Refuse = lambda method, path, headers: None
        self.lose_answers = 0
        """So many answers to writes are lost."""
        self.requests: list[tuple[str, str]] = []
        """(method, path with query) of all that came."""
        self.body_bytes = 0
        """Of all bodies that came."""
        self._writing = threading.Lock()
        self._parts: dict[str, dict[int, bytes]] = {}

    def handle_one(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        headers = {name.lower(): value for name, value in headers.items()}
        self.requests.append((method, path))
        self.body_bytes += len(body)
        refused = self.refuse(method, path, headers)
        if refused is None:
            if self.flip and len(body) > 100_000:
                body = body[:-60_000] + bytes([body[-60_000] ^ 1]) + body[-59_999:]
            refused = self._wrong(headers, body)
        if refused is not None:
            return refused
        with self._writing:
            answer = self._done(method, path, headers, body)
        if method in ("PUT", "POST") and self.lose_answers:
            self.lose_answers -= 1
            raise ConnectionAbortedError("the answer is lost")
        return answer

    def _wrong(self, headers: dict[str, str], body: bytes) -> Answer | None:
        """The refusal of a body that is not what its headers and trailers say."""
        signed = headers.get("x-amz-content-sha256", "")
        if re.fullmatch("[0-9a-f]{64}", signed) and hashlib.sha256(body).hexdigest() != signed:
            return refusal(400, "XAmzContentSHA256Mismatch")
        content, trailers = _unchunked(body) if "x-amz-trailer" in headers else (body, {})
        told = {**headers, **trailers}.get("x-amz-checksum-crc32")
        # The header of a completed upload in parts is of the whole, and is looked at when the parts are known.
        if told and headers.get("x-amz-checksum-type") != "FULL_OBJECT" and told != _crc(content):
            return refusal(400, "BadDigest")
        return None

    def _done(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        parts, query = urlsplit(path), parse_qs(urlsplit(path).query)
        upload = query.get("uploadId", [""])[0]
        whole = ""
        if method == "POST" and upload:
            held = self._parts.get(upload, {})
            whole = _crc(b"".join(held[number] for number in sorted(held)))
            if headers.get("x-amz-checksum-crc32", whole) != whole:
                return refusal(400, "BadDigest")
        status, answered, content = self.ask(method, path, headers, body)
        if status != 200:
            return status, answered, content
        if "partNumber" in query and method == "PUT":
            data = self._ranged(headers) if "x-amz-copy-source" in headers else body
            self._parts.setdefault(upload, {})[int(query["partNumber"][0])] = data
            whole = _crc(data)
        elif method == "PUT" and "x-amz-copy-source" in headers:
            whole = _crc(self._get(parts.path, headers))
        elif method == "PUT" and not query:
            answered["x-amz-checksum-crc32"] = _crc(body)
        elif method == "HEAD" and headers.get("x-amz-checksum-mode") == "ENABLED":
            answered |= {
                "x-amz-checksum-crc32": _crc(self._get(parts.path, headers)),
                "x-amz-checksum-type": "FULL_OBJECT",
            }
        if whole:
            told = f"<ChecksumCRC32>{whole}</ChecksumCRC32><ChecksumType>FULL_OBJECT</ChecksumType></".encode()
            content = told.join(re.sub(rb"<Checksum(\w+)>[^<]*</Checksum\1>", b"", content).rsplit(b"</", 1))
            if "partNumber" in query and "x-amz-copy-source" not in headers:
                answered["x-amz-checksum-crc32"], content = whole, b""
        return status, answered, content

    def _ranged(self, headers: dict[str, str]) -> bytes:
        """What a copied part is made of."""
        source = quote("/" + headers["x-amz-copy-source"].lstrip("/"), safe="/%")
        data = self._get(source, headers)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", headers["x-amz-copy-source-range"])
        assert asked
        return data[int(asked[1]) : int(asked[2]) + 1]

    def _get(self, path: str, headers: dict[str, str]) -> bytes:
        status, _, content = self.ask("GET", path, {"host": headers["host"], "authorization": headers["authorization"]})
        assert status == 200, (path, status, content)
        return content


def _crc(content: bytes) -> str:
    return base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()


def _unchunked(body: bytes) -> tuple[bytes, dict[str, str]]:
    """Content and trailers of a body in "aws-chunked" encoding."""
    content = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        count = int(size.split(b";")[0], 16)
        if not count:
            break
        content, body = content + body[:count], body[count + 2 :]
    lines = [line.decode().partition(":") for line in body.split(b"\r\n") if line]
    return content, {name.strip().lower(): value.strip() for name, _, value in lines}
