"""A search space: a config in which some values are domains or grids, at any depth of dicts, lists and tuples.

`Space` is compiled once and then resolved into one config per trial; who draws the values is the caller's (`Draw`).
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

from trainables.quick_dataclass import dataclass
from tuner.error import SettingError
from tuner.search import space_tree as tree
from tuner.search.domains import Categorical, Domain, Function
from tuner.search.grids import Chosen, Grids
from tuner.search.hidden_domains import refuse_hidden


class RecursiveDependencyError(SettingError):
    """Functions of a search space depend on each other in a circle."""


class Draw(Protocol):
    """Where the values of one config come from. `name` tells two places apart, also in two branches of a choice."""

    def value(self, name: str, domain: Domain) -> Any:
        """A value of a domain that is neither a choice nor a function."""

    def index(self, name: str, domain: Categorical) -> int:
        """Which category is chosen."""

    def seed(self, name: str) -> int | None:
        """What the global generators are seeded with while a `sample_from` runs; None: they are left alone."""


@dataclass(frozen=True)
class HashDraw:
    """Values that are a pure function of (key, name): whichever else is drawn, and in whichever order."""

    key: str

    def value(self, name: str, domain: Domain) -> Any:
        return domain.at(self._hash(name) / 2**53)

    def index(self, name: str, domain: Categorical) -> int:
        return domain.index_at(self._hash(name) / 2**53)

    def seed(self, name: str) -> int:
        return self._hash(name)

    def _hash(self, name: str) -> int:
        digest = blake2b(f"{self.key}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 11


class Space:
    """A compiled search space.

    Args:
        config: a dict of plain values, domains, grids, and dicts, lists and tuples of them.

    Example:
        >>> space = Space({"layers": {"grid_search": [1, 2]}})
        >>> space.grid_size, space.resolve(HashDraw("seed"), grid_index=1)["layers"]
        (2, 2)
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        if not isinstance(config, Mapping):
            raise SettingError(f"a search space is a dict, not {type(config).__name__}: {config!r}")
        self.config = config
        self.root = tree.compile_node(dict(config))
        tree.check_distinct(self.root)
        self._grids = Grids(self.root)

    @property
    def grid_size(self) -> int:
        """How many combinations all grids have; 1 without a grid."""
        return self._grids.size

    def resolve(self, draw: Draw, grid_index: int = 0) -> dict[str, Any]:
        """One config.

        Args:
            draw: gives the values of domains.
            grid_index: which combination of the grids, from 0; the first grid by path runs fastest.

        Raises:
            SettingError: functions depend on each other in a circle, or one of them failed.
        """
        return _Resolver(draw, self._grids.chosen(grid_index)).run(self.root)


class _Pending:
    def __repr__(self) -> str:
        return "<not drawn yet>"


_PENDING: Any = _Pending()


