"""Ray's name for where `ResultGrid` is."""

from __future__ import annotations

from tuner.analysis import ResultGrid

__all__ = ["ResultGrid"]
