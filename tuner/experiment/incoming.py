"""A directory beside an experiment, in which it lies until it is whole and gets its place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables.store import fs, owned_directory


@contextmanager
def beside(root: Path, kind: str) -> Iterator[Path]:
    """An empty directory for this process alone, `.<name>.<kind>-<random>` beside `root`.

    It goes at the end unless it was renamed, and with it the directories above that were made for it and are empty.
    What killed processes left is removed first: a lock says that one lives. Where the filesystem has no locks such a
    directory stays.
    """
    made = [path for path in root.parents if not fs.exists(path)]
    owned = owned_directory.make(f".{root.name}.{kind}-", root.parent, mode=0o777)
    try:
        yield owned.path
    finally:
        owned.remove()
        with contextlib.suppress(OSError):  # something was laid there
            for path in made:
                fs.rmdir(path)
