"""What is recorded of one trial, fact by fact: its results, void ones too, its checkpoints, attempts and decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tuner.experiment import events as ev
from tuner.experiment.outcome import headline
from tuner.experiment.reason import Reason
from tuner.ui.point_log import Point, point_of


@dataclass
class TrialStory:
    """All of it, as rows; made by `story_of`."""

    points: list[Point] = field(default_factory=list)
    void: list[bool] = field(default_factory=list)
    """Of each point, whether a rollback took it back."""
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    is_whole: bool = False
    """Its beginning is recorded."""
    at: float | None = None
    """The last time that was told."""

    def take(self, seq: int, fact: ev.AnyFact) -> None:
        """Add a fact about the trial, in the order of the journal."""
        match fact:
            case ev.TrialCreated():
                self.is_whole = True
            case ev.ResultReported():
                self._result(seq, fact)
            case ev.RolledBack(iteration=iteration):
                for number, point in enumerate(self.points):
                    self.void[number] |= point.iteration > iteration
            case ev.AttemptStarted():
                self._started(fact)
            case ev.AttemptEnded(why=why, at=at, error=error):
                self._ended(why, at, error)
            case ev.TrialEnded(status=status, at=at, error=error, reason=reason):
                self._ended("failed" if status == "ERROR" else "ended", at, error)
                if reason is not None and (not self.decisions or self.decisions[-1]["then"] != "stop"):
                    self._decided(at, reason, "end")
            case ev.Exploited(iteration=iteration, reason=reason, checkpoint=ref):
                said = f"goes on as a clone of {ref.trial_id}, from {ref.name}"
                self._decided(self.at, reason, "exploit", iteration, said)
            case ev.TrialHeld(held=held):
                self._decided(self.at, None, "pause" if held else "go", said="a user lets it wait" if held else "go")
            case _:
                self._about_checkpoint(fact)

    def _result(self, seq: int, fact: ev.ResultReported) -> None:
        point = point_of(seq, fact)
        self.points.append(point)
        self.void.append(False)
        self.at = point.at if point.at is not None else self.at
        if fact.reason is not None or fact.then != "continue":
            self._decided(point.at, fact.reason, fact.then, fact.iteration)

    def _decided(
        self, at: float | None, reason: Reason | None, then: str, iteration: int | None = None, said: str = ""
    ) -> None:
        told = {name: getattr(reason, name, None) for name in ("by", "metric", "value", "rank", "of", "cut")}
        text = said if reason is None else reason.sentence(paused=then == "pause")
        self.decisions.append(
            {
                "at": at,
                "iteration": iteration if iteration is not None else getattr(reason, "iteration", None),
                "then": then,
                "kind": None if reason is None else reason.kind.value,
                **told,
                "said": text or then,
            }
        )

    def _started(self, fact: ev.AttemptStarted) -> None:
        self.at = fact.at
        self.attempts.append(
            {
                "number": fact.attempt,
                "generation": fact.generation,
                "started_at": fact.at,
                "ended_at": None,
                "why": None,
                "iteration": fact.iteration,
                "from": fact.reused and str(fact.reused) if fact.checkpoint is None else fact.checkpoint.name,
                "error": None,
            }
        )

    def _ended(self, why: str, at: float | None, error: ev.ErrorInfo | None) -> None:
        self.at = at if at is not None else self.at
        if self.attempts:
            first = None if error is None else headline(error)
            self.attempts[-1] |= {"ended_at": at, "why": why, "error": first}

    def _about_checkpoint(self, fact: ev.AnyFact) -> None:
        ref = getattr(fact, "ref", None)
        if ref is None:
            return
        known = self.checkpoints.get(ref.name)
        match fact:
            case ev.CheckpointPublished(bytes=size, at=at):
                self.at = at
                self.checkpoints[ref.name] = {
                    "name": ref.name,
                    "iteration": ref.iteration,
                    "saved_at": at,
                    "bytes": size,
                    "fate": "kept",
                    "why": "",
                    "gone_at": None,
                    "order": ref.order,
                    "value": None,
                }
            case ev.CheckpointForgotten(why=why) if known:
                known |= {"fate": "deleted", "why": why, "gone_at": self.at}
            case ev.CheckpointSetAside(problem=problem) if known:
                known |= {"fate": "set aside", "why": problem, "gone_at": self.at}


def story_of(facts: Iterable[tuple[int, ev.AnyFact]], until: int | None = None) -> TrialStory:
    """The story of a trial.

    Args:
        facts: (number, fact) of those about it, in order.
        until: the last one that counts; None: all.
    """
    story = TrialStory()
    for seq, fact in facts:
        if until is not None and seq > until:
            break
        story.take(seq, fact)
    return story
