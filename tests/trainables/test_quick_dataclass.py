"""`quick_dataclass.dataclass` beside the standard library's: the same class, made twice, says and does the same."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from trainables import quick_dataclass

Decorator = Callable[..., Any]
BOTH = [pytest.param(dataclasses.dataclass, id="standard"), pytest.param(quick_dataclass.dataclass, id="quick")]
SETTINGS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"eq": False},
    {"repr": False},
    {"eq": False, "slots": True},
    {"frozen": True, "eq": False, "repr": False},
]


@quick_dataclass.dataclass(frozen=True, slots=True)
class Stored:
    name: str
    sizes: list[int] = field(default_factory=list)


@quick_dataclass.dataclass(frozen=True)
class Longer(Stored):
    more: int = 3


def example(decorator: Decorator, **settings: Any) -> Any:
    @decorator(**settings)
    class Example:
        """Every kind of field."""

        name: str
        rate: float = 0.5
        kind: ClassVar[str] = "a"
        sizes: list[int] = field(default_factory=list, hash=False)
        count: int = field(default=3, init=False)
        made: list[str] = field(default_factory=list, init=False, compare=False)
        shown: str = field(default="no", repr=False)
        asked: int | None = field(default=None, kw_only=True)

        def __post_init__(self) -> None:
            if self.rate < 0:
                raise ValueError(f"rate is {self.rate}")

    return Example


def said(act: Callable[[], object]) -> str:
    """What comes of a call, as text that two classes have in common."""
    try:
        return repr(act())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_says_and_does_what_the_standard_one_does(settings: dict[str, Any]) -> None:
    def of(decorator: Decorator) -> list[str]:
        cls = example(decorator, **settings)
        one, like, other = cls("a", 1.0, [1], asked=2), cls("a", 1.0, [1], asked=2), cls("b")
        without_address = repr(one) if settings.get("repr", True) else ""
        acts: list[Callable[[], object]] = [
            lambda: inspect.signature(cls),
            lambda: (cls.__doc__, cls.__match_args__, cls.__qualname__, hasattr(cls, "__slots__")),
            lambda: [(f.name, f.type, f.default, f.kw_only) for f in dataclasses.fields(cls)],
            lambda: (one == like, one == other, one != other, one == "a"),
            lambda: hash(one) == hash(like) if cls.__hash__ is not object.__hash__ else "by identity",
            lambda: dataclasses.asdict(one),
            lambda: dataclasses.astuple(dataclasses.replace(one, name="c")),
            lambda: dataclasses.replace(one, count=4),
            lambda: dataclasses.astuple(copy.deepcopy(one)),
            lambda: cls(),
            lambda: cls("a", 1, [], "x", 7),
            lambda: cls("a", nothing=1),
            lambda: cls("a", -1.0),
            lambda: setattr(one, "name", "d"),
            lambda: (
                None if "slots" in settings else setattr(one, "unknown", 1)
            ),  # where it has both, theirs is a TypeError
            lambda: delattr(one, "rate"),
            lambda: cls.__dataclass_params__.frozen,
        ]
        return [without_address, *map(said, acts)]

    assert of(quick_dataclass.dataclass) == of(dataclasses.dataclass)


@pytest.mark.parametrize("decorator", BOTH)
def test_methods_that_the_class_has_stay(decorator: Decorator) -> None:
    @decorator(frozen=True)
    class Own:
        name: str

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert (repr(Own("a")), Own("a") == Own("b"), hash(Own("a"))) == ("own", True, 7)


@pytest.mark.parametrize("decorator", BOTH)
def test_a_subclass_calls_the_init_of_its_base_and_may_have_names_of_its_own(decorator: Decorator) -> None:
    @decorator(frozen=True)
    class Base:
        name: str

    class Derived(Base):
        def __init__(self) -> None:
            super().__init__("a")
            self.extra = 1
            del self.extra

    assert Derived().name == "a"
    with pytest.raises(FrozenInstanceError):
        Derived().name = "b"  # type: ignore[misc]


def test_a_standard_frozen_class_derives_from_a_quick_one() -> None:
    @dataclasses.dataclass(frozen=True)
    class Users(Stored):
        other: int = 1

    assert Users("a", other=2) == Users("a", [], 2)
    with pytest.raises(FrozenInstanceError):
        Users("a").other = 3  # type: ignore[misc]


def test_a_nan_equals_itself_as_in_a_tuple() -> None:
    @quick_dataclass.dataclass(frozen=True)
    class Single:
        value: float

    nan = float("nan")
    assert Single(nan) == Single(nan)
    assert Single(nan) != Single(float("nan"))


@pytest.mark.parametrize("value", [Stored("a", [1]), Longer("a", [1], more=4)])
def test_what_is_pickled_comes_back_and_slots_are_a_list_as_ever(value: Stored) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert Stored("a", [1]).__reduce_ex__(4)[2] == ["a", [1]]


def test_what_compile_now_has_made_is_a_plain_function() -> None:
    @quick_dataclass.dataclass
    class Later:
        name: str

    assert not inspect.isfunction(Later.__dict__["__init__"])
    quick_dataclass.compile_now(Later)
    assert inspect.isfunction(Later.__dict__["__init__"])


def test_importing_a_run_compiles_hardly_any_method() -> None:
    code = (
        "import sys; seen = []\n"
        "def watch(event, given):\n"
        "    if event == 'exec' and given[0].co_filename == '<string>': seen.append(given[0])\n"
        "sys.addaudithook(watch)\n"
        "import tuner; tuner.run; print(len(seen))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert int(done.stdout) <= 150, "a dataclass of the standard library compiles up to six each: use quick_dataclass"
