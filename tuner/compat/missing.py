"""Stand-ins for what Ray has and this project has not: they can be imported, and say what to use instead when used."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from tuner.error import NotHereError, TuneError


class NotHere:
    """A name of Ray's that is not here. Whatever is done with it raises NotHereError; nothing is an instance of it.

    Args:
        module, name: where Ray has it.
        instead: what to use.
    """

    def __init__(self, module: str, name: str, instead: str) -> None:
        self.__dict__.update({"_path": f"{module}.{name}", "_instead": instead})

    def _refuse(self, *arguments: Any, **named: Any) -> NoReturn:
        raise NotHereError(f"{self._path} is not here; instead: {self._instead}")

    __call__ = __mro_entries__ = __getitem__ = __iter__ = __len__ = __enter__ = __contains__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Python itself asks, to find out what this is
            raise AttributeError(name)
        self._refuse()

    def __instancecheck__(self, thing: object) -> bool:
        return False

    def __subclasscheck__(self, kind: type) -> bool:
        return False

    def __or__(self, other: Any) -> Any:
        return Any  # an annotation

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<{self._path}, which is not here; instead: {self._instead}>"

    def __reduce__(self) -> Any:
        module, _, name = self._path.rpartition(".")
        return NotHere, (module, name, self._instead)


def instead_of(missing: NotHere) -> str:
    """What such a stand-in says to use."""
    return str(vars(missing)["_instead"])


@functools.cache
def never_raised(module: str, name: str) -> type[Exception]:
    """An exception of Ray's that programs catch, and nothing here raises."""
    return type(name, (TuneError,), {"__module__": module, "__doc__": "An exception of Ray's; nothing here raises it."})
