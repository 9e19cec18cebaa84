"""One GRPO update at G = 16 of the toy LM against TRL's GRPOTrainer on a Llama of the same size, both warm.

    python benchmarks/toylm_trl.py        (needs trl; works offline, writes to a temporary folder)

Both sample 16 completions of two tokens from one prompt of two, score them, and make one SGD step on the clipped loss
with a KL to a frozen reference. TRL does more around it (data loader, metrics, callbacks): that is what a general
trainer costs on a model this small, and says nothing about a large one.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import timing
import torch

from labsrc import toylm

STEPS, WARM, ROUNDS = 30, 5, 5


def llama(folder: str):
    """A two-head Llama of about the toy decoder's size, saved: TRL reloads the reference from the disk."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {f"t{i}": i for i in range(8)} | {"<pad>": 8, "<eos>": 9, "<unk>": 10}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=42,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=16,
        tie_word_embeddings=False,
        pad_token_id=8,
        eos_token_id=9,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder, fast, sum(weight.numel() for weight in model.parameters())


def trl_step_seconds(folder: str) -> tuple[list[float], int]:
    """Processor seconds of each warm training step of GRPOTrainer, and the model's size."""
    import transformers
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    transformers.logging.set_verbosity_error()
    path, tokenizer, size = llama(folder)
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.started = time.process_time()

        def on_step_end(self, *_, **__):
            seconds.append(time.process_time() - self.started)

    def reward(completion_ids, **_):
        return [float(ids[0] == 6) if len(ids) else 0.0 for ids in completion_ids]

    trainer = GRPOTrainer(
        model=path,
        reward_funcs=reward,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": ["t1 t3"] * (STEPS + WARM)}),
        args=GRPOConfig(
            output_dir=os.path.join(folder, "out"),
            per_device_train_batch_size=16,
            num_generations=16,
            max_completion_length=2,
            max_steps=STEPS + WARM,
            beta=0.04,
            loss_type="grpo",
            optim="sgd",
            learning_rate=0.02,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=1000,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        callbacks=[Clock()],
    )
    trainer.train()
    return seconds[WARM:], size


def toylm_step_seconds() -> tuple[list[float], int]:
    """Processor seconds of each warm step of the toy LM with the same settings."""
    trainer = toylm.new_trainer(toylm.GrpoSettings(steps=STEPS + WARM, inner_updates=1))
    seconds = []
    while not trainer.finished:
        started = time.process_time()
        trainer.step()
        seconds.append(time.process_time() - started)
    return seconds[WARM:], trainer.cost.trained_parameters


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rounds = [(trl_step_seconds(folder), toylm_step_seconds()) for _ in range(ROUNDS)]
    (_, trl_size), (_, our_size) = rounds[0]
    print(f"parameters: TRL's Llama {trl_size}, toy decoder {our_size}")
    medians = {
        name: statistics.median(statistics.median(pair[index][0]) for pair in rounds)
        for index, name in enumerate(("GRPOTrainer", "toylm"))
    }
    timing.show("one update, G = 16", medians, wanted=8)
