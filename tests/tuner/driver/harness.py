"""One harness for tests of the driver: a loop whose executor does what the test says, on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec

from trainables import tagged, wire
from trainables.config import Budget, CheckpointConfig, FailureConfig, SyncConfig
from trainables.store import publish, staging
from trainables.trainable import Trainable
from trainables.wire import CheckpointRef
from tuner.callback import Callback, CallbackList
from tuner.clock import VirtualClock
from tuner.driver.jobs import RunPlan
from tuner.driver.loop import TrialLoop
from tuner.driver.plugins import FactApplier, PluginSet, TrialSource
from tuner.executors.base import Dispatch, Exited, Launch, Message, Resources
from tuner.experiment import events as ev
from tuner.experiment.blobs import Blobs
from tuner.experiment.journal import JournalWriter
from tuner.experiment.naming import TrialNames
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.orders.mailbox import Mailbox
from tuner.retention import Checker, Deleter, Retention, RetentionPlanner
from tuner.schedulers import FIFOScheduler, TrialScheduler
from tuner.schedulers.base import Decision, Directive
from tuner.search import Searcher
from tuner.spec import Spec
from tuner.stopper import Stopper
from tuner.syncer.sink import ReplicaSink


class Proposer(Searcher):
    """Proposes `{"x": n}` for the n-th trial, `count` times."""

    def __init__(self, count: int = 1) -> None:
        super().__init__()
        self.count, self.made = count, 0

    def suggest(self, trial_id: str) -> Any:
        if self.made >= self.count:
            return Searcher.FINISHED
        self.made += 1
        return {"x": self.made}


class Says(FIFOScheduler):
    """Answers each result with what is next in the list, then with `always`; orders what a test puts there."""

    def __init__(self, *said: Any, always: Decision = Decision.CONTINUE) -> None:
        super().__init__()
        self.said, self.always = list(said), always
        self.ordered: list[Directive] = []

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        return self.said.pop(0) if self.said else self.always

    def orders(self) -> list[Directive]:
        ordered, self.ordered = self.ordered, []
        return ordered


def plugin_set(
    *callbacks: Callback,
    searcher: Searcher | None = None,
    scheduler: TrialScheduler | None = None,
    stopper: Stopper | None = None,
    num_samples: int = 1,
    blobs: Blobs | None = None,
    **more: Any,
) -> PluginSet:
    """Plug-ins that do nothing, but for those that are given."""
    searcher, scheduler = searcher or Proposer(num_samples), scheduler or FIFOScheduler()
    source = TrialSource(
        searcher,
        scheduler,
        space={},
        num_samples=num_samples,
        prefix="ab",
        trainable_name="train",
        names=TrialNames(None, None),
        blobs=blobs,
    )
    return PluginSet(
        searcher=searcher,
        scheduler=scheduler,
        stopper=stopper,
        callbacks=CallbackList(callbacks),
        source=source,
        blobs=blobs,
        **more,
    )


def train(config: dict[str, Any]) -> None:
    """What the loop is told that it runs."""


class Savable(Trainable):
    def step(self) -> dict[str, Any]:
        raise AssertionError("nothing runs here")

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """So that it may be told to."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """So that it counts as one that can save."""


class EveryHost:
    """Another host that has every checkpoint: none is looked for on this disk."""

    uploads = False

    def holds(self, path: Path) -> bool:
        return True

    def expect(self, attempts: float) -> None:
        pass


class SpokenExecutor:
    """Starts nothing: the test says what happens, and reads what was launched, told and killed."""

    inline, max_concurrent, is_in_users_code, answers_ahead = True, None, False, False

    def __init__(self, clock: VirtualClock, slots: float, remote_hosts: Any, directories: bool) -> None:
        self.clock, self.slots, self.remote_hosts, self.directories = clock, slots, remote_hosts, directories
        self.launched: list[Launch] = []
        self.running: dict[str, Launch] = {}
        self.told: list[tuple[str, wire.ToTrial]] = []
        self.killed: list[str] = []

    def total(self) -> Resources:
        return {"cpu": self.slots}

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        pass

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        taken = [launch.resources for launch in self.running.values()]
        return sum(each.get("cpu", 0.0) for each in (resources, *promised, *taken)) <= self.slots

    def awaits_room(self) -> bool:
        return False

    def prepare(self, launch: Launch) -> Launch:
        return launch

    def launch(self, launch: Launch) -> None:
        self.launched.append(launch)
        self.running[launch.job.trial_id] = launch

    def tell(self, trial_id: str, message: wire.ToTrial) -> None:
        self.told.append((trial_id, message))

    def kill(self, trial_id: str) -> None:
        self.killed.append(trial_id)

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        raise AssertionError("nothing will happen by itself here")

    def wake(self) -> None:
        pass

    def owned_processes(self) -> list[tuple[int, int]]:
        return []

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        pass


class NotedJournal(JournalWriter):
    """Remembers its facts."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.facts: list[ev.AnyFact] = []

    def append(self, body: bytes, *, vital: bool = False) -> int:
        self.facts.append(ev.decode(body))
        return super().append(body, vital=vital)


