"""Runs a script that was written for Ray Tune, unchanged: `python -m tuner.compat SCRIPT`, or `tuner.compat.install()`.

Of `ray` itself `init`, `shutdown` and `is_initialized` are accepted; anything else is an error that names it.
"""

from __future__ import annotations

__all__ = ["install"]


def install() -> None:
    """Map Ray's names from now on, in this process and in the trials that it starts. Doing it twice is no error.

    Raises SettingError if a Ray is imported already: it is not shadowed.
    """
    from tuner.compat import stand_in

    stand_in.install()
