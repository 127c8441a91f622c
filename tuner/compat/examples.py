"""Ray's own example modules (`ray.tune.examples.mnist_pytorch`), which programs import: an installed Ray has them.

They run on the stand-in like the program itself. A folder on the path that has only `ray/tune/examples` does as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder

PACKAGES = ("ray.tune.examples", "ray.train.examples", "ray.air.examples")


def is_one(fullname: str) -> bool:
    """Whether a module is one of Ray's examples, or their package."""
    return any(fullname == package or fullname.startswith(f"{package}.") for package in PACKAGES)


def find(fullname: str, path: Sequence[str] | None) -> ModuleSpec:
    """Where it lies. Raises ModuleNotFoundError."""
    if fullname in PACKAGES:
        path = [os.path.join(entry or os.curdir, *fullname.split(".")[:-1]) for entry in sys.path]
    spec = PathFinder.find_spec(fullname, path)
    if spec is None:
        raise ModuleNotFoundError(
            f"{fullname} is one of the examples that Ray ships, and no Ray that has it is installed: install that "
            "version of Ray beside this package, or put a copy of the file beside the script",
            name=fullname,
        )
    return spec
