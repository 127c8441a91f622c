"""Fine-tune a language model with a LoRA adapter by TRL, and search for its settings; after a kill, run it again.

The model is tiny and made on the spot, so that this runs on a CPU without a download: `base_model` and `base_data` are
what to replace. Lines that want a GPU are marked; docs/fine-tuning.md says what to tune, and why.
"""

from contextlib import nullcontext

from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

import trainables as train
import tuner as tune
from trainables.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from tuner.schedulers import ASHAScheduler

LETTERS = "abcdefghijklmnop"


def base_model():
    """AutoModelForCausalLM.from_pretrained(...) and AutoTokenizer.from_pretrained(...) of a pretrained one."""
    words = {word: n for n, word in enumerate(["<pad>", "<unk>", "</s>", *LETTERS])}
    words_only = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    words_only.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words_only, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(words), pad_token_id=0, **size)), tokenizer


def base_data():
    """Two parts of a data set with a column "text", or "messages"."""
    lines = [" ".join((LETTERS * 2)[n : n + 12]) for n in range(len(LETTERS))]
    return Dataset.from_dict({"text": lines * 8}), Dataset.from_dict({"text": lines})


def fine_tune(config):
    set_seed(0)  # the same base model in each trial
    model, tokenizer = base_model()
    learned, held_out = base_data()
    # On a GPU that trials share, each keeps to its part, so that none takes the memory of the others (unrun here):
    # torch.cuda.set_per_process_memory_fraction(0.25)
    arguments = SFTConfig(
        output_dir="out",
        learning_rate=config["lr"],
        warmup_steps=config["warmup_steps"],
        per_device_train_batch_size=8,
        max_length=32,
        max_steps=30,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="steps",
        save_steps=5,  # each evaluation is a result, and has a checkpoint
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,  # bf16=True on a GPU (unrun here)
    )
    adapter = LoraConfig(r=config["r"], lora_alpha=2 * config["r"], target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(
        model,
        args=arguments,
        train_dataset=learned,
        eval_dataset=held_out,
        processing_class=tokenizer,
        peft_config=adapter,
        callbacks=[RayTrainReportCallback()],
    )
    trainer = prepare_trainer(trainer)
    checkpoint = train.get_checkpoint()
    with checkpoint.as_directory() if checkpoint else nullcontext() as directory:
        trainer.train(directory and f"{directory}/{RayTrainReportCallback.CHECKPOINT_NAME}")


if __name__ == "__main__":
    analysis = tune.run(
        fine_tune,
        name="fine_tune_lora",
        config={
            "lr": tune.loguniform(1e-3, 1e-1),
            "r": tune.choice([2, 4, 8]),
            "warmup_steps": tune.choice([0, 5]),
        },
        num_samples=6,
        metric="eval_loss",
        mode="min",
        scheduler=ASHAScheduler(max_t=6, grace_period=2, reduction_factor=2),  # in evaluations
        resources_per_trial={"cpu": 1},  # {"cpu": 4, "gpu": 0.25}: four share a GPU (unrun here)
        keep_checkpoints_num=1,
        checkpoint_score_attr="min-eval_loss",
        checkpoint_budget="1GB",
        resume="AUTO",
        seed=1,
    )
    print("best", analysis.best_config, "eval_loss", round(analysis.best_result["eval_loss"], 3))
    print("its adapter", analysis.best_checkpoint.path)
