"""What a wheel holds and what the project's files say agree with each other."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import tuner

ROOT = Path(__file__).resolve().parent.parent


def setup_cfg() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.read(ROOT / "setup.cfg")
    return found


def requirements(text: str) -> set[str]:
    """The distribution names of a list in setup.cfg."""
    return {re.split(r"[\[<>=! ;]", line.strip())[0].lower() for line in text.splitlines() if line.strip()}


def test_the_version_is_said_in_one_place_and_the_changelog_begins_with_it() -> None:
    assert setup_cfg()["metadata"]["version"] == "attr: tuner.__version__" and version("tuner") == tuner.__version__
    newest = re.search(
        r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert newest is not None and newest[1] == tuner.__version__


def test_every_package_directory_has_an_init() -> None:
    missing = [
        str(directory.relative_to(ROOT))
        for package in ("tuner", "trainables")
        for directory in (ROOT / package).rglob("*")
        if directory.is_dir() and any(directory.glob("*.py")) and not (directory / "__init__.py").exists()
    ]

    assert not missing


def test_what_is_imported_is_asked_for() -> None:
    """Third-party modules that are imported anywhere are required, or belong to an extra."""
    config = setup_cfg()
    asked = requirements(config["options"]["install_requires"])
    for extra, text in config["options.extras_require"].items():
        asked |= requirements(text) if extra != "all" else set()
    distributions = {
        "ax": "ax-platform",
        "sklearn": "scikit-learn",
        "yaml": "pyyaml",
        "PIL": "pillow",
        "hydra": "hydra-core",
        "omegaconf": "hydra-core",  # which is made of it
        "ConfigSpace": "smac",  # which is made of it
        "bayes_opt": "bayesian-optimization",
        "botocore": "boto3",
        "azure": "azure-storage-blob",
        "google": "google-cloud-storage",
        "requests": "google-cloud-storage",  # Google's library works through it
    }
    imported: dict[str, str] = {}
    for package in ("tuner", "trainables", "hydra_plugins"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                named = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                for name in named:
                    imported.setdefault(name.partition(".")[0], str(file.relative_to(ROOT)))
    own = {"tuner", "trainables", "hydra_plugins", "__future__"} | set(sys.stdlib_module_names)
    third = {distributions.get(name, name).lower(): where for name, where in imported.items() if name not in own}

    assert not {name: where for name, where in third.items() if name not in asked}


def test_constraints_pin_exactly_and_name_no_address() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]

    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)
    assert "torch==2.13.0" in lines
    development = requirements(setup_cfg()["options.extras_require"]["dev"])
    assert development <= {line.split("==")[0].lower() for line in lines}


def test_the_environment_is_not_committed() -> None:
    assert {".venv/", ".venv-bench/"} <= set((ROOT / ".gitignore").read_text().splitlines())


@pytest.mark.parametrize("target", ["setup", "run", "test", "soak", "bench", "lint", "docs", "clean"])
def test_the_makefile_has_the_chore(target: str) -> None:
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_the_command_is_there() -> None:
    done = subprocess.run([sys.executable, "-m", "tuner.cli", "--version"], capture_output=True, text=True, cwd=ROOT)

    assert done.stdout.strip() == tuner.__version__, done.stderr


def test_a_wheel_carries_the_page_its_licences_and_the_plug_in_for_hydra(tmp_path: Path) -> None:
    static = ROOT / "tuner" / "ui" / "static"
    if not static.is_dir():
        pytest.skip("the page is not there: make web")

    command = [
        sys.executable,
        "setup.py",
        "-q",
        "egg_info",
        "-e",
        tmp_path,
        "build_py",
        "--build-lib",
        tmp_path / "built",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    built = tmp_path / "built" / "tuner" / "ui"
    made = {path.relative_to(built) for path in built.rglob("*") if path.is_file() and path.suffix != ".py"}
    assert made == {path.relative_to(static.parent) for path in static.rglob("*") if path.is_file()} | {
        Path("report.html")
    }
    assert Path("static/vendor/LICENSE-preact") in made and Path("static/views/trial.js") in made
    plugin = tmp_path / "built" / "hydra_plugins"
    sources = {path.name for path in (ROOT / "hydra_plugins" / "tuner_sweeper").glob("*.py")}
    assert {path.name for path in (plugin / "tuner_sweeper").iterdir()} == sources
    assert [path.name for path in plugin.iterdir()] == ["tuner_sweeper"]  # a namespace: others have plug-ins in it


def test_links_and_examples_in_the_documents_hold() -> None:
    done = subprocess.run([sys.executable, "docs/check.py"], capture_output=True, text=True, cwd=ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
