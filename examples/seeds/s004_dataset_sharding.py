"""cycling utils, "dataset sharding": two ranks, one after the other; each holds its part of a folder of images."""

import os

from PIL import Image
from torch.utils.data import DataLoader

from trainables.torch import DistributedShardedDataset, InterruptibleSampler

root = "images"
for color in ("red", "green", "blue"):
    os.makedirs(os.path.join(root, color), exist_ok=True)
    for number in range(4):
        Image.new("RGB", (8, 8), color).save(os.path.join(root, color, f"{number}.png"))
world_size = 2
samples_pct_per_replica = 0.5

for rank in range(world_size):
    dataset = DistributedShardedDataset(
      root=root,
      rank=rank,
      world_size=world_size,
      samples_pct_per_replica=samples_pct_per_replica,
      sample_load_transform=lambda image: float(image.getpixel((0, 0))[0]),
    )
    sampler  = InterruptibleSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler)

    # proceed as above
    for red, label in loader:
        sampler.advance(1)
    print("rank", rank, "held", len(dataset), "samples of", dataset.classes)
