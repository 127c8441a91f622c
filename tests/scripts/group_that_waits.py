"""Trains in a group, or goes on from what there is: STORAGE TOLD [wait].

With `wait` it stops in epoch 2, and writes into TOLD which processes run.
"""

import os
import sys
import threading

import trainables as train
from trainables import Checkpoint, RunConfig, ScalingConfig
from trainables.data_parallel_trainer import DataParallelTrainer


def train_func(config):
    found = train.get_checkpoint()
    start = 0 if found is None else found.to_dict()["epoch"] + 1
    for epoch in range(start, 6):
        train.report({"epoch": epoch, "started_at": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
        if epoch == 2 and config["wait"]:
            if train.world_rank() == 1:
                where = train.get_checkpoint().path  # published
                print(where, os.getpid(), os.getppid(), file=open(config["told"], "w"))
            threading.Event().wait()


storage, told, wait = sys.argv[1], sys.argv[2], len(sys.argv) > 3
arguments = {
    "train_loop_config": {"told": told, "wait": wait},
    "scaling_config": ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
}
if DataParallelTrainer.can_restore(storage + "/run"):
    trainer = DataParallelTrainer.restore(storage + "/run", train_func, **arguments)
else:
    trainer = DataParallelTrainer(train_func, run_config=RunConfig(name="run", storage_path=storage), **arguments)
result = trainer.fit()
print(result.metrics["epoch"], result.metrics["started_at"], list(result.metrics_dataframe["epoch"]))
