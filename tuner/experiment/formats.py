"""Which formats this version writes and reads: one number for all books of an experiment.

It stands in experiment.json, in the first line of each segment, in each snapshot and in the record of each generation.
Whoever adds a fact, a field or a file to the books raises it once per release. Older ones are read for good
(tests/data holds samples); a newer one is refused by name before any of it is used. So a later version may change
everything but where its number stands: `"format"` in the JSON objects that experiment.json and a record are, and the
first bytes of a segment and of a snapshot.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import msgspec

from trainables.decoding import decoder
from trainables.store import fs
from tuner.error import NewerFormatError
from tuner.experiment.paths import ExperimentPaths, parse_generation, parse_segment, parse_snapshot

FORMAT = 2
"""What is written; all up to it are read.

1: 0.1.0.
2: a reason in facts that stop or end a trial; `journal/history/`; the number itself in segments and records; the
   code of the trainable in experiment.json.
"""

_BEGINNING = re.compile(rb'(?:\{"n":\d+,"c":"[0-9a-f]{8}","f":)?\{"format":(\d+)[,}]')
_PEEK = 96
"""Bytes in which the format of a segment or snapshot stands."""


class _Versioned(msgspec.Struct, frozen=True):
    format: int = 1


_decode = decoder(_Versioned)


def check(version: int, where: str | Path) -> None:
    """Raise NewerFormatError for a format that this version does not know; `where` is named."""
    if version > FORMAT:
        raise NewerFormatError(
            f"{where} has format {version}, newer than this version's: formats up to {FORMAT} are read; use a newer "
            "version of the package. Nothing was read or touched"
        )


def check_json(data: bytes, where: str | Path) -> None:
    """`check` for a file that is one JSON object. What cannot be read at all is for its reader to say."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        check(_decode(data).format, where)


def check_beginning(data: bytes, where: str | Path) -> None:
    """`check` for a segment or a snapshot, of which the first bytes are enough."""
    if found := _BEGINNING.match(data):
        check(int(found[1]), where)


def raise_to_ours(paths: ExperimentPaths) -> None:
    """Make experiment.json say the format that this version writes, before a line of it is in the journal.

    So a version that does not know it refuses the experiment, and never reads what it understands of it.
    """
    settings = json.loads(fs.read_file(paths.experiment_json))
    if settings["format"] != FORMAT:
        fs.replace_file(paths.experiment_json, json.dumps({**settings, "format": FORMAT}, indent=1).encode())


def check_books(paths: ExperimentPaths) -> None:
    """`check` for every file of the journal and every generation, of each by a look at its beginning.

    Before anything of them is read: a single segment of a newer version, in the middle, is not passed over.
    """
    for name in _names(paths.journal):
        if parse_segment(name) or parse_snapshot(name):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # compaction removed it
                with fs.open_file(paths.journal / name) as file:
                    check_beginning(file.read(_PEEK), paths.journal / name)
    for name in _names(paths.generations):
        if parse_generation(name) is not None:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                check_json(fs.read_file(paths.generations / name), paths.generations / name)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(fs.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
