"""Conformance checks of back ends for content that is copied at the place itself."""

from __future__ import annotations

import os

from trainables.errors import ObjectExistsError, ObjectNotFoundError, TransferError
from trainables.testing.files import ByteCounter, content_of, directory_of, raised
from trainables.transfer.backend import Backend


def known_content_is_not_sent_again(backend: Backend) -> None:
    """`same=` copies at the place; what it names and is gone, is sent."""
    content = {"weights": os.urandom(3_000_000), "empty": b"", "new": b"new"}
    with directory_of(content) as source, directory_of() as target:
        backend.push(source, "first", list(content))
        moved = ByteCounter()
        same = {"weights": "first/weights", "empty": "first/empty"}
        backend.push(source, "second", list(content), same=same, progress=moved)
        backend.fetch("second", target / "second")
        assert content_of(target / "second") == content, "a file of `same` is there like the others"
        if backend.can.reuse:
            assert moved.bytes < 1_000_000, f"{moved.bytes} bytes moved for content that was there"
        backend.push(source, "third", list(content), same={"weights": "gone/weights"})
        backend.fetch("third", target / "third")
        assert content_of(target / "third") == content, "what is not there any more is sent"
        if backend.can.delete:
            backend.delete_tree("first")
            backend.fetch("second", target / "alone")
            assert content_of(target / "alone") == content, "a copy outlives what it was copied from"


def a_copy_is_no_alias(backend: Backend) -> None:
    """Replacing one of two that share content leaves the other."""
    with directory_of({"a": b"old" * 200_000}) as source:
        backend.push(source, "first", ["a"])
        backend.push(source, "second", ["a"], same={"a": "first/a"})
    backend.put("second/a", b"new")
    assert backend.read("first/a") == b"old" * 200_000, "the first is what it was"
    assert backend.read("second/a") == b"new"


def a_copy_over_there_is_like_a_push(backend: Backend) -> None:
    """`copy` needs no file here, takes the named files and no other, and outlives what it was made of."""
    content = {"a": os.urandom(9_000_000), "b/c": b"c", "line\nbreak": b"", "other": b"other"}
    named = ["a", "b/c", "line\nbreak"]
    with directory_of(content) as source, directory_of() as target:
        backend.push(source, "first", list(content))
        moved, receipts = ByteCounter(), dict[str, str]()
        backend.copy("first", "se cond/deep", named, receipts=receipts, progress=moved)
        assert set(receipts) == set(named), "every file that was copied has a receipt"
        if backend.can.copy:
            assert moved.bytes == 0, f"{moved.bytes} bytes moved through this machine"
        backend.put("third/b/c", b"older, and longer")
        backend.copy("first", "third", ["b/c"])
        assert backend.read("third/b/c") == b"c", "what is there is replaced"
        missing = lambda: backend.copy("first", "fourth", ["gone"])  # noqa: E731
        raised(ObjectNotFoundError, missing, "copy of what is not there")
        backend.put("first/b/c", b"replaced")
        if backend.can.delete:
            backend.delete_tree("first")
        backend.fetch("se cond/deep", target)
        assert content_of(target) == {name: content[name] for name in named}, "a copy outlives what it was made of"


def a_tree_is_renamed_at_once(backend: Backend) -> None:
    """`rename_tree`, where a back end says that it can: all of it, onto nothing, and twice is once."""
    content = {"a": b"a", "b/c": b"c", "line\nbreak": b""}
    with directory_of(content) as source, directory_of() as target:
        backend.push(source, "first", list(content))
        if not backend.can.rename:
            raised(TransferError, lambda: backend.rename_tree("first", "second"), "a rename that it cannot do")
            return
        backend.put("taken/x", b"x")
        raised(ObjectExistsError, lambda: backend.rename_tree("first", "taken"), "a rename onto something")
        for _ in range(2):
            backend.rename_tree("first", "se cond")
        raised(ObjectNotFoundError, lambda: backend.rename_tree("first", "third"), "a rename of nothing")
        backend.fetch("se cond", target)
        assert content_of(target) == content
        assert not list(backend.list("first")), "nothing has the old name"
