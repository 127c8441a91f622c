"""The page of an experiment, as a file and in a notebook: the one place where analyses reach up to `tuner.ui`.

Nothing that `tuner.ui` imports comes back here: it is made of modules of this package that know of no analysis.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.analysis.file_target import put

HEIGHT = 720
"""Pixels of a frame."""


def write_page(place: str, metrics: Sequence[str], modes: Sequence[str | None], target: str) -> str:
    """Write the page to a path or a URI, and return that."""
    from tuner.ui import one_file

    return put(target, one_file.page(place, metrics, modes))


class ExperimentFrame:
    """The page of an experiment as a notebook shows it."""

    def __init__(self, place: str, metrics: Sequence[str], modes: Sequence[str | None], height: int) -> None:
        from tuner.ui import one_file

        self._place = place
        self._html = one_file.frame(place, metrics, modes, height=height)

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return f"<the page of {self._place}, for a notebook; elsewhere: tuner ui, or tuner report>"
