"""What is newer in the replica, brought here: laid out beside the experiment first, then given its place."""

from __future__ import annotations

import os

from trainables.store import fs
from tuner.experiment import driver_log
from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.opening.survey import LocalStanding, RemoteStanding
from tuner.syncer.adoption import adopt
from tuner.syncer.relation import Relation, at_rest, unchanged
from tuner.syncer.remote_experiment import RemoteExperiment, complete, fetch_log


def fetch_rest(local: LocalStanding, remote: RemoteStanding, *, artifacts: bool) -> ExperimentPaths:
    """Bring what belongs to the description and the journal that were surveyed; returns where all of it lies.

    `artifacts`: the replica has other files of the user's, too.
    """
    fetched, there = remote.fetched, remote.remote
    assert fetched is not None and there is not None
    if there.uploader.can.list:
        _fetch_listed(there, ExperimentPaths(local.root), fetched, continues=continues(local, remote))
    elif not artifacts:  # with them it could be a user's own directory
        there.remove_partials(fetched.root)
    return fetched


def continues(local: LocalStanding, remote: RemoteStanding) -> bool:
    """Whether what is fetched is the same history as what is here, and longer."""
    return local.exists and remote.relation is Relation.NEWER


def _fetch_listed(
    remote: RemoteExperiment, paths: ExperimentPaths, fetched: ExperimentPaths, *, continues: bool
) -> None:
    """Of trials that went on elsewhere what is here is less than what is there, and no later start could tell."""
    there = read_journal(fetched)
    later = at_rest(there, fetched.root, complete(remote.checkpoints()))
    same: set[str] = set()
    if continues:
        same = unchanged(read_journal(paths), there, paths.root)
        later = {dirname for dirname in later if dirname in same or not fs.exists(paths.root / dirname)}

    def have(key: str) -> bool:
        directory = key.partition("/")[0]
        return continues and (directory == paths.blobs.name or directory in same) and fs.exists(paths.root / key)

    remote.fetch_rest(fetched.root, have=have, later=later)
    fetch_log(remote, fetched.root)


def lay(fetched: ExperimentPaths, paths: ExperimentPaths) -> None:
    """Give what was fetched its place: small files first, then what makes it an experiment."""
    for directory in [entry for entry in sorted(fetched.root.iterdir()) if entry.is_dir()]:
        if directory.name in (fetched.journal.name, fetched.generations.name):
            continue
        for file in (file for file in sorted(directory.rglob("*")) if file.is_file()):
            target = paths.root / file.relative_to(fetched.root)
            fs.make_dirs(target.parent)
            os.replace(file, target)
    driver_log.merge(paths, fetched)
    adopt(fetched, paths)
