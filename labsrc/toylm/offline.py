"""DPO: fixed pairs, no sampling and no reward while it trains; the reference's log-probabilities are computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labsrc import masking, preference
from labsrc.toylm import sampling
from labsrc.toylm.model import Decoder
from labsrc.toylm.settings import DpoSettings, Pair
from labsrc.toylm.tasks import Task
from labsrc.toylm.trainer import Trainer, ragged


@dataclass(frozen=True)
class PairBatch:
    """N pairs as one batch of 2N completions: all chosen first, then all rejected, prompts repeated alike."""

    prompts: Tensor  # (2N, L)
    completions: Tensor  # (2N, T)
    mask: Tensor  # (2N, T)

    @classmethod
    def of(cls, chosen: tuple[Tensor, Tensor, Tensor], rejected: tuple[Tensor, Tensor, Tensor]) -> PairBatch:
        """From (prompts, completions, mask) of the chosen and of the rejected."""
        return cls(*(torch.cat(both) for both in zip(chosen, rejected, strict=True)))

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.prompts) // 2

    def __getitem__(self, index: Tensor) -> PairBatch:
        """The pairs at `index`."""
        rows = torch.cat([index, index + len(self)])
        return PairBatch(self.prompts[rows], self.completions[rows], self.mask[rows])


def pairs_from_tokens(pairs: tuple[Pair, ...], task: Task) -> PairBatch:
    """Given pairs of token ids, padded with the EOS to T tokens."""
    prompts = torch.tensor([list(prompt) for prompt, _, _ in pairs])
    sides = []
    for completions in zip(*((chosen, rejected) for _, chosen, rejected in pairs), strict=True):
        mask = torch.tensor([[t < len(row) for t in range(task.max_new_tokens)] for row in completions])
        padded = [[*row, *[task.eos_token] * (task.max_new_tokens - len(row))] for row in completions]
        sides.append((prompts, torch.tensor(padded), mask))
    return PairBatch.of(*sides)


def bradley_terry(rewards: Tensor, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Whether a is chosen over b, with probability σ(r_a − r_b), and which pairs are kept: all. rewards: (N, 2)."""
    a_is_better = preference.preference_log_prob(rewards[:, 0], rewards[:, 1]).exp()
    drawn = torch.rand(len(rewards), generator=generator, dtype=torch.float64)
    return drawn < a_is_better, torch.ones(len(rewards), dtype=torch.bool)


