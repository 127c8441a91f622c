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


def timed_script(source: str, *arguments: str) -> list[dict[str, Any]]:
    """Run Python source as `python script.py` and return the JSON objects that it printed after MARK."""
    with storage() as directory:
        script = Path(directory) / "script.py"
        script.write_text(source)
        done = subprocess.run(
            [sys.executable, str(script), directory, *arguments],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, **QUIET},
        )
        if done.returncode:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-4000:])
        return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("MARK ")]


def median(numbers: list[float]) -> float:
    numbers = sorted(numbers)
    middle = len(numbers) // 2
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2