class _Resolver:
    """Makes one config: first all domains, then the functions, each after those that it looks at."""

    def __init__(self, draw: Draw, chosen: Chosen) -> None:
        self._draw, self._chosen = draw, chosen
        self._functions: dict[tree.Path, tuple[str, Function]] = {}
        self._tuples: list[tree.Path] = []
        self._running: list[tree.Path] = []
        self.root: Any = None

    def run(self, root: tree.Node) -> dict[str, Any]:
        self.root = self._build(root, (), "", self._chosen, ())
        if isinstance(root, tree.Fixed):
            return dict(self.root)
        while self._functions:
            self.settle(next(iter(self._functions)))
        for path in sorted(self._tuples, key=len, reverse=True):  # the innermost first: its owner is still a list
            parent = self.at(path[:-1])
            parent[path[-1]] = tuple(parent[path[-1]])
        made: dict[str, Any] = self.root
        return made

    def _build(self, node: tree.Node, path: tree.Path, name: str, chosen: Chosen, within: tree.Path) -> Any:
        if isinstance(node, tree.Fixed):
            return node.value
        if isinstance(node, tree.Leaf):
            return self._draw.value(name, node.domain)
        if isinstance(node, tree.Items):
            return self._build_items(node, path, name, chosen, within)
        if isinstance(node, tree.Branches):
            index = self._draw.index(name, node.domain)
            return self._build(node.nodes[index], path, f"{name}[{index}]", chosen, within)
        if isinstance(node, tree.GridValues):
            index, inner = chosen.values[within]
            return self._build(node.nodes[index], path, f"{name}[{index}]", inner, ())
        self._functions[path] = (name, node.domain)
        return _PENDING

    def _build_items(self, node: tree.Items, path: tree.Path, name: str, chosen: Chosen, within: tree.Path) -> Any:
        prefix = f"{name}/" if name else ""
        made = [
            (key, self._build(inner, (*path, key), f"{prefix}{key}", chosen, (*within, key)))
            for key, inner in node.nodes
        ]
        if node.kind is dict:
            return dict(made)
        if node.kind is tuple and path:
            self._tuples.append(path)  # a list until the functions in it have run
        return [value for _, value in made]

    @property
    def unfinished(self) -> bool:
        """True while there are functions that have not run."""
        return bool(self._functions)

    def is_running(self, path: tree.Path) -> bool:
        """True for a function that waits for another one, or for itself."""
        return path in self._running

    def at(self, path: tree.Path) -> Any:
        """What is at a path now."""
        node = self.root
        for key in path:
            node = node[key]
        return node

    def settle(self, path: tree.Path) -> None:
        """Run the function at `path`, after those that it looks at."""
        if path in self._running:
            circle = [*self._running[self._running.index(path) :], path]
            raise RecursiveDependencyError(
                f"sample_from functions depend on each other in a circle: {' -> '.join(map(tree.path_text, circle))}"
            )
        name, domain = self._functions[path]
        self._running.append(path)
        try:
            with seeded(self._draw.seed(name)):
                value = plain(domain.call(ConfigView(self, ())))
        except SettingError:
            raise
        except Exception as error:
            raise SettingError(
                f"sample_from at {tree.path_text(path)!r} failed: {type(error).__name__}: {error}"
            ) from error
        finally:
            self._running.pop()
        del self._functions[path]
        refuse_hidden(value, path)
        node = tree.compile_node(value, path, branch=tree.path_text(path))  # it may return domains
        tree.check_distinct(node)
        built = self._build(node, path, f"{name}()", Chosen(), ())
        self.at(path[:-1])[path[-1]] = built


class ConfigView(Mapping[str, Any]):
    """What a `sample_from` function sees: the config, by item or attribute. What is not drawn yet is drawn then.

    At the top, `config` is the config itself, so that `spec.config.x` works as `config["x"]` does.
    """

    __slots__ = ("_path", "_resolver")

    def __init__(self, resolver: _Resolver, path: tree.Path) -> None:
        self._resolver, self._path = resolver, path

    def _node(self) -> Any:
        return self._resolver.at(self._path)

    def __getitem__(self, key: Any) -> Any:
        node = self._node()
        if key not in node:
            if key == "config" and not self._path:
                return self
            there = ", ".join(map(str, node)) or "nothing"
            raise KeyError(f"{tree.path_text((*self._path, key))!r} is not in the config; there is: {there}")
        return _see(self._resolver, (*self._path, key))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        # Who takes the whole config gets it without what is being computed: `dict(config)` is no circle.
        return (key for key in self._node() if not self._resolver.is_running((*self._path, key)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        return key in self._node()

    def __repr__(self) -> str:
        return repr(self._node())


class _ListView(Sequence[Any]):
    """A list or tuple as a function sees it, each item drawn when it is looked at."""

    __slots__ = ("_path", "_resolver")

    def __init__(self, resolver: _Resolver, path: tree.Path) -> None:
        self._resolver, self._path = resolver, path

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]  # also from the end
        return _see(self._resolver, (*self._path, number))

    def __len__(self) -> int:
        return len(self._resolver.at(self._path))

    def __repr__(self) -> str:
        return repr(self._resolver.at(self._path))


def _see(resolver: _Resolver, path: tree.Path) -> Any:
    """What a function gets to see at a path: the value, or a view where something in it may not be drawn yet."""
    value = resolver.at(path)
    if value is _PENDING:
        resolver.settle(path)
        value = resolver.at(path)
    if isinstance(value, dict):
        return ConfigView(resolver, path)
    return _ListView(resolver, path) if resolver.unfinished and isinstance(value, list) else value


def plain(value: Any) -> Any:
    """A value without views in it."""
    if isinstance(value, ConfigView):
        return {key: plain(value[key]) for key in value}
    if isinstance(value, _ListView):
        return [plain(item) for item in value]
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    return value


@contextlib.contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Seed python's and numpy's global generators for a user's function, and leave them as they were."""
    if seed is None:
        yield
        return
    numpy = sys.modules.get("numpy")  # a function that uses it has imported it
    before = random.getstate()
    numpy_before = numpy.random.get_state() if numpy is not None else None
    random.seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(before)
        if numpy is not None and numpy_before is not None:
            numpy.random.set_state(numpy_before)
