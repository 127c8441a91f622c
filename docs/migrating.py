"""Write docs/migrating.md, what differs for a script that was written for Ray: `python docs/migrating.py`.

`--check` only compares. What Ray has is read from docs/ray_names.json, so that no Ray is needed; `--collect` writes
that file, and is run where Ray is installed (`.venv-bench/bin/python docs/migrating.py --collect`). What this project
has is looked up. Kept by hand is only what no code tells: docs/migrating_notes.yaml.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PAGE, NAMES, NOTES = DOCS / "migrating.md", DOCS / "ray_names.json", DOCS / "migrating_notes.yaml"
PUBLIC, VARIABLES = DOCS / "ray_public.json", DOCS / "ray_variables.json"
sys.path[:0] = [str(DOCS), str(DOCS.parent)]
import program_list  # noqa: E402 - from beside this page

from tuner.compat.missing import NotHere, instead_of  # noqa: E402
from tuner.compat.stand_in import counterpart  # noqa: E402
from tuner.compat.table import sections  # noqa: E402
from tuner.compat.variables import honoured, without_effect  # noqa: E402

MODULES = {
    "ray.tune": """
        analysis callback error execution.placement_groups experiment integration.keras integration.lightgbm
        integration.pytorch_lightning integration.ray_train integration.xgboost logger logger.aim logger.comet
        logger.mlflow logger.wandb progress_reporter registry result result_grid schedulers schedulers.pb2
        schedulers.resource_changing_scheduler search search.ax search.basic_variant search.bayesopt search.bohb
        search.hebo search.hyperopt search.nevergrad search.optuna search.repeater search.sample search.zoopt stopper
        syncer trainable tune_config tuner utils
        """,
    "ray.train": """
        base_trainer collective context data_parallel_trainer huggingface.transformers lightgbm lightning tensorflow
        torch xgboost
        """,
    "ray.air": "config integrations.comet integrations.keras integrations.mlflow integrations.wandb session",
}
"""Modules that scripts import from."""
CONSTANTS = "ray.tune.result"
NOT_FOR_SCRIPTS = ("_", "RLLIB")

# --- what Ray has ---------------------------------------------------------------------------------------------


def collect() -> dict[str, Any]:
    """Every public name of the modules, with the arguments of what can be called and the members of classes."""
    import ray

    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for package, inner in MODULES.items():
        for name in [package, *(f"{package}.{module}" for module in inner.split())]:
            try:
                found[name] = of_module(importlib.import_module(name))
            except (ImportError, DeprecationWarning):  # it needs what is not installed: its source says enough
                found[name] = of_source(name)
    return {"ray": ray.__version__, "modules": found}


def of_module(module: Any) -> dict[str, Any]:
    public = getattr(module, "__all__", None)
    if public is None:
        public = [name for name, value in vars(module).items() if is_public(module.__name__, name, value)]
    return {name: described(getattr(module, name)) for name in sorted(public) if not name.startswith(NOT_FOR_SCRIPTS)}


def is_public(module: str, name: str, value: Any) -> bool:
    """Without `__all__`: what the module defines and Ray marks as an API, or hands on in a module made for that."""
    if module == CONSTANTS:
        return name.isupper() and isinstance(value, str | int | float | tuple)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return False
    if module == "ray.air.session":
        return inspect.isfunction(value) and value.__module__.startswith("ray.train.") and "_annotated" in vars(value)
    hands_on = module.startswith("ray.air.") and name.endswith("LoggerCallback") and name != "LoggerCallback"
    return value.__module__ == module or hands_on


def described(value: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if callable(value):
        made["arguments"] = arguments_of(value)
    else:
        made["value"] = repr(value) if isinstance(value, str | int | float) else type(value).__name__
    if inspect.isclass(value):
        made["members"] = sorted(members_of(value))
    return made


def members_of(kind: type) -> set[str]:
    """Public methods and properties that are not of python's own classes."""
    own = (vars(base) for base in kind.__mro__ if not base.__module__.startswith(("builtins", "collections", "typing")))
    return {name for names in own for name in names if not name.startswith("_")}


