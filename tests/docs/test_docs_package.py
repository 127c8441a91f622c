"""The package as a stranger has it: a wheel, in an empty environment outside of the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import tuner
from tests.docs.blocks import ROOT

FIRST = """
import sys
import tuner as tune


def train(config):
    for step in range(1, 4):
        tune.report({"loss": config["x"] / step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


if __name__ == "__main__":
    space = {"x": tune.uniform(0, 1)}
    analysis = tune.run(train, name="first", config=space, num_samples=2, metric="loss", mode="min", resume="AUTO")
    print("from", tune.__file__, len(analysis.trials))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel and what it requires, and nothing else that is installed here.

    What is required comes from this environment, by links: nothing is fetched.
    """
    place = tmp_path_factory.mktemp("wheel")
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    made = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", place, str(copied(place / "source"))],
        capture_output=True,
        text=True,
        cwd=place,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = place.glob("tuner-*.whl")
    venv.create(place / "env", with_pip=False, symlinks=True)
    (site,) = (place / "env" / "lib").glob("python*/site-packages")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, site], check=True)
    for name in files_of_requirements():
        target = site / name.name
        if not target.exists():
            target.symlink_to(name)
    return place


def copied(source: Path) -> Path:
    """What a wheel is built of: building must leave nothing in the checkout."""
    left_out = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in ("tuner", "trainables", "web"):
        shutil.copytree(ROOT / name, source / name, ignore=left_out, dirs_exist_ok=True)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    (source / "tuner" / "ui" / "static").mkdir(parents=True, exist_ok=True)  # else node would be asked for it
    return source


def files_of_requirements() -> set[Path]:
    """The top-level files of what the package requires, and of what that requires in turn."""
    from importlib.metadata import PackageNotFoundError, distribution

    from packaging.requirements import Requirement

    found, seen, due = set[Path](), set[str](), ["tuner"]
    while due:
        name = due.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        for line in package.requires or ():
            asked = Requirement(line)
            if (asked.marker is None or asked.marker.evaluate({"extra": ""})) and asked.name.lower() not in seen:
                seen.add(asked.name.lower())
                due.append(asked.name)
        if name != "tuner":
            found |= {
                Path(str(package.locate_file(file.parts[0]))) for file in package.files or () if file.parts[0] != ".."
            }
    return {path for path in found if path.name != "__pycache__" and path.exists()}


def test_a_wheel_works_in_an_empty_environment(installed: Path) -> None:
    python = installed / "env" / "bin" / "python"
    (installed / "first.py").write_text(FIRST)
    seen = {"HOME": str(installed / "home"), "PATH": os.environ["PATH"]}
    (installed / "home").mkdir()

    for count in (1, 2):
        done = subprocess.run([python, "first.py"], cwd=installed, env=seen, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"from {installed / 'env'}" in done.stdout and done.stdout.endswith("2\n")
        assert ("resuming from" in done.stdout + done.stderr) == (count == 2)

    said = subprocess.run(
        [python, "-m", "tuner.cli", "show", "first", "--json"], cwd=installed, env=seen, capture_output=True, text=True
    )
    assert said.returncode == 0 and json.loads(said.stdout), said.stderr
    version = subprocess.run(
        [python, "-m", "tuner.cli", "--version"], cwd=installed, env=seen, capture_output=True, text=True
    )
    assert version.stdout == f"{tuner.__version__}\n", version.stderr


def test_what_an_extra_brings_is_missed_by_name(installed: Path) -> None:
    python = installed / "env" / "bin" / "python"
    code = "import importlib.util as u; print([n for n in ('torch', 'ray', 'boto3', 'plotly') if u.find_spec(n)])"
    done = subprocess.run([python, "-c", code], cwd=installed, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
