"""`AskAhead`: asks a slow searcher for the next suggestion in a thread, before a worker needs it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from trainables.starting import start_thread
from tuner.search.delegation import delegates
from tuner.search.limiter import Wrapper
from tuner.search.searcher import Searcher, Suggestion, contains

_Call = tuple[str, tuple[Any, ...], dict[str, Any]]


@delegates("searcher", "counts_samples")
class AskAhead(Wrapper):
    """Asks a searcher for the next suggestion in a thread, right after the one before was taken.

    What the searcher is told goes by the order in which things were journaled, and never by how fast the thread is: it
    is asked for suggestion n + 1 when n is taken, and what happens after that it is told after that, at once where the
    thread has finished. A replay, which knows suggestion n + 1 only later, holds back what came between. So suggestion
    n + 1 sees all that happened before n was taken, and none of the results that come from then on until it is taken
    itself: with one worker it lacks the result of trial n, with many the few that end in between.

    Args:
        searcher: one that never answers None.
    """

    def __init__(self, searcher: Searcher) -> None:
        super().__init__(searcher)
        self._asked: tuple[str, Future[Suggestion]] | None = None
        self._held: list[_Call] = []
        self._holding = False
        """At a replay: the next suggestion was computed before what is told now, and is not known yet."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return partial(self._tell, name) if name == "on_rollback" else found

    def prepare(self, trial_id: str) -> None:
        if self._asked is not None:
            return
        answer: Future[Suggestion] = Future()
        # A daemon: whoever leaves does not wait for a suggestion that nobody will run.
        start_thread(_answer, name="ask-ahead", args=(answer, self.searcher.suggest, trial_id))
        self._asked = (trial_id, answer)

    def suggest(self, trial_id: str) -> Suggestion:
        ready, suggestion = self._take(trial_id)
        if not ready:
            suggestion = self.searcher.suggest(trial_id)
        self._release()
        return suggestion

    def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
        ready, suggestion = self._take(trial_id)
        same = isinstance(suggestion, dict) and contains(config, suggestion)
        if ready and not same:
            self.searcher.on_trial_complete(trial_id, result=None, error=True)
        if not (ready and same):
            same = self.searcher.replay_suggest(trial_id, config) and not ready
        self._release()
        self._holding = True
        return same

    def _take(self, trial_id: str) -> tuple[bool, Suggestion]:
        """Whether there is a suggestion for this trial, and which; waits for the thread."""
        if self._asked is None:
            return False, None
        asked_for, answer = self._asked
        self._asked = None
        suggestion = answer.result()
        if asked_for == trial_id:
            return True, suggestion
        self.searcher.on_trial_complete(asked_for, result=None, error=True)
        return False, None

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._tell("on_trial_result", trial_id, dict(result))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._tell("on_trial_complete", trial_id, result=None if result is None else dict(result), error=error)

    def on_pause(self, trial_id: str) -> None:
        self._tell("on_pause", trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self._tell("on_unpause", trial_id)

    def learn_from(self, trial: Any) -> str | None:
        if self._asked is None and not self._holding:
            return self.searcher.learn_from(trial)
        self._tell("learn_from", trial)
        return None

    def on_search_end(self) -> None:
        self._release()  # no suggestion comes before it
        self._tell("on_search_end")

    def _tell(self, method: str, *arguments: Any, **named: Any) -> None:
        self._held.append((method, arguments, named))
        if not self._holding and (self._asked is None or self._asked[1].done()):
            self._release()

    def _release(self) -> None:
        self._holding = False
        if self._asked is not None:
            self._asked[1].exception()  # waits; an error is raised where the suggestion is taken
        held, self._held = self._held, []
        for method, arguments, named in held:
            getattr(self.searcher, method)(*arguments, **named)

    def get_state(self) -> dict[str, Any]:
        if not self._holding:
            self._release()
        asked = None
        if self._asked is not None and self._asked[1].exception() is None:  # one that failed is asked for again
            asked = (self._asked[0], self._asked[1].result())
        return {
            "asked": asked,
            "held": list(self._held),
            "holding": self._holding,
            "searcher": self.searcher.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._asked, self._held, self._holding = None, list(state["held"]), state["holding"]
        if state["asked"] is not None:
            trial_id, suggestion = state["asked"]
            answer: Future[Suggestion] = Future()
            answer.set_result(suggestion)
            self._asked = (trial_id, answer)
        self.searcher.set_state(state["searcher"])


def _answer(answer: Future[Suggestion], suggest: Callable[[str], Suggestion], trial_id: str) -> None:
    try:
        answer.set_result(suggest(trial_id))
    except BaseException as error:
        answer.set_exception(error)


def with_ask_ahead(searcher: Searcher) -> Searcher:
    """The searcher, with `AskAhead` around the innermost one if that wants it."""
    if isinstance(searcher, AskAhead):
        return searcher
    if isinstance(searcher, Wrapper):
        searcher.searcher = with_ask_ahead(searcher.searcher)
        return searcher
    return AskAhead(searcher) if searcher.ask_ahead else searcher
