"""Drawing completions, and the log-probabilities of the distribution that drew them.

`forward` is a decoder or anything called like one: (tokens, cache) → (logits, cache). Leading axes before the batch
are allowed throughout (several policies at once). The randomness is a table of uniforms, one for each completion and
position: the same table gives the same completions however the work is batched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labsrc import checks, masking

# Reading a prompt once for its whole group costs a second pass through the layers, which pays from about this many
# prompt tokens saved.
SHARED_PROMPT_TOKENS = 512

Forward = Callable[..., tuple[Tensor, Any]]


@dataclass(frozen=True)
class Completions:
    """What was drawn: everything is (…, B, T), B = P·G, the G completions of one prompt side by side."""

    tokens: Tensor  # ids; after the first EOS only EOS, which the mask leaves out
    mask: Tensor  # True up to and including the first EOS
    logp: Tensor  # nats, of each drawn token under the distribution that drew it
    entropy: Tensor  # nats, of that distribution


def uniform_table(rows: int, length: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    """(rows, length) uniforms in [0, 1) from the generator."""
    return torch.rand(rows, length, generator=generator, dtype=dtype)


@torch.no_grad()
def sample(
    forward: Forward,
    prompts: Tensor,
    uniforms: Tensor,
    *,
    eos_token: int | None = None,
    temperature: float = 1.0,
) -> Completions:
    """G completions of each prompt from softmax(logits/temperature), one token at a time.

    prompts: (…, P, L) ids, all of one length; uniforms: (…, P·G, T), see `uniform_table`; eos_token: the id that ends
    a completion, None for a fixed length T. Raises ValueError for temperature ≤ 0 or a number of uniforms that is no
    multiple of P.
    """
    temperature = checks.positive("temperature", temperature)
    group_size, rest = divmod(uniforms.shape[-2], prompts.shape[-2])
    if rest or not group_size or not uniforms.shape[-1]:
        wanted = f"(…, P·G, T) for the P = {prompts.shape[-2]} prompts, T ≥ 1"
        raise ValueError(f"uniforms must be {wanted}; got shape {tuple(uniforms.shape)}")
    # Every completion of a prompt reads the same prompt: it goes through the model once, then its cache is shared.
    logits, cache = forward(prompts)
    logits = logits[..., -1, :].repeat_interleave(group_size, -2)
    cache = _repeat_cache(cache, group_size)
    finished = torch.zeros(uniforms.shape[:-1], dtype=torch.bool)
    columns: list[tuple[Tensor, Tensor, Tensor]] = []
    for step in range(uniforms.shape[-1]):
        log_probs = torch.log_softmax(logits / temperature, -1)
        probabilities = log_probs.exp()
        token = inverse_cdf(probabilities, uniforms[..., step])
        if eos_token is not None:
            token = torch.where(finished, eos_token, token)
            finished = finished | (token == eos_token)
        logp = log_probs.gather(-1, token.unsqueeze(-1)).squeeze(-1)
        columns.append((token, logp, -(probabilities * log_probs).sum(-1)))
        if step + 1 < uniforms.shape[-1]:
            logits, cache = forward(token.unsqueeze(-1), cache)
            logits = logits[..., 0, :]
    tokens, logp, entropy = (torch.stack(column, -1) for column in zip(*columns, strict=True))
    return Completions(tokens, valid_tokens(tokens, eos_token), logp, entropy)


def _repeat_cache(cache: Any, group_size: int) -> Any:
    return [tuple(part.repeat_interleave(group_size, -4) for part in block) for block in cache]


def inverse_cdf(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """The action whose slice of the cumulative distribution holds each uniform: (…, V), (…) → (…) ids."""
    return from_cumulative(probabilities.cumsum(-1), uniforms)


def from_cumulative(cumulative: Tensor, uniforms: Tensor) -> Tensor:
    """As `inverse_cdf`, from sums of probabilities at hand."""
    drawn = torch.searchsorted(cumulative, uniforms.unsqueeze(-1) * cumulative[..., -1:], right=True)
    # u·total can round up to the total itself.
    return drawn.squeeze(-1).clamp(max=cumulative.shape[-1] - 1)


def valid_tokens(tokens: Tensor, eos_token: int | None) -> Tensor:
    """The completion mask of (…, T) ids: everything without an EOS, else up to and including the first one."""
    if eos_token is None:
        return torch.ones_like(tokens, dtype=torch.bool)
    return masking.completion_mask(tokens.flatten(0, -2), eos_token=eos_token).view(tokens.shape)


def completion_outputs(forward: Forward, prompts: Tensor, completions: Tensor) -> Tensor:
    """The model's outputs at every state in which a completion token is chosen: (…, B, T, outputs).

    prompts: (…, P, L) ids; completions: (…, B, T) ids with B = P·G, the G completions of one prompt side by side. The
    last token of a completion is predicted, never read. The gradient flows into the model. Raises ValueError for
    completions that are no multiple of the prompts.
    """
    group_size, rest = divmod(completions.shape[-2], prompts.shape[-2])
    if rest or not group_size:
        shapes = f"{tuple(completions.shape)} for prompts {tuple(prompts.shape)}"
        raise ValueError(f"completions must be (…, P·G, T), whole groups; got {shapes}")
    read = completions[..., :-1]
    if (group_size - 1) * prompts.numel() < SHARED_PROMPT_TOKENS:
        outputs, _ = forward(torch.cat([repeat_prompts(prompts, group_size), read], -1))
        return outputs[..., prompts.shape[-1] - 1 :, :]
    first, cache = forward(prompts)
    first = first[..., -1:, :].repeat_interleave(group_size, -3)
    if not read.shape[-1]:
        return first
    rest_of_it, _ = forward(read, _repeat_cache(cache, group_size))
    return torch.cat([first, rest_of_it], -2)


def completion_log_probs(forward: Forward, prompts: Tensor, completions: Tensor, *, temperature: float = 1.0) -> Tensor:
    """log π(· | x, y_<t) of softmax(logits/temperature) at every completion position: (…, B, T, V), in nats.

    Shapes, gradient and refusals as `completion_outputs`.
    """
    logits = completion_outputs(forward, prompts, completions)
    return torch.log_softmax(logits if temperature == 1 else logits / temperature, -1)


def completion_logp(forward: Forward, prompts: Tensor, completions: Tensor, *, temperature: float = 1.0) -> Tensor:
    """log π(y_t | x, y_<t) of each completion token: (…, B, T), in nats; otherwise as `completion_log_probs`."""
    log_probs = completion_log_probs(forward, prompts, completions, temperature=temperature)
    return log_probs.gather(-1, completions.unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def greedy(forward: Forward, prompts: Tensor, *, max_new_tokens: int, eos_token: int | None = None) -> Completions:
    """The most probable token at every step, one completion a prompt; otherwise as `sample` at temperature 1."""

    # The largest probability owns the whole unit interval.
    def most_probable(tokens: Tensor, cache: Any = None) -> tuple[Tensor, Any]:
        logits, cache = forward(tokens, cache)
        best = logits.argmax(-1, keepdim=True)
        return torch.full_like(logits, -torch.inf).scatter(-1, best, 0.0), cache

    uniforms = torch.zeros(*prompts.shape[:-1], max_new_tokens, dtype=torch.float64)
    return sample(most_probable, prompts, uniforms, eos_token=eos_token)


def repeat_prompts(prompts: Tensor, group_size: int) -> Tensor:
    """(…, P, L) → (…, P·G, L): each prompt beside its G completions."""
    # As repeat_interleave, which takes five times as long for a handful of rows.
    return prompts.unsqueeze(-2).expand(*prompts.shape[:-1], group_size, -1).flatten(-3, -2)
