"""What one life of a command is told: the values of its place holders, and the places that they make."""

from __future__ import annotations

import glob
import json
import os
import shutil
from pathlib import Path
from typing import Any

from trainables import knobs
from trainables.checkpoint import Checkpoint
from trainables.command.command_settings import CommandSettings
from trainables.command.metric_lines import Step
from trainables.command.place_holders import Argument, ArgumentPart, filled
from trainables.job import Job
from trainables.store import fs

NOTE = "command"
"""Key of what is noted with a save: its step, and the file's name where it is one file."""


class Told:
    """The values of the place holders of one life, and what of earlier lives is in its way.

    Args:
        seed: For `{seed}`.

    Raises InvalidSettingError for a place holder without a value, or with one that cannot be an argument.
    """

    def __init__(self, settings: CommandSettings, job: Job, config: dict[str, Any], seed: int | None) -> None:
        self._settings, self._job = settings, job
        checkpoint, note = self._start()
        self.after: Step | None = None if checkpoint is None else note.get("step", job.start_iteration)
        """The step that it continues from; None: it begins anew."""
        saves = job.directory / "saves"
        fs.remove_quietly(saves)
        saves.mkdir(parents=True)
        self._values: dict[str, Any] = {
            "config_json": str(job.directory / "config.json"),
            "config_file": None,
            "trial_dir": str(job.directory),
            "checkpoint_dir": str(saves),
            "checkpoint": None if checkpoint is None else os.path.join(checkpoint, note.get("file", "")).rstrip("/"),
            "trial_id": job.trial_id,
            "seed": seed,
            **config,
        }
        self._write_files(config)
        original = os.path.abspath(job.original_cwd)
        self.cwd = original if settings.cwd is None else os.path.join(original, self._text(settings.cwd))

    @property
    def words(self) -> list[str]:
        """The arguments; for a shell one text."""
        return filled(self._settings.parts, self._values, shell=self._settings.shell)

    @property
    def env(self) -> dict[str, str]:
        own = {"PYTHONUNBUFFERED": "1"}  # what Python prints into a pipe is kept back else, and metrics come late
        return own | knobs.environment() | {key: self._text(text) for key, text in self._settings.env.items()}

    def place(self, place: Argument) -> Path:
        """A path of the settings."""
        return Path(self.cwd, self._text(place))

    def pattern(self, place: Argument) -> str:
        """A glob of the settings; what values hold is no pattern."""
        values = {key: glob.escape(value) if isinstance(value, str) else value for key, value in self._values.items()}
        (text,) = filled([ArgumentPart((place,), optional=False)], values, shell=False)
        return os.path.join(glob.escape(self.cwd), text)

    def set_aside(self, path: Path) -> None:
        """Move away what an earlier life wrote and this one must not take for its own; of each name the last stays."""
        aside = self._job.directory / ".earlier"
        aside.mkdir(exist_ok=True)
        fs.remove_quietly(aside / path.name)
        shutil.move(path, aside / path.name)

    def _start(self) -> tuple[Path | None, dict[str, Any]]:
        path = self._job.checkpoint_path
        if path is None:
            return None, {}
        manifest = Checkpoint(path).manifest
        note: dict[str, Any] = (manifest.extra if manifest is not None else {}).get(NOTE, {})
        return path, note

    def _write_files(self, config: dict[str, Any]) -> None:
        if "config_json" not in config:
            text = json.dumps(config, default=_plain, indent=1)
            Path(self._values["config_json"]).write_text(text, "utf-8")
        if self._settings.edited is not None:
            target = self._job.directory / self._settings.edited.name
            self._settings.edited.write(target, self._values)
            self._values["config_file"] = str(target)

    def _text(self, place: Argument) -> str:
        (text,) = filled([ArgumentPart((place,), optional=False)], self._values, shell=False)
        return text


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
