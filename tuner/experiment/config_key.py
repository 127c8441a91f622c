"""When two configs are the same, by value: what `reuse=` goes by. Nothing is unpickled.

The order of keys does not count, nor does whether a number came from numpy. All else does: floats to the last bit, 1
and 1.0 and True are three values, and so are a list and a tuple. What was pickled is the same where its bytes are.
"""

from __future__ import annotations

from typing import Any

import orjson

from trainables import tagged
from trainables.tagged_kinds import BLOBS, tag


def config_key(raw: bytes) -> bytes:
    """The same bytes for all configs that are the same.

    Args:
        raw: a resolved config as facts have it, tagged JSON.
    """
    return orjson.dumps(_plain(orjson.loads(raw)))


def _plain(value: Any) -> list[Any]:
    """A value with its type beside it, in one of the many forms that mean it."""
    kind = type(value)
    if kind is dict:
        return _of_tag(value["$"], value.get("v")) if "$" in value else _mapping(value.items())
    if kind is list:
        return ["list", *map(_plain, value)]
    return ["number", repr(value)] if kind in (int, float) else [kind.__name__, value]


def _of_tag(kind: str, inner: Any) -> list[Any]:
    if kind in ("dict", "odict"):
        return _mapping(inner)
    if kind in ("set", "frozenset"):
        return ["set", *sorted(map(_plain, inner), key=orjson.dumps)]
    if kind == "tuple":
        return ["tuple", *map(_plain, inner)]
    if kind in ("int", "float"):
        return ["number", inner]  # one that JSON has not
    if kind in BLOBS:
        return [kind, inner[0]]  # how it is called beside its hash says nothing
    if kind == "np":
        scalar = tagged.untag({"$": kind, "v": inner}).item()
        if not hasattr(scalar, "dtype"):  # there is no Python number for a long double
            return _plain(tag(scalar, None, ()))
    return [kind, inner]


def _mapping(items: Any) -> list[Any]:
    return ["dict", *sorted(([_plain(key), _plain(item)] for key, item in items), key=lambda pair: orjson.dumps(pair))]
