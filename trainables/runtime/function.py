"""Function trainables: which signatures there are, and how a function runs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator
from typing import Any, Literal

from trainables import session
from trainables.bundles import TrialResources
from trainables.errors import InvalidSettingError, MetricError
from trainables.runtime.attempt import Attempt
from trainables.runtime.objective import is_objective, two_functions
from trainables.runtime.saving_session import TrialExit

_log = logging.getLogger(__name__)

Second = Literal["checkpoint_dir", "reporter"]

_ACCEPTED = (
    "accepted are f(config), f(config, checkpoint_dir=None) and f(config, reporter); "
    "give further objects with tune.with_parameters"
)


def check_signature(function: Callable[..., Any]) -> Second | None:
    """What the function wants besides its config.

    Returns:
        "checkpoint_dir", "reporter", or None for nothing.

    Raises:
        InvalidSettingError: The signature is none that is accepted; the message shows it and those that are.
    """
    return _checked[1] if _checked is not None and _checked[0] is function else _look_at(function)


def check_before_the_fork(function: Callable[..., Any]) -> None:
    """`check_signature` for all processes that are forked from this one, which keeps the function."""
    global _checked
    _checked = function, _look_at(function)


_checked: tuple[Callable[..., Any], Second | None] | None = None
"""The function that all trials run, and what it wants."""


def _look_at(function: Callable[..., Any]) -> Second | None:
    name = getattr(function, "__qualname__", repr(function))
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidSettingError(f"trainable {name} is async; {_ACCEPTED}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # something built in: the call will say
    if is_objective(function):
        raise InvalidSettingError(two_functions(function))
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    names = {p.name for p in parameters}
    second: Second | None = None
    if "checkpoint_dir" in names:
        second = "checkpoint_dir"
    elif "reporter" in names:
        second = "reporter"
    given = {second, positional[0].name if positional else None}
    unmet = [
        p.name
        for p in parameters
        if p.name not in given and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if not (positional or takes_any) or unmet or (positional and positional[0].name == second):
        why = f"nobody gives it {', '.join(unmet)}" if unmet else "it takes no config"
        raise InvalidSettingError(f"trainable {name}{signature} cannot be called: {why}; {_ACCEPTED}")
    return second


class Reporter:
    """The second argument of `f(config, reporter)`: call it to report."""

    def __init__(self, attempt: Attempt) -> None:
        job = attempt.job
        self.logdir = str(job.directory)
        self.trial_id = job.trial_id
        self.trial_name = job.trial_name
        self.trial_resources = TrialResources(job.resources or {})

    def __call__(self, metrics: Any = None, **more: Any) -> None:
        session.report(metrics, **more)


def run_function(attempt: Attempt, function: Callable[..., Any]) -> None:
    """Run a function trainable to its end, whoever ends it; `attempt` knows afterwards how that was."""
    try:
        _run(attempt, function)
    except TrialExit:
        return  # the driver's decision, or the driver is gone


def _run(attempt: Attempt, function: Callable[..., Any]) -> None:
    second = check_signature(function)
    extra: dict[str, Any] = {}
    if second == "checkpoint_dir":
        path = attempt.job.checkpoint_path
        extra = {second: None if path is None else str(path)}
    elif second == "reporter":
        extra = {second: Reporter(attempt)}
    attempt.keys.start_step()
    returned = function(attempt.job.config, **extra)
    if inspect.isgenerator(returned):
        returned = _exhaust(attempt, returned)
    if returned is not None:
        _report_returned(attempt, returned)
    attempt.flush()


def _exhaust(attempt: Attempt, results: Generator[Any, Any, Any]) -> Any:
    try:
        while True:
            try:
                result = next(results)
            except StopIteration as end:
                return end.value
            attempt.report(session.as_metrics(result))
    finally:
        results.close()  # its own `finally` blocks run before the trial's last message


def _report_returned(attempt: Attempt, returned: Any) -> None:
    try:
        metrics = session.as_metrics(returned)
    except MetricError:
        if attempt.reported:  # its results are worth more than a remark
            _log.warning("the function returned %s, which is no result and is ignored", type(returned).__name__)
            return
        raise
    attempt.report(metrics)
