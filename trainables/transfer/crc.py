"""CRC-32 of a whole from the CRC-32s of its parts, so that parts can be hashed on their own, in any order.

Source: `crc32_combine` of zlib 1.2.12, which Python does not expose.
"""

from __future__ import annotations

from collections.abc import Iterable

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
"""The polynomial 1: CRC-32 writes them with the highest bit first."""


def combined(parts: Iterable[tuple[int, int]]) -> int:
    """The CRC-32 of parts one after another.

    Args:
        parts: (CRC-32, bytes) of each, in order.

    >>> import zlib
    >>> combined([(zlib.crc32(b"check"), 5), (zlib.crc32(b"point"), 5)]) == zlib.crc32(b"checkpoint")
    True
    """
    whole = 0
    for crc, count in parts:
        whole = _times(_zeros(count), whole) ^ crc
    return whole


def _zeros(count: int) -> int:
    """What so many zero bytes do to a CRC: x to the power of 8 * count."""
    result, power = _ONE, _ONE >> 8
    while count:
        if count & 1:
            result = _times(power, result)
        power = _times(power, power)
        count >>= 1
    return result


def _times(a: int, b: int) -> int:
    """The product of two polynomials modulo that of CRC-32."""
    product, bit = 0, _ONE
    while bit:
        if a & bit:
            product ^= b
        bit >>= 1
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
    return product
