"""The user's own modules, for hosts that do not have them.

What lies beside the script, and in the working directory where modules are imported from there, goes along as Python
source. Installed packages do not: every node has its own environment, or gets one by Ray's `runtime_env`.
"""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tuner.error import SettingError

_LARGEST = 1024 * 1024
_IN_ALL = 64 * 1024 * 1024
_SKIPPED = {"__pycache__", "node_modules", "site-packages", "build", "dist"}


def collect() -> bytes:
    """A zip of the user's Python files; empty where there are none. Raises SettingError for more than 64 MiB."""
    buffer = io.BytesIO()
    size = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        seen: set[str] = set()
        for root in _roots():
            for path in _files(root):
                name = path.relative_to(root).as_posix()
                if name in seen:
                    continue  # the first place on the path wins, as it does for imports
                seen.add(name)
                data = path.read_bytes()
                size += len(data)
                if size > _IN_ALL:
                    raise SettingError(
                        f"the Python files below {root} are more than {_IN_ALL >> 20} MiB: start the script from a "
                        "directory of its own, or install what it imports on every node"
                    )
                archive.writestr(name, data)
    return buffer.getvalue() if seen else b""


def unpack(data: bytes, directory: Path) -> None:
    """Lay the files out below a directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(directory)  # refuses names that lead out


def _roots() -> list[Path]:
    """The script's directory and the working directory, where modules are imported from there."""
    here = Path(__file__).resolve().parents[3]
    roots = []
    for entry in (sys.path[:1] or [""]) + [entry for entry in sys.path if entry in ("", os.getcwd())]:
        root = Path(entry or os.getcwd()).resolve()
        if root.is_dir() and root != here and root not in roots and not _installed(root):
            roots.append(root)
    return roots


def _installed(root: Path) -> bool:
    return "site-packages" in root.parts or root.is_relative_to(sys.base_prefix) or (root / "pyvenv.cfg").exists()


def _skipped(directory: Path) -> bool:
    name = directory.name
    return name.startswith(".") or name in _SKIPPED or (directory / "pyvenv.cfg").exists()


def _files(root: Path) -> Iterator[Path]:
    for directory, inner, names in os.walk(root):
        inner[:] = [name for name in inner if not _skipped(Path(directory) / name)]
        for name in sorted(names):
            path = Path(directory) / name
            if name.endswith(".py") and path.is_file() and path.stat().st_size <= _LARGEST:
                yield path
