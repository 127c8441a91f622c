from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from trainables.errors import InvalidSettingError, MissingExtraError
from trainables.torch import DistributedShardedDataset, InterruptibleSampler

pytestmark = pytest.mark.torch


class Watched:
    """A map-style dataset that notes what is loaded of it."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.loaded.append(index)
        return torch.full((2,), float(index)), index % 3


@given(st.integers(1, 40), st.integers(1, 6), st.none() | st.floats(0.01, 1), st.booleans())
def test_each_rank_loads_its_part_once_and_nothing_else(
    length: int, world_size: int, share: float | None, shuffle: bool
) -> None:
    held = []
    for rank in range(world_size):
        source = Watched(length)
        part = DistributedShardedDataset(source, rank, world_size, share, shuffle=shuffle, seed=3)
        assert source.loaded == part.indices
        assert len(set(part.indices)) == len(part.indices) == len(part), "no sample twice on one rank"
        for number, index in enumerate(part.indices):
            sample, target = part[number]
            assert (sample.tolist(), target) == ([float(index)] * 2, index % 3)
        assert source.loaded == part.indices, "loaded once"
        held.append(part.indices)
    assert len({len(each) for each in held}) == 1
    if share is None or share * world_size >= 1:
        assert set(itertools.chain(*held)) == set(range(length))
    if share is None:
        assert sum(map(len, held)) - length < world_size
    if share == 1:
        assert all(set(each) == set(range(length)) for each in held)


@pytest.mark.parametrize("spelled", ["device_id", "device"])
def test_samples_on_a_device_are_one_tensor(spelled: str) -> None:
    part = DistributedShardedDataset(Watched(6), 1, 2, shuffle=False, **{spelled: "cpu"})

    assert part.samples.shape == (3, 2)
    assert part.samples.device.type == "cpu"
    assert torch.equal(part.targets, torch.tensor([1, 0, 2]))
    assert [(sample.tolist(), target.item()) for sample, target in (part[i] for i in (0, -1))] == [
        ([1, 1], 1),
        ([5, 5], 2),
    ]
    with pytest.raises(IndexError):
        part[3]


def test_samples_of_several_parts_on_a_device() -> None:
    items = [{"x": torch.ones(2) * number, "n": number} for number in range(4)]
    part = DistributedShardedDataset(items, 0, 2, shuffle=False, device="cpu")

    assert part[1]["x"].tolist() == [2.0, 2.0]
    assert part[1]["n"].item() == 2


def test_transforms_are_applied_once_or_at_each_access() -> None:
    calls: list[str] = []

    def noted(name: str) -> Any:
        return lambda value: (calls.append(name), value + 1)[1]

    names = ["sample_load", "target_load", "sample_getitem", "target_getitem"]
    transforms = {f"{name}_transform": noted(name) for name in names}
    part = DistributedShardedDataset([(0, 10)], 0, 1, **transforms)
    assert calls == names[:2]
    assert part[0] == part[0] == (2, 12)
    assert calls == names[:2] + names[2:] * 2


def images(root: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for name, color in (("dog", (255, 0, 0)), ("cat", (0, 255, 0))):
        (root / name / "deeper").mkdir(parents=True)
        for number in range(3):
            place = root / name / ("deeper" if number == 2 else "")
            image.new("RGB", (4, 3), color).save(place / f"{number}.{'PNG' if number else 'png'}")
        (root / name / "notes.txt").write_text("none")
    return root


def test_folders_of_images(tmp_path: Path) -> None:
    root = images(tmp_path / "images")
    part = DistributedShardedDataset(root=str(root), rank=0, world_size=1, samples_pct_per_replica=1.0, shuffle=False)

    assert part.classes == ["cat", "dog"]
    assert part.class_to_idx == {"cat": 0, "dog": 1}
    assert [target for _, target in part] == [0, 0, 0, 1, 1, 1]
    assert part[0][0].size == (4, 3)
    assert part[5][0].getpixel((0, 0)) == (255, 0, 0)
    texts = DistributedShardedDataset(
        root, 0, 1, loader=lambda path: Path(path).read_text(), is_valid_file=lambda path: path.endswith(".txt")
    )
    assert [sample for sample, _ in texts] == ["none", "none"]


def test_folders_that_hold_nothing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="has no folders: one for each class"):
        DistributedShardedDataset(tmp_path, 0, 1, loader=str)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty has no sample"):
        DistributedShardedDataset(tmp_path, 0, 1, loader=str)
    with pytest.raises(FileNotFoundError):
        DistributedShardedDataset(tmp_path / "nowhere", 0, 1, loader=str)
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"\[vision\]"):
        DistributedShardedDataset(tmp_path, 0, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"root": 3}, "root=3 is not accepted; accepted: a folder, or a dataset"),
        ({"samples_pct_per_replica": 50}, "samples_pct_per_replica=50 is not accepted; accepted: a share of the whole"),
        ({"samples_pct_per_replica": 0}, "samples_pct_per_replica=0 is not accepted"),
        ({"rank": 2}, "rank=2 is not accepted"),
        ({"shuffle": 1}, "shuffle=1 is not accepted"),
        ({"device": "cpu", "root": ["a", "b"]}, "the samples cannot be put onto 'cpu'"),
        (
            {"device": "cpu", "root": [torch.ones(1), torch.ones(2)], "rank": 0, "world_size": 1},
            "sample_load_transform",
        ),
        ({"root": [(1, 2), 3], "world_size": 1}, "some samples are pairs and some are not"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        DistributedShardedDataset(**{"root": [1, 2, 3], "rank": 0, "world_size": 2, **arguments})


def test_a_sampler_goes_through_what_a_rank_holds() -> None:
    part = DistributedShardedDataset(list(range(10)), 1, 2)
    sampler = InterruptibleSampler(part)
    with sampler.in_epoch(3):
        seen = []
        for batch in DataLoader(part, sampler=sampler, batch_size=2):  # type: ignore[arg-type]
            sampler.advance(len(batch))
            seen += batch.tolist()
    assert sorted(seen) == sorted(part.indices)


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=3),
    st.integers(1, 4),
    st.sampled_from([None, 1.0]),
    st.integers(0, 2),
)
@example(24, [(4, 9), (1, 1)], 1, 1.0, 1)  # what is left is another number in epoch 0
def test_d24_a_sharded_epoch_survives_other_numbers_of_ranks(
    length: int, lives: list[tuple[int, int]], last: int, share: float | None, epoch: int
) -> None:
    """With disjoint shards no sample is left out, and none repeated but to make the ranks' steps equally many."""
    seen: set[int] = set()
    state: dict[str, Any] | None = None
    sizes = [*lives, (last, 10**6)]
    for before, (size, steps) in zip([None, *(size for size, _ in lives)], sizes, strict=True):
        counts = set()
        fresh: list[int] = []
        for rank in range(size):
            part = DistributedShardedDataset(range(length), rank, size, share)
            sampler = InterruptibleSampler(part)
            if state is not None:
                sampler.load_state_dict(state)
            with sampler.in_epoch(epoch):
                mine = [part[index] for index in sampler]
                assert set(mine) <= set(part.indices)
                counts.add(len(mine))
                mine = mine[:steps]
                sampler.advance(len(mine))
                own = sampler.state_dict()
            left = [sample for sample in part.indices if sample not in seen]
            if len(mine) < steps and (before != size or share is None):
                assert set(left) <= set(mine), "all that is left here comes"
            fresh += mine
        assert len(counts) == 1, "ranks must make equally many steps"
        seen |= set(fresh)
        state = own
    assert seen == set(range(length))
