"""The session API inside a trial: `report`, `get_checkpoint`, `get_context` and their relatives."""

from __future__ import annotations

import contextlib
import logging
import numbers
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from trainables.automatic import DEFAULT_METRIC
from trainables.bundles import TrialResources
from trainables.context import TrainContext
from trainables.errors import InvalidSettingError, MetricError, SessionError

if TYPE_CHECKING:
    from trainables.checkpoint import Checkpoint

_log = logging.getLogger(__name__)


class Session(Protocol):
    """What stands behind these functions while a trial, or a worker of one, runs."""

    @property
    def context(self) -> TrainContext:
        """Facts about where the code runs."""

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
        """Take a result."""

    def checkpoint_dir(self, step: int | None = None) -> contextlib.AbstractContextManager[str]:
        """Give a directory to save into."""

    def get_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint."""


_current: Session | None = None


def activate(session: Session | None) -> Session | None:
    """From now on everything in all threads of this process belongs to `session`; whose it was before."""
    global _current
    before, _current = _current, session
    return before


@contextlib.contextmanager
def activated(session: Session) -> Iterator[None]:
    """Everything inside belongs to `session`."""
    before = activate(session)
    try:
        yield
    finally:
        activate(before)


def current() -> Session | None:
    """The session of this process, None outside a trial."""
    return _current


def is_session_enabled() -> bool:
    """Whether the code runs inside a trial, where `report` can be called (Ray 1's name)."""
    return _current is not None


def report(
    metrics: Any = None, checkpoint: Checkpoint | None = None, *, checkpoint_dir_name: str | None = None, **more: Any
) -> None:
    """Report one result, with a checkpoint or without.

    Returns when the driver has decided whether the trial goes on; at once where nobody decides about this result: no
    scheduler, stopper or budget, or one that does so at a later iteration.

    Args:
        metrics: A dict of values, or one number, which is then called `_metric`. Numbers, strings, booleans, None,
            lists and dicts of them; numpy's and torch's scalars become numbers.
        checkpoint: What to save with this result. A directory given with `Checkpoint.from_directory(d)` is cloned
            and stays as it is; with `move=True` it is moved, and `d` is empty afterwards.
        checkpoint_dir_name: Has no effect: checkpoints are named by iteration.
        **more: Metrics by name, as in `report(loss=0.3)`.

    Raises:
        SessionError: Outside a trial.
        MetricError: A value that cannot be written; the message names its key. Nothing was sent.
        CheckpointBudgetError: The checkpoint does not fit into the experiment's budget.
        PublishError: Too many checkpoints in a row did not reach the disk.

    Example:
        >>> def train(config):
        ...     for epoch in range(3):
        ...         report({"loss": 1 / (epoch + 1)})
    """
    if _current is None:
        raise SessionError(
            "report() was called outside a trial: it works in a function that tune.run or Tuner runs, and below it"
        )
    if checkpoint is not None and not hasattr(checkpoint, "as_directory"):
        raise InvalidSettingError(
            f"report(checkpoint={checkpoint!r}) is not accepted; accepted is a Checkpoint, such as "
            "Checkpoint.from_directory(path)"
        )
    if checkpoint_dir_name is not None:
        warn_once("report(checkpoint_dir_name=) has no effect: checkpoints are named by iteration")
    if type(metrics) is dict and not more:
        _current.report(metrics, checkpoint)
    else:
        _current.report({**as_metrics(metrics), **more}, checkpoint)


def as_metrics(value: Any) -> Mapping[str, Any]:
    """A reported, yielded or returned value as a dict of metrics."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    if isinstance(value, numbers.Number) or getattr(value, "shape", None) == ():
        return {DEFAULT_METRIC: value}
    raise MetricError(f"a result is a dict of metrics or one number, not {type(value).__name__} ({value!r:.80})")


def should_save() -> bool:
    """Whether a function is to save now, with its next report: it pays, or somebody asked for it.

    It pays as soon as what would be lost, by the interruptions that the run has seen, costs more than a save, whose
    time is measured (`trainables.runtime.cadence`; Young 1974, Daly 2006); while there were none, saving takes at most
    2 % of the time. Ask after a step, before what is saved is written. A result, a callback, a scheduler or a user may
    ask for a checkpoint too. The same answer until the next report; False outside a trial.

    Example:
        >>> def train(config):
        ...     for epoch in range(3):
        ...         metrics = {"loss": 1 / (epoch + 1)}
        ...         if should_save():
        ...             with checkpoint_dir() as directory:
        ...                 open(f"{directory}/epoch", "w").write(str(epoch))
        ...         report(metrics)
    """
    return _current is not None and _current.context.should_checkpoint()


def get_checkpoint() -> Checkpoint | None:
    """The trial's newest checkpoint: what it continues from at its start, later the last that was saved.

    None when the trial starts anew, and outside a trial.

    Example:
        >>> if checkpoint := tune.get_checkpoint():
        ...     start = checkpoint.to_dict()["epoch"] + 1
    """
    return None if _current is None else _current.get_checkpoint()


def checkpoint_dir(step: int | None = None) -> contextlib.AbstractContextManager[str]:
    """A directory to save into, for `with`; the next `report` takes it, without copying.

    Args:
        step: The number in the checkpoint's name; default: the iteration of the result that takes it.

    When it is used twice before a report, the later save counts. When no report follows, the last metrics are
    reported once more with it. Left by an exception, it saves nothing. Raises SessionError outside a trial.

    Example:
        >>> def train(config, checkpoint_dir=None):
        ...     with session.checkpoint_dir(step=1) as path:
        ...         (Path(path) / "weights").write_bytes(b"...")
        ...     session.report(loss=0.1)
    """
    if _current is None:
        raise SessionError("checkpoint_dir() was called outside a trial: make a directory of your own there")
    return _current.checkpoint_dir(step)


def save_checkpoint(**data: Any) -> None:
    """Save a dict, as Ray Train's first generation does; every worker calls it, and rank 0's is kept.

    Values that are numbers can rank checkpoints: `CheckpointStrategy(checkpoint_score_attribute="loss")`. Raises
    SessionError outside a trial.

    Example:
        >>> def train_func():
        ...     for epoch in range(3):
        ...         save_checkpoint(epoch=epoch, loss=1 / (epoch + 1))
    """
    if _current is None:
        raise SessionError("save_checkpoint() was called outside a trial: it works in a function that a trainer runs")
    from trainables.checkpoint import Checkpoint

    scores = {key: value for key, value in data.items() if _is_number(key, value)}
    checkpoint = Checkpoint.from_dict(data) if get_world_rank() == 0 else None
    _current.report({**scores, SAVE_ONLY: True}, checkpoint)


def load_checkpoint() -> dict[str, Any] | None:
    """What `save_checkpoint` saved last, or what the run was given as `checkpoint=`; None when there is nothing.

    Example:
        >>> start = (train.load_checkpoint() or {"epoch": 0})["epoch"]
    """
    found = get_checkpoint()
    return None if found is None else without_added(found.to_dict())


def without_added(data: dict[str, Any]) -> dict[str, Any]:
    """A dict checkpoint without what a trainer added to it, but for the time."""
    return {key: value for key, value in data.items() if key not in ("_preprocessor", "_current_checkpoint_id")}


def get_context() -> TrainContext:
    """Facts about the trial and what is asked of it; outside a trial a context that says so.

    Example:
        >>> get_context().get_world_size()
        1
    """
    return _OUTSIDE if _current is None else _current.context


def get_trial_id() -> str | None:
    """The trial's id; None outside a trial.

    Example:
        >>> get_trial_id() is None  # outside a trial
        True
    """
    return get_context().get_trial_id()


def get_trial_name() -> str | None:
    """The trial's name; None outside a trial.

    Example:
        >>> get_trial_name() is None  # outside a trial
        True
    """
    return get_context().get_trial_name()


def get_trial_dir() -> str | None:
    """The trial's directory; None outside a trial.

    Example:
        >>> Path(tune.get_trial_dir(), "notes.txt").write_text("as asked")
    """
    return get_context().get_trial_dir()


def get_trial_resources() -> TrialResources | None:
    """What the trial was given; None outside a trial.

    Example:
        >>> tune.get_trial_resources()["cpu"]
    """
    return get_context().get_trial_resources()


def get_experiment_name() -> str | None:
    """The experiment's name; None outside a trial."""
    return get_context().get_experiment_name()


def get_world_size() -> int:
    """Workers in this training; 1 in a plain trial.

    Example:
        >>> batch_size = 256 // train.world_size()
    """
    return get_context().get_world_size()


def get_world_rank() -> int:
    """This worker's number among all, from 0.

    Example:
        >>> if train.world_rank() == 0:
        ...     print("only once")
    """
    return get_context().get_world_rank()


def get_local_rank() -> int:
    """This worker's number on its host, from 0.

    Example:
        >>> device = f"cuda:{train.local_rank()}"
    """
    return get_context().get_local_rank()


def get_local_world_size() -> int:
    """Workers of this training on this host."""
    return get_context().get_local_world_size()


def get_node_rank() -> int:
    """This host's number among the hosts of this training, from 0."""
    return get_context().get_node_rank()


world_size = get_world_size
world_rank = get_world_rank
local_rank = get_local_rank

SAVE_ONLY = "_save_checkpoint"
"""Key of a result that `save_checkpoint` made, and no `report`."""
ALL_RANKS = "_ranks"
"""Key of a result with what every worker reported, by rank."""

_OUTSIDE = TrainContext()
_warned: set[str] = set()


def _is_number(key: str, value: Any) -> bool:
    """Whether a value of a dict to save can stand in a result: numpy objects, Fractions and others cannot."""
    if not isinstance(value, numbers.Number) and not (getattr(value, "shape", None) == () and hasattr(value, "item")):
        return False
    from trainables.plain_metrics import plain_metrics

    try:
        plain_metrics({key: value})
    except MetricError:
        return False
    return True


def warn_once(text: str) -> None:
    """Log a warning, the first time that this process has cause to."""
    if text not in _warned:
        _warned.add(text)
        _log.warning(text)
