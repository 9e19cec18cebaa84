"""GRPO on the toy decoder as its protocol reads: one completion after another, one token after another.

Nothing is batched and nothing of labsrc's objectives is used: the yardstick for `toylm_speed.py`, and an independent
second implementation for the tests.
"""

from __future__ import annotations

import math

import torch

from labsrc.toylm.model import Decoder


def next_token_log_probs(model: Decoder, tokens: list[int]) -> torch.Tensor:
    """log π(· | tokens): (V,)."""
    logits, _ = model(torch.tensor([tokens]))
    return torch.log_softmax(logits[0, -1], -1)


def draw(model: Decoder, prompt: list[int], uniforms: list[float], eos_token: int | None) -> list[int]:
    """One completion: walk along the cumulative distribution until it passes the uniform."""
    completion: list[int] = []
    for uniform in uniforms:
        with torch.no_grad():
            probabilities = next_token_log_probs(model, prompt + completion).exp().tolist()
        total, token = probabilities[0], 0
        while total <= uniform and token + 1 < len(probabilities):
            token += 1
            total += probabilities[token]
        completion.append(token)
        if token == eos_token:
            break
    return completion


def completion_log_probs(model: Decoder, prompt: list[int], completion: list[int]) -> list[torch.Tensor]:
    """log π of each token of one completion, one forward a token."""
    return [next_token_log_probs(model, prompt + completion[:step])[token] for step, token in enumerate(completion)]


def standardize(rewards: list[float], std_eps: float) -> list[float]:
    """(r − mean)/(population std + std_eps); equal rewards give zeros."""
    mean = sum(rewards) / len(rewards)
    std = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [0.0 if std == 0 else (reward - mean) / (std + std_eps) for reward in rewards]


def token_loss(logp: torch.Tensor, old: float, ref: float, advantage: float, clip: float, beta: float) -> torch.Tensor:
    """−(min(ρA, clip(ρ)A) − β·k3) of one token."""
    ratio = torch.exp(logp - old)
    clipped = torch.clamp(ratio, 1 - clip, 1 + clip)
    k3 = torch.exp(ref - logp) - (ref - logp) - 1
    return -(torch.minimum(ratio * advantage, clipped * advantage) - beta * k3)


def train(
    policy: Decoder,
    reference: Decoder,
    reward,
    *,
    prompt: list[int],
    length: int,
    groups: int,
    group_size: int,
    inner_updates: int,
    lr: float,
    clip: float,
    beta: float,
    std_eps: float,
    seed: int,
    eos_token: int | None = None,
) -> list[dict]:
    """Train `policy` in place; per group its completions, rewards, advantages and losses."""
    generator = torch.Generator().manual_seed(seed)
    record = []
    for _ in range(groups):
        uniforms = torch.rand(group_size, length, generator=generator, dtype=torch.float64).tolist()
        completions = [draw(policy, prompt, row, eos_token) for row in uniforms]
        rewards = [reward(completion) for completion in completions]
        advantages = standardize(rewards, std_eps)
        with torch.no_grad():
            old = [[float(x) for x in completion_log_probs(policy, prompt, c)] for c in completions]
            ref = [[float(x) for x in completion_log_probs(reference, prompt, c)] for c in completions]
        losses = []
        for _ in range(inner_updates):
            policy.zero_grad()
            total = 0.0
            for index, completion in enumerate(completions):
                tokens = completion_log_probs(policy, prompt, completion)
                parts = [
                    token_loss(logp, old[index][step], ref[index][step], advantages[index], clip, beta)
                    for step, logp in enumerate(tokens)
                ]
                loss = sum(parts) / len(parts) / group_size
                loss.backward()
                total += loss.item()
            losses.append(total)
            with torch.no_grad():
                for weight in policy.parameters():
                    if weight.grad is not None:
                        weight -= lr * weight.grad
        record.append({"completions": completions, "rewards": rewards, "advantages": advantages, "losses": losses})
    return record
