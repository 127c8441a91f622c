"""Places that keep single files: names of objects, files that move at once, and what a library's errors become."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.errors import AccessRefusedError, ObjectExistsError, ObjectNotFoundError, TransferError
from trainables.transfer.fsspec import MemoryBackend
from trainables.transfer.local import LocalBackend
from trainables.transfer.local_files import Sink, Source
from trainables.transfer.objects import escaped, unescaped

KEYS = st.lists(st.text(st.sampled_from("ab.%0AF\n\\\x7f é/"), min_size=1, max_size=6), min_size=1, max_size=3).map(
    "/".join
)


@given(KEYS | st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_key_comes_back_from_its_objects_name(key: str) -> None:
    name = escaped(key)

    assert unescaped(name) == key
    assert not any(ord(character) < 32 or character in "\x7f\\" for character in name)
    assert not any(part.endswith(".") for part in name.split("/"))
    assert name.count("/") == key.count("/")


@given(KEYS, KEYS)
def test_no_two_keys_have_one_name(one: str, other: str) -> None:
    assert (escaped(one) == escaped(other)) is (one == other)


@pytest.mark.parametrize("key", ["plain", "a/b.txt", "100%", "%zz", ".hidden", "naïve 🎉"])
def test_what_no_store_minds_is_called_as_it_is(key: str) -> None:
    assert escaped(key) == key


class Watched(MemoryBackend):
    """Says what is done, and does what a test wants of it meanwhile."""

    def __init__(self, name: str) -> None:
        super().__init__(f"memory://objects/{name}")
        self.done: list[tuple[str, str]] = []
        self.meet: threading.Barrier | None = None
        self.refuse: dict[str, Exception] = {}

    def _met(self, what: str, key: str) -> None:
        self.done.append((what, key))
        if self.meet is not None:
            self.meet.wait(30)
        if key in self.refuse:
            raise self.refuse[key]

    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        self._met("send", key)
        return super()._send(source, key, exclusive=exclusive) or f"sum of {key}"

    def _receive(self, key: str, sink: Sink) -> None:
        self._met("receive", key)
        super()._receive(key, sink)

    def _remove(self, key: str) -> None:
        self._met("remove", key)
        super()._remove(key)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Watched:
    return Watched(request.node.name)


def files(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def test_files_move_at_once(place: Watched, tmp_path: Path) -> None:
    place.meet = threading.Barrier(4)  # each waits for the others
    names = [f"f{number}" for number in range(4)]
    receipts: dict[str, str] = {}

    place.push(files(tmp_path / "s", *names), "p", names, receipts=receipts)
    place.fetch("p", tmp_path / "t", names)

    assert receipts == {name: f"sum of p/{name}" for name in names}
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == names


def test_of_several_the_first_error_ends_it_and_what_arrived_is_told(place: Watched, tmp_path: Path) -> None:
    names = [f"f{number:02}" for number in range(40)]
    place.refuse = {"p/f03": PermissionError("no")}
    receipts: dict[str, str] = {}

    with pytest.raises(AccessRefusedError, match=r"memory://.*p/f03: access is refused"):
        place.push(files(tmp_path, *names), "p", names, receipts=receipts)

    assert "f03" not in receipts
    assert {f"p/{name}" for name in receipts} == {entry.key for entry in place.list("p")}


class Stop(Exception):
    pass


def test_who_watches_may_stop_it_and_hears_his_own_exception(place: Watched, tmp_path: Path) -> None:
    """Whatever the library between makes of exceptions."""

    def stop(moved: int) -> None:
        raise Stop

    files(tmp_path / "s", "a", "b")
    for names in (["a"], ["a", "b"]):
        with pytest.raises(Stop):
            place.push(tmp_path / "s", "p", names, progress=stop)
    place.push(tmp_path / "s", "p", ["a"])
    with pytest.raises(Stop):
        place.fetch("p", tmp_path / "t", ["a"], progress=stop)
    with pytest.raises(Stop):
        place.copy("p", "q", ["a"], progress=stop)
    assert not place.exists("q/a")
    assert os.listdir(tmp_path / "t") == []


def test_a_fetch_that_fails_leaves_the_old_file_and_no_part(place: Watched, tmp_path: Path) -> None:
    place.put("p/a", b"new")
    files(tmp_path, "a")
    place.refuse = {"p/a": OSError("cut")}

    with pytest.raises(TransferError, match="OSError: cut") as raised:
        place.fetch("p", tmp_path, ["a"])

    assert raised.value.transient
    assert (tmp_path / "a").read_bytes() == b"a" and os.listdir(tmp_path) == ["a"]
    place.refuse = {}
    place.fetch("p", tmp_path)
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_fetch_of_all_goes_below_the_prefix_only(place: Watched, tmp_path: Path) -> None:
    for key in ("p/a", "p/d/b", "pp/c", "p.txt"):
        place.put(key, b"x")

    place.fetch("p", tmp_path / "t")

    assert sorted(path.relative_to(tmp_path / "t").as_posix() for path in (tmp_path / "t").rglob("*")) == [
        "a", "d", "d/b",
    ]  # fmt: skip
    with pytest.raises(ObjectNotFoundError, match="there is nothing at memory://.*/none"):
        place.fetch("none", tmp_path)


def test_known_content_that_has_gone_is_sent(place: Watched, tmp_path: Path) -> None:
    files(tmp_path, "a", "b")
    place.put("old/a", b"a")
    place.done.clear()

    place.push(tmp_path, "p", ["a", "b"], same={"a": "old/a", "b": "old/gone"})

    assert [key for what, key in place.done if what == "send"] == ["p/b"]
    assert (place.read("p/a"), place.read("p/b")) == (b"a", b"b")


def test_files_are_deleted_in_their_order_and_none_before_all_names_are_looked_at(place: Watched) -> None:
    keys = [f"p/{number}" for number in (3, 1, 2)]
    for key in keys:
        place.put(key, b"")
    place.done.clear()

    with pytest.raises(TransferError, match="is refused"):
        place.delete([*keys, "../evil"])
    assert place.done == []
    place.delete(keys)
    assert place.done == [("remove", key) for key in keys]


def test_what_cannot_be_created_exclusively_is_refused_before_anything_moves(tmp_path: Path) -> None:
    from trainables.transfer.fsspec import FsspecBackend

    place = FsspecBackend(f"local://{tmp_path}/place")
    with pytest.raises(TransferError, match="nothing can be created exclusively there"):
        place.put("claim", b"x", exclusive=True)
    assert not (tmp_path / "place").exists()


@pytest.mark.parametrize("make", [lambda root: LocalBackend(root), lambda root: MemoryBackend(f"memory://x{root}")])
def test_of_many_that_create_one_wins(make: type[LocalBackend], tmp_path: Path) -> None:
    place, start, won = make(tmp_path), threading.Barrier(6), []

    def create(number: int) -> None:
        start.wait(30)
        try:
            place.put("claim", str(number).encode(), exclusive=True)
        except ObjectExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(won) == 1
    assert place.read("claim") == str(won[0]).encode()


def test_an_error_that_is_none_of_the_librarys_is_not_dressed_up(place: Watched, tmp_path: Path) -> None:
    class OfAStore(Watched):
        def _failure(self, error: Exception, url: str) -> TransferError | None:
            return None

    strict = OfAStore("strict")
    strict.refuse = {"a": ZeroDivisionError("a bug")}
    with pytest.raises(ZeroDivisionError):
        strict.put("a", b"")
