"""Where a file that somebody asked for is written: a path, or a URI."""

from __future__ import annotations

from pathlib import PurePath

from trainables.places import parent_and_name, split_query
from trainables.store import fs
from trainables.transfer.open import open_backend, shown
from tuner.error import StorageError, refused
from tuner.experiment.paths import as_local_path, is_elsewhere

IMAGES = (".png", ".svg", ".pdf", ".jpeg", ".webp")
PAGES = (".html", ".htm")


def put(target: str, data: bytes) -> str:
    """Write a file to a path or a URI, and return that as it may be shown. Raises StorageError."""
    if not is_elsewhere(target):
        path = as_local_path(target)
        try:
            fs.make_dirs(path.parent)
            fs.replace_file(path, data)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}") from None
        return str(path)
    above, name = parent_and_name(target)
    with open_backend(above) as backend:
        backend.put(name, data)
    return shown(target)


def page_at(target: str) -> str:
    """The path or URI of a page, once its suffix says that it is one. Raises SettingError."""
    suffix = PurePath(split_query(target)[0]).suffix.lower()
    if suffix not in PAGES:
        one = f"; one plot as {suffix}: analysis.plot(kind, path=...)" if suffix in IMAGES else ""
        raise refused("path", target, f"a report is a page, and its file ends in {' or '.join(PAGES)}{one}")
    return target
