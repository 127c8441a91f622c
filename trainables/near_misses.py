"""Names that are meant as another one: a slip of the fingers, another way to write it, an abbreviation.

Much stricter than a name that reads alike: of a run that reports `train_loss` with every epoch and `val_loss` with
every third one, neither is meant as the other, nor `mae` as `mape`, `micro_f1` as `macro_f1`, `top1` as `top5`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def near_misses(name: str, names: Iterable[str]) -> list[str]:
    """Those of `names` as which `name` is meant: the same words, at most one of them misspelt or abbreviated.

    >>> near_misses("acuracy", ["loss", "accuracy"]), near_misses("valLoss", ["val_loss"])
    (['accuracy'], ['val_loss'])
    >>> near_misses("val_loss", ["train_loss", "loss"]), near_misses("mae", ["mape", "mse"])
    ([], [])
    """
    wanted = _words(name)
    return [other for other in names if other != name and _is_near(wanted, _words(other))]


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _is_near(ours: list[str], theirs: list[str]) -> bool:
    if "".join(ours) == "".join(theirs):
        return bool(ours)
    if len(ours) != len(theirs):
        return False
    differing = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    return len(differing) == 1 and (_is_slip(*differing[0]) or _is_short_for(*differing[0]))


def _is_short_for(one: str, other: str) -> bool:
    """Whether one is the beginning of the other: `acc`, `val`; but not `map` of `mape`, nor `bleu` of `bleurt`."""
    short, long = sorted((one, other), key=len)
    return len(short) >= 3 and len(long) - len(short) >= 3 and long.startswith(short)


def _is_slip(one: str, other: str) -> bool:
    """Whether they differ by one slip, in words that are long enough for it to be one; a number is never one."""
    if (one + other).isalpha() is False:
        return False
    short, long = sorted((one, other), key=len)
    if _undoubled(one) == _undoubled(other):
        return len(short) >= 2
    if len(short) == len(long):
        wrong = [place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
        swapped = len(wrong) == 2 and wrong[1] == wrong[0] + 1
        if swapped and one[wrong[0]] == other[wrong[1]] and one[wrong[1]] == other[wrong[0]]:
            return len(one) >= 4
        return len(wrong) == 1 and len(one) >= 6
    if len(long) != len(short) + 1 or len(short) < 4:
        return False
    inside = any(long[:place] + long[place + 1 :] == short for place in range(1, len(long) - 1))
    return inside or (len(short) >= 6 and long.startswith(short))


def _undoubled(word: str) -> str:
    return "".join(letter for letter, _ in itertools.groupby(word))
