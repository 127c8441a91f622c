"""Answers are made once, whoever asks, and compressed once."""

from __future__ import annotations

import gzip
import threading
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.tuner.ui.served import client, serving
from tuner.ui.view_answers import KEPT, QUICK, ViewAnswers


def test_of_many_who_ask_at_once_one_makes_it() -> None:
    answers, made, begun = ViewAnswers(), [], threading.Barrier(8)

    def make() -> bytes:
        made.append(1)
        return b"{}"

    def ask() -> None:
        begun.wait()
        assert answers.get("one", make).body() == b"{}"

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_what_cannot_be_made_is_made_by_the_next_who_asks() -> None:
    answers = ViewAnswers()
    with pytest.raises(ZeroDivisionError):
        answers.get("one", lambda: bytes(1 // 0))
    assert answers.get("one", lambda: b"[]").body() == b"[]"


def test_the_oldest_go_and_what_is_too_large_does_not_stay() -> None:
    answers = ViewAnswers()
    half = bytes(KEPT // 2)
    for name in "abc":
        answers.get(name, lambda: half)
    assert answers.get("a", lambda: b"again").body() == b"again"
    assert answers.get("c", lambda: b"again").body() == half
    answers.get("large", lambda: bytes(KEPT + 1))
    assert answers.get("large", lambda: b"again").body() == b"again"


def test_what_is_near_is_compressed_where_that_takes_no_time() -> None:
    answers = ViewAnswers()
    small, middle, large = (answers.get(size, partial(bytes, size)) for size in (10, QUICK, QUICK + 1))
    assert [one.worth_packing(far=False) for one in (small, middle, large)] == [False, True, False]
    assert [one.worth_packing(far=True) for one in (small, middle, large)] == [False, True, True]
    assert gzip.decompress(large.packed()) == large.body() and large.worth_packing(far=False), "it is there already"


@pytest.mark.parametrize("view", ["trials", "overview"])
def test_the_page_gets_gzip_and_the_same_data(pages: httpx.Client, view: str) -> None:
    packed = pages.get(f"e/first/{view}.json")
    plain = pages.get(f"e/first/{view}.json", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    assert {**packed.json(), "time": 0, "disk": 0} == {**plain.json(), "time": 0, "disk": 0}
    assert packed.num_bytes_downloaded < len(plain.content)


def test_streams_and_logs_are_sent_as_they_come(experiment: Path) -> None:
    with serving([experiment]) as one, client(one) as pages:
        with pages.stream("GET", "e/first/events") as stream:
            assert "content-encoding" not in stream.headers
        trial = pages.get("e/first/trials.json?columns=id").json()["id"][2]
        assert "content-encoding" not in pages.get(f"e/first/files/{trial}/error.txt").headers


def test_a_large_answer_is_whole_in_its_parts(pages: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for headers in ({}, {"accept-encoding": "identity"}):
        whole = pages.get("e/first/trials.json", headers=headers)
        with monkeypatch.context() as changed:
            changed.setattr("tuner.ui.app._PART", 7)
            parts = pages.get("e/first/trials.json", headers=headers)
        assert parts.content == whole.content and parts.headers["content-length"] == whole.headers["content-length"]
        assert parts.headers.get("content-encoding") == whole.headers.get("content-encoding")
