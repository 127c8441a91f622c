"""Escaping of untrusted text for terminals: no control characters, no bidirectional marks.

Names, configs, metrics, messages and paths come from users, from other hosts, and from experiments that somebody gave
away. A control character in them is shown as its escape.
"""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"
"""Without a look of their own, and a part of words in some languages."""


def printable(text: str, keep: str = "\n\t") -> str:
    r"""`text` with control characters, marks that change the direction of writing and half characters escaped.

    >>> printable("\x1b[31mred\x07\n"), printable("a\nb", keep="")
    ('\\x1b[31mred\\x07\n', 'a\\nb')
    """
    if text.isprintable():
        return text
    return "".join(character if _harmless(character, keep) else _escaped(character) for character in text)


def one_line(text: str) -> str:
    """The same, without line ends and tabs: a name does not look like the next line."""
    return printable(text, keep="")


def _harmless(character: str, keep: str) -> bool:
    return (
        character.isprintable()
        or character in keep
        or character in _JOINERS
        or unicodedata.category(character) == "Zs"  # spaces of other widths
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
