"""Answers that are made once for all who ask for the same, and compressed once for those who are far away."""

from __future__ import annotations

import gzip
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

KEPT = 16_000_000
"""Bytes of all answers in memory; what is larger alone is made again, which takes as long as sending it."""
SMALL = 1_000
"""Bytes that fit into one packet as they are."""
QUICK = 1_000_000
"""Bytes that are compressed sooner than anybody notices, also where nothing has to be carried far."""
_LEVEL = 1
"""22 MB of a table become 5.1 MB in 0.27 s of a core; by the default 4.5 MB in 1.1 s."""


@dataclass(eq=False)
class ViewAnswer:
    """The JSON of a view."""

    _body: bytes
    _packed: bytes | None = None
    _packing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return len(self._body) + len(self._packed or b"")

    def body(self) -> bytes:
        """As it is."""
        return self._body

    def packed(self) -> bytes:
        """As gzip, compressed when it is first asked for."""
        with self._packing:
            if self._packed is None:
                self._packed = gzip.compress(self._body, _LEVEL, mtime=0)
            return self._packed

    def worth_packing(self, *, far: bool) -> bool:
        """Whether it is there sooner as gzip.

        Args:
            far: it goes to another machine.
        """
        return len(self._body) > SMALL and (far or self._packed is not None or len(self._body) <= QUICK)


class ViewAnswers:
    """Answers by what they depend on, as they were asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, ViewAnswer] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], bytes]) -> ViewAnswer:
        """The answer of that key; of several who ask at once one makes it. Raises what `make` raises."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                with self._lock:
                    if key in self._kept:
                        self._kept.move_to_end(key)
                        return self._kept[key]
                answer = ViewAnswer(make())
                with self._lock:
                    self._kept[key] = answer
                    self._let_go()
                return answer
        finally:
            with self._lock:
                self._making.pop(key, None)

    def _let_go(self) -> None:
        held = sum(answer.size for answer in self._kept.values())
        while held > KEPT and self._kept:
            held -= self._kept.popitem(last=False)[1].size
