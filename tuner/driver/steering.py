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

from tuner.driver.changed_settings import ChangedSettings
from tuner.driver.endings import Endings
from tuner.driver.new_trials import NewTrials
from tuner.driver.parts import LoopParts
from tuner.driver.trial_orders import TrialOrders
from tuner.error import OrderError
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial
from tuner.orders import lasting, pins
from tuner.orders import order as words
from tuner.orders.mailbox import ANSWERS_KEPT_S, Letter, Mailbox, OrderAnswer, OrderState
from tuner.orders.pins import Effect

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
        self._parts = parts
        self._state, self._facts, self._mailbox = parts.state, parts.facts, mailbox
        self._trials = TrialOrders(parts, endings)
        self._new_trials = NewTrials(parts, endings.transitions)
        self._settings = ChangedSettings(parts, endings)
        self.pending: dict[str, Effect] = {}
        """Orders that are taken: what says whether the effect is there (True), never will be (False), and how."""
        self._unsaid: dict[str, OrderAnswer] = {}
        """Answers that could not be written, on a full disk, say."""
        self._until: dict[str, str] = {}
        """Order -> what it waits for, where that may be long."""
        self._tidy_at = 0.0

    @property
    def listens(self) -> bool:
        """Whether anybody can order anything."""
        return self._mailbox is not None

    # --- when -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Do again what earlier drivers had taken up, and say again what they answered; then look for more."""
        if self._mailbox is not None:
            now, is_open = self._parts.clock.time(), self._mailbox.is_open()
            for order_id, record in list(self._state.orders.items()):
                if record.state == "taken":  # on another machine too, where nobody has ever said anything
                    self._obey(order_id, bytes(record.order))
                elif not is_open or now - (record.answered_at or 0.0) >= ANSWERS_KEPT_S:
                    pass
                else:
                    said = OrderAnswer(order_id, OrderState(record.state), record.why)
                    if self._mailbox.answer(order_id) != said:  # the driver was killed before it could
                        self._say(said)
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

    def brings_more(self) -> bool:
        """At the end of a run: whether something was ordered since the last look, which may give it more to do."""
        known = len(self._state.orders)
        self.look()
        return len(self._state.orders) > known

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
        if not self._mailbox.is_open():
            return  # taken away, or it never was here: whoever asks finds it in the journal
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
            return self._trials.stop_all()
        if isinstance(order, words.AddOrder):
            return self._new_trials.add(order_id, order)
        if isinstance(order, words.ForkOrder):
            return self._new_trials.fork(order_id, order)
        if isinstance(order, words.SetOrder) and order.trial is None:
            return self._settings.set(order_id, order)
        trial = self._find(order.trial or "")
        match order:
            case words.StopOrder():
                return self._trials.stop(trial)
            case words.PauseOrder():
                self._until[order_id] = f"it pauses at its next {self._step}"
                return self._trials.pause(trial)
            case words.GoOrder():
                return self._trials.go(trial, order_id)
            case words.SaveOrder():
                if trial.trial_id not in self._parts.attempts.running:
                    self._until[order_id] = "it saves when it runs again"
                return self._trials.save(trial, pin=order.pin, after=self._state.orders[order_id].saves)
            case words.PinOrder() | words.TagOrder():
                return pins.pin(self._facts, trial, order)
            case words.UnpinOrder():
                there = pins.unpin(self._facts, trial, order.iteration)
                self._parts.checkpoints.forget(trial)
                return there
            case words.RetryOrder():
                return self._trials.retry(trial, order_id)
            case words.SetOrder():
                self._until[order_id] = f"it goes on with them after its next {self._step}"
                return self._settings.reallocate(trial, order)
            case words.NoteOrder():
                self._facts.add(ev.TrialNoted(trial.trial_id, order.text, self._parts.clock.time(), order_id))
                return None
            case _:
                assert_never(order)

    @property
    def _step(self) -> str:
        return "step" if self._parts.plan.spec.class_api else SAVE

    def _find(self, given: str) -> Trial:
        return lasting.named(self._state, given)
