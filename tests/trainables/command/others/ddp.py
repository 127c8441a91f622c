"""A script for torchrun: two processes, gloo, its own log and saves."""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--out")
parser.add_argument("--resume-from")
args = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
x = torch.linspace(-1, 1, 32).reshape(8, 4) + rank
y = x.sum(1, keepdim=True)
start = 0
if args.resume_from:
    state = torch.load(os.path.join(args.resume_from, "state.pt"))
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    start = state["epoch"]
for epoch in range(start + 1, 7):
    time.sleep(0.3)
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    if rank == 0:
        with open(os.path.join(args.out, "log.jsonl"), "a") as log:
            print(json.dumps({"step": epoch, "loss": loss.item()}), file=log)
        path = os.path.join(args.out, f"ckpt-{epoch}")
        os.makedirs(path, exist_ok=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, os.path.join(path, "state.pt"))
        open(os.path.join(path, "DONE"), "w").close()
dist.destroy_process_group()
os._exit(0)  # a rank that leaves the interpreter right after its last step aborts at times (pytorch/pytorch#179291)
