"""Checkpoints read by hand, and the best N of them: nothing of the packages is used (design.md, sections 5 and 6)."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

_MANIFEST = ".manifest.json"


@dataclass(frozen=True)
class Held:
    """One checkpoint on a disk."""

    name: str
    iteration: int
    order: tuple[int, int, int]
    chain: str
    """Of the state that it holds."""
    digest: str


def read_all(directory: Path, names: str = "*checkpoint_*") -> tuple[list[Held], list[str]]:
    """The checkpoints of a trial, and what is wrong with them."""
    held, problems = [], []
    for path in sorted(directory.glob(names)):
        if not (path / _MANIFEST).is_file():
            problems.append(f"{path.name} has no manifest")
            continue
        problems += _verify(path)
        data = (path / _MANIFEST).read_bytes()
        manifest = json.loads(data)
        order = (manifest["generation"], manifest["attempt"], manifest["index"])
        held.append(Held(path.name, manifest["iteration"], order, _chain(path), blake3(data).hexdigest()))
    return held, problems


def _verify(path: Path) -> list[str]:
    manifest = json.loads((path / _MANIFEST).read_bytes())
    problems = [] if manifest["name"] == path.name else [f"{path.name} calls itself {manifest['name']}"]
    named = {entry["name"]: entry for entry in manifest["files"]}
    there = {str(file.relative_to(path)) for file in path.rglob("*") if not file.is_dir()} - {_MANIFEST}
    if there != set(named):
        problems.append(f"{path.name} holds other files than its manifest: {sorted(there ^ set(named))[:5]}")
    for name in there & set(named):
        content = (path / name).read_bytes()
        if len(content) != named[name]["size"] or blake3(content).hexdigest() != named[name]["blake3"]:
            problems.append(f"{path.name}/{name} is not what its manifest says")
    return problems


def _chain(path: Path) -> str:
    try:
        if (path / "state.json").exists():
            return str(json.loads((path / "state.json").read_text())["chain"])
        return str(pickle.loads((path / "dict_checkpoint.pkl").read_bytes())["chain"])
    except (OSError, ValueError, KeyError, EOFError, pickle.UnpicklingError):
        return "unreadable"


def best(saved: list[dict[str, Any]], keep: int | None, attr: str | None, facts: list[dict[str, Any]]) -> set[str]:
    """Names that retention keeps of what was saved, given in the order of saving: the best `keep`, and the latest."""
    ordered = sorted(saved, key=lambda ref: (ref["generation"], ref["attempt"], ref["index"]))
    if keep is None or not ordered:
        return {ref["name"] for ref in ordered}
    if attr is None:
        return {ref["name"] for ref in ordered[-keep:]}
    sign = -1.0 if attr.startswith("min-") else 1.0
    key = attr.removeprefix("min-").removeprefix("max-")
    scores = _scores(facts, key)

    def rank(place: int) -> tuple[float, int]:
        value = scores.get(_point(ordered[place]), -math.inf)
        return (-sign * value, place)  # of equal ones the earlier

    places = sorted(range(len(ordered)), key=rank)[:keep]
    return {ordered[place]["name"] for place in {*places, len(ordered) - 1}}


def _point(ref: dict[str, Any]) -> tuple[int, int]:
    return ref["attempt"], ref["iteration"]


def _scores(facts: list[dict[str, Any]], key: str) -> dict[tuple[int, int], float]:
    """(attempt, iteration) -> the metric of that result."""
    results = [fact for fact in facts if fact["kind"] == "result"]
    return {(fact["attempt"], fact["iteration"]): float(fact["metrics"][key]) for fact in results}