class DriverHarness:
    """A loop that turns when the test says so.

    Args:
        root: where the experiment lies.
        plugins: see `plugin_set`.
        executor: another than the one that the test speaks for.
        facts: of an earlier life, which are replayed first.
        keep: what retention keeps; None: everything.
        budget: of all checkpoints.
        hosts: the other ones; None: a checkpoint that is not on this disk is nowhere.
        copies: a replica.
        directories: trials have some.
        class_api: the trainable is a class.
        mailbox: where users put orders.
        settings: of the run, of its configs and of the loop's plan.
    """

    def __init__(
        self,
        root: Path,
        plugins: PluginSet | None = None,
        *,
        executor: Any = None,
        slots: float = 2,
        facts: Sequence[ev.AnyFact] = (),
        keep: CheckpointConfig | None = None,
        budget: Budget | None = None,
        hosts: Any = EveryHost(),  # noqa: B008  it has no state
        copies: ReplicaSink | None = None,
        directories: bool = False,
        class_api: bool = False,
        mailbox: Mailbox | None = None,
        **settings: Any,
    ) -> None:
        paths = ExperimentPaths(root)
        paths.journal.mkdir(parents=True, exist_ok=True)
        self.clock = VirtualClock() if executor is None else executor.clock
        self.executor = SpokenExecutor(self.clock, slots, hosts, directories) if executor is None else executor
        self.plugins = plugins or plugin_set()
        self.state = ExperimentState(root)
        self.applier = FactApplier(self.state, self.plugins)
        self.applier.replay(facts)
        self.journal = NotedJournal(paths, 1, next_seq=len(facts) + 1, clock=self.clock, sync="inline")
        given = {
            name: {each.name: settings.pop(each.name) for each in fields(kind) if each.name in settings}
            for name, kind in (("keep", CheckpointConfig), ("fail", FailureConfig), ("sync", SyncConfig), ("", RunPlan))
        }
        spec = Spec(
            Savable if class_api else train,
            checkpoint_config=replace(keep or CheckpointConfig(), **given["keep"]),
            failure_config=FailureConfig(**given["fail"]),
            sync_config=SyncConfig(**given["sync"]),
            **settings,
        )
        self.loop = TrialLoop(
            RunPlan(spec, **{"experiment_name": "e", "temporary": root, "seed": 1, **given[""]}),
            applier=self.applier,
            journal=self.journal,
            ownership=None,
            executor=self.executor,
            retention=Retention(
                RetentionPlanner(spec.checkpoint_config, budget=budget), Checker(inline=True), Deleter(inline=True)
            ),
            clock=self.clock,
            copies=copies,
            mailbox=mailbox,
        )

    @property
    def facts(self) -> list[ev.AnyFact]:
        """What was journaled."""
        return self.journal.facts

    def kinds(self) -> list[str]:
        """Their kinds."""
        return [str(type(fact).__struct_config__.tag) for fact in self.facts]

    def trial(self, index: int = 0) -> Trial:
        return self.state.trials[index]

    def turn(self) -> DriverHarness:
        """Start what can be started, and settle."""
        self.loop._begin((), ()) if not self.loop._timers else None
        self.loop.dispatch(())
        self.loop.admission.fill()
        self.loop._settle()
        return self

    def say(self, trial: Trial, *bodies: wire.FromTrial) -> None:
        """The trial's process says something."""
        self.loop.dispatch([Message(trial.trial_id, trial.attempt, body) for body in bodies])

    def report(
        self,
        trial: Trial,
        *,
        saves: bool = False,
        saving: wire.SavePublished | None = None,
        told: bool = True,
        waits: bool = True,
        **metrics: Any,
    ) -> wire.Answer | None:
        """A result; returns the answer.

        Args:
            saves: with a checkpoint of which nothing is on the disk.
            saving: with this one: see `publish`.
            told: the driver hears that it was published.
            waits: the trial does, for its answer.
        """
        iteration = trial.iteration + 1
        if saves:
            saving = wire.SavePublished(self.ref(trial, iteration), 10, "digest")
        pending = None if saving is None else wire.PendingSave(saving.ref)
        result = {"training_iteration": iteration, "done": False, **metrics}
        self.executor.told.clear()
        self.say(trial, wire.Report(iteration, msgspec.Raw(tagged.dumps(result)), pending, waits=waits))
        answers = [message for _, message in self.executor.told if isinstance(message, wire.Answer)]
        if saving is not None and told:
            self.say(trial, saving)
        return answers[0] if answers else None

    def ref(self, trial: Trial, iteration: int) -> CheckpointRef:
        return CheckpointRef(
            trial.trial_id, f"checkpoint_{iteration:06d}", 1, trial.attempt, trial.saves + 1, iteration
        )

    def publish(self, trial: Trial, iteration: int, *, text: str = "weights") -> wire.SavePublished:
        """A checkpoint on the disk, as the trial's process publishes it; the driver has not heard of it."""
        ref = self.ref(trial, iteration)
        staged = staging.new_directory(trial.directory, str(iteration))
        (staged / "weights").write_text(text)
        prepared = publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b"{}"), created=1e9)
        found = publish.commit(prepared, trial.directory / ref.name)
        return wire.SavePublished(ref, found.manifest.bytes, found.digest)

    def exit(
        self, trial: Trial, said: Any = None, *, status: int = 0, reason: str | None = None, next_turn: bool = True
    ) -> None:
        """The trial's process ends, by default as one that has nothing more to do."""
        if said is None and not status and reason is None:
            said = wire.Finished()
        if said is not None:
            self.say(trial, said)
        self.executor.running.pop(trial.trial_id, None)
        self.loop.dispatch([Exited(trial.trial_id, trial.attempt, status, reason)])
        if next_turn:
            self.turn()
