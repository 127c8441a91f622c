"""What users ordered, as far as it is state: orders and their answers, held trials, notes, pinned checkpoints."""

from __future__ import annotations

from tuner.experiment import events as ev
from tuner.experiment.forks import is_reuse
from tuner.experiment.hostile import check_ref
from tuner.experiment.order_records import Note, OrderRecord, SettingChange
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import tight


class SteeredState:
    """The part of an experiment's state that users change by orders; one method per fact, called as its tag."""

    def __init__(
        self, by_id: dict[str, Trial], orders: dict[str, OrderRecord], changed: dict[str, SettingChange]
    ) -> None:
        self._by_id = by_id
        self.orders = orders
        """What users have ordered, by id, oldest first."""
        self._saves = 0
        """Counts checkpoints, as they are saved."""
        self.held = {trial_id: trial for trial_id, trial in by_id.items() if trial.held}
        """Unfinished trials that wait for a user."""
        self.changed = changed
        """Settings of the run that are not as its script has them, by name."""
        self.pinned = {
            (trial.trial_id, record.order) for trial in by_id.values() for record in trial.checkpoints if record.pinned
        }
        """(trial id, order) of checkpoints that users want to stay."""

        self.made_for = {trial.order: trial for trial in by_id.values() if trial.order}
        """Order -> the trial that was made for it: the searcher knows nothing of these."""

    @property
    def searched(self) -> int:
        """How many trials the searcher has proposed."""
        return len(self._by_id) - len(self.made_for)

    def _made_by_order(self, trial: Trial, fact: ev.TrialCreated) -> None:
        """Note a trial that its searcher did not propose; a fork's own life begins in another one's."""
        if fact.order:
            self.made_for[fact.order] = trial
        if fact.fork is not None:
            check_ref(fact.fork.donor)
            trial.fork_seed = self._by_id[fact.fork.donor.trial_id].seed_index
            trial.clones, trial.iteration = [fact.fork], fact.fork.iteration
            trial.told = trial.iteration
            self._begins(trial)

    def _begins(self, trial: Trial) -> None:
        """A fork that is anew begins where it was forked."""
        if trial.fork is not None:
            trial.next_start, trial.clone_iteration = trial.fork.donor, trial.fork.iteration

    def _starts(self, trial: Trial, fact: ev.AttemptStarted) -> None:
        """Note which attempt starts, and from what."""
        begun = (fact.generation, fact.attempt)
        if begun != (trial.attempt_generation, trial.attempt):
            trial.unsaved = {}  # of one that goes on after its driver was killed the saves may come still
        if trial.lineage[-1:] != [begun]:
            trial.lineage = [*trial.lineage, begun]
        trial.attempt, trial.attempt_generation = fact.attempt, fact.generation
        trial.started_from, trial.next_start = fact.checkpoint, None
        if fact.checkpoint is None:
            trial.reused = fact.reused
            self._anew(trial, trial.lineage[0])

    def _anew(self, trial: Trial, attempt: tuple[int, int]) -> None:
        """Note that a trial starts anew with that (generation, attempt): its earlier checkpoints do not rank."""
        trial.past_clones = len(trial.clones)
        if trial.saves:
            trial.ranked_since = attempt

    def _rests(self, trial: Trial, fact: ev.AttemptEnded) -> None:
        """The trial does not run any more, unless it did not in that attempt, of which nothing was cut off either."""
        if fact.why != "halted" or not is_reuse(trial, fact.attempt):
            trial.rest(fact.why, fact.at)

    def _order_taken(self, fact: ev.OrderTaken) -> None:
        self.orders[fact.id] = OrderRecord(tight(fact.order), fact.at, saves=self._saves)

    def _order_answered(self, fact: ev.OrderAnswered) -> None:
        self.orders[fact.id].answered("done" if fact.done else "refused", fact.why, fact.at)

    def _held(self, fact: ev.TrialHeld) -> None:
        self._hold(self._by_id[fact.trial], fact.held)
        self._begun(fact.order)

    def _begun(self, order: str) -> None:
        """A fact says that an order was done, which its answer, the next fact, has not said yet; "": no order."""
        if order:
            self.orders[order].begun = True

    def _hold(self, trial: Trial, held: bool) -> None:
        trial.held = held
        if held:
            self.held[trial.trial_id] = trial
        else:
            self.held.pop(trial.trial_id, None)

    def _noted(self, fact: ev.TrialNoted) -> None:
        trial = self._by_id[fact.trial]
        trial.notes = [*trial.notes, Note(fact.at, fact.text)]
        self._order_answered(ev.OrderAnswered(fact.order, fact.at))

    def _set(self, fact: ev.SettingChanged) -> None:
        self.changed.pop(fact.name, None)
        if fact.value != fact.was:
            self.changed[fact.name] = SettingChange(fact.value, fact.was, fact.at, fact.total)
        if fact.order:
            self._order_answered(ev.OrderAnswered(fact.order, fact.at, why=fact.why))

    def planned(self, by_script: object) -> int | None:
        """How many trials there will be in all, those of orders among them; None: no end is known.

        Args:
            by_script: how many the search has as long as no user has changed that, as experiment.json has it.
        """
        change = self.changed.get("num_samples")
        searched = by_script if change is None else change.total
        return searched + len(self.made_for) if isinstance(searched, int) else None

    def _pinned(self, fact: ev.CheckpointPinned) -> None:
        trial, ref = self._by_id[fact.ref.trial_id], fact.ref
        (record,) = (record for record in trial.checkpoints if record.order == ref.order)
        record.pinned, record.tags = fact.pinned, [*record.tags, fact.tag] if fact.tag else record.tags
        if fact.pinned:
            self.pinned.add((ref.trial_id, ref.order))
        else:
            record.tags = []
            self.pinned.discard((ref.trial_id, ref.order))
