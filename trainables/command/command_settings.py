"""What is said of a command, checked: its arguments, where its metrics are, what it saves."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from trainables.automatic import TIME_THIS_ITER_S, TIME_TOTAL_S, TIMESTAMP, TRAINING_ITERATION
from trainables.command.edited_file import EditedFile
from trainables.command.event_files import event_messages
from trainables.command.found import Complete, translated
from trainables.command.place_holders import CHECKPOINT, Argument, ArgumentPart, Field, fields_of, parse
from trainables.errors import InvalidSettingError
from trainables.quick_dataclass import dataclass
from trainables.validation import flag, invalid, one_of, seconds, unknown_name

METRICS = ("jsonl", "regex", "tensorboard", "trainer_state")
_PER_TRIAL = ("trial_dir", "checkpoint_dir", "trial_id")
_OURS = ("checkpoint_000001", "checkpoint_000001-1.2", "result.json", "progress.csv", "trial.json", "stdout", "saves")
"""What lies in a trial's directory beside what a command makes there."""
_AUTOMATIC = (TRAINING_ITERATION, TIME_TOTAL_S, TIME_THIS_ITER_S, TIMESTAMP)
_NOT_OF_THE_CONFIG = (*_PER_TRIAL, CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where a command's metrics are, with place holders."""

    kind: str
    place: tuple[Argument, ...]
    """The path, directory or glob; of "regex" none."""
    patterns: tuple[str, ...] = ()
    step: str | None = None
    """The key of a line that holds its step."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What a command saves, with place holders, and when it is complete."""

    pattern: Argument
    complete: Complete


class CommandSettings:
    """The arguments of `Command`, which says what they mean. Raises InvalidSettingError."""

    def __init__(
        self,
        command: str | Sequence[str],
        metrics: Mapping[str, Any],
        checkpoints: Mapping[str, Any] | None,
        resume: str | Sequence[str] | None,
        config: Mapping[str, Any] | None,
        shell: bool,
        cwd: str | None,
        env: Mapping[str, str] | None,
        stop_grace_s: float,
        name: str | None,
    ) -> None:
        if not isinstance(command, str | list | tuple) or not command:
            raise invalid("Command: command", command, "a text or a list of arguments")
        self.shell = flag("Command: shell", shell)
        self.parts = parse(command, shell=self.shell)
        if not self.parts:
            raise invalid("Command: command", command, "a text or a list of arguments")
        self.parts += _resumed(resume, self.shell)
        self.metrics = _metrics(metrics)
        self.checkpoints = None if checkpoints is None else _checkpoints(checkpoints)
        self.edited = None if config is None else EditedFile(config)
        self.cwd = None if cwd is None else _one("cwd", cwd)
        self.env = {str(key): _one(f"env: {key}", value) for key, value in (env or {}).items()}
        self.stop_grace_s = seconds("Command: stop_grace_s", stop_grace_s, zero=True)
        self.name = name or _name_of(command)
        self._check_place_holders()

    @property
    def fields(self) -> list[Field]:
        """All place holders."""
        own = [*self.parts, ArgumentPart((*self.env.values(), *self.metrics.place), optional=False)]
        return fields_of(own) + (self.edited.fields if self.edited is not None else [])

    def check_program(self, directory: Path) -> None:
        """Raise InvalidSettingError where it cannot run on this machine, as far as that is known without a trial."""
        cwd = None if self.cwd is None else _constant(self.cwd)
        place = directory if cwd is None else directory / cwd
        if (self.cwd is None or cwd is not None) and not place.is_dir():
            raise invalid("Command: cwd", str(place), "a directory that is there")
        program = None if self.shell or not self.parts else _constant(self.parts[0].arguments[0])
        if program is None or "PATH" in self.env or (self.cwd is not None and cwd is None):
            return
        found = place / program if "/" in program else shutil.which(program)
        if found is None or not Path(found).is_file():
            where = f"there is no file {found}" if found else "it is in no directory of PATH"
            raise InvalidSettingError(f"Command: the program {program!r} cannot be started: {where}")
        if not os.access(found, os.X_OK):
            raise InvalidSettingError(
                f"Command: the program {program!r} cannot be started: {found} is not executable; make it so with "
                "chmod +x, or name what runs it first, as in 'sh run.sh'"
            )

    def check_metric(self, metric: str) -> None:
        """Raise InvalidSettingError where lines cannot have it."""
        groups = [name for pattern in self.metrics.patterns for name in re.compile(pattern).groupindex]
        if self.metrics.kind == "regex" and metric not in (*groups, *_AUTOMATIC):
            raise InvalidSettingError(
                f"metric={metric!r} never comes: the groups of Command: metrics: regex are {', '.join(groups)}"
            )

    def _check_place_holders(self) -> None:
        names = {field.name for field in self.fields}
        if not names - set(_NOT_OF_THE_CONFIG):
            raise InvalidSettingError(
                "Command: nothing of the config reaches the command: put its names into braces, as in --lr {lr}, or "
                "{config_json} for a file with all of it"
            )
        if "config_file" in names and self.edited is None:
            raise InvalidSettingError('Command: {config_file} needs config={"file": ..., "set": {...}}')
        if self.edited is not None and "config_file" not in names:
            raise InvalidSettingError(
                f"Command: {self.edited.name} is edited, and the command is not told where: put {{config_file}} into it"
            )
        if self.checkpoints is not None and CHECKPOINT not in names:
            raise InvalidSettingError(
                "Command: checkpoints are taken, and nothing tells the command to continue from one: put "
                "[[--resume {checkpoint}]] into it, as the program calls that"
            )


def _resumed(resume: str | Sequence[str] | None, shell: bool) -> tuple[ArgumentPart, ...]:
    if resume is None:
        return ()
    words = tuple(words for part in parse(resume, shell=shell) for words in part.arguments)
    if CHECKPOINT not in {piece.name for argument in words for piece in argument if isinstance(piece, Field)}:
        raise invalid("Command: resume", resume, 'arguments with {checkpoint}, as in "--resume-from {checkpoint}"')
    if shell:
        words = ((" ", *words[0]), *words[1:])
    return (ArgumentPart(words, optional=True),)


def _metrics(given: Any) -> Metrics:
    accepted = "one of " + ", ".join(METRICS) + ' with its place or pattern, as in {"jsonl": "{trial_dir}/log.jsonl"}'
    if not isinstance(given, Mapping) or not given:
        raise invalid("Command: metrics", given, accepted)
    for key in given:
        if key not in (*METRICS, "step"):
            raise InvalidSettingError(unknown_name("key of Command: metrics", str(key), (*METRICS, "step")))
    kinds = [key for key in given if key != "step"]
    if len(kinds) != 1:
        raise invalid("Command: metrics", given, accepted)
    kind, step = kinds[0], given.get("step")
    if step is not None and (not isinstance(step, str) or kind in ("tensorboard", "trainer_state")):
        raise invalid(
            "Command: metrics: step", step, 'the name of a key, with "jsonl" and "regex" (the others know it)'
        )
    if kind == "regex":
        listed = [given[kind]] if isinstance(given[kind], str) else given[kind]
        if not isinstance(listed, list | tuple) or not listed:
            raise invalid("Command: metrics: regex", given[kind], "a regular expression, or a list of them")
        return Metrics(kind, (), tuple(_pattern(each) for each in listed), step)
    if kind == "tensorboard":
        event_messages()
    return Metrics(kind, (_own(f"metrics: {kind}", given[kind]),), (), step)


def _pattern(text: Any) -> str:
    try:
        groups = re.compile(text).groupindex
    except (re.error, TypeError) as error:
        raise InvalidSettingError(f"Command: metrics: regex={text!r} is no regular expression: {error}") from None
    if not groups:
        raise invalid("Command: metrics: regex", text, "one with named groups, as in loss=(?P<loss>[0-9.e+-]+)")
    return str(text)


def _checkpoints(given: Any) -> Checkpoints:
    if not isinstance(given, Mapping) or not set(given) <= {"glob", "complete"} or "complete" not in given:
        raise invalid(
            "Command: checkpoints",
            given,
            '{"glob": "{trial_dir}/ckpt-*", "complete": {"marker": NAME} | {"quiet_s": 5} | "renamed"}',
        )
    pattern = _own("checkpoints: glob", given.get("glob", "{checkpoint_dir}/*"))
    try:
        _, matches = translated("".join(piece if isinstance(piece, str) else "x" for piece in pattern))
    except re.error as error:
        raise InvalidSettingError(
            f"Command: checkpoints: glob={given['glob']!r}: the step is no pattern: {error}"
        ) from None
    if pattern[0] == Field("trial_dir", (), "") and (
        ours := [name for name in _OURS if matches.fullmatch(f"x/{name}")]
    ):
        raise invalid(
            "Command: checkpoints: glob",
            given["glob"],
            f"a pattern that matches nothing of the trial's own files, as {ours[0]}: let the command save in "
            "{checkpoint_dir}, or match a longer name",
        )
    return Checkpoints(pattern, _complete(given["complete"]))


def _complete(given: Any) -> Complete:
    accepted = '{"marker": "DONE"}, {"quiet_s": 5} or "renamed"'
    if isinstance(given, str):
        one_of("Command: checkpoints: complete", given, ("renamed",))
        return Complete()
    if not isinstance(given, Mapping) or len(given) != 1:
        raise invalid("Command: checkpoints: complete", given, accepted)
    ((kind, value),) = given.items()
    if kind == "quiet_s":
        return Complete(quiet_s=seconds("Command: checkpoints: complete: quiet_s", value, zero=False))
    if kind != "marker" or not isinstance(value, str) or not value or PurePath(value).is_absolute():
        raise invalid("Command: checkpoints: complete", given, accepted)
    return Complete(marker=value)


def _own(what: str, text: Any) -> Argument:
    """A place with place holders, which is another one for each trial."""
    place = _one(what, text)
    if not {piece.name for piece in place if isinstance(piece, Field)} & set(_PER_TRIAL):
        raise invalid(f"Command: {what}", text, "a place of each trial's own: put {trial_dir} or {trial_id} into it")
    if ".." in "".join(piece if isinstance(piece, str) else "x" for piece in place).split("/"):
        raise invalid(f"Command: {what}", text, "a place without '..', which leads out of the trial's own")
    return place


def _one(what: str, text: Any) -> Argument:
    if not isinstance(text, str) or not text:
        raise invalid(f"Command: {what}", text, "a text, which may hold place holders")
    return parse([text], shell=False)[0].arguments[0]


def _constant(argument: Argument) -> str | None:
    """Its text; None: a place holder is in it."""
    return "".join(map(str, argument)) if not any(isinstance(piece, Field) for piece in argument) else None


def _name_of(command: str | Sequence[str]) -> str:
    """The script that runs, else the program."""
    words = command.split() if isinstance(command, str) else list(command)
    scripts = [word for word in words if word.endswith((".py", ".sh", ".R", ".jl"))]
    return PurePath(scripts[0] if scripts else words[0]).stem or "command"
