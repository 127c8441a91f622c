"""What is said beside an exception that comes of how trials run: each in a directory and a process of its own."""

from __future__ import annotations

import bdb
import os
import sys
from collections.abc import Iterator

from trainables.job import Job
from trainables.runtime.objective import suggests

_NO_TERMINAL = (
    'a trial has a process of its own, without a terminal: with executor="inline" trials run in this process, where '
    "breakpoint() and pdb work"
)

_OBJECTIVE = (
    "a trainable gets its config, a dict; of an objective of Optuna the suggestions become a space f(trial), for "
    "OptunaSearch(f), and the rest a train(config) that reports"
)
_NO_GPU = (
    'this trial asked for no GPU, and none is in its sight: resources_per_trial={"gpu": 1}, or tune.with_resources, '
    "asks for one"
)


def hint_of(error: BaseException, job: Job, *, own_process: bool) -> str | None:
    """What to do about an exception that a trial raised; None: nothing is known of it.

    Args:
        own_process: the trial runs in a process of its own, and not in the driver's.
    """
    for each in _chain(error):
        if isinstance(each, bdb.BdbQuit) and own_process:
            return _NO_TERMINAL
        if isinstance(each, FileNotFoundError) and job.chdir and (hint := _where(each, job)) is not None:
            return hint
        if isinstance(each, AttributeError) and isinstance(each.obj, dict) and suggests(each.name or ""):
            return _OBJECTIVE
        if not (job.resources or {}).get("gpu") and _raised_in(each, "torch.cuda"):
            return _NO_GPU
    return None


def _where(error: FileNotFoundError, job: Job) -> str | None:
    """Why a relative path is not found, and how it is."""
    path = error.filename
    if not isinstance(path, str | os.PathLike) or not isinstance(name := os.fspath(path), str) or os.path.isabs(name):
        return None
    original = os.path.abspath(job.original_cwd)
    there = os.path.lexists(os.path.join(original, name))
    if not there and _raised_in(error, "subprocess"):
        return None  # a program, which is looked for elsewhere
    found = f", and {name!r} is in {original}" if there else ""
    return f"trials run in their own directory{found}: give an absolute path, or chdir_to_trial_dir=False"


def _raised_in(error: BaseException, module: str) -> bool:
    """Whether an exception was raised by code of a module."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and module in sys.modules and trace.tb_frame.f_globals is vars(sys.modules[module])


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
