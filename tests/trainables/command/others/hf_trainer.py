"""Transformers' Trainer behind a script, with a model made on the spot."""

import time
from dataclasses import dataclass

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


@dataclass
class Model:
    width: int = 16


class Slow(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.2)


model_args, args = HfArgumentParser((Model, TrainingArguments)).parse_args_into_dataclasses()
set_seed(args.seed)
config = GPT2Config(vocab_size=32, n_positions=16, n_embd=model_args.width, n_layer=1, n_head=2)
data = [{"input_ids": (ids := torch.arange(n, n + 8) % 32), "labels": ids} for n in range(64)]
trainer = Trainer(GPT2LMHeadModel(config), args, train_dataset=data, eval_dataset=data[:8], callbacks=[Slow()])
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
