"""Client, request bodies and ranged reads of the S3 back end."""

from __future__ import annotations

import base64
import io
from contextlib import closing
from typing import Any

from trainables.transfer.backend import Progress
from trainables.transfer.local_files import Sink
from trainables.transfer.s3_address import S3Address

BLOCK = 256 * 1024
_CONNECTIONS = 64
_TRIES = 4


def new_client(address: S3Address, *, total_max_attempts: int | None = None, **options: Any) -> tuple[Any, Any]:
    """A client of a new session, and botocore's: the address comes before the environment, which is read anew."""
    import boto3
    import botocore.session
    from botocore.config import Config

    core = botocore.session.get_session()
    session = boto3.session.Session(botocore_session=core)
    retries = None
    if total_max_attempts is not None:
        retries = {"mode": "standard", "total_max_attempts": total_max_attempts}
    # Said as a whole: boto3 would put its own together anew for each request, a tenth of a small one's cost.
    agent = f"tuner Boto3/{boto3.__version__}"
    config = Config(max_pool_connections=_CONNECTIONS, retries=retries, user_agent=agent, **options)
    server = {"endpoint_url": address.endpoint_url, "region_name": address.region}
    client = session.client("s3", config=config, **server)
    signing = (client.meta.config.s3 or {}).get("payload_signing_enabled")
    if client.meta.endpoint_url.startswith("https:") and signing is None:
        # TLS and the checksum guard the content; boto3 would hash it once more for the signature.
        config = config.merge(Config(s3={"payload_signing_enabled": False}))
        client = session.client("s3", config=config, **server)
    client.meta.events.register_first("request-created.s3", _signing)
    client.meta.events.register_last("request-created.s3", _sending)
    return client, core


class Body:
    """What a request sends, from memory. What is read counts as moved, once, and not while it is read to be signed."""

    def __init__(self, data: memoryview, progress: Progress) -> None:
        self.data = data
        self._progress = progress
        self._at = self._told = 0
        self.sending = False

    def __len__(self) -> int:
        return len(self.data)

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self.data)}[whence]
        return self._at

    def read(self, count: int | None = -1) -> memoryview:
        """The next block, of more than asked for: urllib3 takes 16 KiB at a time, which costs more than the sending."""
        count = len(self.data) if count is None or count < 0 else max(count, BLOCK)
        block = self.data[self._at : self._at + count]
        self._at += len(block)
        if self.sending and self._at > self._told:
            moved, self._told = self._at - self._told, self._at
            self._progress(moved)
        return block


def _signing(request: Any, **_: Any) -> None:
    if isinstance(request.body, Body):
        request.body.sending = False


def _sending(request: Any, **_: Any) -> None:
    if isinstance(request.body, Body):
        request.body.sending = True


def fetch(client: Any, where: dict[str, Any], sink: Sink, piece: range, answer: Any = None) -> None:
    """A range of an object; what is missing of one that was cut off is asked for again."""
    from trainables.transfer.s3_errors import CUT

    at, tries = piece.start, 0
    while at < piece.stop:
        try:
            if answer is None:
                answer = client.get_object(**where, Range=f"bytes={at}-{piece.stop - 1}")
            with closing(answer["Body"]) as body:  # also when whoever watches stops it
                for block in body.iter_chunks(BLOCK):
                    sink.write_at(block, at)
                    at, tries = at + len(block), 0
        except CUT:
            tries += 1
            if tries == _TRIES:
                raise
        answer = None


def encoded(crc: int) -> str:
    """A CRC-32 as S3 writes it."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def checksum_in(answer: dict[str, Any]) -> dict[str, str]:
    """The checksum in an answer, to be named where an upload is completed."""
    return {"ChecksumCRC32": answer["ChecksumCRC32"]} if "ChecksumCRC32" in answer else {}


def whole_crc(answer: dict[str, Any]) -> int | None:
    """The CRC-32 of all of an object, as the server says it; None where it has none, or only one of its parts' ones."""
    told = answer.get("ChecksumCRC32")
    if not told or "-" in told or answer.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    return int.from_bytes(base64.b64decode(told), "big")
