"""The list of programs that others wrote for Ray Tune, and the table of what came of them, for docs/migrating.md."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIST, RESULTS = (Path(__file__).with_name(f"real_programs.{ending}") for ending in ("toml", "json"))
REPLACED = dict.fromkeys(("mnist", "keras_mnist"), "MNIST by scikit-learn's digits")
"""What is said of replaced data; docs/replaced_data.py makes it."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program of the list."""

    name: str
    wrote_for: str
    """The version of Ray."""
    path: str
    """In the package, or in the repository."""
    package: str = ""
    """As pip takes it: "ray==2.9.3"."""
    python: str = ""
    """The Python version whose wheel is downloaded, where it is not this one."""
    repository: str = ""
    """owner/name."""
    commit: str = ""
    files: tuple[str, ...] = ()
    """Further files of the repository that it needs."""
    arguments: tuple[str, ...] = ()
    shows: str = ""
    """What of Ray's it uses."""
    data: str = ""
    """What of its data is replaced: a word of `DATA`."""
    beside: str = ""
    """Packages of its time that it needs and a newer one of which no longer does: installed for it alone."""
    environment: Mapping[str, str] = field(default_factory=dict)
    change: tuple[tuple[str, str], ...] = ()
    """Lines of it that are changed: (as it is, as it runs)."""
    why: str = ""
    """Why that line."""


@dataclass(frozen=True)
class Outcome:
    """What came of one program."""

    ran: bool
    resumed: bool
    trials: int
    results: int
    problem: str = ""


def programs() -> list[Program]:
    """The list."""
    rows = tomllib.loads(LIST.read_text("utf-8"))["program"]
    return [Program(**{key: _frozen(value) for key, value in row.items()}) for row in rows]


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


# --- the table ------------------------------------------------------------------------------------------------------


def table() -> Iterator[str]:
    """The section of docs/migrating.md. Raises ValueError for a program that was not run since it is in the list."""
    came = {name: Outcome(**row) for name, row in json.loads(RESULTS.read_text("utf-8")).items()}
    every = programs()
    missing = [each.name for each in every if each.name not in came]
    if missing:
        raise ValueError(f"docs/real_programs.json does not say what came of {', '.join(missing)}: run make programs")
    well = [each for each in every if came[each.name].resumed]
    plain = [each for each in well if not each.change]
    shipped = sum(each.package.startswith("ray==") for each in every)
    yield "## Programs of others"
    yield ""
    yield (
        f"{len(every)} programs that others wrote, {shipped} of them examples that Ray ships, each run by `python -m "
        "tuner.compat` to its end, then again, killed "
        f"with SIGKILL on the way and resumed with `TUNE_EXISTING=resume`: {len(plain)} run as they are, "
        f"{len(well) - len(plain)} with a line changed, {len(every) - len(well)} do not. A resume has to finish all "
        "trials, and none that had a checkpoint may begin anew. docs/real_programs.toml lists them, `make programs` "
        "fetches and runs them; none of them is part of this project."
    )
    yield ""
    yield "| program | Ray | what of it | runs | trials, iterations |"
    yield "|---|---|---|---|---|"
    for each in every:
        row = (_place(each), each.wrote_for, each.shows, _runs(each, came[each.name]), _size(came[each.name]))
        yield f"| {' | '.join(row)} |"
    yield ""


def _place(program: Program) -> str:
    of = program.repository or program.package
    return f"`{program.path}` of {of.replace('==', ' ')}" + (f" ({program.commit[:8]})" if program.commit else "")


def _runs(program: Program, came: Outcome) -> str:
    if not came.resumed:
        return f"no: {came.problem}" if not came.ran else f"yes, but not after a kill: {came.problem}"
    said = "as it is"
    if program.change:
        lines = ", ".join(
            f"`{old.strip()}` is `{new.strip()}`" if new else f"without `{old}`" for old, new in program.change
        )
        said = f"with a line changed: {lines} ({program.why})"
    if program.beside:
        said += f"; with {program.beside.replace('==', ' ')}"
    return said + (f"; {REPLACED[program.data]}" if program.data else "")


def _size(came: Outcome) -> str:
    return f"{came.trials}, {came.results}"
