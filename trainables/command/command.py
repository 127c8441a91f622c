"""`Command`: a command line as a trainable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables import session
from trainables.command.command_settings import CommandSettings
from trainables.command.life import Life
from trainables.command.place_holders import PLACE_HOLDERS, value_of
from trainables.errors import SessionError
from trainables.runtime.attempt import Attempt
from trainables.validation import a_guess


class Command:
    """A command line as a trial: any program, in any language, that writes metrics and perhaps saves.

    Each line of metrics is a result. Schedulers, retention, copies and resume are those of a function; when a scheduler
    ends the trial, the command gets SIGTERM, and SIGKILL after `stop_grace_s`. An exit code other than 0 is a failure.

    Args:
        command: A text, which is split as a shell would, or a list of arguments. `{name}` and `{optimizer[lr]}` stand
            for values of the config, `{config_json}` for a file with all of it, `{config_file}` for the edited one,
            `{trial_dir}`, `{checkpoint_dir}` (empty at the start of each life), `{checkpoint}`, `{trial_id}` and
            `{seed}` for what they say; `[[--resume {checkpoint}]]` is left out where there is none; `{{` is a brace.
        metrics: One of `{"jsonl": "{trial_dir}/log.jsonl"}`, `{"regex": "loss=(?P<loss>[0-9.e+-]+)"}` (on the output; a
            list for several), `{"tensorboard": DIR}` and `{"trainer_state": GLOB}` (Hugging Face's Trainer); beside it
            `"step": KEY` where lines name their step.
        checkpoints: `{"glob": "{trial_dir}/ckpt-(?P<step>[0-9]+)", "complete": ...}`, where `complete` is
            `{"marker": "DONE"}` (a file in the directory), `"renamed"` (it gets its name when it is complete) or
            `{"quiet_s": 5}` (nothing has changed for so long: a guess). A file may match as well. A checkpoint belongs
            to the newest result that is not after its step; without `(?P<step>...)` to the newest.
        resume: Arguments that are added where there is a checkpoint, instead of a part in `[[ ]]`.
        config: `{"file": "base.yaml", "set": {"optimizer.lr": "lr"}}`: a YAML, JSON or TOML file with values replaced.
        shell: Give the text to `/bin/sh`, values quoted, instead of splitting it.
        cwd: Where the command runs; default: where the run was started. May hold place holders.
        env: Further variables of the environment; values may hold place holders.
        stop_grace_s: Seconds from SIGTERM to SIGKILL.
        name: Of the trainable; default: the name of the program or of its script.

    Raises:
        InvalidSettingError: any of it is not accepted.
        MissingExtraError: a format needs a package that is not installed.

    Example:
        >>> train = Command(
        ...     "python train.py --lr {lr} --out {trial_dir} [[--resume {checkpoint}]]",
        ...     metrics={"jsonl": "{trial_dir}/log.jsonl", "step": "epoch"},
        ...     checkpoints={"glob": "{trial_dir}/epoch-(?P<step>[0-9]+)", "complete": "renamed"},
        ... )
        >>> train.__name__
        'train'
    """

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        metrics: Mapping[str, Any],
        checkpoints: Mapping[str, Any] | None = None,
        resume: str | Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
        shell: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stop_grace_s: float = 10.0,
        name: str | None = None,
    ) -> None:
        self.settings = CommandSettings(
            command, metrics, checkpoints, resume, config, shell, cwd, env, stop_grace_s, name
        )
        self.__name__ = self.settings.name
        self._warned = False

    def __call__(self, config: dict[str, Any]) -> None:
        """Run it in a trial. Raises SessionError outside one."""
        attempt = session.current()
        if not isinstance(attempt, Attempt):
            raise SessionError("a Command runs as a trial: give it to tune.run or Tuner")
        Life(attempt, self.settings, config).run()

    @property
    def guesses(self) -> bool:
        """Whether it is guessed when a checkpoint is complete."""
        checkpoints = self.settings.checkpoints
        return checkpoints is not None and checkpoints.complete.quiet_s is not None

    def checked_space(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        """`space`. Raises InvalidSettingError where a place holder stands for nothing in it.

        An empty one says nothing: the searcher brings its own.
        """
        values = {**space, **dict.fromkeys(set(PLACE_HOLDERS) - set(space))}
        for field in self.settings.fields if space else ():
            inside = values.get(field.name)
            if field.name not in values or (isinstance(inside, Mapping) and "grid_search" not in inside):
                value_of(field, values)
        return space

    def check_run(self, metrics: Sequence[str], *, here: bool) -> None:
        """Raise InvalidSettingError for what is known to fail before a trial has run; warn, once, of a guess.

        Args:
            metrics: What the run goes by, where nobody but the command says it.
            here: Trials run on this machine, from the directory where this process is.
        """
        for metric in metrics:
            self.settings.check_metric(metric)
        if here:
            self.settings.check_program(Path.cwd())
        if self.guesses and not self._warned:
            self._warned = True
            a_guess("Command: checkpoints: complete: quiet_s", '{"marker": NAME} and "renamed" are certain')
