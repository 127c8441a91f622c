"""The journal of an experiment to be read, wherever that lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath

from trainables.places import trim_slash
from trainables.transfer.open import shown
from tuner.experiment.finding import find_experiment
from tuner.experiment.paths import ExperimentPaths, is_elsewhere


@contextmanager
def journal_view(
    given: str | PathLike[str], *, history: bool = False, log: bool = False
) -> Iterator[tuple[ExperimentPaths, str]]:
    """The journal and settings of an experiment, local or remote, readable meanwhile, and its address for messages.

    Args:
        given: a path, a URI, or a name under the default storage.
        history: with what snapshots have replaced.
        log: with what its drivers warned of.

    Raises ExperimentNotFoundError with the places looked at, TransferError.
    """
    if is_elsewhere(given):
        from tuner.syncer import views

        more = views.history if history else views.warnings if log else views.journal_only
        with views.view(fspath(given), more) as paths:
            yield paths, trim_slash(shown(fspath(given)))
    else:
        path = find_experiment(given)
        yield ExperimentPaths(path), str(path)
