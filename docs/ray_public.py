"""Write docs/ray_public.json, the public names of several versions of Ray: `python docs/ray_public.py WHEEL...`.

Each argument is a wheel of Ray (`pip download --no-deps ray==2.9.3`, for any platform) or a directory that holds the
package `ray`. Only names are read, from the sources; nothing of Ray's is run or stored but they. Public is what
stands in `__all__`, or is marked PublicAPI or DeveloperAPI; of the versions that mark few (1.13 and 2.0) also each
class and function with a docstring. Tests and examples are left out.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

NAMES = Path(__file__).with_name("ray_public.json")
PACKAGES = ("ray/tune/", "ray/train/", "ray/air/")
MARKS = {"PublicAPI", "DeveloperAPI"}
MARKS_ALL = (2, 1)
"""The first version that marks what is public."""
LEFT_OUT = {"tests", "test", "examples", "example"}


def sources(place: Path) -> Iterator[tuple[str, str]]:
    """(path below `ray/`, source) of every module of the three packages."""
    if place.is_dir():
        for package in PACKAGES:
            for file in sorted((place / package).rglob("*.py")):
                yield file.relative_to(place).as_posix(), file.read_text("utf-8")
        return
    with zipfile.ZipFile(place) as wheel:
        for name in sorted(wheel.namelist()):
            path = re.sub(r"^ray-[^/]*\.data/purelib/", "", name)
            if path.startswith(PACKAGES) and path.endswith(".py"):
                yield path, wheel.read(name).decode("utf-8")


def version_of(place: Path) -> str:
    if place.is_dir():
        found = re.search(r'^version = "([\d.]+)"', (place / "ray/_version.py").read_text("utf-8"), re.MULTILINE)
    else:
        found = re.match(r"ray-([\d.]+)-", place.name)
    if found is None:
        raise SystemExit(f"{place} is no wheel of Ray, and no directory that holds it")
    return found[1]


def public_names(tree: ast.Module, *, documented: bool) -> set[str]:
    """The public names that a module defines or hands on. `documented`: a docstring makes one public."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=listed):
                found |= set(strings(listed))
            case ast.AugAssign(target=ast.Name(id="__all__"), value=listed):
                found |= set(strings(listed))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="__all__")), args=arguments):
                found |= {name for listed in arguments for name in strings(listed)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            marks = {mark_of(each) for each in node.decorator_list}
            said = (
                documented and not node.name.startswith("_") and ast.get_docstring(node) and "Deprecated" not in marks
            )
            if marks & MARKS or said:
                found.add(node.name)
    return found


def strings(node: ast.expr) -> list[str]:
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def mark_of(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")


def collect(place: Path) -> dict[str, list[str]]:
    """Module -> its public names."""
    documented = tuple(map(int, version_of(place).split(".")[:2])) < MARKS_ALL
    found = {}
    for path, source in sources(place):
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
        if not LEFT_OUT & set(parts):
            found[".".join(parts)] = sorted(public_names(ast.parse(source), documented=documented))
    return found


def main() -> None:
    versions: dict[str, list[str]] = {}
    for place in map(Path, sys.argv[1:]):
        for module, names in collect(place).items():
            for name in [f"{module}:{name}" for name in names] or [f"{module}:"]:
                versions.setdefault(name, []).append(version_of(place))
    made = json.dumps({name: " ".join(sorted(have)) for name, have in versions.items()}, indent=0, sort_keys=True)
    NAMES.write_text(made + "\n", "utf-8")
    print(f"{NAMES.name}: {len(versions)} names of {len(sys.argv) - 1} versions")


if __name__ == "__main__":
    main()
