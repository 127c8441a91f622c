"""SlurmExecutor: the driver's end of a run in jobs of Slurm."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables.wire import Answer, Report, ToTrial
from tuner.executors.base import Dispatch, Event, Executor, Launch, Message, Resources
from tuner.executors.slurm.batch_options import BatchOptions, check_jobs
from tuner.executors.slurm.slurm_run import RunSettings, SlurmRun


class SlurmExecutor(Executor):
    """Runs every attempt in a process of a job of Slurm; several run side by side in one that has room for them.

    Nothing has to be started first: jobs are submitted while trials wait, at most `jobs` of them, and cancelled when
    nobody needs them. The script runs where `sbatch` works, and stays alive as long as the run; the experiment's
    directory is one that every node sees at the same path. A job that ends, is preempted or loses its node takes
    nothing with it: its trials go on in another one from their newest checkpoint, and that is no failure.

    Args:
        jobs: so many are in the queue or run at once, at most.
        partition, time, gpus_per_node, cpus_per_task, mem, account: options of sbatch, of every job. Where CPUs or
            GPUs are not given, a job has what one trial asks for.
        sbatch: further options of it by their long names, such as `{"qos": "low", "nodes": 2, "exclusive": True}`.
        setup: lines of shell that each job runs first, such as "module load cuda". It is the only shell text here.
        array: jobs that are submitted together are one array.
        listen: the network interface, or the IPv4 address, at which agents find this driver; None: the one that routes
            to Slurm's controller.
        reconnect_s: so long agents wait for the next driver, where this one was requeued as planned.

    Raises SettingError for a value that is not accepted; when it is used, where there is no Slurm, and for jobs that
    Slurm refuses.

    Example:
        >>> SlurmExecutor(jobs=4, partition="gpu", time="04:00:00", gpus_per_node=1)
        SlurmExecutor(jobs=4, partition='gpu', time='04:00:00')
    """

    def __init__(
        self,
        jobs: int = 8,
        partition: str | None = None,
        time: str | None = "02:00:00",
        gpus_per_node: int | str | None = None,
        cpus_per_task: int | None = None,
        mem: str | None = None,
        account: str | None = None,
        sbatch: Mapping[str, Any] | None = None,
        setup: str = "",
        *,
        array: bool = True,
        listen: str | None = None,
        reconnect_s: float = 300.0,
    ) -> None:
        check_jobs(jobs=jobs, array=array, listen=listen, reconnect_s=reconnect_s)
        options = BatchOptions(
            partition=partition,
            time=time,
            gpus_per_node=gpus_per_node,
            cpus_per_task=cpus_per_task,
            mem=mem,
            account=account,
            sbatch={} if sbatch is None else sbatch,
            setup=setup,
        )
        self._settings = RunSettings(options, jobs, array, listen, float(reconnect_s))
        self._unanswered = 0
        """Results of a batch that their trials have no answer to yet."""
        self._run = self._new_run()

    def __repr__(self) -> str:
        options = self._settings.options
        return f"SlurmExecutor(jobs={self._settings.jobs!r}, partition={options.partition!r}, time={options.time!r})"

    @property
    def remote_hosts(self) -> SlurmRun:
        return self._run

    def total(self) -> Resources:
        return self._run.total()

    def leave_agents(self) -> None:
        """The driver is about to be halted as planned, and another one takes its place: agents wait for it.

        From any thread, and from a signal handler.
        """
        self._run.stays = True

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        self._run.begin(trainable, marker, Path(temporary))

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        return not self._run.attempts.queued and self._run.rooms.has_room(resources, promised)

    def awaits_room(self) -> bool:
        return self._run.scaling is not None and self._run.scaling.awaits_room()

    def launch(self, launch: Launch) -> None:
        self._run.attempts.launch(launch)

    def tell(self, trial_id: str, message: ToTrial) -> None:
        self._run.attempts.tell(trial_id, message)
        if type(message) is Answer:
            self._unanswered -= 1
            if not self._unanswered:
                self._run.hosts.flush()  # they go on while the last result is written down

    def kill(self, trial_id: str) -> None:
        self._run.attempts.kill(trial_id)

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        run = self._run
        run.hosts.flush()
        events: list[Event] = []
        if run.scaling is not None:
            run.scaling.turn()
            soon = run.scaling.next_turn_s()
            timeout = soon if timeout is None else min(soon, timeout)
        run.reactor.wait(timeout, events)
        run.attempts.launch_queued()
        run.say_who_waits()
        run.say_way()
        if events:
            run.paces.heard(events)
            self._unanswered = sum(type(event) is Message and type(event.body) is Report for event in events)
            dispatch(events)
        run.hosts.flush()

    def wake(self) -> None:
        self._run.reactor.wake()

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        deadline = time.monotonic() + grace_s
        while self._run.attempts and (left := deadline - time.monotonic()) > 0:
            self.run_once(lambda events: None, left)
        self._run.end_trials()

    def _new_run(self) -> SlurmRun:
        """Nothing is known of any run: it may be used for another one."""
        return SlurmRun(
            self._settings, wait=lambda timeout: self.run_once(lambda events: None, timeout), released=self._released
        )

    def _released(self) -> None:
        self._run = self._new_run()
