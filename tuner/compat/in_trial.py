"""Imported first in the trials of a driver that has installed the hook: they have it too."""

from __future__ import annotations

from tuner.compat import install

install()
