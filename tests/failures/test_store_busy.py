"""A bucket whose server is overloaded when a run starts is waited for, by name, with a bound; Ctrl-C ends it."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tuner as tune
from tests.servers.s3 import ENVIRONMENT, make_bucket
from tests.servers.s3_checksums import Answer, ChecksumProxy, refusal
from trainables.errors import StoreBusyError

ROOT = Path(__file__).parents[2]
_NUMBERS = itertools.count(1)

SCRIPT = """
    import signal
    import sys
    import tuner as tune

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell without a terminal ignores it for its jobs

    def train(config):
        tune.report({"loss": 1})

    tune.run(train, name="e", storage_path=sys.argv[1], sync_config=tune.SyncConfig(upload_dir=sys.argv[2]))
"""


def train(config):
    tune.report({"loss": 1})


@pytest.fixture
def storm(moto, monkeypatch):
    """A bucket behind a server that refuses as many requests as `storm.left` says."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with ChecksumProxy(moto) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        made = Storm(f"s3://{make_bucket(moto, f'storm-{next(_NUMBERS)}')}", proxy)
        proxy.refuse = made.refuse
        yield made


class Storm:
    def __init__(self, uri: str, proxy: ChecksumProxy) -> None:
        self.uri, self.proxy, self.left, self.refused = uri, proxy, 0, 0

    def refuse(self, method: str, path: str, headers: dict[str, str]) -> Answer | None:
        if self.left <= 0:
            return None
        self.left -= 1
        self.refused += 1
        return refusal(503, "SlowDown")


def test_f22_a_storm_at_the_start_is_waited_out(storm, tmp_path, caplog):
    storm.left = 3  # one try's two requests, and the first of the next
    with caplog.at_level(logging.WARNING):
        tune.run(train, name="e", storage_path=tmp_path, sync_config=tune.SyncConfig(upload_dir=storm.uri), verbose=0)
    assert storm.refused == 3
    waits = [line for line in caplog.messages if line.startswith("waiting for the store")]
    assert waits and "sync_timeout" in waits[0] and storm.uri in waits[0]
    assert len(tune.ExperimentAnalysis(f"{storm.uri}/e").trials) == 1


def test_f22_a_storm_that_does_not_end_is_an_error_after_sync_timeout(storm, tmp_path):
    storm.left = 1_000_000
    with pytest.raises(StoreBusyError, match="overloaded"):
        config = tune.SyncConfig(upload_dir=storm.uri, sync_timeout=2)
        tune.run(train, name="e", storage_path=tmp_path, sync_config=config, verbose=0)
    assert not (tmp_path / "e" / "experiment.json").exists()


@pytest.mark.parametrize(
    "answer", [refusal(404, "NoSuchKey"), refusal(400, "InvalidRequest"), refusal(500, "Internal")]
)
def test_a_server_that_cannot_list_uploads_in_parts_is_asked_for_them_a_few_times_only(answer, storm, tmp_path):
    asked = []

    def refuse(method: str, path: str, headers: dict[str, str]) -> Answer | None:
        if "?uploads&" in path and method == "GET":
            asked.append(path)
            return answer
        return None

    storm.proxy.refuse = refuse
    config = tune.SyncConfig(upload_dir=storm.uri, sync_timeout=20)
    tune.run(train, name="e", storage_path=tmp_path, sync_config=config, verbose=0)
    assert 1 <= len(asked) <= 30
    assert tune.ExperimentAnalysis(f"{storm.uri}/e").trials[0].status == "TERMINATED"


def test_f22_ctrl_c_ends_the_wait(storm, tmp_path):
    storm.left = 1_000_000
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    process = subprocess.Popen(
        [sys.executable, "script.py", tmp_path, storm.uri],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        said = next(line for line in process.stdout if "waiting for the store" in line)
        assert "Ctrl-C" in said
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode not in (0, None, -9)
