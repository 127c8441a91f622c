"""Supervised fine-tuning with TRL and a LoRA adapter, on a model made on the spot."""

import time

from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback, set_seed
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser


class Slow(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.2)


args, model_args = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()
set_seed(args.seed)
words = {word: n for n, word in enumerate(["<pad>", "<unk>", "</s>", *"abcdefgh"])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
config = LlamaConfig(
    vocab_size=len(words),
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    pad_token_id=0,
)
trainer = SFTTrainer(
    LlamaForCausalLM(config),
    args=args,
    train_dataset=Dataset.from_dict({"text": ["a b c d e f g h", "h g f e d c b a"] * 16}),
    processing_class=fast,
    peft_config=LoraConfig(r=model_args.lora_r, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    callbacks=[Slow()],
)
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
