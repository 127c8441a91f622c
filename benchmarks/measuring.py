"""What the benchmarks share: a process per measurement, its own storage directory, one line of JSON as the result."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

QUIET = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_DEDUP_LOGS": "0", "RAY_AIR_NEW_OUTPUT": "0"}


@contextmanager
def storage() -> Iterator[str]:
    """A directory for the results, on the filesystem of $BENCH_DIR (default: the temporary directory)."""
    directory = tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("BENCH_DIR"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(systems: dict[str, Callable[[], dict[str, Any]]]) -> None:
    """`python benchmarks/<this>.py [--system NAME]`: measure, print one JSON object per system."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", choices=[*systems, "all"], default="ours")
    chosen = parser.parse_args().system
    os.environ.update(QUIET)
    for name in systems if chosen == "all" else [chosen]:
        print("RESULT " + json.dumps({"system": name, **systems[name]()}), flush=True)


@contextmanager
def sink() -> Iterator[int]:
    """The port of an S3 server that throws away what it gets (s3_sink.py)."""
    command = [sys.executable, str(Path(__file__).with_name("s3_sink.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        yield int(server.stdout.readline())
        server.stdin.close()


def s3(port: int) -> dict[str, str]:
    """What the environment of a client of the server at that port says."""
    return {
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "S3_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }


def timed_script(source: str, *arguments: str, environment: dict[str, str] | None = None) -> list[Any]:
    """Run Python source as `python script.py` and return what it printed as JSON after MARK."""
    with storage() as directory:
        script = Path(directory) / "script.py"
        script.write_text(source)
        done = subprocess.run(
            [sys.executable, str(script), directory, *arguments],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, **QUIET, **(environment or {})},
        )
        if done.returncode:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-4000:])
        return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("MARK ")]


def median(numbers: list[float]) -> float:
    numbers = sorted(numbers)
    middle = len(numbers) // 2
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2
