"""A fetched history adopted in its place here; one that is in the way, quarantined."""

from __future__ import annotations

import contextlib
import json
import secrets
from pathlib import Path

import msgspec

from trainables.store import fs
from trainables.tagged import NAMED
from tuner.error import ExperimentDamagedError
from tuner.experiment import formats
from tuner.experiment.generations import GenerationRecord, decode_record, encode_record
from tuner.experiment.paths import ExperimentPaths, parse_generation


def adopt(incoming: ExperimentPaths, paths: ExperimentPaths) -> None:
    """Lay a fetched journal beside what is here: who reads then follows the newest generation, the rest is void.

    Its owner is known to be gone: the records say so here. Raises ExperimentDamagedError before anything is written.
    """
    names = sorted(fs.listdir(incoming.generations)) if fs.exists(incoming.generations) else ()
    records = {name: _record(incoming.generations / name) for name in names if parse_generation(name) is not None}
    fs.make_dirs(paths.journal)
    fs.make_dirs(paths.generations)
    if fs.exists(paths.experiment_json):
        formats.raise_to_ours(paths)  # what comes may be of the format that we write
    for name, record in records.items():
        fs.replace_file(paths.generations / name, encode_record(record, released=True))
    for directory, target in ((incoming.journal, paths.journal), (incoming.history, paths.history)):
        names = [name for name in _files(directory) if not fs.exists(target / name)]
        if names:
            fs.make_dirs(target)
        for name in names:
            fs.replace_file(target / name, fs.read_file(directory / name))
    fs.replace_file(paths.experiment_json, fs.read_file(incoming.experiment_json))


def _record(path: Path) -> GenerationRecord:
    try:
        return decode_record(fs.read_file(path), path)
    except msgspec.DecodeError as error:
        raise ExperimentDamagedError(str(error)) from error


def quarantine(paths: ExperimentPaths) -> Path:
    """Move an experiment out of the way, whole; returns where it lies now."""
    place = paths.root.parent / ".set-aside"
    fs.make_dirs(place)
    target = place / f"{paths.root.name}-{secrets.token_hex(4)}"
    fs.rename(paths.root, target)
    return target


def bring_back(paths: ExperimentPaths, quarantined: Path) -> None:
    """Undo `quarantine`; what lies in its place goes. For the owner of that only."""
    removed = quarantined.with_name(f"{quarantined.name}-removed")
    fs.rename(paths.root, removed)
    fs.rename(quarantined, paths.root)
    fs.rmtree(removed)
    with contextlib.suppress(OSError):  # others are quarantined too
        fs.rmdir(quarantined.parent)


def blobs_named(paths: ExperimentPaths) -> set[str]:
    """The hashes of blobs that an experiment's description and journal name. Nothing is unpickled."""
    settings = json.loads(fs.read_file(paths.experiment_json)) if fs.exists(paths.experiment_json) else {}
    named = {settings[key] for key in ("space_blob", "settings_blob") if isinstance(settings.get(key), str)}
    for name in _files(paths.journal):
        named |= {hash.decode() for hash in NAMED.findall(fs.read_file(paths.journal / name))}
    return named


def _files(directory: Path) -> list[str]:
    """Names of the files in a directory, which need not be there."""
    return [name for name in fs.listdir(directory) if not fs.is_dir(directory / name)] if fs.is_dir(directory) else []
