"""What users order while a run goes on: taken up once a second, kept as facts, done, and answered.

A file is removed when the fact that it was taken up is durable, and answered when the fact of its answer is: a driver
that is killed between any two steps leaves either the file or the fact. What was taken and not answered is done again
from the beginning by the next life; each order is such that this has the effect of doing it once.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import assert_never

import msgspec

from tuner.driver import pins
from tuner.driver.attempts import LiveAttempt, Phase
from tuner.driver.endings import Endings
from tuner.driver.parts import LoopParts
from tuner.driver.pins import Effect
from tuner.error import OrderError
from tuner.experiment import events as ev
from tuner.experiment.outcome import outcome
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial, find_trial
from tuner.opening.trainable_code import edited_since
from tuner.orders import order as words
from tuner.orders.mailbox import ANSWERS_KEPT_S, Letter, Mailbox, OrderAnswer, OrderState
from tuner.schedulers.base import Decision, Directive

log = logging.getLogger(__name__)

TIDY_S = 3600.0
"""So often old answers are looked for."""
SAVE = "save; a function that saves no checkpoint trains to its end"


class Steering:
    """Carries out the orders of users.

    Args:
        mailbox: None: nobody can order anything here (a simulated run, or one inside of a test).
    """

    def __init__(self, parts: LoopParts, endings: Endings, mailbox: Mailbox | None) -> None:
        self._parts, self._endings, self._transitions = parts, endings, endings.transitions
        self._state, self._facts, self._attempts = parts.state, parts.facts, parts.attempts
        self._waiting, self._mailbox = parts.waiting, mailbox
        self.pending: dict[str, Effect] = {}
        """Orders that are taken: what says whether the effect is there (True), never will be (False), and how."""
        self._unsaid: dict[str, OrderAnswer] = {}
        """Answers that could not be written, on a full disk, say."""
        self._until: dict[str, str] = {}
        """Order -> what it waits for, where that may be long."""
        self._began = parts.clock.time()
        self._tidy_at = 0.0

    @property
    def listens(self) -> bool:
        """Whether anybody can order anything."""
        return self._mailbox is not None

    # --- when -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Do again what earlier drivers had taken up, and say again what they answered; then look for more."""
        if self._mailbox is not None and self._mailbox.is_open():
            now = self._parts.clock.time()
            for order_id, record in self._state.orders.items():
                if record.state == "taken":
                    self._obey(order_id, bytes(record.order))
                elif now - (record.answered_at or 0.0) < ANSWERS_KEPT_S and self._mailbox.answer(order_id) is None:
                    self._say(OrderAnswer(order_id, OrderState(record.state), record.why))
        self.look()

    def look(self) -> None:
        """Take up what was ordered since the last time."""
        if self._mailbox is None:
            return
        for letter in self._mailbox.take():
            self._take(letter)
        for answer in list(self._unsaid.values()):
            self._say(answer)
        now = self._parts.clock.monotonic()
        if now >= self._tidy_at and self._mailbox.is_open():
            self._tidy_at = now + TIDY_S
            self._mailbox.forget_answers(self._parts.clock.time())
        self.settle()

    def settle(self) -> None:
        """Answer the orders whose effect is there."""
        for order_id, is_there in list(self.pending.items()):
            found = is_there()
            if found is not None:
                del self.pending[order_id]
                self._until.pop(order_id, None)
                self._answer(order_id, *found)

    # --- how ------------------------------------------------------------------------------------------------

    def _take(self, letter: Letter) -> None:
        """One that is known already gets the answer that it has, whatever it says now."""
        known = self._state.orders.get(letter.id)
        if known is not None:
            self._confirm(letter.id)
            return
        try:
            body = words.encode(words.parse(letter.body))  # as it was given it may have several lines: a fact has one
        except OrderError:
            body = b"null"  # it may be no JSON at all
        self._facts.add(ev.OrderTaken(letter.id, msgspec.Raw(body), self._parts.clock.time()))
        self._facts.when_durable(partial(self._confirm, letter.id))
        self._obey(letter.id, letter.body)

    def _confirm(self, order_id: str) -> None:
        """That it was taken up is durable: the file may go, once an answer stands in its place."""
        assert self._mailbox is not None
        record = self._state.orders[order_id]
        if record.state == "taken":
            self._say(OrderAnswer(order_id, OrderState.TAKEN, self._until.get(order_id, "")))
        else:
            self._facts.when_durable(partial(self._say, OrderAnswer(order_id, OrderState(record.state), record.why)))
        self._facts.when_durable(partial(self._mailbox.done_with, order_id))

    def _say(self, answer: OrderAnswer) -> None:
        assert self._mailbox is not None
        try:
            self._mailbox.reply(answer)
            self._unsaid.pop(answer.id, None)
        except OSError as error:
            if answer.id not in self._unsaid:
                log.warning("the answer to order %s cannot be written: %s", answer.id, error.strerror)
            self._unsaid[answer.id] = answer

    def _answer(self, order_id: str, done: bool, why: str) -> None:
        self._facts.add(ev.OrderAnswered(order_id, self._parts.clock.time(), done, why))
        answer = OrderAnswer(order_id, OrderState.DONE if done else OrderState.REFUSED, why)
        self._facts.when_durable(partial(self._say, answer))

    def _obey(self, order_id: str, body: bytes) -> None:
        try:
            is_there = self._carry_out(order_id, words.parse(body))
        except OrderError as error:
            self._answer(order_id, False, str(error))
            return
        if is_there is not None:
            self.pending[order_id] = is_there
            self.settle()

    # --- what -----------------------------------------------------------------------------------------------

    def _carry_out(self, order_id: str, order: words.AnyOrder) -> Effect | None:
        """Begin what was ordered; returns what tells when it is there, None: it is answered. Raises OrderError."""
        if isinstance(order, words.StopOrder) and order.trial == words.ALL:
            return self._stop_all()
        trial = self._find(order.trial)
        match order:
            case words.StopOrder():
                return self._stop(trial)
            case words.PauseOrder():
                self._until[order_id] = f"it pauses at its next {'step' if self._parts.plan.spec.class_api else SAVE}"
                return self._pause(trial)
            case words.GoOrder():
                return self._go(trial)
            case words.SaveOrder():
                return self._save(trial, pin=order.pin)
            case words.PinOrder() | words.TagOrder():
                return pins.pin(self._facts, trial, order)
            case words.UnpinOrder():
                there = pins.unpin(self._facts, trial, order.iteration)
                self._parts.checkpoints.forget(trial)
                return there
            case words.RetryOrder():
                return self._retry(trial)
            case words.NoteOrder():
                self._facts.add(ev.TrialNoted(trial.trial_id, order.text, self._parts.clock.time(), order_id))
                return None
            case _:
                assert_never(order)

    def _find(self, given: str) -> Trial:
        found = find_trial(self._state.trials, given)
        if found is None:
            count = len(self._state.trials)
            raise OrderError(f"there is no trial {given!r:.80}; there are {count}, by id, name or number from 0")
        return found

    def _check_unfinished(self, trial: Trial) -> None:
        if trial.is_finished():
            raise OrderError(f"{trial.name} has ended: {outcome(trial)}")

    def _stop(self, trial: Trial) -> Effect:
        if trial.status == Trial.TERMINATED and trial.end_reason is not None:
            if trial.end_reason.kind is ReasonKind.ORDER:
                return lambda: (True, outcome(trial))  # by this order, in an earlier life
        self._check_unfinished(trial)
        why = Reason(ReasonKind.ORDER, "you")
        self._parts.plugins.directives.command(Directive(trial.trial_id, Decision.STOP, why))
        self._let_go(trial)
        self._transitions.carry_out_for(trial)
        return lambda: (True, outcome(trial)) if trial.is_finished() else None

    def _stop_all(self) -> Effect:
        source = self._parts.plugins.source
        source.stopped = True
        if self._state.search_ended is None and source.num_samples >= 0:
            self._facts.add(ev.SearchEnded(source.num_samples))
        unfinished = [trial for trial in self._state.trials if not trial.is_finished()]
        for trial in unfinished:
            self._stop(trial)

        def is_there() -> tuple[bool, str] | None:
            while unfinished and unfinished[-1].is_finished():
                unfinished.pop()
            return None if unfinished else (True, f"{len(self._state.trials)} trials have ended")

        return is_there

    def _pause(self, trial: Trial) -> Effect:
        self._check_unfinished(trial)
        if not trial.held:
            self._facts.add(ev.TrialHeld(trial.trial_id))
        if trial in self._waiting:
            self._waiting.remove(trial)

        def is_there() -> tuple[bool, str] | None:
            if trial.is_finished():
                saved = "" if trial.checkpoints else "; it had no checkpoint to pause with"
                return False, f"it ended first: {outcome(trial)}{saved}"
            if not trial.held:
                return False, "it was told to go before"
            return None if trial.trial_id in self._attempts.running else (True, f"at iteration {trial.iteration}")

        return is_there

    def _go(self, trial: Trial) -> Effect:
        self._check_unfinished(trial)
        if not trial.held:
            raise OrderError(f"{trial.name} was not told to pause: it is {outcome(trial)}")
        self._let_go(trial)
        return lambda: (True, self._next(trial))

    def _next(self, trial: Trial) -> str:
        """What comes after `go` or `retry`."""
        run = "trains on" if trial.trial_id in self._attempts.running else "waits for a slot, then goes on"
        return f"{run} from iteration {trial.iteration}"

    def _let_go(self, trial: Trial) -> None:
        """A trial that is held waits for room again, or trains on."""
        if not trial.held:
            return
        self._facts.add(ev.TrialHeld(trial.trial_id, held=False))
        run = self._attempts.running.get(trial.trial_id)
        if run is None:
            self._transitions.wait(trial)
        elif run.phase is Phase.PAUSE_DUE and run.why is not None and run.why.kind is ReasonKind.ORDER:
            run.why = None
            self._attempts.enter(run, Phase.TRAINING)

    def _save(self, trial: Trial, *, pin: bool) -> Effect:
        self._check_unfinished(trial)
        run = self._run_of(trial)
        run.save_asked = True
        since = trial.iteration

        def is_there() -> tuple[bool, str] | None:
            newest = trial.latest_checkpoint
            if newest is not None and newest.iteration > since:
                if pin:
                    self._facts.add(ev.CheckpointPinned(newest.ref))
                return True, newest.ref.name
            if self._attempts.running.get(trial.trial_id) is not run:
                return False, f"it does not run any more: {outcome(trial)}"
            return None

        return is_there

    def _run_of(self, trial: Trial) -> LiveAttempt:
        run = self._attempts.running.get(trial.trial_id)
        if run is None:
            newest = trial.latest_checkpoint
            has = "it has no checkpoint" if newest is None else f"its newest checkpoint is {newest.ref.name}"
            raise OrderError(f"{trial.name} does not run; {has}")
        return run

    def _retry(self, trial: Trial) -> Effect:
        if trial.status == Trial.TERMINATED:
            raise OrderError(f"{trial.name} has not failed: {outcome(trial)}")
        if trial.status == Trial.ERROR:
            self._facts.add(ev.TrialReopened(trial.trial_id))
            self._transitions.wait(trial)
        edited = edited_since(self._parts.plan.spec.trainable, self._began)
        old = f"; {edited} was edited since this driver began, which runs the code that it began with" if edited else ""
        return lambda: (True, self._next(trial) + old)
