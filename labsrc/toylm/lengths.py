"""How long the answers of a policy are, the right ones and the wrong ones apart (chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from labsrc import checks
from labsrc.toylm import sampling
from labsrc.toylm.model import Decoder
from labsrc.toylm.tasks import FirstToken


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of right and of wrong answers, NaN where there are none, and the share of right ones."""

    right: float
    wrong: float
    right_share: float


def mean_lengths(policy: Decoder, task: FirstToken, *, samples: int = 4096, seed: int = 0) -> Lengths:
    """Lengths in tokens, EOS included, of `samples` completions a prompt.

    Answers that begin with EOS are left out of the lengths: they have one token whatever the policy learns. One seed
    draws the same uniforms for every policy, so that two policies are compared on the same luck. Raises ValueError for
    a task without EOS.
    """
    if task.eos_token is None:
        raise ValueError(f"task must have an eos_token, or all its completions are of one length; got {task!r}")
    checks.integer_at_least("samples", samples, 1)
    prompts = task.prompt_tokens
    uniforms = sampling.uniform_table(
        samples * len(prompts), task.max_new_tokens, generator=torch.Generator().manual_seed(seed)
    )
    drawn = sampling.sample(policy, prompts, uniforms, eos_token=task.eos_token)
    lengths, first = drawn.mask.sum(-1).double(), drawn.tokens[:, 0]
    right = first == task.target
    wrong = ~right & (first != task.eos_token)
    return Lengths(lengths[right].mean().item(), lengths[wrong].mean().item(), right.double().mean().item())
