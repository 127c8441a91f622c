"""What is said of an extra that is not installed."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from trainables.extras import DISTRIBUTION, how_to_install

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"how_to_install\([\"'](\w+)|library\([^)]*extra=\"(\w+)\"|tuner\[(\w+)\]")


def test_a_checkout_is_installed_from_where_it_is_and_a_wheel_by_name(tmp_path: Path) -> None:
    assert how_to_install("plot") == f'pip install -e "{ROOT}[plot]"'
    (tmp_path / "trainables").mkdir()
    shutil.copy(ROOT / "trainables/extras.py", tmp_path / "trainables")
    script = "from trainables.extras import how_to_install; print(how_to_install('plot'))"
    command = [sys.executable, "-S", "-c", script]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.stdout == 'pip install "tuner[plot]"\n', said.stderr


def test_every_extra_that_is_named_exists() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["metadata"]["name"] == DISTRIBUTION
    there = set(setup["options.extras_require"])
    named = {
        extra
        for file in [*ROOT.glob("tuner/**/*.py"), *ROOT.glob("trainables/**/*.py")]
        for extra in re.findall(
            r"how_to_install\([\"'](\w+)|library\([^)]*extra=\"(\w+)\"|tuner\[(\w+)\]", file.read_text()
        )
    }
    assert {name for found in named for name in found if name} - there == set()
