"""Files that conformance suites send and compare, and names that are hard to get right."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

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


class ByteCounter:
    """A progress that adds up."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def __call__(self, moved: int) -> None:
        with self._lock:
            self.bytes += moved


@contextmanager
def directory_of(content: Mapping[str, bytes] | None = None) -> Iterator[Path]:
    """A temporary directory with these files."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as root:
        yield filled(Path(root), content or {})


def filled(root: Path, content: Mapping[str, bytes]) -> Path:
    """The directory, with these files in it: name -> content."""
    for name, data in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def content_of(root: Path) -> dict[str, bytes]:
    """Every file below a directory: name -> content."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def check_content(found: Mapping[str, bytes], content: Mapping[str, bytes], what: str) -> None:
    """Fail where files are missing, were not asked for, or have another content."""
    missing, besides = sorted(set(content) - set(found)), sorted(set(found) - set(content))
    assert not missing and not besides, f"{what}: missing {missing}, not asked for {besides}"
    assert found == content, f"{what}: the content is another"


def raised(kind: type[E], call: Callable[[], object], what: str) -> E:
    """The error of a call that has to raise one of that kind."""
    try:
        call()
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what} is {kind.__name__}, not {error!r}") from error
    raise AssertionError(f"{what} is {kind.__name__}: nothing was raised")