def higher_reward(rewards: Tensor, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Whether a has the higher reward, and which pairs are kept: those that are no tie. rewards: (N, 2)."""
    return rewards[:, 0] > rewards[:, 1], rewards[:, 0] != rewards[:, 1]


LABELLERS = {"bradley_terry": bradley_terry, "higher_reward": higher_reward}


@dataclass(frozen=True)
class DrawnPairs:
    """Two completions from the policy for each of N prompts, side by side, not labelled yet."""

    prompts: Tensor  # (N, L)
    drawn: sampling.Completions  # (2N, T)


def draw_pairs(
    policy: Decoder, task: Task, count: int, *, temperature: float = 1.0, generator: torch.Generator
) -> DrawnPairs:
    """`count` random prompts of the task and two completions of each. Two equal ones may meet, and teach nothing."""
    prompts = task.prompt_tokens[torch.randint(len(task.prompt_tokens), (count,), generator=generator)]
    uniforms = sampling.uniform_table(2 * count, task.max_new_tokens, generator=generator)
    drawn = sampling.sample(policy, prompts, uniforms, eos_token=task.eos_token, temperature=temperature)
    return DrawnPairs(prompts, drawn)


def label_pairs(pairs: DrawnPairs, task: Task, *, labels: str, generator: torch.Generator) -> PairBatch:
    """Chosen and rejected by the task's reward; labels: a name in `LABELLERS`. Raises ValueError if none is left."""
    count, drawn = len(pairs.prompts), pairs.drawn
    beside = sampling.repeat_prompts(pairs.prompts, 2)
    rewards = task.rewards(beside, drawn.tokens, drawn.mask).view(count, 2)
    a_chosen, kept = LABELLERS[labels](rewards, generator=generator)
    if not kept.any():
        raise ValueError(f"sampled_pairs must be more: all {count} drawn were ties, which {labels} leaves out")
    first = 2 * torch.arange(count)
    chosen, rejected = (first + (~a_chosen).long())[kept], (first + a_chosen.long())[kept]
    return PairBatch.of(*((beside[rows], drawn.tokens[rows], drawn.mask[rows]) for rows in (chosen, rejected)))


class DpoTrainer(Trainer):
    """One step is one optimiser step on a batch of pairs."""

    settings: DpoSettings

    def __init__(self, settings: DpoSettings) -> None:
        super().__init__(settings)
        if settings.pairs:
            self.pairs = pairs_from_tokens(settings.pairs, settings.task)
        else:
            drawn = draw_pairs(
                self.policy,
                settings.task,
                settings.sampled_pairs,
                temperature=settings.temperature,
                generator=self.generator,
            )
            # A tie that is left out was paid for all the same.
            self.cost.generated_tokens += int(drawn.drawn.mask.sum())
            self.cost.reward_evaluations += 2 * settings.sampled_pairs
            self.pairs = label_pairs(drawn, settings.task, labels=settings.labels, generator=self.generator)
        with torch.no_grad():
            self.logp_ref = self.logp(self.reference, self.pairs)
        self.cost.frozen_forwards += 2 * len(self.pairs)

    def logp(self, model: Decoder, pairs: PairBatch) -> Tensor:
        """log π of every token of every completion: (2N, T), nats."""
        return sampling.completion_logp(model, pairs.prompts, pairs.completions, temperature=self.settings.temperature)

    def advance(self) -> tuple[Any, dict[str, float | None]]:
        """One optimiser step on all pairs, or on a random batch of them."""
        index = self.batch_index()
        pairs, logp_ref = self.pairs[index], self.logp_ref[torch.cat([index, index + len(self.pairs)])]
        logp = self.logp(self.policy, pairs)
        self.cost.trained_forwards += len(logp)
        chosen, rejected = masking.sum_over_tokens(logp, pairs.mask).chunk(2)
        ref_chosen, ref_rejected = masking.sum_over_tokens(logp_ref, pairs.mask).chunk(2)
        loss = preference.dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=self.settings.beta).mean()
        self.update(loss)
        with torch.no_grad():
            margin = preference.log_ratio_margin(chosen, rejected, ref_chosen, ref_rejected)
        shown = {
            "loss": loss.item(),
            "margin": margin.mean().item(),
            "accuracy": (margin > 0).double().mean().item(),
            "logp_chosen": chosen.mean().item(),
            "logp_rejected": rejected.mean().item(),
        }
        return lambda: self.entry(index, pairs, logp, logp_ref, loss), shown

    def batch_index(self) -> Tensor:
        """Which pairs this step sees: all in order, or a random choice from the generator."""
        count, size = len(self.pairs), self.settings.batch_size
        if size is None or size >= count:
            return torch.arange(count)
        return torch.randperm(count, generator=self.generator)[:size]

    def entry(self, index: Tensor, pairs: PairBatch, logp: Tensor, logp_ref: Tensor, loss: Tensor) -> dict[str, Any]:
        """The step as plain lists: everything `verify` needs to recompute it."""
        count = len(pairs)
        lengths = pairs.mask.sum(-1).tolist()
        chosen, rejected = lengths[:count], lengths[count:]
        return {
            "pairs": index.tolist(),
            "prompts": pairs.prompts[:count].tolist(),
            "chosen": ragged(pairs.completions[:count], chosen),
            "rejected": ragged(pairs.completions[count:], rejected),
            "logp_chosen": ragged(logp[:count], chosen),
            "logp_rejected": ragged(logp[count:], rejected),
            "logp_ref_chosen": ragged(logp_ref[:count], chosen),
            "logp_ref_rejected": ragged(logp_ref[count:], rejected),
            "loss": loss.item(),
        }

    def state(self) -> dict[str, Any]:
        """As every trainer's, with the pairs that were drawn."""
        pairs = {"prompts": self.pairs.prompts, "completions": self.pairs.completions, "mask": self.pairs.mask}
        return super().state() | {"pairs": pairs, "logp_ref": self.logp_ref}

    def load_state(self, state: dict[str, Any]) -> None:
        """Put a `state` back, pairs included."""
        super().load_state(state)
        self.pairs, self.logp_ref = PairBatch(**state["pairs"]), state["logp_ref"]
