"""What cycling_utils' users write, under torchrun: trains, is interrupted once, and goes on at the next start.

torchrun --nproc-per-node N cycling_script.py DIRECTORY STOP_AFTER
"""

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from trainables.torch import (
    AtomicDirectory,
    DistributedShardedDataset,
    InterruptableDistributedSampler,
    InterruptibleSampler,
    MetricsTracker,
    TimestampedTimer,
    TrainState,
    atomic_torch_save,
)

EPOCHS = 2


def train(output_directory: str, stop_after: int = 0) -> DistributedDataParallel:
    """As cycling_utils' guide has it; returns after so many steps when told."""
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)

    dataset = TensorDataset(torch.arange(23, dtype=torch.float32).unsqueeze(1))
    sampler = InterruptableDistributedSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler, batch_size=2)
    layers = torch.nn.Linear(1, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    metrics = MetricsTracker()
    state = TrainState(model=model, optimizer=optimizer, sampler=sampler, metrics=metrics)
    saver = AtomicDirectory(output_directory, is_master=rank == 0, keep_last=2)

    latest_symlink_file_path = os.path.join(output_directory, saver.symlink_name)
    if os.path.exists(latest_symlink_file_path):
        latest_checkpoint_path = os.readlink(latest_symlink_file_path)
        state.load_state_dict(torch.load(os.path.join(latest_checkpoint_path, f"rank_{rank}.pt")))

    steps = 0
    for epoch in range(sampler.epoch, EPOCHS):
        with sampler.in_epoch(epoch):
            for (batch,) in loader:
                loss = model(batch).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                sampler.advance(len(batch))
                metrics.update({"images": len(batch), "loss": loss.item(), "sum": batch.sum()}).reduce()
                metrics.reset_local()
                steps += 1
                if steps == stop_after or sampler.progress == sampler.num_samples:
                    checkpoint_directory = saver.prepare_checkpoint_directory(force_save=epoch == 0)
                    atomic_torch_save(state.state_dict(), os.path.join(checkpoint_directory, f"rank_{rank}.pt"))
                    saver.symlink_latest(checkpoint_directory)
                if steps == stop_after:
                    return model
            metrics.end_epoch()
    weights = [value.tolist() for value in model.module.state_dict().values()]
    with open(os.path.join(output_directory, f"result-{rank}.json"), "w") as file:
        json.dump({"weights": weights, "reports": metrics.epoch_reports}, file)
    return model


def main() -> None:
    place = sys.argv[1]
    timer = TimestampedTimer("Start")
    dist.init_process_group("gloo")
    train(f"{place}/whole")
    for stop_after in (4, 2, 3):  # the middle of an epoch, its end, the middle of the next one
        train(f"{place}/stopped", stop_after)
    train(f"{place}/stopped")
    timer.report("trained")
    sharded = DistributedShardedDataset([(i, -i) for i in range(10)])
    held = list(DataLoader(sharded, sampler=InterruptibleSampler(sharded), batch_size=None))
    with open(f"{place}/held-{dist.get_rank()}.json", "w") as file:
        json.dump(sorted(held), file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
