"""`on_end=` and `on_failure=`: a command or a URL is told how a run stands. Never stored: no resume runs one by itself.

No hook holds up the loop, changes how a run ends, or delays its end by more than a bounded time.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from trainables.masking import masked
from trainables.printable import one_line
from tuner import knobs
from tuner.analysis import scopes
from tuner.callback import Callback, Trials
from tuner.clock import Clock, SystemClock
from tuner.driver.hook_call import SHOWN, Hook, HookCall, shown
from tuner.error import SettingError
from tuner.experiment.forks import evaluated_at
from tuner.experiment.outcome import TRACEBACK, headline
from tuner.experiment.trial import Trial
from tuner.progress import formatting
from tuner.spec import Spec

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
"""Between two calls of `on_failure`, at least; what fails meanwhile is told together."""
TOLD_FAILURES = 100
"""Failed trials that one call names at most."""
QUICK_S = 1.0
"""What takes longer at the end is spoken of."""
LONGEST = 2000
"""Characters of an error."""

Facts = dict[str, Any]
Say = Callable[[str], None]


def check_hooks(spec: Spec) -> None:
    """Refuse what can be seen to fail: after a long run it would be too late. Raises SettingError."""
    for name, hook in (("on_end", spec.on_end), ("on_failure", spec.on_failure)):
        if hook is not None:
            knobs.hook_timeout_s()
        if hook is not None and not isinstance(hook, str) and shutil.which(hook[0]) is None:
            raise SettingError(f"{name}={hook!r} is not accepted; there is no program {hook[0]!r}")


class HookFacts:
    """What hooks are told of one experiment."""

    def __init__(self, spec: Spec, root: Path, clock: Clock) -> None:
        self._metric = spec.metric if isinstance(spec.metric, str) else None
        self._mode = spec.mode if isinstance(spec.mode, str) else "max"
        self._root, self._clock = root, clock

    def of(self, event: str, state: str, trials: Trials, failed: Sequence[Trial], error: str | None = None) -> Facts:
        """All of it, as values that JSON has."""
        counts = dict.fromkeys(("total", *_WORDS.values()), 0)
        counts["total"] = len(trials)
        for trial in trials:
            counts[_WORDS[trial.status]] += 1
        facts: Facts = {
            "event": event,
            "experiment": self._root.name,
            "path": str(self._root),
            "state": state,
            "time": datetime.datetime.fromtimestamp(self._clock.time()).astimezone().isoformat(timespec="seconds"),
            "trials": counts,
            "best": self._best(trials),
            "failures": [_failure(trial) for trial in failed[:TOLD_FAILURES]],
            "error": None if error is None else one_line(masked(error))[:LONGEST],
        }
        return {"text": _sentence(facts), **facts}

    def _best(self, trials: Trials) -> Facts | None:
        if self._metric is None or (best := scopes.best(trials, self._metric, self._mode, "last")) is None:
            return None
        return {
            "trial": best.name,
            "number": best.index,
            "metric": self._metric,
            "mode": self._mode,
            "value": _plain(scopes.score(best, self._metric, self._mode, "last")),
            "iteration": best.iteration,
            "params": _plain(evaluated_at(best, best.iteration)),
            "path": best.path,
        }


class FailureHook(Callback):
    """Tells `on_failure` of each trial that has failed for good, of several at once where many fail."""

    changes_results = False

    def __init__(self, hook: Hook, facts: HookFacts, clock: Clock) -> None:
        self._hook, self._facts, self._clock = hook, facts, clock
        self._waiting: list[Trial] = []
        self._call: HookCall | None = None
        self._next = -math.inf
        self._warned = False

    def on_trial_error(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._waiting.append(trial)
        self._go_on(trials)

    def on_step_end(self, iteration: int, trials: Trials, **info: Any) -> None:
        if self._waiting or self._call is not None:
            self._go_on(trials)

    def next_refresh(self) -> float | None:
        if not self._waiting:
            return None
        return 1.0 if self._call is not None else max(0.0, self._next - self._clock.monotonic())

    def flush(self, trials: Trials, state: str, *, warn: Say, say: Say) -> None:
        """The run has ended: tell the rest, all within the time of one call."""
        until = self._clock.monotonic() + knobs.hook_timeout_s()
        while self._call is not None or self._waiting:
            if self._call is None:
                self._begin(trials, state)
            assert self._call is not None
            waiting = partial(say, f"waiting for on_failure='{shown(self._hook)}'; Ctrl-C does not wait")
            self._heard(finish(self._call, until - self._clock.monotonic(), waiting), warn)

    def _go_on(self, trials: Trials) -> None:
        if self._call is not None and self._call.wait(0):
            self._heard(self._call.trouble, log.warning)
        if self._call is None and self._waiting and self._clock.monotonic() >= self._next:
            self._begin(trials, "running")

    def _begin(self, trials: Trials, state: str) -> None:
        failed, self._waiting = self._waiting, []
        self._next = self._clock.monotonic() + INTERVAL_S
        self._call = begin(self._hook, self._facts.of("failure", state, trials, failed))

    def _heard(self, trouble: str | None, warn: Say) -> None:
        self._call = None
        if trouble is not None and not self._warned:
            self._warned = True
            warn(f"on_failure='{shown(self._hook)}' {trouble}")


class RunHooks:
    """Context around a run: the hooks are told how it has ended, and it ends as it would without them.

    Args:
        warn: says what went wrong with `on_end`, and with `on_failure` at the end.
        say: says what is waited for.
        clock: of the run, for the time that is told.
    """

    def __init__(self, spec: Spec, root: Path, *, clock: Clock, warn: Say, say: Say) -> None:
        self._on_end, self._warn, self._say = spec.on_end, warn, say
        self._facts = HookFacts(spec, root, clock)
        self.failing = None if spec.on_failure is None else FailureHook(spec.on_failure, self._facts, SystemClock())
        self.trials: Trials = ()
        self.state: str | None = None
        """How the run has ended: "finished", what halted it, or "failed"; None: it has not begun."""

    def __enter__(self) -> RunHooks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state is None or (self._on_end is None and self.failing is None):
            return
        try:
            if self.failing is not None:
                self.failing.flush(self.trials, self.state, warn=self._warn, say=self._say)
            if self._on_end is not None:
                self._tell_the_end(self._on_end, self.state, str(error) if isinstance(error, Exception) else None)
        except Exception as trouble:
            log.exception("hooks could not be told how the run has ended: %s", trouble)

    def _tell_the_end(self, hook: Hook, state: str, error: str | None) -> None:
        failed = [trial for trial in self.trials if trial.status == Trial.ERROR]
        call = begin(hook, self._facts.of("end", state, self.trials, failed, error))
        waiting = partial(self._say, f"waiting for on_end='{shown(hook)}'; Ctrl-C does not wait")
        if (trouble := finish(call, knobs.hook_timeout_s(), waiting)) is not None:
            self._warn(f"on_end='{shown(hook)}' {trouble}")


def begin(hook: Hook, facts: Facts) -> HookCall:
    """Call a hook."""
    value = facts["best"] and facts["best"]["value"]
    variables = {
        "TUNER_EVENT": facts["event"],
        "TUNER_EXPERIMENT": facts["experiment"],
        "TUNER_PATH": facts["path"],
        "TUNER_STATE": facts["state"],
        "TUNER_TEXT": facts["text"],
        "TUNER_BEST": "" if value is None else str(value),
        "TUNER_FAILED": str(facts["trials"]["failed"]),
    }
    body = json.dumps(facts, allow_nan=False).encode()
    return HookCall(hook, body, variables=variables, timeout_s=knobs.hook_timeout_s())


def finish(call: HookCall, timeout_s: float, waiting: Callable[[], None]) -> str | None:
    """Wait for a call, but not for long, and say so if it is not quick; what went wrong."""
    try:
        if not call.wait(min(QUICK_S, timeout_s)):
            waiting()
        # Somewhat longer: a command that is late is ended by its own thread, which says so.
        if not call.wait(max(0.0, timeout_s - QUICK_S) + 0.5):
            call.end()
    except KeyboardInterrupt:
        call.end()
        call.wait(0.5)  # so that nothing of it is left behind
        return "was not waited for, because of Ctrl-C"
    return call.trouble


def _failure(trial: Trial) -> Facts:
    error = trial.error
    said = "" if error is None else f"{error.type}: {error.message}"
    if error is not None and TRACEBACK in error.message:
        said = headline(error)  # its beginning does not name the cause
    return {
        "trial": trial.name,
        "number": trial.index,
        "error": one_line(masked(said))[:LONGEST],
        "failures": trial.num_failures,
        "iteration": trial.iteration,
        "path": trial.path,
    }


def _sentence(facts: Facts) -> str:
    counts, best = facts["trials"], facts["best"]
    if facts["event"] == "failure":
        first = facts["failures"][0]
        more = len(facts["failures"]) - 1
        what = f"trial {first['number']} failed{f' and {more} more' if more else ''}: {first['error'][:SHOWN]}"
    else:
        failed = f", {counts['failed']} failed" if counts["failed"] else ""
        what = f"{facts['state']}: {counts['done']} of {formatting.counted(counts['total'], 'trial')} done{failed}"
        what += f"; {facts['error'][:SHOWN]}" if facts["error"] else ""
    shown_best = f"; best {best['metric']} {formatting.value(best['value'])}: trial {best['number']}" if best else ""
    return f"{facts['experiment']}: {what}{shown_best}"


def _plain(value: Any) -> Any:
    """Of what a config may hold what JSON has; a number that is none is null, and all else is text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value)[:LONGEST]


_WORDS = {
    Trial.TERMINATED: "done",
    Trial.RUNNING: "running",
    Trial.PAUSED: "paused",
    Trial.PENDING: "pending",
    Trial.ERROR: "failed",
}
