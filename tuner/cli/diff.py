"""`tuner diff A B`: in what two trials, or two checkpoints, differ."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.errors import TrainablesError
from trainables.places import child_of, parent_and_name, trim_slash
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer.open import open_backend, shown
from tuner.addresses import checkpoint_at
from tuner.cli import output, place
from tuner.error import SettingError, TuneError
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.outcome import outcome
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere, parse_checkpoint
from tuner.experiment.reader import is_experiment, load_with_journal
from tuner.experiment.trial import Trial
from tuner.inspection.trial_diff import DiffRow, trial_rows

DESCRIPTION = """\
Compares two trials, of one experiment or of two: config and last metrics; or two checkpoints: files, and tensors and
values in them, as far as torch, numpy or safetensors wrote them. Each of A and B is EXPERIMENT/TRIAL (a number, id or
name: digits/7), EXPERIMENT/TRIAL/CHECKPOINT, EXPERIMENT@TAG, EXPERIMENT@TRIAL@ITERATION, or a checkpoint's path or URI;
B may be a mere trial, of A's experiment.
Exit status 0: they are the same; 1: they differ; 2: they cannot be compared."""

SAME, DIFFERENT, ERROR = 0, 1, 2
OUTCOME = 60
"""Characters of how a trial stands."""
SHOWN = 40
"""Lines about files at most; `--json` has all."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "diff",
        help="show in what two trials or two checkpoints differ",
        description=DESCRIPTION,
    )
    verb.add_argument("a", metavar="A", help="EXPERIMENT/TRIAL, or a checkpoint")
    verb.add_argument("b", metavar="B", help="another one")
    verb.add_argument("--ignore", action="append", default=[], metavar="NAME", help="what may differ, as *_seconds")
    verb.add_argument("--unpickle", action="store_true", help="read pickles too, which runs their code")
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class Subject:
    """One side."""

    address: str
    trial: Trial | None = None
    experiment: str = ""
    checkpoint: Checkpoint | None = None
    """What is compared, where that is no trial."""

    @property
    def kind(self) -> str:
        return "trial" if self.checkpoint is None else "checkpoint"


def run(arguments: argparse.Namespace) -> int:
    try:
        one = subject(arguments.a)
        other = subject(arguments.b, beside=one)
        if one.kind != other.kind:
            raise SettingError(f"a {one.kind} and a {other.kind} cannot be compared: {one.address}, {other.address}")
        if one.trial is not None and other.trial is not None and one.checkpoint is None:
            rows = list(trial_rows(one.trial, other.trial, arguments.ignore))
        else:
            rows = list(_checkpoints(one, other, arguments.ignore, arguments.unpickle))
    except (TuneError, TrainablesError, *UNREADABLE) as error:
        output.complain("diff", said(error))
        return ERROR
    output.say(_json(one, other, rows) if arguments.json else _text(one, other, rows))
    return DIFFERENT if rows else SAME


# --- what is meant ------------------------------------------------------------------------------------------------


def subject(given: str, beside: Subject | None = None) -> Subject:
    """What an argument means. Raises SettingError, and what reading an experiment raises."""
    found = checkpoint_at(given)
    if found is not None:
        address = child_of(shown(found.experiment), f"{found.trial.dirname}/{found.record.ref.name}")
        return Subject(address, found.trial, found.experiment, found.checkpoint)
    if beside is not None and beside.experiment and "/" not in given and not as_local_path(given).exists():
        return _of_experiment(beside.experiment, given)
    if _is_checkpoint(given):
        address = trim_slash(shown(given))
        return Subject(address, checkpoint=Checkpoint.from_uri(place.whole(given)))
    above, last = parent_and_name(given)
    if not last or (not is_elsewhere(given) and is_experiment(ExperimentPaths(as_local_path(given)))):
        raise SettingError(
            f"{shown(given)!r} is neither a trial nor a checkpoint: say EXPERIMENT/TRIAL, as "
            f"{child_of(shown(given), '0')}"
        )
    if parse_checkpoint(last) is None:
        return _of_experiment(above, last)
    above, trial = parent_and_name(above)
    of = _of_experiment(above, trial).trial
    assert of is not None
    for record in of.checkpoints:
        if record.ref.name == last:
            return Subject(child_of(above, f"{of.dirname}/{last}"), of, above, of.open_checkpoint(record))
    names = ", ".join(record.ref.name for record in of.checkpoints)
    raise SettingError(f"{of.name} has no checkpoint {last!r}; it has: {names or 'none'}")


def _is_checkpoint(given: str) -> bool:
    if not is_elsewhere(given):
        return (as_local_path(given) / MANIFEST_NAME).is_file()
    above, name = parent_and_name(given)
    if not name or parse_checkpoint(name) is None:
        return False
    with open_backend(above) as backend:
        return backend.exists(f"{name}/{MANIFEST_NAME}")


def _of_experiment(experiment: str, trial: str) -> Subject:
    with place.fact_log(experiment) as (paths, address):
        problems: list[str] = []
        found = place.trial(load_with_journal(paths, problems)[0].trials, trial)
    if is_elsewhere(experiment):
        found.__dict__["origin"] = trim_slash(experiment)
    return Subject(child_of(address, found.dirname), found, experiment)


# --- what differs -------------------------------------------------------------------------------------------------


def _checkpoints(one: Subject, other: Subject, ignore: Sequence[str], unpickle: bool) -> Iterator[DiffRow]:
    from tuner.tools.prove import compare_files

    with contextlib.ExitStack() as stack:
        paths = [Path(stack.enter_context(_opened(each).as_directory())) for each in (one, other)]
        for found in compare_files.compare(*paths, ignore=ignore, unpickle=unpickle):
            yield DiffRow("files", found.name, text=found.text, largest=found.largest)


def _opened(subject: Subject) -> Checkpoint:
    assert subject.checkpoint is not None
    return subject.checkpoint


# --- how it is shown ----------------------------------------------------------------------------------------------


def _text(one: Subject, other: Subject, rows: Sequence[DiffRow]) -> str:
    lines = [f"A  {output.value(_called(one))}", f"B  {output.value(_called(other))}", ""]
    if not rows:
        return "\n".join([*lines, f"the two {one.kind}s are the same"])
    if one.kind == "trial":
        cells = [(f"{row.section}: {row.name}", *row.values, _apart(row)) for row in rows]
        header = ("what differs", "A", "B", "B - A")
        lines.append(output.table(header, cells, width=output.terminal_width(), first=header))
    else:
        lines[1] += "  (now)"
        lines += [f"{output.value(row.name)}: {output.value(row.text)}" for row in rows[:SHOWN]]
        lines += [f"... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
    largest = max((row for row in rows if row.largest is not None), key=_size, default=None)
    if largest is not None:
        lines += ["", f"largest absolute difference: {largest.largest:.5g} ({output.value(largest.name)})"]
    return "\n".join(lines)


def _size(row: DiffRow) -> float:
    assert row.largest is not None
    return row.largest if row.largest == row.largest else float("inf")


def _called(subject: Subject) -> str:
    trial = subject.trial
    if trial is None or subject.checkpoint is not None:
        return subject.address
    return f"{subject.address}  (trial {trial.index}, iteration {trial.iteration}, {outcome(trial)[:OUTCOME]})"


def _apart(row: DiffRow) -> str:
    if row.largest is None:
        return ""
    one, other = row.values
    return f"{other - one:+.5g}"


def _json(one: Subject, other: Subject, rows: Sequence[DiffRow]) -> str:
    made = [row.as_dict() for row in rows]
    return output.as_json({"same": not rows, "a": one.address, "b": other.address, "differences": made})
