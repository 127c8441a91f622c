"""What ranks staged becomes one checkpoint: by renames, no byte is copied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainables.store import fs, staging


def merge(saves: Sequence[tuple[int, Path]], trial_dir: Path, *, keep_all_ranks: bool) -> Path:
    """One staged directory of what the ranks staged; the others are gone afterwards.

    Args:
        saves: (rank, its staged directory), at least one, by rank.
        trial_dir: where they lie.
        keep_all_ranks: each rank's files in `rank_<i>/`. Else they are merged, directory by directory; of two with the
            same name the lower rank's stays.

    Raises PublishError when the disk does not take it. The caller removes what is left then.
    """
    if keep_all_ranks:
        whole = staging.new_directory(trial_dir, "ranks")
        with staging.disk_errors(whole, remove=whole):
            for rank, path in saves:
                fs.rename(path, whole / f"rank_{rank}")
        return whole
    (_, whole), *others = saves
    for _, path in others:
        with staging.disk_errors(whole):
            _move_into(path, whole)
        fs.remove_quietly(path)
    return whole


def _move_into(source: Path, target: Path) -> None:
    for name in fs.listdir(source):
        if not fs.exists(target / name):
            fs.rename(source / name, target / name)
        elif fs.is_dir(source / name) and fs.is_dir(target / name):
            _move_into(source / name, target / name)
