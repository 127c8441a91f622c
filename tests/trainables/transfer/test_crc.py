from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from trainables.transfer.crc import combined


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_parts_add_up_to_the_whole(parts: list[bytes]) -> None:
    assert combined((zlib.crc32(part), len(part)) for part in parts) == zlib.crc32(b"".join(parts))


def test_long_parts() -> None:
    part = bytes(range(256)) * 4099
    assert combined([(zlib.crc32(part), len(part))] * 9) == zlib.crc32(part * 9)
