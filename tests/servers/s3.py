"""moto's S3 server, as a process of its own on a free port."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import boto3

from tests.servers.process import serving

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_CONFIG_FILE": "/dev/null",
}
"""What a user's environment would say; moto takes any credentials."""

_SERVER = """
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet
    def handle_expect_100(self):
        goes_on = super().handle_expect_100()
        self.wfile.flush()  # who asks whether to send waits a second for this
        return goes_on
    def log(self, *arguments, **named):
        pass

app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
print("port", server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def s3_server(**settings: str) -> Iterator[int]:
    """The port of a fresh, empty server; `settings` are moto's own, of its environment."""
    words = [f"{name}={value}" for name, value in settings.items()]
    with serving(["env", *words, sys.executable, "-c", _SERVER], r"^port (\d+)") as found:
        yield int(found[1])


def make_bucket(port: int, name: str) -> str:
    """Make a bucket and return its name."""
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
    made = boto3.session.Session(**keys).client("s3", endpoint_url=f"http://127.0.0.1:{port}")
    made.create_bucket(Bucket=name)
    made.close()
    return name


def empty(port: int) -> None:
    """Let the server be as it was when it started."""
    urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/reset", b"", timeout=60).close()
