"""An S3 server for measurements only: it takes what is sent, throws it away in the kernel, and answers as S3 would.

One thread, one epoll loop, no copy of a body (MSG_TRUNC), so that it takes as little as it can from the client
beside it. Of what it got it remembers names, sizes and checksums, which a HEAD and a server-side copy answer; every
listing is empty. `GET /sent` says how many bytes of bodies have come. `python benchmarks/s3_sink.py` prints its port
and serves until its standard input ends.
"""

from __future__ import annotations

import re
import selectors
import socket
import sys
from typing import Any

LISTING = (
    b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bench</Name><Prefix></Prefix>'
    b"<KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>"
)
UPLOADS = (
    b'<ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Bucket>bench</Bucket>'
    b"<MaxUploads>1000</MaxUploads><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"
)
STARTED = (
    b'<InitiateMultipartUploadResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Bucket>bench</Bucket>'
    b"<Key>k</Key><UploadId>upload</UploadId></InitiateMultipartUploadResult>"
)
COMPLETED = (
    b'<CompleteMultipartUploadResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Bucket>bench</Bucket>'
    b'<Key>k</Key><ETag>"0"</ETag>%s</CompleteMultipartUploadResult>'
)
BUCKET = b"bench"
COPIED = b'<CopyObjectResult><ETag>"0"</ETag>%s</CopyObjectResult>'
HELD = b'HTTP/1.1 200 OK\r\nETag: "0"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n%sContent-Length: %d\r\n\r\n'
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)
CHECKSUM = re.compile(rb"\r\n(x-amz-checksum-(crc32|crc32c|crc64nvme|sha256)): *([A-Za-z0-9+/=]+)", re.I)
EXPECT = re.compile(rb"\r\nexpect: *100-continue", re.I)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.I)
LAST_CHUNK = re.compile(rb"(?:^|\r\n)0(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n$")
SOURCE = re.compile(rb"\r\nx-amz-copy-source: */?([^\r]+)", re.I)

sent = 0
held: dict[bytes, tuple[int, Any]] = {}
"""Path -> size and checksum (a match of CHECKSUM, or None)."""


def answer(head: bytes, size: int) -> bytes:
    """What S3 would answer to the request of this head, had it stored the body of that size."""
    global sent
    method, path, _ = head.split(b"\r\n", 1)[0].split(b" ", 2)
    checksum = CHECKSUM.search(head)
    name = path.partition(b"?")[0]
    extra, body = b"", b""
    if source := SOURCE.search(head):
        if (known := held.get(b"/" + source[1])) is None:
            return NOT_FOUND
        held[name], checksum = known, known[1]
        body = COPIED % in_xml(checksum)
    elif method == b"PUT":
        sent += size
        held[name] = (held.get(name, (0, None))[0] + size if b"partNumber" in path else size, checksum)
        extra = b'ETag: "0"\r\n' + in_head(checksum)
    elif method == b"POST" and b"uploads" in path:
        held.pop(name, None)
        body = STARTED
    elif method == b"POST" and b"uploadId" in path:
        held[name] = (held[name][0], checksum)
        body = COMPLETED % in_xml(checksum)
    elif method == b"DELETE":
        held.pop(name, None)
    elif method == b"HEAD" and name.strip(b"/") != BUCKET:
        if name not in held:
            return NOT_FOUND
        size, checksum = held[name]
        return HELD % (in_head(checksum), size)
    elif method == b"GET" and path == b"/sent":
        body = b"%d" % sent
    elif method == b"GET" and b"list-type" in path:
        body = LISTING
    elif method == b"GET" and b"?uploads" in path:
        body = UPLOADS
    elif method == b"GET":
        return NOT_FOUND
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n%sContent-Length: %d\r\n\r\n%s" % (
        extra,
        len(body),
        body,
    )


def in_head(checksum: Any) -> bytes:
    return checksum[1] + b": " + checksum[3] + b"\r\n" if checksum else b""


def in_xml(checksum: Any) -> bytes:
    kind = checksum[2].upper() if checksum else b""
    return b"<Checksum%s>%s</Checksum%s>" % (kind, checksum[3], kind) if checksum else b""


class Connection:
    """One client's connection: a head is read, then so many bytes of body are thrown away, then it is answered."""

    def __init__(self, peer: socket.socket, scratch: bytearray) -> None:
        self.peer, self.scratch = peer, scratch
        self.head, self.left, self.reply = b"", 0, b""
        self.chunked, self.tail = b"", b""
        """The head of a request whose body comes in chunks, and the end of what has come of it."""
        self.size = 0

    def readable(self) -> bool:
        """Take what has come; False when the client has gone."""
        if self.left:
            taken = self.peer.recv_into(self.scratch, min(self.left, len(self.scratch)), socket.MSG_TRUNC)
            self.left -= taken
            if taken and not self.left:
                self.peer.sendall(self.reply)
            return taken > 0
        came = self.peer.recv(65536)
        if self.chunked:
            self._chunk(came)
            return bool(came)
        self.head += came
        end = self.head.find(b"\r\n\r\n")
        if came and end >= 0:
            head, self.head = self.head[: end + 2], self.head[end + 4 :]
            if CHUNKED.search(head):
                rest, self.head, self.chunked, self.tail, self.size = self.head, b"", head, b"", 0
                if EXPECT.search(head):
                    self.peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._chunk(rest)
                return True
            length = LENGTH.search(head)
            size = int(length[1]) if length else 0
            self.reply = answer(head, size)
            self.left = size - len(self.head)
            self.head = b""
            if self.left <= 0:
                self.left = 0
                self.peer.sendall(self.reply)
            elif EXPECT.search(head):
                self.peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return bool(came)

    def _chunk(self, came: bytes) -> None:
        """Take a part of a chunked body; its framing counts as sent, as it was."""
        self.size += len(came)
        self.tail = (self.tail + came)[-1024:]
        if LAST_CHUNK.search(self.tail):
            head, self.chunked = self.chunked, b""
            self.peer.sendall(answer(head, self.size))


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    scratch = bytearray(4 << 20)
    print(listener.getsockname()[1], flush=True)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is listener:
                    peer, _ = listener.accept()
                    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(peer, selectors.EVENT_READ, Connection(peer, scratch))
                    continue
                connection: Any = key.data
                try:
                    there = connection.readable()
                except ConnectionError:
                    there = False
                if not there:
                    selector.unregister(connection.peer)
                    connection.peer.close()


if __name__ == "__main__":
    main()
