"""One life of a command as an attempt of a trial: its lines are reported, what it saves is published."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any

from trainables.automatic import DONE, SHOULD_CHECKPOINT
from trainables.command.command_settings import CommandSettings
from trainables.command.found import FoundCheckpoints, FoundSave
from trainables.command.metric_lines import (
    JsonLines,
    Line,
    LineSource,
    OutputLines,
    Step,
    TensorBoardLines,
    TrainerStateLines,
)
from trainables.command.process import CommandError, CommandProcess
from trainables.command.told import NOTE, Told
from trainables.errors import CheckpointNotFoundError, PublishError
from trainables.plain_metrics import plain_metrics
from trainables.quick_dataclass import dataclass
from trainables.runtime.attempt import Attempt, DeliveredResult
from trainables.runtime.saving import Staged
from trainables.runtime.saving_session import TrialExit
from trainables.store import fs

_log = logging.getLogger(__name__)

LOOK_S = 0.2
"""Between two looks at the files."""
HOLD_S = 2.0
"""How long a line waits for the save of its own step, and such a save for its line: whichever is written first."""
_ORDERS = (DONE, SHOULD_CHECKPOINT)
"""Keys by which a function speaks to its driver: a program that knows nothing of it means something else."""
_LEAVING = 0.6
"""Share of the trial's grace time that the command gets of a notice to leave."""


@dataclass(frozen=True, slots=True)
class _HeldSave:
    """A save that is staged, and waits until it is known to which result it belongs."""

    staged: Staged
    step: Step | None
    since: float


