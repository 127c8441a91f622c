"""What Azure and Google have in common: one client of the service's own library, under a prefix of a bucket."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any

from trainables.transfer.objects import ObjectBackend, escaped


class CloudBackend(ObjectBackend):
    """Objects under a prefix, through one client that is made when it is first needed.

    Args:
        uri: `scheme://bucket` or `scheme://bucket/path`.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri.rstrip("/"))
        self._place, _, self._root = self.uri.partition("://")[2].partition("/")
        self._lock = threading.Lock()
        self._client: Any = None

    def renew(self) -> None:
        with self._lock:
            old, self._client = self._client, None
        if old is not None:
            old.close()  # idle connections; a request that is under way ends on its own

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()

    @abstractmethod
    def _connect(self) -> Any:
        """A new client, which has a `close()`."""

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _name(self, key: str) -> str:
        """The object's name."""
        return "/".join(part for part in (self._root, escaped(key)) if part)
