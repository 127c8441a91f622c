"""Where replicas of the campaign lie: each place starts what it needs once, and shows what is there as a directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import boto3

from tests.servers.hosts import Host, Network, network
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server


class Places:
    """Servers and hosts, started when they are first asked for, ended together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / f"places-{os.getpid()}"
        self._stack = ExitStack()
        self._port: int | None = None
        self._net: Network | None = None
        self._host: Host | None = None

    def close(self) -> None:
        self._stack.close()

    def uri(self, kind: str, name: str, base: Path) -> str | None:
        """Where the replica of an experiment goes; `name` is that of no other one."""
        if kind == "none":
            return None
        if kind == "s3":
            if self._port is None:
                self._port = self._stack.enter_context(s3_server())
                make_bucket(self._port, "campaign")
            return f"s3://campaign/{name}"
        if kind == "rsync":
            if self._net is None:
                (self._directory / "net").mkdir(parents=True)
                self._net = self._stack.enter_context(network(self._directory / "net"))
                self._host = self._net.host(size="4g")
                self._wrap_ssh(self._net)
            assert self._host is not None
            return self._host.uri(f"/srv/home/{name}")
        return str(base / "place")

    def _wrap_ssh(self, net: Network) -> None:
        """`ssh`, as the user would have configured it."""
        programs = self._directory / "bin"
        programs.mkdir(parents=True)
        (programs / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {net.ssh_config} "$@"\n')
        (programs / "ssh").chmod(0o755)

    def environment(self, kind: str) -> dict[str, str]:
        if kind == "s3":
            return {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}"}
        if kind == "rsync":
            return {"PATH": f"{self._directory / 'bin'}:{os.environ['PATH']}"}
        return {}

    @contextmanager
    def network(self, kind: str) -> Iterator[None]:
        """What is started meanwhile reaches the place."""
        if kind == "rsync":
            assert self._net is not None
            with self._net.enter():
                yield
        else:
            yield

    def look(self, kind: str, name: str, target: Path) -> Path:
        """All that lies there, copied to `target` by other programs than ours."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        if kind == "s3":
            self._download(name, target)
        elif kind == "rsync":
            assert self._host is not None
            there = self._host.path(f"/srv/home/{name}")
            if there.exists():
                subprocess.run(["cp", "-r", f"{there}/.", target], check=True)
        elif (place := target.parent / "place").exists():
            subprocess.run(["cp", "-r", f"{place}/.", target], check=True)
        return target

    def _download(self, name: str, target: Path) -> None:
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
        client = boto3.session.Session(**keys).client("s3", endpoint_url=f"http://127.0.0.1:{self._port}")
        for page in client.get_paginator("list_objects_v2").paginate(Bucket="campaign", Prefix=f"{name}/"):
            for entry in page.get("Contents", ()):
                path = target / entry["Key"].removeprefix(f"{name}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    client.download_fileobj("campaign", entry["Key"], file)
        client.close()