class Life:
    """Runs a command as an attempt of a trial, to its end, whoever ends it."""

    def __init__(self, attempt: Attempt, settings: CommandSettings, config: dict[str, Any]) -> None:
        self._attempt, self._settings = attempt, settings
        self._told = Told(settings, attempt.job, config, attempt.seed)
        self._results: deque[tuple[Step, DeliveredResult]] = deque(maxlen=1000)
        """Steps, each with its result."""
        self._lines: deque[tuple[Line, float]] = deque()
        """Lines that are not reported yet, and when they were read."""
        self._held: list[_HeldSave] = []
        self._wake = threading.Event()
        self._source = self._open_source()
        self._finder = self._open_finder()

    def run(self) -> None:
        """From its start to its end. Raises CommandError, and TrialExit where the driver ends the trial."""
        attempt = self._attempt
        attempt.watch(self._wake.set)
        attempt.context.should_stop()  # somebody looks: a notice does not end the trial at its next report
        process = CommandProcess(
            self._told.words,
            shell=self._settings.shell,
            cwd=self._told.cwd,
            env=self._told.env,
            hear=self._source.hear,
            ended=self._wake.set,
        )
        try:
            self._watch(process)
        except TrialExit:
            self._publish()
            raise
        finally:
            process.end(self._settings.stop_grace_s)
            for held in self._held:
                attempt.saver.drop(held.staged)

    def _watch(self, process: CommandProcess) -> None:
        left = False
        while process.runs and not left:
            self._look()
            self._wake.wait(LOOK_S)
            self._wake.clear()
            left = self._attempt.context.should_stop()
        process.end(self._attempt.job.grace_s * _LEAVING)
        self._look(ended=True, whole=process.ended_well)
        if left:
            return
        process.raise_if_failed()
        if not self._attempt.reported and self._told.after is None:
            raise CommandError(f"the command ended, and no line of metrics was found in {self._source.place}")
        if self._finder is not None:
            self._finder.raise_if_never(ended=True)
            if self._finder.saw_none:
                _log.warning("nothing was saved: nothing has ever matched %s", self._finder.pattern)

    def _look(self, *, ended: bool = False, whole: bool = False) -> None:
        """`ended`: nothing more is written; `whole`: and what is there is as it was meant to be."""
        self._lines.extend((line, time.monotonic()) for line in self._source.read(ended=ended) if self._is_news(line))
        if self._finder is not None:
            for found in self._finder.look(ended=whole):
                self._stage(found)
            self._finder.raise_if_never(ended=False)
        while self._lines and (ended or self._is_due()):
            self._report(self._lines.popleft()[0])
        self._publish(ended=ended)

    def _is_news(self, line: Line) -> bool:
        """Not told in an earlier life."""
        return line.step is None or self._told.after is None or line.step > self._told.after

    def _is_due(self) -> bool:
        """Whether the oldest line need not wait for a save that goes with it."""
        line, since = self._lines[0]
        if self._finder is None or len(self._lines) > 1 or time.monotonic() - since > HOLD_S:
            return True
        return any(held.step is None or held.step == self._step_of(line) for held in self._held)

    def _open_source(self) -> LineSource:
        metrics, told = self._settings.metrics, self._told
        if metrics.kind == "regex":
            return OutputLines(metrics.patterns, metrics.step)
        if metrics.kind == "jsonl":
            return JsonLines(told.place(metrics.place[0]), metrics.step, told.set_aside)
        after = -1 if told.after is None else told.after
        if metrics.kind == "tensorboard":
            return TensorBoardLines(told.place(metrics.place[0]), after)
        return TrainerStateLines(told.pattern(metrics.place[0]), after)

    def _open_finder(self) -> FoundCheckpoints | None:
        wanted, told = self._settings.checkpoints, self._told
        if wanted is None:
            return None
        pattern = told.pattern(wanted.pattern)
        return FoundCheckpoints(pattern, wanted.complete, told.after, told.set_aside, self._attempt.job.directory)

    # ------------------------------------------------------------ results and saves

    def _report(self, line: Line) -> None:
        """With the save of its own step, where that is there: the driver can pause a trial at a result that has one."""
        attempt, step = self._attempt, self._step_of(line)
        metrics = {key: value for key, value in line.metrics.items() if key not in _ORDERS}
        self._publish(before=step)
        mine = next((held for held in self._held if held.step == step or (held.step is None and not self._lines)), None)
        if mine is None:
            attempt.report(metrics)
        else:
            self._held.remove(mine)
            mine.staged.extra[NOTE].setdefault("step", step)
            attempt.report_staged(plain_metrics(metrics), mine.staged)
        self._results.append((step, attempt.last_result))

    def _step_of(self, line: Line) -> Step:
        """The step of the oldest line that was not reported."""
        return self._attempt.keys.iteration + 1 if line.step is None else line.step

    def _stage(self, found: FoundSave) -> None:
        """Clone it at once: whoever wrote it may remove it."""
        attempt, finder = self._attempt, self._finder
        assert finder is not None
        note: dict[str, Any] = {} if found.step is None else {"step": found.step}
        try:
            if found.path.is_dir():
                staged = attempt.saver.take(found.path, handed_over=False)
            else:
                with attempt.saver.writing(attempt.saver.open()) as staged:
                    fs.copy_file(found.path, staged.path / found.path.name)
                note["file"] = found.path.name
        except (FileNotFoundError, CheckpointNotFoundError):
            _log.info("%s was removed while it was copied: it is passed over", found.path)
            return
        except PublishError as error:
            finder.taken(found)
            attempt.saver.failed(attempt.saver.name(attempt.keys.iteration), error)
            attempt.saver.raise_if_failing()
            return
        if not finder.unchanged(found):
            attempt.saver.drop(staged)  # it was not complete, or is being removed: the next look sees
            return
        finder.taken(found)
        staged.extra = {NOTE: note}
        self._held.append(_HeldSave(staged, found.step, time.monotonic()))

    def _publish(self, *, before: Step | None = None, ended: bool = False) -> None:
        """Publish what is held behind the newest result not after it: what is due, or of steps `before` that one."""
        waiting: list[_HeldSave] = []
        for held in self._held:
            due = ended or time.monotonic() - held.since > HOLD_S
            if before is not None:
                due = held.step is not None and held.step < before
            elif held.step is not None and self._results:
                due = due or held.step <= self._results[-1][0]
            found = self._result_of(held.step) if due else None
            if found is None:
                waiting.append(held)
                continue
            step, result = found
            held.staged.extra[NOTE].setdefault("step", step)
            self._attempt.save_late(held.staged, result)
        self._held = waiting
        self._attempt.saver.raise_if_failing()

    def _result_of(self, step: Step | None) -> tuple[Step, DeliveredResult] | None:
        """The newest result not after that step; None: there is none in this life."""
        for result in reversed(self._results):
            if step is None or result[0] <= step:
                return result
        return None