def arguments_of(value: Any) -> dict[str, str | None] | None:
    """Name -> default as text, None where it has to be given; "*" before those that take any."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return {stars.get(p.kind, "") + p.name: None if p.default is p.empty else shown(p.default) for p in parameters}


def shown(default: Any) -> str:
    plain = default is None or isinstance(default, bool | int | float | str | list | tuple | dict)
    return repr(default) if plain else "..."


def of_source(name: str) -> dict[str, Any]:
    """The classes and functions that a module defines, without running it, and those of its package's parts."""
    root = importlib.util.find_spec(name.split(".")[0])
    assert root is not None and root.origin is not None
    place = Path(root.origin).parent.joinpath(*name.split(".")[1:])
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    files = [file, *sorted(place.glob("*.py"))] if place.is_dir() else [file]
    listed = listed_in(ast.parse(file.read_text("utf-8")))
    found: dict[str, Any] = {}
    for each in files:
        for node in ast.parse(each.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                if node.name in listed or (not listed and each == file):
                    found[node.name] = {"arguments": None}
    return dict(sorted(found.items()))


def listed_in(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            return [str(ast.literal_eval(item)) for item in getattr(node.value, "elts", ())]
    return []


# --- what there is here ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One name of Ray, and what became of it."""

    module: str
    name: str
    state: str
    """"equal", "differs" or "missing"."""
    said: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


def lines(names: dict[str, Any], notes: dict[str, Any]) -> Iterator[Line]:
    """Every name of Ray with what this project has for it."""
    for module, public in names["modules"].items():
        for name, there in public.items():
            yield compared(module, name, there, notes)


def compared(module: str, name: str, there: dict[str, Any], notes: dict[str, Any]) -> Line:
    meaning = notes["meaning"].get(f"{module}.{name}") or (notes["meaning"].get(name) if name[:1].isupper() else None)
    try:
        ours = getattr(importlib.import_module(here(module)), name)
    except AttributeError:
        said = notes["missing"].get(f"{module}.{name}") or notes["missing"].get(f"{module}.*")
        return Line(module, name, "missing", said or "")
    except ImportError as error:  # of a module that says by itself what to use instead
        return Line(module, name, "missing", str(error).partition(" is not here: ")[2])
    if isinstance(ours, NotHere):
        return Line(module, name, "missing", instead_of(ours))
    if "value" in there:
        same = there["value"] in (repr(ours), type(ours).__name__)
        return Line(
            module,
            name,
            "equal" if same else "differs",
            "" if same else f"{code(repr(ours))}, Ray's: {code(there['value'])}",
        )
    parts = []
    if callable(ours) and name not in notes["given"]:
        parts += differing_arguments(there.get("arguments"), arguments_of(ours))
    has = {*dir(ours), *getattr(ours, "__dataclass_fields__", ()), *getattr(ours, "__struct_fields__", ())}
    has |= set(arguments_of(ours) or ()) if inspect.isclass(ours) else set()  # kept under their names
    lacking = [member for member in there.get("members", ()) if member not in has | set(notes["internal"])]
    if lacking and name not in notes["opaque"]:
        parts.append("not here: " + ", ".join(f"`{member}`" for member in lacking))
    if meaning:
        parts.insert(0, meaning)
    return Line(module, name, "differs" if parts else "equal", "; ".join(parts))


def here(module: str) -> str:
    """The module of ours that stands for one of Ray's, as `tuner.compat` maps it."""
    return counterpart(module) or module


def differing_arguments(theirs: dict[str, Any] | None, ours: dict[str, Any] | None) -> Iterator[str]:
    if theirs is None or ours is None:
        return
    takes_any = any(name.startswith("**") for name in ours)  # they are handed on, or named in one warning
    without = [name for name in theirs if name not in ours and not name.startswith(("*", "_"))]
    if without and not takes_any:
        yield "does not take " + ", ".join(f"`{name}`" for name in without)
    more = [name for name in ours if name not in theirs and not name.startswith(("*", "_"))]
    if more and not any(name.startswith("**") for name in theirs):
        yield "also takes " + ", ".join(f"`{name}`" for name in more)
    for name in theirs:
        if name not in ours or ours[name] == theirs[name] or name.startswith("_"):
            continue
        if theirs[name] is not None and "..." not in (theirs[name], ours[name]) and theirs[name] != "'DEPRECATED'":
            yield f"`{name}` {default(ours[name])}, Ray's {default(theirs[name])}"


def code(text: str) -> str:
    """As code, whatever stands in it."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def default(text: str | None) -> str:
    return "has to be given" if text is None else f"is `{text}` by default"


# --- the page ---------------------------------------------------------------------------------------------------


def page() -> str:
    """The page as it is to be. Raises ValueError for a name that is missing without a word about it."""
    import yaml

    names, notes = json.loads(NAMES.read_text("utf-8")), yaml.safe_load(NOTES.read_text("utf-8"))
    every = list(lines(names, notes))
    silent = [line.path for line in every if line.state == "missing" and not line.said]
    if silent:
        raise ValueError(f"docs/migrating_notes.yaml does not say what to use instead of {', '.join(silent)}")
    known = {line.path for line in every} | {line.name for line in every}
    said = {line.said for line in every if line.state == "missing"}
    stale = [key for key in notes["meaning"] if key not in known]
    stale += [key for key, text in notes["missing"].items() if text not in said]
    if stale:
        raise ValueError(
            f"docs/migrating_notes.yaml tells of names that Ray {names['ray']} has not: {', '.join(stale)}"
        )
    count = Counter(line.state for line in every)
    head = notes["head"].format(ray=names["ray"], number=len(every), **count)
    made = [head.rstrip(), "", *program_list.table(), *environment(), *older(names["ray"], notes["older"])]
    return "\n".join([*made, *tables(every)]).rstrip() + "\n"


def environment() -> Iterator[str]:
    """The environment variables of Ray's."""
    versions: dict[str, str] = json.loads(VARIABLES.read_text("utf-8"))
    yield "## Environment variables"
    yield ""
    yield "A run that finds one set which does nothing here says so in one line."
    yield ""
    yield "| variable | of Ray | does here |"
    yield "|---|---|---|"
    for name, have in versions.items():
        said = honoured().get(name) or f"nothing: {without_effect()[name]}"
        yield f"| `{name}` | {', '.join(version.rpartition('.')[0] for version in have.split())} | {said} |"
    yield ""


def older(newest: str, notes: dict[str, str]) -> Iterator[str]:
    """Names that only older versions have, by module: where they are here, or what to use instead."""
    public = json.loads(PUBLIC.read_text("utf-8"))
    yield "## Names of older versions"
    yield ""
    yield from counts(public)
    yield "| module | of Ray | names | here, or what instead |"
    yield "|---|---|---|---|"
    rows: dict[tuple[str, str, str], list[str]] = {}
    for path, versions in public.items():
        module, _, name = path.partition(":")
        if name and newest not in versions.split():
            ours = getattr(importlib.import_module(here(module)), name)
            said = instead_of(ours) if isinstance(ours, NotHere) else place_of(ours, module, name)
            said += f": {notes[f'{module}.{name}']}" if f"{module}.{name}" in notes else ""
            short = ", ".join(sorted(version.rpartition(".")[0] for version in versions.split()))
            rows.setdefault((module, short, said), []).append(f"`{name}`")
    for (module, versions, said), listed in sorted(rows.items()):
        yield f"| `{module}` | {versions} | {', '.join(listed)} | {said} |"
    yield ""


def counts(public: dict[str, str]) -> Iterator[str]:
    """How many names of each version work, and how many say what to use instead."""
    count: Counter[tuple[str, bool]] = Counter()
    for path, versions in public.items():
        module, _, name = path.partition(":")
        if name:
            try:
                works = not isinstance(getattr(importlib.import_module(here(module)), name), NotHere)
            except ImportError:
                works = False
            count.update((version, works) for version in versions.split())
    yield "| Ray | public names | work, some with a difference that is named below | say, when used, what instead |"
    yield "|---|---|---|---|"
    for version in sorted({version for version, _ in count}, key=lambda version: [*map(int, version.split("."))]):
        works, says = count[version, True], count[version, False]
        yield f"| {version} | {works + says} | {works} | {says} |"
    yield ""


def place_of(ours: Any, module: str, name: str) -> str:
    """Where users find it: the public module that has it."""
    if isinstance(ours, type) and issubclass(ours, Exception) and ours.__module__.startswith("ray."):
        return "can be caught, and is never raised"
    section = sections().get(module.removeprefix("ray."))
    target = (section.names.get(name) or section.here or "") if section else ""
    place, _, other = (target or here(module)).partition(":")
    return f"`{place}.{other or name}`"


def tables(every: list[Line]) -> Iterator[str]:
    """One table per module; names that are equal are listed in a line."""
    for module in dict.fromkeys(line.module for line in every):
        own = [line for line in every if line.module == module]
        yield f"## {module}"
        yield ""
        yield f"Here `{here(module)}`." if any(line.state != "missing" for line in own) else "Nothing of it is here."
        yield ""
        equal = [f"`{line.name}`" for line in own if line.state == "equal"]
        if equal:
            yield f"Equal: {', '.join(equal)}."
            yield ""
        rest = [line for line in own if line.state != "equal"]
        if rest:
            yield "| name | | how, or what instead |"
            yield "|---|---|---|"
            yield from (f"| `{line.name}` | {line.state} | {line.said} |" for line in rest)
            yield ""


def main() -> int:
    os.environ.setdefault("KERAS_HOME", os.devnull)  # Keras would write its settings there when its names are looked up
    if "--collect" in sys.argv[1:]:
        NAMES.write_text(json.dumps(collect(), indent=1, sort_keys=True) + "\n", "utf-8")
        return 0
    made = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text("utf-8") == made:
            return 0
        print("docs/migrating.md is not up to date: run python docs/migrating.py")
        return 1
    PAGE.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
