"""Base of the cloud object stores: one client of the vendor's library, under a prefix of a bucket."""

from __future__ import annotations

import importlib
import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from trainables.places import split_query, trim_slash
from trainables.transfer.backend import Entry, checked_key
from trainables.transfer.objects import ObjectBackend, escaped, unescaped

BUSY = {429, 502, 503, 504}
"""Statuses of HTTP with which an overloaded server sends everybody away for a while."""
TRANSIENT = {408, 500, *BUSY}


class CloudBackend(ObjectBackend):
    """Objects under a prefix of a bucket, through one client that is made when it is first needed.

    Args:
        uri: `scheme://bucket` or `scheme://bucket/path`.
        patient: repeat a request that failed in passing.

    Raises:
        MissingExtraError: the vendor's library is not installed.
    """

    needs: ClassVar[tuple[str, str, str]]
    """The vendor's library as a module, the package that has it, and the extra that brings that."""

    def __init__(self, uri: str, *, patient: bool = True) -> None:
        super().__init__(trim_slash(uri))
        self._place, _, root = split_query(self.uri)[0].partition("://")[2].partition("/")
        self._above = f"{root}/" if root else ""
        self._patient = patient
        module, package, extra = self.needs
        try:
            self._library: Any = importlib.import_module(module)
        except ImportError as error:
            raise MissingExtraError(f"{uri} needs {package}: {how_to_install(extra)}") from error
        self._lock = threading.Lock()
        self._made: Any = None

    # --- what a vendor's library must be able to do --------------------------------------------------------

    @abstractmethod
    def _connect(self) -> Any:
        """A new client, which has a `close()`."""

    @abstractmethod
    def _objects(self, above: str) -> Iterable[tuple[str, int]]:
        """Name and size of every object whose name starts with `above`."""

    @abstractmethod
    def _level(self, above: str) -> Iterable[str]:
        """The names that start with `above`, each only up to the next slash."""

    # --- what follows from it ------------------------------------------------------------------------------

    def children(self, prefix: str = "") -> list[str]:
        above = self._name(f"{checked_key(prefix)}/" if prefix else "")
        with self._saying(prefix):
            found = {name[len(above) :] for name in self._level(above)}
        return sorted(unescaped(name) for name in found - {"", "/"})

    def renew(self) -> None:
        with self._lock:
            old, self._made = self._made, None
        if old is not None:
            old.close()  # idle connections; a request that is under way ends on its own

    def close(self) -> None:
        with self._lock:
            if self._made is not None:
                self._made.close()

    def _prober(self) -> Self:
        return type(self)(self.uri, patient=False)

    def _walk(self, prefix: str) -> Iterator[Entry]:
        for name, size in self._objects(self._name(prefix)):
            if not name.endswith("/"):  # what consoles make to show an empty directory
                yield Entry(unescaped(name[len(self._above) :]), int(size))

    @property
    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._connect()
            return self._made

    def _name(self, key: str) -> str:
        """The object's name."""
        return self._above + escaped(key)
