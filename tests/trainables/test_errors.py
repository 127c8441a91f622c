"""The errors: the tree that the module draws, what each can be caught as, and what survives between processes."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables import errors
from trainables.errors import PublishError, TrainablesError, TransferError

ALL = sorted(
    (each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, TrainablesError)),
    key=lambda each: each.__name__,
)
LINE = re.compile(r"^(?P<before>[ │├└─]*)(?P<name>\w+Error)(?: \((?P<builtin>\w+)\))?", re.MULTILINE)


def drawn() -> dict[str, tuple[str | None, str | None]]:
    """Name -> (parent, built-in co-parent), as the picture in the docstring has it."""
    found: dict[str, tuple[str | None, str | None]] = {}
    above: list[tuple[int, str]] = []
    for line in LINE.finditer(errors.__doc__ or ""):
        depth = len(line["before"])
        while above and above[-1][0] >= depth:
            above.pop()
        found[line["name"]] = (above[-1][1] if above else None, line["builtin"])
        above.append((depth, line["name"]))
    return found


def test_the_picture_is_the_tree() -> None:
    picture = drawn()

    assert sorted(picture) == [each.__name__ for each in ALL]
    for kind in ALL:
        parent, builtin = picture[kind.__name__]
        ours = [base.__name__ for base in kind.__bases__ if issubclass(base, TrainablesError)]
        theirs = [base.__name__ for base in kind.__bases__ if not issubclass(base, TrainablesError)]
        assert ours == ([parent] if parent else [])
        assert theirs == ([builtin] if builtin else ["OnPurposeError"] if kind is TrainablesError else [])
        assert kind.__doc__


@pytest.mark.parametrize("kind", ALL)
def test_each_says_what_it_was_given_without_secrets_and_control_characters(kind: type[TrainablesError]) -> None:
    error = kind("api_key=hunter2 \x1b[31m at /x")

    assert "hunter2" not in f"{error} {error!r}" and "\x1b" not in str(error)
    assert "api_key=***" in str(error) and str(error).endswith("at /x")


@given(st.lists(st.text() | st.integers() | st.none(), max_size=3))
def test_what_is_no_secret_is_kept_as_it_is(given_: list[object]) -> None:
    plain = [part if not isinstance(part, str) else "".join(c for c in part if c.isalnum()) for part in given_]

    assert list(TrainablesError(*plain).args) == plain


@pytest.mark.parametrize("kind", ALL)
def test_each_survives_the_way_between_processes(kind: type[TrainablesError]) -> None:
    found = pickle.loads(pickle.dumps(kind("told")))

    assert (type(found), str(found), found.args) == (kind, "told", ("told",))


@pytest.mark.parametrize("way", [lambda error: pickle.loads(pickle.dumps(error)), lambda error: error])
def test_what_is_known_of_a_failed_transfer_survives_too(way: Callable[[TransferError], TransferError]) -> None:
    error = way(TransferError("full over there", transient=True, errno=28))

    assert (str(error), error.transient, error.errno) == ("full over there", True, 28)
    assert way(TransferError("no")).transient is False
    assert way(TransferError("no")).errno is None


def test_a_publish_error_has_the_systems_number() -> None:
    error = pickle.loads(pickle.dumps(PublishError(28, "no room at /x")))

    assert (error.errno, error.strerror) == (28, "no room at /x")
    assert PublishError("no number").errno is None
