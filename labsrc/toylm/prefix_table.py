"""All next-token distributions of a tiny task in one forward: faster than reading each completion when few differ.

Completions of T tokens over V symbols read at most V^(T−1) different prefixes. Once these have gone through the model,
sampling and log-probabilities are look-ups, however many completions there are.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from labsrc.toylm import sampling
from labsrc.toylm.sampling import Completions, Forward
from labsrc.toylm.tasks import Task

# With so few rows a forward costs what one of a single row does.
FEW_ROWS = 16


class PrefixTable:
    """log π(· | x, y_<t) for every prefix of every prompt, in nats, with its gradient.

    A *state* is a prompt, a prefix and a position; the states of one prompt stand together, and the prompts of several
    policies (runs, the leading axes of what `forward` is given) one policy after another. All states are one long axis.
    """

    def __init__(self, forward: Forward, task: Task, *, temperature: float, runs: tuple[int, ...] = ()) -> None:
        self.length, self.eos_token = task.max_new_tokens, task.eos_token
        prompts = task.prompt_tokens
        reads, self.places, self.positions = _prefixes(task.vocabulary, self.length, len(prompts))
        self.runs, self.prompts = runs, math.prod(runs) * len(prompts)
        log_probs = sampling.completion_log_probs(
            forward, prompts.expand(*runs, -1, -1), reads.expand(*runs, -1, -1), temperature=temperature
        )
        self.log_probs = log_probs.flatten(0, -2)  # (states, V)

    @staticmethod
    def pays(task: Task, group_size: int) -> bool:
        """Whether the prefixes are no more than the completions of a group, or few anyway."""
        return task.vocabulary ** (task.max_new_tokens - 1) <= max(group_size, FEW_ROWS)

    @torch.no_grad()
    def sample(self, uniforms: Tensor) -> Completions:
        """As `sampling.sample`, with all prompts of the task in order: (…, N·G, T) uniforms."""
        table = self.log_probs.detach()
        probabilities = table.exp()
        cumulative, columns = probabilities.cumsum(-1), []
        state, finished = self._first_state(uniforms), torch.zeros(uniforms.shape[:-1], dtype=torch.bool)
        for step in range(self.length):
            token = sampling.from_cumulative(cumulative[state], uniforms[..., step])
            if self.eos_token is not None:
                token = torch.where(finished, self.eos_token, token)
                finished = finished | (token == self.eos_token)
            columns.append(token)
            state = state + token * self.places[step] + 1
        tokens = torch.stack(columns, -1)
        states, mask = self._states(tokens), sampling.valid_tokens(tokens, self.eos_token)
        logp = table.take(states * table.shape[-1] + tokens)
        return Completions(tokens, mask, logp, -(probabilities * table).sum(-1)[states])

    def logp(self, tokens: Tensor) -> Tensor:
        """As `sampling.completion_logp`, with all prompts of the task in order: (…, N·G, T) ids → that shape, nats."""
        return self.log_probs.take(self._states(tokens) * self.log_probs.shape[-1] + tokens)

    def _states(self, tokens: Tensor) -> Tensor:
        """The state each token was chosen in."""
        # Prefixes that agree up to a position have the same distribution there, so one prefix serves all positions.
        prefix = self._first_state(tokens) + (tokens * self.places).sum(-1)
        return prefix.unsqueeze(-1) + self.positions

    def _first_state(self, completions: Tensor) -> Tensor:
        """The state before the first token, for (…, N·G, T) completions."""
        shape = completions.shape[:-1]
        return _first_states(self.prompts, len(self.log_probs), shape.numel()).view(shape)


@functools.lru_cache(maxsize=16)
def _prefixes(vocabulary: int, length: int, prompts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Every prefix once for each prompt, with a last token that is never read; by how many states each token moves on;
    and the positions 0 … T − 1.
    """
    # The digits of 0 … V^(T−1) − 1 in base V are the prefixes.
    places = vocabulary ** torch.arange(length - 1, -1, -1)
    reads = torch.arange(vocabulary ** (length - 1))[:, None] * vocabulary // places % vocabulary
    return reads.repeat(prompts, 1), length * torch.cat([places[1:], places.new_zeros(1)]), torch.arange(length)


@functools.lru_cache(maxsize=16)
def _first_states(prompts: int, states: int, completions: int) -> Tensor:
    """Where the states of each completion's prompt begin: (completions,)."""
    return torch.arange(0, states, states // prompts).repeat_interleave(completions // prompts)
