"""Google Cloud Storage: gcp-storage-emulator, and before it a proxy that enforces `ifGenerationMatch=0`.

The emulator ignores that condition. The proxy looks whether the object is there, and answers 412 as the service does;
a look and the write after it are one step. A resumable upload is judged when its last part arrives.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, quote, urlsplit

from tests.servers.forward import Answer, Forwarder
from tests.servers.process import serving

_EMULATOR = """
import threading
from gcp_storage_emulator.server import create_server
server = create_server("127.0.0.1", 0, in_memory=True)
server.start()
print("port", server._api._httpd.server_port, flush=True)
threading.Event().wait()
"""
_JSON = {"Content-Type": "application/json"}


class Gcs:
    """The emulator behind its proxy; each bucket that is asked for is another."""

    def __init__(self, proxy: Forwarder) -> None:
        self.proxy = proxy
        self.url = f"http://127.0.0.1:{proxy.server_port}"
        self._numbers = itertools.count(1)

    def bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"bucket-{next(self._numbers)}"
        body = json.dumps({"name": name}).encode()
        status, _, said = self.proxy.ask("POST", "/storage/v1/b?project=test", dict(_JSON), body)
        assert status == 200, said
        return name


@contextmanager
def gcs() -> Iterator[Gcs]:
    with serving([sys.executable, "-c", _EMULATOR], r"port (\d+)") as found, _Proxy(int(found[1])) as proxy:
        yield Gcs(proxy)


class _Proxy(Forwarder):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._writing = threading.Lock()
        self._sessions: dict[str, str] = {}
        """Upload id -> path of the object that must not be there."""

    def handle_one(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        with self._writing:
            target = self._must_be_absent(path, query, body)
            if target is not None and self.ask("GET", target, {"Host": headers["Host"]})[0] == 200:
                return 412, dict(_JSON), b'{"error": {"code": 412, "message": "conditionNotMet"}}'
            answer = super().handle_one(method, path, headers, body)
        location = answer[1].get("Location")
        if target is not None and location is not None:
            self._sessions[parse_qs(urlsplit(location).query)["upload_id"][0]] = target
        return answer

    def _must_be_absent(self, path: str, query: dict[str, str], body: bytes) -> str | None:
        if "upload_id" in query:
            return self._sessions.get(query["upload_id"])
        if query.get("ifGenerationMatch") != "0":
            return None
        plain = urlsplit(path).path
        if "/rewriteTo/" in plain:
            return f"/storage/v1{plain.partition('/rewriteTo')[2]}"
        bucket = plain.partition("/b/")[2].partition("/")[0]
        described = json.JSONDecoder().raw_decode(body[body.index(b"{") :].decode("utf-8", "surrogateescape"))[0]
        return f"/storage/v1/b/{bucket}/o/{quote(query.get('name') or described['name'], safe='')}"
