"""Libraries that only `make test-peers` installs: imported when a test uses them, so that others can be collected."""

from __future__ import annotations

import importlib
from typing import Any


class PeerLibrary:
    """Stands for a module until an attribute of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)
