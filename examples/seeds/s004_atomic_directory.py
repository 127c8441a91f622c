"""cycling utils, AtomicDirectory in synchronous mode, for torchrun; run again, it goes on from the latest checkpoint."""

import os
import torch
import torch.distributed as dist
from trainables.torch import AtomicDirectory, atomic_torch_save

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
output_directory = os.environ["CHECKPOINT_ARTIFACT_PATH"]
is_master_rank = rank == 0
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
epochs, batches, first = range(2), torch.arange(6.0).view(3, 2, 1), 0

# Initialize the AtomicDirectory - called by ALL ranks
saver = AtomicDirectory(output_directory, is_master=rank==0)

# Resume from checkpoint
latest_symlink_file_path = os.path.join(output_directory, saver.symlink_name)
if os.path.exists(latest_symlink_file_path):
   latest_checkpoint_path = os.readlink(latest_symlink_file_path)

   # Load files from latest_checkpoint_path
   checkpoint_path = os.path.join(latest_checkpoint_path, "checkpoint.pt")
   checkpoint = torch.load(checkpoint_path)
   model.load_state_dict(checkpoint["model"])
   first = checkpoint["epoch"] + 1

for epoch in list(epochs)[first:]:
    for step, batch in enumerate(batches):

        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        is_save_step = step == len(batches) - 1

        if is_save_step:
            # prepare the checkpoint directory - called by ALL ranks
            checkpoint_directory = saver.prepare_checkpoint_directory()

            # saving files to the checkpoint_directory
            if is_master_rank:
                checkpoint = {"model": model.state_dict(), "epoch": epoch}
                checkpoint_path = os.path.join(checkpoint_directory, "checkpoint.pt")
                atomic_torch_save(checkpoint, checkpoint_path)

            # finalizing checkpoint with symlink - called by ALL ranks
            saver.symlink_latest(checkpoint_directory)
    if is_master_rank:
        print("epoch", epoch)
dist.destroy_process_group()
