"""cycling utils, "interruptable sampling": stopped anywhere and run again, it goes on with the next sample."""

import os

import torch
from torch.utils.data import DataLoader

from trainables.torch import InterruptableDistributedSampler, atomic_torch_save

checkpoint_output_path = "sampling.pt"
resume_from_checkpoint = os.path.exists(checkpoint_output_path)
if resume_from_checkpoint:
    checkpoint = torch.load(checkpoint_output_path)
batch_size = 1

dataset = torch.arange(10) # your dataset
sampler  = InterruptableDistributedSampler(dataset)
loader = DataLoader(dataset, sampler=sampler)

# if a checkpoint exists you can load from a checkpoint
if resume_from_checkpoint:
  sampler.load_state_dict(checkpoint["sampler"])

# use in your train script
for batch in loader:

  # advance by your batch size each epoch
  # batch_size = ...
  sampler.advance(batch_size)

  # save sampler.state_dict() in your checkpoint

  atomic_torch_save({
    "sampler":sampler.state_dict(),
    # anything else
  }, checkpoint_output_path)

  print("sample", batch.item())
  if os.environ.get("STOP_AFTER") == str(sampler.progress):
    os.kill(os.getpid(), 9)
