"""What an output's encoding lacks: users' text is escaped, the glyphs of the live view are drawn in ASCII."""

from __future__ import annotations

from typing import Any, TextIO

_STAND_INS = str.maketrans({"█": "#", "░": "-", "…": "~"})
"""Of one column each: what was fitted to a width still fits."""


def encoding_of(stream: TextIO | None) -> str:
    """The name of a stream's encoding; of one that has none, as in memory, one that has everything."""
    return getattr(stream, "encoding", None) or "utf-8"


def escaped(text: str, encoding: str) -> str:
    r"""`text` with an escape for each character that the encoding lacks.

    >>> escaped("né", "ascii"), escaped("né", "latin-1")
    ('n\\xe9', 'né')
    """
    return text.encode(encoding, "backslashreplace").decode(encoding)


def drawable(text: str, encoding: str) -> str:
    r"""The same of what was drawn: glyphs that the encoding lacks have stand-ins of the same width.

    >>> drawable("██░ né…", "latin-1"), drawable("██░ né…", "ascii"), drawable("██░ né…", "utf-8")
    ('##- né~', '##- n\\xe9~', '██░ né…')
    """
    whole = escaped(text, encoding)
    return whole if whole == text else escaped(text.translate(_STAND_INS), encoding)


class EncodableStream:
    """A text stream that raises for no character: it gets those that its encoding has, all else is the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(drawable(text, encoding_of(self._stream)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
