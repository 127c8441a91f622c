"""Conformance suite for storage back ends: what each must do, by what it says that it can.

In tests of your own, all at once or one by one:

    check_backend(lambda: MyBackend(an_empty_place()))

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_it_conforms(check):
        backend = MyBackend(an_empty_place())
        check(backend)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from trainables.errors import ObjectExistsError, ObjectNotFoundError, TransferError
from trainables.places import child_of
from trainables.testing.backend_copies import (
    a_copy_is_no_alias,
    a_copy_over_there_is_like_a_push,
    a_tree_is_renamed_at_once,
    known_content_is_not_sent_again,
)
from trainables.testing.files import ODD_NAMES, OUTSIDE, ByteCounter, check_content, content_of, directory_of, raised
from trainables.transfer.backend import Backend

Check = Callable[[Backend], None]


def check_backend(make: Callable[[], Backend]) -> None:
    """Run every check.

    Args:
        make: returns a back end whose place is empty, a fresh place each time.

    Raises:
        AssertionError: an obligation of `Backend` is not met; the message says which.
    """
    for check in CHECKS:
        backend = make()
        try:
            check(backend)
        finally:
            backend.close()


def what_was_pushed_can_be_fetched(backend: Backend) -> None:
    """A tree arrives as it was, whole or by name, into a directory that need not be there."""
    content = {"empty": b"", "a/b/deep": b"x", "large": os.urandom(6_000_001), "a/middle": os.urandom(70_000)}
    moved = ByteCounter()
    with directory_of(content) as source:
        backend.push(source, "run/checkpoint", list(content), progress=moved)
        assert content_of(source) == content, "push leaves the source as it is"
    assert moved.bytes > 0, "push tells progress of the bytes that move"
    moved = ByteCounter()
    with directory_of() as target:
        backend.fetch("run/checkpoint", target / "not" / "there", progress=moved)
        assert content_of(target / "not" / "there") == content, "fetch without names gives back all that was pushed"
    assert moved.bytes > 0, "fetch tells progress of the bytes that move"
    with directory_of() as target:
        backend.fetch("run/checkpoint", target, ["a/b/deep"])
        found = content_of(target)
        assert found["a/b/deep"] == b"x", "fetch with names gives what it is asked for"


def only_the_named_files_are_pushed(backend: Backend) -> None:
    """A manifest stays behind until it is its turn."""
    with directory_of({"named": b"1", "other": b"2", "d/other": b"3"}) as source, directory_of() as target:
        backend.push(source, "p", ["named"])
        backend.fetch("p", target)
        assert content_of(target) == {"named": b"1"}, "push copies the files of `names` and no other"
        backend.push(source, "p", ["other"])
        backend.fetch("p", target / "again")
        assert content_of(target / "again") == {"named": b"1", "other": b"2"}, "a second push adds to the first"


def what_is_there_is_replaced(backend: Backend) -> None:
    """A file pushed again is the new one, also when it is shorter, or of the same size."""
    for data in (b"long" * 1000, b"short", b"SHORT"):
        backend.put("replaced", data)
        assert backend.read("replaced") == data, "what is pushed last is there"


def nothing_there_is_said_so(backend: Backend) -> None:
    """Absence is ObjectNotFoundError, and no error for who wants it absent."""
    with directory_of() as target:
        for call in (lambda: backend.fetch("nowhere", target), lambda: backend.fetch("nowhere", target, ["a"])):
            raised(ObjectNotFoundError, call, "fetch of nothing")
        assert not content_of(target), "a fetch that failed leaves no file"
    raised(ObjectNotFoundError, lambda: backend.read("nowhere/a"), "read of nothing")
    assert not backend.exists("nowhere/a")
    if backend.can.list:
        assert list(backend.list("nowhere")) == [], "a listing of nothing is empty"
        assert backend.children("nowhere") == [], "nothing has no children"
    if backend.can.delete:
        backend.delete(["nowhere/a"])
        backend.delete([])
        backend.delete_tree("nowhere")


def small_files_are_put_and_read(backend: Backend) -> None:
    """`put`, `read` and `exists` at the top and below."""
    for key in ("top", "below/it"):
        assert not backend.exists(key)
        backend.put(key, key.encode())
        assert backend.exists(key), "what was put exists"
        assert backend.read(key) == key.encode()
    backend.put("nothing", b"")
    assert backend.exists("nothing") and backend.read("nothing") == b"", "an empty file is a file"
    assert not backend.exists("below"), "a directory is no file"


def it_says_what_it_holds(backend: Backend) -> None:
    """`list` and `children` respect the borders of names."""
    if not backend.can.list:
        raised(TransferError, lambda: list(backend.list()), "list, which it cannot")
        return
    for key in ("a/1", "a/b/2", "ab/3", "a.txt"):
        backend.put(key, key.encode())
    found = {entry.key: entry.size for entry in backend.list()}
    assert found == {"a/1": 3, "a/b/2": 5, "ab/3": 4, "a.txt": 5}, "list gives every key with its size"
    under = sorted(entry.key for entry in backend.list("a"))
    assert under == ["a/1", "a/b/2"], 'list("a") is what lies under "a/", not what starts with "a"'
    assert backend.children() == ["a.txt", "a/", "ab/"], "children are the names at the top, directories end in /"
    assert backend.children("a") == ["1", "b/"]


def what_is_deleted_is_gone(backend: Backend) -> None:
    """`delete` and `delete_tree` take what they are told and nothing beside it."""
    if not backend.can.delete:
        raised(TransferError, lambda: backend.delete(["a"]), "delete, which it cannot")
        return
    keys = ("a/1", "a/2", "a/b/3", "ab/4", "c/5")
    for key in keys:
        backend.put(key, b"x")
    backend.delete(["a/2", "a/never there"])
    assert [key for key in keys if backend.exists(key)] == ["a/1", "a/b/3", "ab/4", "c/5"]
    backend.delete_tree("a")
    assert [key for key in keys if backend.exists(key)] == ["ab/4", "c/5"], 'delete_tree("a") spares "ab"'
    raised(ValueError, lambda: backend.delete_tree(""), "delete_tree of everything")
    many = [f"many/{number}" for number in range(40)]
    with directory_of(dict.fromkeys(many, b"x")) as source:
        backend.push(source, "", many)
    backend.delete(many)
    assert not any(backend.exists(key) for key in (many[0], many[-1]))
    if backend.can.list:
        assert backend.children() == ["ab/", "c/"], "a directory goes with its last file"


def names_are_only_names(backend: Backend) -> None:
    """Whatever a file is called, it arrives under that name and nothing is executed."""
    before = set(os.listdir())
    whole = {name: name.encode() for name in ODD_NAMES} | {f"odd/{name}/file": b"in" for name in ODD_NAMES[::3]}
    few = {name: whole[name] for name in ("*", "-rf", "[abc]", "line\nbreak", "que?tion")}
    for prefix, content in (("names", whole), ("pre fix/$(touch pwned)/-x;'y\"", few)):
        with directory_of(content) as source, directory_of() as target:
            backend.push(source, prefix, list(content))
            backend.fetch(prefix, target)
            check_content(content_of(target), content, "fetch")
        with directory_of() as target:
            backend.fetch(prefix, target, list(few))
            check_content({name: content_of(target)[name] for name in few}, few, "fetch by name")
        if backend.can.list:
            found = {entry.key: entry.size for entry in backend.list(prefix)}
            assert found == {f"{prefix}/{name}": len(data) for name, data in content.items()}, "list gives odd names"
        if backend.can.delete:
            gone = [name for name in few if name != "que?tion"]
            backend.delete([f"{prefix}/{name}" for name in gone])
            with directory_of() as target:
                backend.fetch(prefix, target)
                assert set(content_of(target)) == set(content) - set(gone), "a pattern deletes only its name"
            assert [name for name in few if backend.exists(f"{prefix}/{name}")] == ["que?tion"], "so says exists"
            backend.delete_tree(prefix)
            with directory_of() as target:
                raised(ObjectNotFoundError, partial(backend.fetch, prefix, target), "fetch of what was deleted")
            assert not any(backend.exists(f"{prefix}/{name}") for name in few), "odd names can be deleted"
    assert set(os.listdir()) == before, "nothing was executed here"


def names_stay_inside(backend: Backend) -> None:
    """A name that leads out is refused, and nothing is read or written."""
    with directory_of({"kept": b"kept", "in/a": b"a"}) as source:
        inner = source / "in"
        for name in OUTSIDE:
            raised(TransferError, partial(backend.fetch, "p", inner, [name]), f"fetch of {name!r}")
            raised(TransferError, partial(backend.push, inner, "p", [name]), f"push of {name!r}")
            if name:
                raised(TransferError, partial(backend.fetch, name, inner), f"fetch from {name!r}")
                raised(TransferError, partial(backend.push, inner, name, ["a"]), f"push to {name!r}")
                raised(TransferError, partial(backend.copy, name, "p", ["a"]), f"copy from {name!r}")
                raised(TransferError, partial(backend.copy, "p", name, ["a"]), f"copy to {name!r}")
            raised(TransferError, partial(backend.copy, "p", "q", [name]), f"copy of {name!r}")
            raised(TransferError, partial(backend.put, name, b"x"), f"put of {name!r}")
            raised(TransferError, partial(backend.read, name), f"read of {name!r}")
            raised(TransferError, partial(backend.exists, name), f"exists of {name!r}")
            if backend.can.delete:
                raised(TransferError, partial(backend.delete, [name]), f"delete of {name!r}")
        assert content_of(source) == {"kept": b"kept", "in/a": b"a"}


def one_of_many_creates(backend: Backend) -> None:
    """Of those who create the same file exclusively, one succeeds, and its content stays."""
    if not backend.can.exclusive:
        return
    barrier = threading.Barrier(6)

    def create(number: int) -> int | None:
        barrier.wait()
        try:
            backend.put("claimed/it", b"by %d" % number, exclusive=True)
        except ObjectExistsError:
            return None
        return number

    with ThreadPoolExecutor(6) as pool:
        winners = [number for number in pool.map(create, range(6)) if number is not None]
    assert len(winners) == 1, f"{len(winners)} of 6 created the same file exclusively"
    assert backend.read("claimed/it") == b"by %d" % winners[0], "what was created exclusively stays"
    raised(ObjectExistsError, lambda: backend.put("claimed/it", b"late", exclusive=True), "a late creation")
    assert backend.read("claimed/it") == b"by %d" % winners[0]
    with directory_of({"it": b"much larger" * 1_000_000}) as source:
        push = lambda: backend.push(source, "claimed", ["it"], exclusive=True)  # noqa: E731
        raised(ObjectExistsError, push, "a late creation of a large file")
        assert backend.read("claimed/it") == b"by %d" % winners[0]
        backend.push(source, "claimed2", ["it"], exclusive=True)
        assert len(backend.read("claimed2/it")) == 11_000_000, "a large file is created exclusively"
    if backend.can.delete:
        backend.delete(["claimed/it"])
        backend.put("claimed/it", b"again", exclusive=True)


def receipts_name_what_arrived(backend: Backend) -> None:
    """File by file, so that a second try can leave it out."""
    with directory_of({"a": b"a", "b/c": b"c" * 9_000_000}) as source:
        receipts: dict[str, str] = {}
        backend.push(source, "p", ["a", "b/c"], receipts=receipts)
        assert set(receipts) == {"a", "b/c"}, "every file that arrived has a receipt"
        assert all(isinstance(receipt, str) for receipt in receipts.values())
        receipts = {}
        push = lambda: backend.push(source, "q", ["a", "missing"], receipts=receipts)  # noqa: E731
        error = raised(TransferError, push, "push of a file that is missing")
        assert not error.transient, "a file that is missing is missing at the second try too"
        assert set(receipts) <= {"a"}, "what did not arrive has no receipt"


def who_watches_can_stop_it(backend: Backend) -> None:
    """What raises in `progress` ends the operation."""

    class Stop(Exception):
        pass

    def stop(moved: int) -> None:
        raise Stop

    with directory_of({"a": os.urandom(2_000_000)}) as source, directory_of() as target:
        raised(Stop, lambda: backend.push(source, "p", ["a"], progress=stop), "push that is stopped")
        backend.push(source, "p", ["a"])
        raised(Stop, lambda: backend.fetch("p", target, ["a"], progress=stop), "fetch that is stopped")


def threads_do_not_disturb_each_other(backend: Backend) -> None:
    """Six at once, each with its own files; also under one prefix, as workers bring their parts of a checkpoint."""
    together = {f"{number}": b"of %d" % number for number in range(6)}
    together |= {f"deep/{number}": os.urandom(1000) for number in range(6)}

    def work(number: int) -> None:
        content = {"a": os.urandom(200_000), "b/c": b"%d" % number}
        with directory_of(content) as source, directory_of() as target:
            backend.push(source, f"thread {number}", list(content))
            backend.fetch(f"thread {number}", target)
            assert content_of(target) == content
        if backend.can.list:
            with directory_of(together) as source:
                backend.push(source, "together", [f"{number}", f"deep/{number}"])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    if backend.can.list:
        with directory_of() as target:
            backend.fetch("together", target)
            check_content(content_of(target), together, "files that several pushed under one prefix")


def it_can_be_renewed(backend: Backend) -> None:
    """`check` finds nothing to say about a good place and leaves nothing there; `renew` keeps what is there."""
    backend.check()
    if backend.can.list:
        assert list(backend.list()) == [], "check leaves nothing behind"
    backend.put("a", b"a")
    backend.renew()
    assert backend.read("a") == b"a"
    backend.check()
    assert backend.url("") == backend.uri and backend.url("a/b") == child_of(backend.uri, "a/b")
    assert not backend.uri.endswith("/")


CHECKS: tuple[Check, ...] = (
    what_was_pushed_can_be_fetched,
    only_the_named_files_are_pushed,
    what_is_there_is_replaced,
    nothing_there_is_said_so,
    small_files_are_put_and_read,
    it_says_what_it_holds,
    what_is_deleted_is_gone,
    names_are_only_names,
    names_stay_inside,
    one_of_many_creates,
    known_content_is_not_sent_again,
    a_copy_is_no_alias,
    a_copy_over_there_is_like_a_push,
    a_tree_is_renamed_at_once,
    receipts_name_what_arrived,
    who_watches_can_stop_it,
    threads_do_not_disturb_each_other,
    it_can_be_renewed,
)
