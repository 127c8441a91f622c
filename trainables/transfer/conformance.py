"""What every back end must do, by what it says that it can.

In tests of your own, all at once or one by one:

    check_backend(lambda: MyBackend(an_empty_place()))

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_it_conforms(check):
        backend = MyBackend(an_empty_place())
        check(backend)
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from trainables.errors import ObjectExistsError, ObjectNotFoundError, TransferError
from trainables.transfer.base import Backend

Check = Callable[[Backend], None]
E = TypeVar("E", bound=Exception)

ODD_NAMES = (
    "two words",
    "it's",
    'say "hi"',
    "a;touch pwned;b",
    "$(touch pwned)",
    "`touch pwned`",
    "a|b&c>d<e",
    "line\nbreak",
    "tab\tstop",
    "ünï-日本語-🎈",
    "e\u0301 composed later",
    "-rf",
    "--delete",
    "*",
    "que?tion",
    "[abc]",
    "{source}",
    "!bang",
    "#hash",
    "100%",
    "%2e%2e",
    "%0A",
    "a+b=c&d",
    "~",
    ".hidden",
    "..two dots",
    "c:d",
    "a::b",
    "user@host:x",
)
"""File names that a shell, a URL, a pattern or an option parser would take for something else."""

OUTSIDE = ("../outside", "a/../../outside", "/outside", "a//b", "./a", "", "..", "nul\0")
"""Names that must be refused."""


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


# --- the checks --------------------------------------------------------------------------------------------


def what_was_pushed_can_be_fetched(backend: Backend) -> None:
    """A tree arrives as it was, whole or by name, into a directory that need not be there."""
    content = {"empty": b"", "a/b/deep": b"x", "large": os.urandom(6_000_001), "a/middle": os.urandom(70_000)}
    moved = Moved()
    with _directory(content) as source:
        backend.push(source, "run/checkpoint", list(content), progress=moved)
        assert _content(source) == content, "push leaves the source as it is"
    assert moved.bytes > 0, "push tells progress of the bytes that move"
    moved = Moved()
    with _directory() as target:
        backend.fetch("run/checkpoint", target / "not" / "there", progress=moved)
        assert _content(target / "not" / "there") == content, "fetch without names gives back all that was pushed"
    assert moved.bytes > 0, "fetch tells progress of the bytes that move"
    with _directory() as target:
        backend.fetch("run/checkpoint", target, ["a/b/deep"])
        found = _content(target)
        assert found["a/b/deep"] == b"x", "fetch with names gives what it is asked for"


def only_the_named_files_are_pushed(backend: Backend) -> None:
    """A manifest stays behind until it is its turn."""
    with _directory({"named": b"1", "other": b"2", "d/other": b"3"}) as source, _directory() as target:
        backend.push(source, "p", ["named"])
        backend.fetch("p", target)
        assert _content(target) == {"named": b"1"}, "push copies the files of `names` and no other"
        backend.push(source, "p", ["other"])
        backend.fetch("p", target / "again")
        assert _content(target / "again") == {"named": b"1", "other": b"2"}, "a second push adds to the first"


def what_is_there_is_replaced(backend: Backend) -> None:
    """A file pushed again is the new one, also when it is shorter, or of the same size."""
    for data in (b"long" * 1000, b"short", b"SHORT"):
        backend.put("replaced", data)
        assert backend.read("replaced") == data, "what is pushed last is there"


def nothing_there_is_said_so(backend: Backend) -> None:
    """Absence is ObjectNotFoundError, and no error for who wants it absent."""
    with _directory() as target:
        for call in (lambda: backend.fetch("nowhere", target), lambda: backend.fetch("nowhere", target, ["a"])):
            _raises(ObjectNotFoundError, call, "fetch of nothing")
        assert not _content(target), "a fetch that failed leaves no file"
    _raises(ObjectNotFoundError, lambda: backend.read("nowhere/a"), "read of nothing")
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
        _raises(TransferError, lambda: list(backend.list()), "list, which it cannot")
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
        _raises(TransferError, lambda: backend.delete(["a"]), "delete, which it cannot")
        return
    keys = ("a/1", "a/2", "a/b/3", "ab/4", "c/5")
    for key in keys:
        backend.put(key, b"x")
    backend.delete(["a/2", "a/never there"])
    assert [key for key in keys if backend.exists(key)] == ["a/1", "a/b/3", "ab/4", "c/5"]
    backend.delete_tree("a")
    assert [key for key in keys if backend.exists(key)] == ["ab/4", "c/5"], 'delete_tree("a") spares "ab"'
    _raises(ValueError, lambda: backend.delete_tree(""), "delete_tree of everything")
    many = [f"many/{number}" for number in range(40)]
    with _directory(dict.fromkeys(many, b"x")) as source:
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
        with _directory(content) as source, _directory() as target:
            backend.push(source, prefix, list(content))
            backend.fetch(prefix, target)
            _same_content(_content(target), content, "fetch")
        with _directory() as target:
            backend.fetch(prefix, target, list(few))
            _same_content({name: _content(target)[name] for name in few}, few, "fetch by name")
        if backend.can.list:
            found = {entry.key: entry.size for entry in backend.list(prefix)}
            assert found == {f"{prefix}/{name}": len(data) for name, data in content.items()}, "list gives odd names"
        if backend.can.delete:
            backend.delete([f"{prefix}/{name}" for name in ("*", "-rf", "[abc]", "line\nbreak")])
            left = {name for name in content if backend.exists(f"{prefix}/{name}")}
            assert left == set(content) - {"*", "-rf", "[abc]", "line\nbreak"}, "a pattern deletes only its name"
            backend.delete_tree(prefix)
            assert not any(backend.exists(f"{prefix}/{name}") for name in content), "odd names can be deleted"
    assert set(os.listdir()) == before, "nothing was executed here"


def names_stay_inside(backend: Backend) -> None:
    """A name that leads out is refused, and nothing is read or written."""
    with _directory({"kept": b"kept", "in/a": b"a"}) as source:
        inner = source / "in"
        for name in OUTSIDE:
            _raises(TransferError, partial(backend.fetch, "p", inner, [name]), f"fetch of {name!r}")
            _raises(TransferError, partial(backend.push, inner, "p", [name]), f"push of {name!r}")
            if name:
                _raises(TransferError, partial(backend.fetch, name, inner), f"fetch from {name!r}")
                _raises(TransferError, partial(backend.push, inner, name, ["a"]), f"push to {name!r}")
                _raises(TransferError, partial(backend.copy, name, "p", ["a"]), f"copy from {name!r}")
                _raises(TransferError, partial(backend.copy, "p", name, ["a"]), f"copy to {name!r}")
            _raises(TransferError, partial(backend.copy, "p", "q", [name]), f"copy of {name!r}")
            _raises(TransferError, partial(backend.put, name, b"x"), f"put of {name!r}")
            _raises(TransferError, partial(backend.read, name), f"read of {name!r}")
            _raises(TransferError, partial(backend.exists, name), f"exists of {name!r}")
            if backend.can.delete:
                _raises(TransferError, partial(backend.delete, [name]), f"delete of {name!r}")
        assert _content(source) == {"kept": b"kept", "in/a": b"a"}


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
    _raises(ObjectExistsError, lambda: backend.put("claimed/it", b"late", exclusive=True), "a late creation")
    assert backend.read("claimed/it") == b"by %d" % winners[0]
    with _directory({"it": b"much larger" * 1_000_000}) as source:
        push = lambda: backend.push(source, "claimed", ["it"], exclusive=True)  # noqa: E731
        _raises(ObjectExistsError, push, "a late creation of a large file")
        assert backend.read("claimed/it") == b"by %d" % winners[0]
        backend.push(source, "claimed2", ["it"], exclusive=True)
        assert len(backend.read("claimed2/it")) == 11_000_000, "a large file is created exclusively"
    if backend.can.delete:
        backend.delete(["claimed/it"])
        backend.put("claimed/it", b"again", exclusive=True)


def known_content_is_not_sent_again(backend: Backend) -> None:
    """`same=` copies over there; what it names and is gone, is sent."""
    content = {"weights": os.urandom(3_000_000), "empty": b"", "new": b"new"}
    with _directory(content) as source, _directory() as target:
        backend.push(source, "first", list(content))
        moved = Moved()
        same = {"weights": "first/weights", "empty": "first/empty"}
        backend.push(source, "second", list(content), same=same, progress=moved)
        backend.fetch("second", target / "second")
        assert _content(target / "second") == content, "a file of `same` is there like the others"
        if backend.can.reuse:
            assert moved.bytes < 1_000_000, f"{moved.bytes} bytes moved for content that was there"
        backend.push(source, "third", list(content), same={"weights": "gone/weights"})
        backend.fetch("third", target / "third")
        assert _content(target / "third") == content, "what is not there any more is sent"
        if backend.can.delete:
            backend.delete_tree("first")
            backend.fetch("second", target / "alone")
            assert _content(target / "alone") == content, "a copy outlives what it was copied from"


def a_copy_is_no_alias(backend: Backend) -> None:
    """Replacing one of two that share content leaves the other."""
    with _directory({"a": b"old" * 200_000}) as source:
        backend.push(source, "first", ["a"])
        backend.push(source, "second", ["a"], same={"a": "first/a"})
    backend.put("second/a", b"new")
    assert backend.read("first/a") == b"old" * 200_000, "the first is what it was"
    assert backend.read("second/a") == b"new"


def a_copy_over_there_is_like_a_push(backend: Backend) -> None:
    """`copy` needs no file here, takes the named files and no other, and outlives what it was made of."""
    content = {"a": os.urandom(9_000_000), "b/c": b"c", "line\nbreak": b"", "other": b"other"}
    named = ["a", "b/c", "line\nbreak"]
    with _directory(content) as source, _directory() as target:
        backend.push(source, "first", list(content))
        moved, receipts = Moved(), dict[str, str]()
        backend.copy("first", "se cond/deep", named, receipts=receipts, progress=moved)
        assert set(receipts) == set(named), "every file that was copied has a receipt"
        if backend.can.copy:
            assert moved.bytes == 0, f"{moved.bytes} bytes moved through this machine"
        backend.put("third/b/c", b"older, and longer")
        backend.copy("first", "third", ["b/c"])
        assert backend.read("third/b/c") == b"c", "what is there is replaced"
        missing = lambda: backend.copy("first", "fourth", ["gone"])  # noqa: E731
        _raises(ObjectNotFoundError, missing, "copy of what is not there")
        backend.put("first/b/c", b"replaced")
        if backend.can.delete:
            backend.delete_tree("first")
        backend.fetch("se cond/deep", target)
        assert _content(target) == {name: content[name] for name in named}, "a copy outlives what it was made of"


def receipts_name_what_arrived(backend: Backend) -> None:
    """File by file, so that a second try can leave it out."""
    with _directory({"a": b"a", "b/c": b"c" * 9_000_000}) as source:
        receipts: dict[str, str] = {}
        backend.push(source, "p", ["a", "b/c"], receipts=receipts)
        assert set(receipts) == {"a", "b/c"}, "every file that arrived has a receipt"
        assert all(isinstance(receipt, str) for receipt in receipts.values())
        receipts = {}
        push = lambda: backend.push(source, "q", ["a", "missing"], receipts=receipts)  # noqa: E731
        error = _raises(TransferError, push, "push of a file that is missing")
        assert not error.transient, "a file that is missing is missing at the second try too"
        assert set(receipts) <= {"a"}, "what did not arrive has no receipt"


def who_watches_can_stop_it(backend: Backend) -> None:
    """What raises in `progress` ends the operation."""

    class Stop(Exception):
        pass

    def stop(moved: int) -> None:
        raise Stop

    with _directory({"a": os.urandom(2_000_000)}) as source, _directory() as target:
        _raises(Stop, lambda: backend.push(source, "p", ["a"], progress=stop), "push that is stopped")
        backend.push(source, "p", ["a"])
        _raises(Stop, lambda: backend.fetch("p", target, ["a"], progress=stop), "fetch that is stopped")


def threads_do_not_disturb_each_other(backend: Backend) -> None:
    """Six at once, each with its own files; also under one prefix, as workers bring their parts of a checkpoint."""
    together = {f"{number}": b"of %d" % number for number in range(6)}
    together |= {f"deep/{number}": os.urandom(1000) for number in range(6)}

    def work(number: int) -> None:
        content = {"a": os.urandom(200_000), "b/c": b"%d" % number}
        with _directory(content) as source, _directory() as target:
            backend.push(source, f"thread {number}", list(content))
            backend.fetch(f"thread {number}", target)
            assert _content(target) == content
        if backend.can.list:
            with _directory(together) as source:
                backend.push(source, "together", [f"{number}", f"deep/{number}"])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    if backend.can.list:
        with _directory() as target:
            backend.fetch("together", target)
            _same_content(_content(target), together, "files that several pushed under one prefix")


def it_can_be_renewed(backend: Backend) -> None:
    """`check` finds nothing to say about a good place and leaves nothing there; `renew` keeps what is there."""
    backend.check()
    if backend.can.list:
        assert list(backend.list()) == [], "check leaves nothing behind"
    backend.put("a", b"a")
    backend.renew()
    assert backend.read("a") == b"a"
    backend.check()
    assert backend.url("") == backend.uri and backend.url("a/b") == f"{backend.uri}/a/b"
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
    receipts_name_what_arrived,
    who_watches_can_stop_it,
    threads_do_not_disturb_each_other,
    it_can_be_renewed,
)


# --- what they are made of ---------------------------------------------------------------------------------


class Moved:
    """A progress that adds up."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def __call__(self, moved: int) -> None:
        with self._lock:
            self.bytes += moved


@contextmanager
def _directory(content: Mapping[str, bytes] | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="conformance-") as root:
        for name, data in (content or {}).items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        yield Path(root)


def _content(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _same_content(found: Mapping[str, bytes], content: Mapping[str, bytes], what: str) -> None:
    missing, besides = sorted(set(content) - set(found)), sorted(set(found) - set(content))
    assert not missing and not besides, f"{what}: missing {missing}, not asked for {besides}"
    assert found == content, f"{what}: the content is another"


def _raises(kind: type[E], call: Callable[[], object], what: str) -> E:
    try:
        call()
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what} is {kind.__name__}, not {error!r}") from error
    raise AssertionError(f"{what} is {kind.__name__}: nothing was raised")
