"""How a run is watched and killed: a callback, and the settings of a script's run that a proof replaces."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from trainables import automatic
from trainables.checkpoint import Checkpoint
from trainables.command.command import Command
from trainables.config import CheckpointConfig, SyncConfig
from tuner.callback import Callback
from tuner.error import SettingError
from tuner.experiment.resume import Base
from tuner.experiment.trial import Trial
from tuner.opening.restore import experiment_to_restore
from tuner.schedulers import FIFOScheduler
from tuner.search import BasicVariantGenerator
from tuner.spec import Spec
from tuner.stopper import CombinedStopper, TimeoutStopper, TrialTimeoutStopper
from tuner.tools.prove import run_records
from tuner.tools.prove.run_records import KillPoint

_PLAN = "plan.json"
_numbers = itertools.count()


class Watch(Callback):
    """Writes down what an experiment does, and kills it where it is planned.

    A kill happens before the trial has its answer, so that the result of that iteration has not counted yet, and only
    when the trial has a checkpoint to go on from; else at the first later iteration at which it has.

    Args:
        file: of the events.
        planned: where to kill; those that were killed at before are passed over.
        victim: "run": the driver, and everybody with it; "trial": the trial's process.
    """

    def __init__(self, file: Path, planned: Sequence[KillPoint], *, victim: Literal["run", "trial"]) -> None:
        self._file, self._victim = file, victim
        used = run_records.spent(run_records.read(file), planned)
        self._left = [point for point in planned if point not in used]

    def on_trial_start(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        config = msgspec.json.decode(trial.raw_config)
        run_records.write(self._file, "start", trial.index, trial.iteration, config)

    def on_checkpoint(self, iteration: int, trials: Any, trial: Trial, checkpoint: Checkpoint, **info: Any) -> None:
        run_records.write(self._file, "saved", trial.index, trial.checkpoints[-1].iteration)

    def on_trial_result(self, iteration: int, trials: Any, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        reached = result["training_iteration"]
        run_records.write(self._file, "result", trial.index, reached, result)
        due = [point for point in self._left if point.trial == trial.index and point.iteration <= reached]
        if not due or not trial.own_checkpoints:
            return
        self._left.remove(due[0])
        victim = os.getpid() if self._victim == "run" else result["pid"]
        if self._victim == "trial" and victim == os.getpid():
            raise SettingError("a trial in this very process cannot be killed: leave executor= away")
        run_records.write(self._file, "killed", trial.index, reached)
        os.kill(victim, signal.SIGKILL)

    def on_rollback(self, trial: Trial, iteration: int) -> None:
        """Iterations that come again are to be seen again; the start that follows is what is written down."""


@dataclass(frozen=True, slots=True)
class ProofPlan:
    """What the runs of a script are to be like. It lies in the proof's directory."""

    seed: int
    """Of experiments for which the script gives none."""
    concurrent: int
    """Trials at once."""
    points: Sequence[KillPoint] = ()

    def write(self, place: Path) -> None:
        (place / _PLAN).write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, place: Path) -> ProofPlan:
        return msgspec.json.decode((place / _PLAN).read_bytes(), type=cls)


def redirected(spec: Spec, place: Path) -> Spec:
    """The run as a proof has it: stored in the proof's directory, continuing what is there, and watched.

    The script's own results, and the places where copies go, are not touched. Raises SettingError where the run is to
    continue an experiment that is not of the proof.
    """
    if experiment_to_restore(spec.restore) is not None:
        raise SettingError(f"restore={spec.restore!r}: `tuner prove` continues no experiment that was there before")
    if isinstance(spec.trainable, Command) and spec.trainable.guesses:
        raise SettingError(
            f"{spec.trainable_name}: its checkpoints are taken for complete when they are quiet, which is a guess, and "
            'nothing can be proven: have the command write a marker, or rename what is complete ("renamed")'
        )
    plan, number = ProofPlan.read(place), next(_numbers)
    limit = spec.max_concurrent_trials
    concurrent = min(limit, plan.concurrent) if limit else plan.concurrent
    timing = decided_by_timing(
        scheduler=spec.scheduler,
        search_alg=spec.search_alg,
        stop=spec.stop,
        time_budget_s=spec.time_budget_s,
        concurrent=concurrent,
    )
    run_records.write_timing(place, number, timing)
    saving = spec.checkpoint_config
    if isinstance(saving, CheckpointConfig):
        saving = replace(saving, publish="blocking")  # the same saves before each kill
    mine = [point for point in plan.points if point.experiment == number]
    return replace(
        spec,
        storage_path=place / str(number),
        resume=replace(spec.resume_choice, base=Base.AUTO, only_errored=False),
        on_end=None,  # nobody waits for what is said of these runs
        on_failure=None,
        overwrite=False,
        sync_config=SyncConfig(),
        seed=plan.seed if spec.seed is None else spec.seed,
        max_concurrent_trials=concurrent,
        checkpoint_config=saving,
        callbacks=[*spec.callbacks, Watch(place / f"{number}{run_records.SUFFIX}", mine, victim="run")],
    )


def decided_by_timing(
    *, scheduler: Any = None, search_alg: Any = None, stop: Any = None, time_budget_s: Any = None, concurrent: int = 1
) -> list[str]:
    """What of such a run depends on how long things take, so that two runs differ by themselves: a line for each.

    The arguments are those of `tune.run`; `concurrent`: trials at once.
    """
    found = []
    by = getattr(scheduler, "time_attr", None)
    if by in _TIMES:
        found.append(f'{type(scheduler).__name__} goes by {by}: give it time_attr="training_iteration"')
    if time_budget_s is not None:
        found.append("time_budget_s ends it: leave it away")
    if stop is not None and (names := sorted(_stops_by_time(stop))):
        found.append(f"it is stopped by {', '.join(names)}: stop it by training_iteration")
    if concurrent > 1:
        plain = (None, "fifo", "random", "variant_generator")
        for plugin in (scheduler, search_alg):
            if plugin not in plain and not isinstance(plugin, FIFOScheduler | BasicVariantGenerator):
                name = plugin if isinstance(plugin, str) else type(plugin).__name__
                found.append(f"{name} decides by the order in which {concurrent} trials at once report: --concurrent 1")
    return found


_TIMES = (automatic.TIME_TOTAL_S, automatic.TIME_THIS_ITER_S, automatic.TIME_SINCE_RESTORE, automatic.TIMESTAMP)


def _stops_by_time(stop: Any) -> set[str]:
    if isinstance(stop, Mapping):
        return {str(key) for key in stop if key in _TIMES}
    if isinstance(stop, CombinedStopper):
        return {name for part in stop.stoppers for name in _stops_by_time(part)}
    return {type(stop).__name__} if isinstance(stop, TimeoutStopper | TrialTimeoutStopper) else set()
