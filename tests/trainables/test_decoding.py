"""Decoders that many threads want at once, each of a type that nobody has decoded yet."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from trainables.decoding import decode, decoder

THREADS = """
import sys, threading
import msgspec
from trainables.decoding import decode, decoder

sys.setswitchinterval(1e-6)
wrong = []


def race(number):
    inner = msgspec.defstruct(f"Inner{number}", [(f"i{k}", int) for k in range(40)])
    fields = [(f"f{k}", inner) for k in range(5)] + [(f"g{k}", int) for k in range(40)]
    outer = msgspec.defstruct(f"Outer{number}", fields)
    value = outer(*[inner(*range(40))] * 5, *range(40))
    data, begin = msgspec.json.encode(value), threading.Barrier(8)

    def read(how):
        begin.wait()
        if how(data) != value:
            wrong.append(number)

    ways = [lambda data: decode(data, outer), lambda data: decoder(outer)(data)]
    threads = [threading.Thread(target=read, args=[ways[k % 2]]) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


for number in range(60):
    race(number)
print("wrong:", wrong)
"""


def test_many_threads_that_decode_a_type_first_all_get_it() -> None:
    ended = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "wrong: []\n"), ended.stderr


class Point(msgspec.Struct):
    x: int


def test_what_does_not_fit_is_an_error_and_each_kind_is_made_once() -> None:
    assert decode(b'{"x": 1}', Point) == Point(1)
    assert decode("[1, 2]", list[int]) == [1, 2]
    assert decoder(Point) is decoder(Point)
    with pytest.raises(msgspec.ValidationError, match="x"):
        decode(b'{"x": "a"}', Point)
