"""All next-token distributions of a tiny task in one forward: faster than reading each completion when few differ.

Completions of T tokens over V symbols read at most V^(T−1) different prefixes. Once these have gone through the model,
sampling and log-probabilities are look-ups, however many completions there are.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from labsrc.toylm import sampling
from labsrc.toylm.sampling import Completions, Forward
from labsrc.toylm.tasks import Task

# With so few rows a forward costs what one of a single row does.
FEW_ROWS = 16


class PrefixTable:
    """log π(· | x, y_<t) for every prefix of every prompt: (N, V^(T−1), T, V), in nats, with its gradient."""

    def __init__(self, forward: Forward, task: Task, *, temperature: float) -> None:
        self.vocabulary, self.length, self.eos_token = task.vocabulary, task.max_new_tokens, task.eos_token
        prompts = task.prompt_tokens
        reads, self.places = _prefixes(self.vocabulary, self.length, len(prompts))
        log_probs = sampling.completion_log_probs(forward, prompts, reads, temperature=temperature)
        self.log_probs = log_probs.view(len(prompts), -1, self.length, self.vocabulary)

    @staticmethod
    def pays(task: Task, group_size: int) -> bool:
        """Whether the prefixes are no more than the completions of a group, or few anyway."""
        return task.vocabulary ** (task.max_new_tokens - 1) <= max(group_size, FEW_ROWS)

    @torch.no_grad()
    def sample(self, uniforms: Tensor) -> Completions:
        """As `sampling.sample`, with all prompts of the task in order: (N·G, T) uniforms."""
        table = self.log_probs.detach()
        probabilities = table.exp()
        entropies = -(probabilities * table).sum(-1)  # (N, rows, T)
        prompt = self._prompt(len(uniforms))
        row = torch.zeros(len(uniforms), dtype=torch.long)
        finished, columns = torch.zeros(len(uniforms), dtype=torch.bool), []
        for step in range(self.length):
            token = sampling.inverse_cdf(probabilities[prompt, row, step], uniforms[:, step])
            if self.eos_token is not None:
                token = torch.where(finished, self.eos_token, token)
                finished = finished | (token == self.eos_token)
            columns.append(token)
            row = row + token * self.places[step]
        tokens = torch.stack(columns, -1)
        mask = sampling.valid_tokens(tokens, self.eos_token)
        return Completions(tokens, mask, self.logp(tokens), entropies[prompt, row])

    def logp(self, tokens: Tensor) -> Tensor:
        """As `sampling.completion_logp`, with all prompts of the task in order: (N·G, T) ids → (N·G, T), in nats."""
        row = (tokens * self.places).sum(-1)
        distributions = self.log_probs[self._prompt(len(tokens)), row]
        return distributions.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    def _prompt(self, completions: int) -> Tensor:
        prompts = len(self.log_probs)
        return torch.arange(prompts).repeat_interleave(completions // prompts)


@functools.lru_cache(maxsize=16)
def _prefixes(vocabulary: int, length: int, prompts: int) -> tuple[Tensor, Tensor]:
    """Every prefix once for each prompt, with a last token that is never read, and each position's place value."""
    # The digits of 0 … V^(T−1) − 1 in base V are the prefixes.
    places = vocabulary ** torch.arange(length - 1, -1, -1)
    reads = torch.arange(vocabulary ** (length - 1))[:, None] * vocabulary // places % vocabulary
    return reads.repeat(prompts, 1), torch.cat([places[1:], places.new_zeros(1)])
