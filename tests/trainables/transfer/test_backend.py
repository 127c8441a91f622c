"""What every place has of the base: names that stay inside, and what follows from `push`, `fetch` and `list` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.errors import ObjectNotFoundError, TransferError
from trainables.transfer.backend import (
    Backend,
    Can,
    Entry,
    Leftover,
    Progress,
    PushRequest,
    check_name,
    checked_key,
    joined,
    unwatched,
)


class Plain(Backend):
    """Has what is abstract and no more: a dict of contents."""

    can = Can(copy=False, reuse=False, exclusive=False)

    def __init__(self) -> None:
        super().__init__("plain://place")
        self.held: dict[str, bytes] = {}
        self.requests: list[PushRequest] = []

    def check(self, timeout_s: float = 10.0) -> None: ...

    def _push(self, request: PushRequest) -> None:
        self.requests.append(request)
        for name, key in request.keys().items():
            self.held[key] = (request.source / name).read_bytes()
            request.receipts[name] = "x"
            request.progress(len(self.held[key]))

    def fetch(
        self, prefix: str, target: Path, names: Sequence[str] | None = None, *, progress: Progress = unwatched
    ) -> None:
        for name in names or ():
            if (key := joined(prefix, name)) not in self.held:
                raise ObjectNotFoundError(key)
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(self.held[key])


class Listing(Plain):
    def list(self, prefix: str = "") -> Iterator[Entry]:
        below = f"{prefix}/" if prefix else ""
        return (Entry(key, len(held)) for key, held in list(self.held.items()) if key.startswith(below))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.held.pop(key, None)


@given(st.lists(st.sampled_from(["", ".", "..", "a", "a b", "..a", "\n", "nul\0"]), min_size=1, max_size=4))
def test_a_key_is_accepted_exactly_where_it_stays_below_the_place(parts: list[str]) -> None:
    key = "/".join(parts)
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        with pytest.raises(TransferError, match="is refused: names are relative"):
            checked_key(key)
    else:
        assert checked_key(key) == key
        assert ".." not in PurePosixPath(key).parts
        assert joined("p", key) == f"p/{key}" and joined("", key) == key


@pytest.mark.parametrize(("prefix", "name"), [("../x", "a"), ("/x", "a"), ("x/", "a"), ("x", "../a"), ("", "")])
def test_neither_a_prefix_nor_a_name_leads_out(prefix: str, name: str) -> None:
    with pytest.raises(TransferError, match="is refused"):
        joined(prefix, name)
    with pytest.raises(TransferError, match="is refused"):
        PushRequest(Path("/"), prefix, [name]).keys()


def test_what_is_pushed_is_told_with_receipts_and_progress(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    place, receipts, told = Plain(), {}, []

    place.push(tmp_path, "p", ["a"], same={"a": "q/a"}, exclusive=True, receipts=receipts, progress=told.append)
    place.push(tmp_path, "p", ["a"])

    first, second = place.requests
    assert (first.source, first.prefix, first.same, first.exclusive) == (tmp_path, "p", {"a": "q/a"}, True)
    assert (second.same, second.exclusive) == ({}, False)
    assert (receipts, told) == ({"a": "x"}, [3])


def test_small_files_are_written_and_read_by_their_keys() -> None:
    place = Plain()
    place.put("top", b"t")
    place.put("p/deep/x", b"\0\xff")

    assert place.held == {"top": b"t", "p/deep/x": b"\0\xff"}
    assert (place.read("top"), place.read("p/deep/x")) == (b"t", b"\0\xff")
    assert (place.exists("top"), place.exists("p/deep"), place.exists("none")) == (True, False, False)
    for call in (lambda: place.put("../x", b""), lambda: place.read("/etc/passwd"), lambda: place.exists("a//b")):
        with pytest.raises(TransferError, match="is refused"):
            call()


def test_a_place_that_cannot_copy_gets_the_files_through_this_machine() -> None:
    place = Plain()
    for name in ("a", "d/b"):
        place.put(f"old/{name}", name.encode())
    receipts: dict[str, str] = {}

    place.copy("old", "new", ["a", "d/b"], receipts=receipts)

    assert {key: held for key, held in place.held.items() if key.startswith("new/")} == {
        "new/a": b"a",
        "new/d/b": b"d/b",
    }
    assert receipts == {"a": "x", "d/b": "x"}
    with pytest.raises(ObjectNotFoundError):
        place.copy("old", "new", ["none"])


def test_what_cannot_be_listed_or_deleted_says_so_and_has_no_leftovers() -> None:
    place = Plain()

    for call in (place.list, place.children, lambda: place.delete(["a"]), lambda: place.delete_tree("a")):
        with pytest.raises(TransferError, match="plain://place: "):
            list(call() or ())
    assert place.leftovers("p") == []


def test_children_are_the_names_directly_below_each_once() -> None:
    place = Listing()
    for key in ("a/x/1", "a/x/2", "a/y", "ab/z", "b"):
        place.put(key, b"")

    assert place.children() == ["a/", "ab/", "b"]
    assert place.children("a") == ["x/", "y"]
    assert place.children("none") == []


def test_a_tree_goes_without_its_neighbours_and_the_whole_place_never() -> None:
    place = Listing()
    for key in ("a/x/1", "a/y", "ab/z"):
        place.put(key, b"")

    place.delete_tree("a")
    place.delete_tree("a")
    assert list(place.held) == ["ab/z"]
    with pytest.raises(ValueError, match="whole place"):
        place.delete_tree("")
    place.remove_leftovers([Leftover("ab/z", "ab/final")])
    assert not place.held


def test_addresses_are_written_out() -> None:
    assert (Plain().url("a/b"), Plain().url("")) == ("plain://place/a/b", "plain://place")


def test_the_file_of_a_check_has_one_name_for_a_user_of_a_host() -> None:
    assert check_name() == check_name() == checked_key(check_name())
    assert check_name().startswith(".check-")
