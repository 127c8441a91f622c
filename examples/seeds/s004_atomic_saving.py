"""cycling utils, "atomic saving": a drop in replacement for torch.save."""

import torch

from trainables.torch import atomic_torch_save

checkpoint_output_path = "latest.pt"

# usual ml code
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())

# save state dicts and anything else like usual!
atomic_torch_save({
  "model":model.state_dict(),
  "optimizer":optimizer.state_dict()
}, checkpoint_output_path)

print(sorted(torch.load(checkpoint_output_path)))
