"""Search spaces compared: with the configs made of them, and with each other by their fingerprints."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from tuner.search import space_tree as tree
from tuner.search.domains import Domain, describe, same

_LONGEST = 60
"""Characters of a constant's value in a fingerprint."""
_LONGEST_DOMAIN = 64 * 1024
"""Characters of a domain in a fingerprint: its values may be megabytes."""


def searched_paths(space: Mapping[str, Any]) -> list[str]:
    """The places of a space where something is searched, as "a/b"."""
    places = tree.leaves(tree.compile_node(dict(space)))
    return [tree.path_text(path) for path, node in places if not isinstance(node, tree.Fixed)]


def evaluated_params(space: Mapping[str, Any] | Callable[..., Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The searched part of a config that was made from a space, flat: {"model/lr": 0.1}.

    What the searcher added beside the space counts as searched, and all of it for a function.
    """
    return _searched_part(space, config, "") if isinstance(space, Mapping) else tree.flat(config)


def _searched_part(space: Any, value: Any, path: str) -> dict[str, Any]:
    if value is space:  # a constant is passed on as it is
        return {}
    prefix = f"{path}/" if path else ""
    found: dict[str, Any] = {}
    if isinstance(space, Domain) or tree.is_grid(space):
        found = tree.flat(value, path)
    elif isinstance(space, Mapping) and isinstance(value, Mapping):
        for key, item in value.items():
            place = f"{prefix}{key}"
            found |= _searched_part(space[key], item, place) if key in space else tree.flat(item, place)
    elif isinstance(space, (list, tuple)) and isinstance(value, (list, tuple)) and len(space) == len(value):
        for index, (inner, item) in enumerate(zip(space, value, strict=True)):
            found |= _searched_part(inner, item, f"{prefix}{index}")
    elif not same(space, value):
        found = tree.flat(value, path)
    return found


def merge_constants(space: Mapping[str, Any] | Callable[..., Any], suggestion: Mapping[str, Any]) -> dict[str, Any]:
    """A suggestion with the constants of the space that it does not name."""
    if not isinstance(space, Mapping) or not space:
        return dict(suggestion)
    merged: dict[str, Any] = {}
    for key, value in space.items():
        if key not in suggestion:
            merged[key] = value
            continue
        given = suggestion[key]
        nested = (
            given is not value and isinstance(value, dict) and isinstance(given, Mapping) and not tree.is_grid(value)
        )
        merged[key] = merge_constants(value, given) if nested else given
    for key, value in suggestion.items():
        merged.setdefault(key, value)
    return merged


def fingerprint(space: Mapping[str, Any] | Callable[..., Any]) -> dict[str, str]:
    """What two spaces are compared by, fit for JSON: place -> domain as text, or "constant".

    Never bytecode: of a function there is its name and a digest of its source, for the warning about an edit.
    """
    if not isinstance(space, Mapping):
        name = getattr(space, "__name__", type(space).__name__)
        return {"": f"define-by-run({name}){_digest(space)}"}
    found: dict[str, str] = {}
    for path, node in tree.leaves(tree.compile_node(dict(space))):
        place = tree.path_text(path)
        if isinstance(node, tree.Fixed):
            _constants(node.value, place, found)
        else:
            digest = _digest(node.domain.func) if isinstance(node, tree.Computed) else ""
            found[place] = _shortened(_describe_node(node) + digest)
    return found


def _shortened(text: str) -> str:
    """A domain's text, or its first part and a digest of it; what was shortened once stays as it is."""
    if len(text) <= _LONGEST_DOMAIN:
        return text
    return f"{text[: _LONGEST_DOMAIN // 2]}... ({_hash(text, 32)})"


def _hash(text: str, size: int) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def _constants(value: Any, path: str, found: dict[str, str]) -> None:
    """Constants may change: their places are compared, and behind # stands what to warn with, where it can be told."""
    if isinstance(value, Mapping) and (value or not path):
        for key, item in value.items():
            _constants(item, f"{path}/{key}" if path else str(key), found)
    else:
        text = describe(value) if _is_plain(value) else ""
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}... ({_hash(text, 4)})"
        found[path] = f"constant#{text}" if text else "constant"


def _is_plain(value: Any) -> bool:
    """True for what reads the same in every process."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float, bool))


def _describe_node(node: tree.Node) -> str:
    if isinstance(node, tree.Fixed):
        return describe(node.value)
    if isinstance(node, tree.Leaf):
        return node.domain.describe()
    if isinstance(node, tree.Computed):
        return "sample_from"
    if isinstance(node, tree.Items):
        inner = ", ".join(f"{key!r}: {_describe_node(item)}" for key, item in node.nodes)
        return f"{{{inner}}}"
    name = "choice" if isinstance(node, tree.Branches) else "grid_search"
    return f"{name}([{', '.join(_describe_node(inner) for inner in node.nodes)}])"


def _digest(function: Any) -> str:
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return ""
    return "#" + blake2b("".join(source.split()).encode("utf-8", "replace"), digest_size=6).hexdigest()


def space_difference(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What differs between two fingerprints, one line per place; empty: nothing that matters at a resume."""
    lines = []
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = _without_digest(old.get(key)), _without_digest(new.get(key))
        if before != after:
            place = key or "the space"
            lines.append(f"{place}: was {before or 'not there'}, now {after or 'not there'}")
    return lines


def space_warnings(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What differs and is no reason to refuse, one line each: edited functions, constants of another value."""
    lines = []
    for key, text in new.items():
        before = old.get(key, "")
        if before == text or "#" not in before or "#" not in text or space_difference({key: before}, {key: text}):
            continue
        place = key or "the space"
        if text.startswith("constant#"):
            was, now = before.partition("#")[2], text.partition("#")[2]
            lines.append(f"the constant at {place!r} was {was} and is {now}: new trials get it, the others keep theirs")
        else:
            lines.append(f"the function at {place!r} was edited since the start; new trials use it as it is now")
    return lines


def _without_digest(text: str | None) -> str | None:
    if text is not None and text.startswith(("constant#", "sample_from", "define-by-run")):
        return text.partition("#")[0]
    return None if text is None else _shortened(text)  # an older version wrote all of it
