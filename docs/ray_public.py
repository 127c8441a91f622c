"""Write what several versions of Ray make public: their names, members of classes, and environment variables.

`python docs/ray_public.py WHEEL...` writes docs/ray_public.json, docs/ray_members.json (of the classes that users hold)
and docs/ray_variables.json.

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
MEMBERS = Path(__file__).with_name("ray_members.json")
HELD = {
    *("Analysis", "Checkpoint", "ExperimentAnalysis", "FunctionRunner", "FunctionTrainable", "LegacyLoggerCallback"),
    *("Logger", "LoggerCallback", "Result", "ResultGrid", "Trainable"),
}
"""Classes of which users hold objects, or write subclasses."""
VARIABLES = Path(__file__).with_name("ray_variables.json")
VARIABLE = re.compile(r"(TUNE|TRAIN|RAY_AIR|RAY_CHDIR|RAY_TRAIN|RAY_TUNE)_[A-Z0-9_]+$")
PACKAGES = ("ray/tune/", "ray/train/", "ray/air/", "ray/ml/")
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


def members_of(node: ast.ClassDef) -> set[str]:
    """Methods, properties, class variables, and what `__init__` sets, without underscore."""
    found: set[str] = set()
    for each in node.body:
        match each:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            for inner in ast.walk(each):
                match inner:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                        found.add(name)
    return {name for name in found if not name.startswith("_")}


def members(place: Path) -> Iterator[str]:
    """`module:Class.member` of the classes that users hold."""
    for path, source in sources(place):
        module = ".".join(path.removesuffix(".py").removesuffix("/__init__").split("/"))
        if not LEFT_OUT & set(module.split(".")):
            for node in ast.parse(source).body:
                if isinstance(node, ast.ClassDef) and node.name in HELD:
                    yield from (f"{module}:{node.name}.{name}" for name in members_of(node))


def variables(tree: ast.Module) -> set[str]:
    """The environment variables that a module names."""
    listed = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        for name in strings(node.value)
    }
    said = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text for text in said if VARIABLE.match(text)} - listed


def collect_variables(place: Path) -> set[str]:
    """The environment variables of one version."""
    every = (variables(ast.parse(source)) for path, source in sources(place) if not LEFT_OUT & set(path.split("/")))
    return set().union(*every)


def collect(place: Path) -> dict[str, list[str]]:
    """Module -> its public names."""
    documented = tuple(map(int, version_of(place).split(".")[:2])) < MARKS_ALL
    found = {}
    for path, source in sources(place):
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
        if not LEFT_OUT & set(parts):
            found[".".join(parts)] = sorted(public_names(ast.parse(source), documented=documented))
    return found


def write(file: Path, versions: dict[str, list[str]]) -> None:
    made = json.dumps({name: " ".join(sorted(have)) for name, have in versions.items()}, indent=0, sort_keys=True)
    file.write_text(made + "\n", "utf-8")
    print(f"{file.name}: {len(versions)} names of {len(sys.argv) - 1} versions")


def main() -> None:
    versions: dict[str, list[str]] = {}
    held: dict[str, list[str]] = {}
    read: dict[str, list[str]] = {}
    for place in map(Path, sys.argv[1:]):
        for module, names in collect(place).items():
            for name in [f"{module}:{name}" for name in names] or [f"{module}:"]:
                versions.setdefault(name, []).append(version_of(place))
        for name in members(place):
            held.setdefault(name, []).append(version_of(place))
        for name in collect_variables(place):
            read.setdefault(name, []).append(version_of(place))
    write(NAMES, versions)
    write(MEMBERS, held)
    write(VARIABLES, read)


if __name__ == "__main__":
    main()
