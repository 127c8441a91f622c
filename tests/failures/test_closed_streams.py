"""A program that is started without standard streams (`>&-`), as some daemons start theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import json, os, sys
import tuner as tune

def prints(config):
    print("heard")
    os.write(2, b"from C")
    tune.report({"loss": config["x"]})

analysis = tune.run(
    prints, name="e", config={"x": tune.grid_search([1, 2])}, metric="loss", mode="min", verbose=int(sys.argv[2]),
    storage_path=sys.argv[1], executor=sys.argv[3],
)
open(sys.argv[1] + "/seen", "w").write(json.dumps([analysis.best_config, *map(os.readlink, FDS)]))
"""


@pytest.mark.parametrize(
    ("closed", "verbose", "executor"),
    [((1,), 2, "inline"), ((0, 1, 2), 0, "inline"), ((0, 1, 2), 2, "local")],
)
def test_a_run_needs_no_streams(closed: tuple[int, ...], verbose: int, executor: str, tmp_path: Path) -> None:
    files = [f"/proc/self/fd/{fd}" for fd in closed]
    shut = " ".join(f"{fd}>&-" for fd in closed)
    code = f"FDS = {files}\n{CODE}"
    command = [sys.executable, "-c", code, str(tmp_path), str(verbose), executor]
    done = subprocess.run(["bash", "-c", f'exec "$@" {shut}', "bash", *command], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    best, *targets = json.loads((tmp_path / "seen").read_text())
    assert best == {"x": 1}
    assert targets == ["/dev/null"] * len(closed), "no file of the experiment gets what is printed"
    if executor == "local":
        assert [file.read_text() for file in sorted(tmp_path.glob("e/*/stdout"))] == ["heard\n"] * 2
        assert [file.read_text() for file in sorted(tmp_path.glob("e/*/stderr"))] == ["from C"] * 2
