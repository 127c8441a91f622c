"""What ranks staged becomes one checkpoint: by renames, no byte is copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.store import fs, staging


@dataclass(frozen=True, slots=True)
class Part:
    """What of a checkpoint is a rank's."""

    under: str = ""
    """The directory in it that has the rank's files; "": itself."""
    without: frozenset[str] = frozenset()
    """Names of files and directories of the rank's that are not in it: a lower rank's are."""

    def has(self, name: str) -> bool:
        """Whether a file that the rank staged is in it."""
        return not any(name == other or name.startswith(f"{other}/") for other in self.without)

    def named(self, name: str) -> str:
        """What that file is called in it."""
        return f"{self.under}/{name}" if self.under else name


def merge(saves: Sequence[tuple[int, Path]], trial_dir: Path, *, keep_all_ranks: bool) -> tuple[Path, dict[int, Part]]:
    """One staged directory of what the ranks staged; the others are gone afterwards. What of it is whose, by rank.

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
        return whole, {rank: Part(f"rank_{rank}") for rank, _ in saves}
    (first, whole), *others = saves
    parts = {first: Part()}
    for rank, path in others:
        with staging.disk_errors(whole):
            parts[rank] = Part(without=frozenset(_moved(path, whole, "")))
        fs.remove_quietly(path)
    return whole, parts


def _moved(source: Path, target: Path, above: str) -> Iterator[str]:
    """Move what is in a directory into another one; yields the names that are taken there, and stay."""
    for name in fs.listdir(source):
        if not fs.exists(target / name):
            fs.rename(source / name, target / name)
        elif fs.is_dir(source / name) and fs.is_dir(target / name):
            yield from _moved(source / name, target / name, f"{above}{name}/")
        else:
            yield f"{above}{name}"
