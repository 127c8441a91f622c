"""`dataclass` as in the standard library, without its price at every start.

The standard library compiles up to six methods of a class when the class is made: for the two hundred classes of a run
that was two fifths of its import. Here `__init__` is compiled when an instance is first made, and the others are
closures. All else (fields, `replace`, `asdict`, slots, what is pickled, messages, signatures) is as there, and so is
what a type checker sees. Not supported: `InitVar`, `order`, `unsafe_hash`.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, repr=True):
        """A decorator, with or without brackets; see `dataclasses.dataclass`."""
        if cls is None:
            return lambda cls: _process(cls, frozen=frozen, slots=slots, eq=eq, repr_=repr)
        return _process(cls, frozen=frozen, slots=slots, eq=eq, repr_=repr)


class _Factory:
    """The default of a parameter whose value a factory makes, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _InitWhenUsed:
    """Stands where `__init__` belongs, and puts it there when it is first looked up."""

    def __init__(self, cls: Any, *, frozen: bool, slots: bool) -> None:
        self._cls = cls
        self._frozen = frozen
        self._slots = slots

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        init: Any = _compile_init(self._cls, frozen=self._frozen, slots=self._slots)
        self._cls.__init__ = init  # two threads make the same one
        return init.__get__(instance, owner)


def compile_now(*classes: type) -> None:
    """Make what the first instance would: before a fork, so that not every child has to."""
    for cls in classes:
        getattr(cls, "__init__")  # noqa: B009 - looked up, which is all that it takes
        _field_names(cls)


def _process(cls: Any, *, frozen: bool, slots: bool, eq: bool, repr_: bool) -> Any:
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # else a signature is made for it
    # A subclass has to say what its base says; else "frozen" would be two methods compiled.
    derived = any(dataclasses.is_dataclass(base) for base in cls.__bases__)
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and derived, slots=slots)(cls)
    own = cls.__dict__
    fields = dataclasses.fields(cls)
    if "__init__" not in own:
        cls.__init__ = _InitWhenUsed(cls, frozen=frozen, slots=slots)
    if repr_ and "__repr__" not in own:
        cls.__repr__ = _repr([field.name for field in fields if field.repr])
    explicit_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    if eq and "__eq__" not in own:
        cls.__eq__ = _eq([field.name for field in fields if field.compare])
    if eq and not explicit_hash:
        hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
        cls.__hash__ = _hash(hashed) if frozen else None
    if frozen:
        cls.__dataclass_params__.frozen = True
        _freeze(cls, frozenset(field.name for field in fields), slots=slots)
    return cls


def _compile_init(cls: type, *, frozen: bool, slots: bool) -> Callable[..., None]:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"__set": object.__setattr__, "__FACTORY": _FACTORY, "__name__": cls.__module__}
    parameters = ["self"]
    by_keyword: list[str] = []
    body: list[str] = []
    for field in fields:
        name, value = field.name, field.name
        made = field.default_factory is not dataclasses.MISSING
        default = "" if field.default is dataclasses.MISSING else f"=__default_{name}"
        names[f"__default_{name}"] = field.default
        if made:
            default = "=__FACTORY"
            names[f"__make_{name}"] = field.default_factory
            value = f"__make_{name}() if {name} is __FACTORY else {name}"
        if field.init:
            (by_keyword if field.kw_only else parameters).append(f"{name}{default}")
        elif made:
            value = f"__make_{name}()"
        elif default and slots:
            value = f"__default_{name}"
        else:
            continue  # the class has its default, or __post_init__ sets it
        body.append(f"__set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    if by_keyword:
        parameters += ["*", *by_keyword]
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)
    init: Any = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    made_init: Callable[..., None] = init
    return made_init


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of some attributes as a tuple."""
    if not names:
        return lambda _: ()
    values = operator.attrgetter(*names)
    return values if len(names) > 1 else lambda instance: (values(instance),)


_field_names: Callable[[Any], tuple[str, ...]] = functools.cache(
    lambda cls: tuple(field.name for field in dataclasses.fields(cls))
)


def _repr(names: list[str]) -> Callable[[Any], str]:
    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__


def _eq(names: list[str]) -> Callable[[Any, object], bool]:
    values = _values(names)

    def __eq__(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(names: list[str]) -> Callable[[Any], int]:
    values = _values(names)

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _freeze(cls: Any, names: frozenset[str], *, slots: bool) -> None:
    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in _field_names(type(self))]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(_field_names(type(self)), state, strict=False):
            object.__setattr__(self, name, value)

    made = [__setattr__, __delattr__]
    if slots:  # pickle would assign to each slot; the state is the standard library's
        made += [] if "__getstate__" in cls.__dict__ else [__getstate__]
        made += [] if "__setstate__" in cls.__dict__ else [__setstate__]
    for method in made:
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
        setattr(cls, method.__name__, method)
