"""A Llama and a tokenizer as small as the toy LM, made on the spot and saved: nothing comes from a model hub."""

from __future__ import annotations

from pathlib import Path

import torch

from labsrc.toylm.settings import ModelSettings
from labsrc.toylm.tasks import Task


def save(folder: Path | str, task: Task, shape: ModelSettings) -> None:
    """Write a model of about the toy decoder's size, and a tokenizer whose words are the task's ids, into `folder`.

    The word of id i is "ti". The end of a completion and the padding are one token, so that the model has exactly the
    task's vocabulary. Its weights, float32, depend on shape.seed alone. Raises ValueError for a task without EOS.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    if task.eos_token is None:
        raise ValueError(f"task must have an eos_token, by which TRL finds a completion's end; got {task!r}")
    splitter = Tokenizer(models.WordLevel({word(token): token for token in range(task.vocabulary)}))
    splitter.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    eos = word(task.eos_token)
    PreTrainedTokenizerFast(tokenizer_object=splitter, eos_token=eos, pad_token=eos).save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=task.vocabulary,
        hidden_size=shape.width,
        intermediate_size=8 * shape.width // 3,  # three matrices here do the work of the decoder's two of 4·width
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=task.prompt_tokens.shape[1] + task.max_new_tokens,
        tie_word_embeddings=False,
        pad_token_id=task.eos_token,
        eos_token_id=task.eos_token,
        bos_token_id=None,
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(shape.seed)
        LlamaForCausalLM(config).save_pretrained(folder)


def word(token: int) -> str:
    """How the tokenizer writes an id."""
    return f"t{token}"


def text(tokens: list[int]) -> str:
    """How the tokenizer writes several."""
    return " ".join(word(token) for token in tokens)
