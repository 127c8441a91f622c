"""The build: a wheel carries the page of `tuner ui`, which node makes of web/; setup.cfg has all else."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
STATIC = ROOT / "tuner" / "ui" / "static"


class BuildWithPage(build_py):
    """Makes what is not there yet, before files are collected. An editable install is a clone: `make web` does it."""

    def run(self) -> None:
        if not self.editable_mode and not STATIC.exists():
            make()
        super().run()


def make() -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        warnings.warn("without node and npm the wheel has no page for `tuner ui`", stacklevel=2)
        return
    subprocess.run([npm, "ci", "--silent", "--no-audit", "--no-fund", "--prefix", "web"], cwd=ROOT, check=True)
    subprocess.run([node, "web/build.mjs"], cwd=ROOT, check=True)


setup(cmdclass={"build_py": BuildWithPage})
