"""`DistributedShardedDataset`: each rank loads its part of a dataset once, and keeps it in memory."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate

from trainables.errors import InvalidSettingError, MissingExtraError
from trainables.extras import how_to_install
from trainables.torch.ranks import checked_ranks
from trainables.validation import flag, invalid, whole_number

_log = logging.getLogger(__name__)

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

Transform = Callable[[Any], Any]


class DistributedShardedDataset(Dataset[Any]):
    """A dataset of which each rank loads only its own part, into host memory or onto a device.

    For `InterruptableSampler`, which goes through what a rank holds. The samples are dealt out in an order drawn from
    `seed`; with more than `1 / world_size` of them per replica, a rank also holds the first ones of the ranks after it.
    All ranks hold equally many.

    Args:
        root: a folder with one folder of images per class, or any map-style dataset (with `len` and `[index]`).
        rank, world_size: None: of the process group, or 0 and 1 where there is none.
        samples_pct_per_replica: the share of the whole that each rank holds, above 0 and at most 1; None:
            1 / world_size, so that no sample is held twice but to make the parts equal.
        device_id: where the samples go, stacked into tensors ("cuda:0", `torch.device`, a number); they must all have
            one shape then. None: they stay as they are, in a list. Also spelled `device`.
        seed, shuffle: of the order in which samples are dealt out; the same on all ranks.
        loader: from a file to a sample; None: an RGB image of PIL.
        extensions: of files that are samples, in lower case; None with `is_valid_file`.
        sample_load_transform, target_load_transform: applied once, when loading.
        sample_getitem_transform, target_getitem_transform: applied at each access.
        is_valid_file: says of a path whether it is a sample, instead of `extensions`.

    A sample of a folder is (image, number of its class); `classes` and `class_to_idx` name these. Samples of a
    map-style dataset that are pairs count as (sample, target), all others as samples without target.

    Raises:
        InvalidSettingError: an argument that is not accepted.
        MissingExtraError: PIL is not installed, and there is no `loader`.
        FileNotFoundError: `root` is not there, or has no classes, or a class has no sample.

    Source: the interface is that of StrongResearch/cycling_utils.

    Example:
        >>> squares = [(number, number**2) for number in range(6)]
        >>> part = DistributedShardedDataset(squares, rank=1, world_size=2, shuffle=False)
        >>> list(part)
        [(1, 1), (3, 9), (5, 25)]
        >>> part.indices
        [1, 3, 5]
    """

    def __init__(
        self,
        root: Any,
        rank: int | None = None,
        world_size: int | None = None,
        samples_pct_per_replica: float | None = None,
        device_id: Any = None,
        seed: int = 0,
        shuffle: bool = True,
        loader: Callable[[str], Any] | None = None,
        extensions: Sequence[str] | None = IMG_EXTENSIONS,
        sample_load_transform: Transform | None = None,
        target_load_transform: Transform | None = None,
        sample_getitem_transform: Transform | None = None,
        target_getitem_transform: Transform | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        *,
        device: Any = None,
    ) -> None:
        self.world_size, self.rank = checked_ranks(world_size, rank)
        self.seed = whole_number("DistributedShardedDataset: seed", seed, least=0)
        self.shuffle = flag("DistributedShardedDataset: shuffle", shuffle)
        self._share = None if samples_pct_per_replica is None else _share(samples_pct_per_replica, self.world_size)
        self.root = root
        self._sample_getitem, self._target_getitem = sample_getitem_transform, target_getitem_transform
        self.classes: list[str] = []
        self.class_to_idx: dict[str, int] = {}
        source = self._folder(loader, extensions, is_valid_file) if isinstance(root, str | os.PathLike) else root
        if not hasattr(source, "__getitem__") or not hasattr(source, "__len__"):
            raise invalid("DistributedShardedDataset: root", root, "a folder, or a dataset with len() and [index]")
        self.total = len(source)
        """Samples of the whole dataset."""
        self.indices = self.shard(self.rank, self.world_size)
        """The numbers in the whole dataset of those that are held here, in their order here."""
        self.samples: Any = []
        self.targets: Any = None
        self._load(source, sample_load_transform, target_load_transform)
        place = device_id if device is None else device
        self._stacked = place is not None
        if self._stacked:
            self.samples = _onto(self.samples, place, "sample")
            self.targets = None if self.targets is None else _onto(self.targets, place, "target")

    def shard(self, rank: int, world_size: int) -> list[int]:
        """The numbers of the samples that a rank holds, or would hold as one of so many."""
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed)
            order: list[int] = torch.randperm(self.total, generator=generator).tolist()
        else:
            order = list(range(self.total))
        count = math.ceil(self.total / world_size) if self._share is None else math.ceil(self._share * self.total)
        held: list[int] = []
        for offset in range(world_size):  # its own first, then those of the ranks after it: none twice
            if len(held) >= count:
                break
            held += order[(rank + offset) % world_size :: world_size]
        return held[:count]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        """The sample of that number here, as (sample, target) where there are targets."""
        number = range(len(self.indices))[index]  # refuses what is beyond, counts from the end below 0
        sample = _at(self.samples, number, stacked=self._stacked)
        if self._sample_getitem is not None:
            sample = self._sample_getitem(sample)
        if self.targets is None:
            return sample
        target = _at(self.targets, number, stacked=self._stacked)
        return sample, target if self._target_getitem is None else self._target_getitem(target)

    def _folder(
        self,
        loader: Callable[[str], Any] | None,
        extensions: Sequence[str] | None,
        is_valid_file: Callable[[str], bool] | None,
    ) -> _Folder:
        if is_valid_file is None:
            if extensions is None:
                accepted = "a list of them, or None with is_valid_file"
                raise invalid("DistributedShardedDataset: extensions", None, accepted)
            endings = tuple(extensions)
            is_valid_file = lambda path: path.lower().endswith(endings)  # noqa: E731
        folder = _Folder(Path(self.root), loader or _pil_loader(), is_valid_file)
        self.classes, self.class_to_idx = folder.classes, {name: n for n, name in enumerate(folder.classes)}
        return folder

    def _load(self, source: Any, of_sample: Transform | None, of_target: Transform | None) -> None:
        for number in self.indices:
            item = source[number]
            paired = isinstance(item, tuple | list) and len(item) == 2
            sample, target = item if paired else (item, None)
            self.samples.append(sample if of_sample is None else of_sample(sample))
            if paired:
                self.targets = [] if self.targets is None else self.targets
                self.targets.append(target if of_target is None else of_target(target))
        if self.targets is not None and len(self.targets) != len(self.samples):
            raise InvalidSettingError("DistributedShardedDataset: some samples are pairs and some are not")


class _Folder:
    """Files in one folder per class."""

    def __init__(self, root: Path, loader: Callable[[str], Any], is_valid: Callable[[str], bool]) -> None:
        self._loader = loader
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"{root} has no folders: one for each class is expected")
        self._files: list[tuple[str, int]] = []
        for number, name in enumerate(self.classes):
            found = [
                path
                for directory, _, names in sorted(os.walk(root / name, followlinks=True))
                for path in (os.path.join(directory, file) for file in sorted(names))
                if is_valid(path)
            ]
            if not found:
                raise FileNotFoundError(f"{root / name} has no sample, by extensions or is_valid_file")
            self._files += [(path, number) for path in found]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, number = self._files[index]
        return self._loader(path), number


def _share(given: Any, world_size: int) -> float:
    accepted = "a share of the whole, above 0 and at most 1 (0.5: each rank holds half of it)"
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1:
        raise invalid("DistributedShardedDataset: samples_pct_per_replica", given, accepted)
    if given * world_size < 1:
        _log.warning(
            "samples_pct_per_replica=%s: %s ranks hold only %.0f %% of the samples between them",
            given,
            world_size,
            100 * given * world_size,
        )
    return given


def _onto(items: list[Any], device: Any, what: str) -> Any:
    try:
        return _moved(default_collate(items), device)
    except (RuntimeError, TypeError) as error:
        raise InvalidSettingError(
            f"DistributedShardedDataset: the {what}s cannot be put onto {device!r}: {error}. They must be numbers or "
            f"tensors of one shape; {what}_load_transform= can make them so"
        ) from error


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, dict):
        return {name: _moved(each, device) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_moved(each, device) for each in value]
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{type(value).__name__} is no tensor")
    return value.to(device)


def _at(held: Any, number: int, *, stacked: bool) -> Any:
    """One sample, of a list of them or of what `default_collate` has made of it."""
    if not stacked or isinstance(held, torch.Tensor):
        return held[number]
    if isinstance(held, dict):
        return {name: _at(each, number, stacked=True) for name, each in held.items()}
    return [_at(each, number, stacked=True) for each in held]


def _pil_loader() -> Callable[[str], Any]:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(f"folders of images need PIL: {how_to_install('vision')}, or pass loader=") from error

    def load(path: str) -> Any:
        with open(path, "rb") as file:
            return Image.open(file).convert("RGB")

    return load
