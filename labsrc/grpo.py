"""The GRPO family: one function a paper, each a surrogate, a KL penalty and an aggregation (chapters 5 and 6).

Every loss takes, in this order, what the roles of chapter 5 are: `logp` under the policy being trained (B, T), the only
tensor that carries a gradient; `logp_old` under the policy that sampled (B, T); `logp_ref` under the frozen reference
(B, T), or None when beta = 0; `advantages`, (B,) one a completion or (B, T); `mask` (B, T), True for the tokens that
count. All log-probabilities are in nats. The result is a scalar to minimise.

beta weighs the k3 penalty, in reward per nat; kl_ratio_weighted=True multiplies k3 by the loss's own importance ratio
in the graph: with a token ratio that gives, for a fixed prefix, the value and the gradient of KL(π‖π_ref), on samples
of π_old too. Padding is replaced before any exponential.

ValueError, before anything is computed, for shapes that do not fit, a non-finite value or an overflow at a valid token,
an empty row of the mask, a gradient on a tensor that is a constant, or a hyper-parameter out of range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from labsrc import aggregation, checks, kl, masking, policy_gradient


@dataclass(frozen=True)
class _Batch:
    """Arguments that fit together, with zeros in the padding: safe under any exponential."""

    logp: Tensor  # (B, T)
    log_ratio: Tensor  # (B, T), logp − logp_old
    advantages: Tensor  # (B, T)
    mask: Tensor  # (B, T) boolean
    k3: Tensor | None  # (B, T), None when beta = 0
    beta: float
    kl_ratio_weighted: bool

    @property
    def sequence_log_ratio(self) -> Tensor:
        """The geometric-mean log ratio of each sequence, repeated on its tokens: (B, T)."""
        return policy_gradient.sequence_log_ratio(self.log_ratio, self.mask).unsqueeze(-1).expand_as(self.log_ratio)

    def penalized(self, surrogate: Tensor, log_ratio: Tensor) -> Tensor:
        """surrogate − β·k3 per token, k3 times exp(log_ratio) if asked for."""
        if self.k3 is None:
            return surrogate
        penalty = kl.ratio_weighted(self.k3, log_ratio) if self.kl_ratio_weighted else self.k3
        return surrogate - self.beta * penalty


def grpo_loss(
    logp: Any,
    logp_old: Any,
    logp_ref: Any,
    advantages: Any,
    mask: Any,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.04,
    kl_ratio_weighted: bool = False,
) -> Tensor:
    """Clipped token ratios less β·k3, mean over each sequence, then over the batch.

    Arguments: the module's text. Source: DeepSeekMath arXiv 2402.03300, eq. 3.

    >>> grpo_loss([[-1.0]], [[-1.0]], [[-1.0]], [2.0], [[True]]).item()
    -2.0
    """
    batch = _prepare(logp, logp_old, logp_ref, advantages, mask, beta, kl_ratio_weighted)
    per_token = _clipped_less_penalty(batch, batch.log_ratio, clip_low, clip_high)
    return -aggregation.mean_of_sequence_means(per_token, batch.mask)


def bnpo_loss(
    logp: Any,
    logp_old: Any,
    logp_ref: Any,
    advantages: Any,
    mask: Any,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.04,
    kl_ratio_weighted: bool = False,
) -> Tensor:
    """As `grpo_loss`, but the mean over all valid tokens of this (micro-)batch.

    Arguments: the module's text. Source: the loss TRL 1.16.0 calls bnpo.
    """
    batch = _prepare(logp, logp_old, logp_ref, advantages, mask, beta, kl_ratio_weighted)
    per_token = _clipped_less_penalty(batch, batch.log_ratio, clip_low, clip_high)
    return -aggregation.mean_over_tokens(per_token, batch.mask)


def dapo_loss(
    logp: Any,
    logp_old: Any,
    logp_ref: Any,
    advantages: Any,
    mask: Any,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    beta: float = 0.0,
    kl_ratio_weighted: bool = False,
    token_count: int | None = None,
) -> Tensor:
    """Clip-higher, no KL, and the mean over all valid tokens of the whole *generation* batch.

    Arguments: the module's text; token_count is the number of valid tokens of the generation batch when this is a
    slice of it, whose losses then add up. Source: DAPO arXiv 2503.14476, eq. 8.
    """
    batch = _prepare(logp, logp_old, logp_ref, advantages, mask, beta, kl_ratio_weighted)
    per_token = _clipped_less_penalty(batch, batch.log_ratio, clip_low, clip_high)
    return -aggregation.mean_over_tokens(per_token, batch.mask, token_count=token_count)


def dr_grpo_loss(
    logp: Any,
    logp_old: Any,
    logp_ref: Any,
    advantages: Any,
    mask: Any,
    *,
    max_length: int,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.0,
    kl_ratio_weighted: bool = False,
) -> Tensor:
    """As `grpo_loss`, but the sum over valid tokens divided by the constant B·max_length.

    Arguments: the module's text; max_length ≥ T. Dr. GRPO also leaves out the division by the standard deviation:
    pass it `advantages.centered`. Source: arXiv 2503.20783.
    """
    batch = _prepare(logp, logp_old, logp_ref, advantages, mask, beta, kl_ratio_weighted)
    per_token = _clipped_less_penalty(batch, batch.log_ratio, clip_low, clip_high)
    return -aggregation.sum_over_fixed_length(per_token, batch.mask, max_length=max_length)


def gspo_loss(
    logp: Any,
    logp_old: Any,
    logp_ref: Any,
    advantages: Any,
    mask: Any,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    beta: float = 0.0,
    kl_ratio_weighted: bool = False,
) -> Tensor:
    """One clipped ratio a *sequence*, the geometric mean of its tokens'; mean over sequences.

    Arguments: the module's text; the radii are the paper's, hundreds of times smaller than the token level's because
    a mean over hundreds of tokens hardly moves. Source: GSPO arXiv 2507.18071, eq. 5 and 7.
    """
    batch = _prepare(logp, logp_old, logp_ref, advantages, mask, beta, kl_ratio_weighted)
    per_token = _clipped_less_penalty(batch, batch.sequence_log_ratio, clip_low, clip_high)
    return -aggregation.mean_of_sequence_means(per_token, batch.mask)


def luspo_loss(
    logp: Any,
    logp_old: Any,
    logp_ref: Any,
    advantages: Any,
    mask: Any,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    beta: float = 0.0,
    kl_ratio_weighted: bool = False,
) -> Tensor:
    """As `gspo_loss`, each sequence multiplied by its length: the geometric mean's 1/length is undone.

    Arguments: the module's text. Source: the loss TRL 1.16.0 calls luspo, at its sequence level.
    """
    batch = _prepare(logp, logp_old, logp_ref, advantages, mask, beta, kl_ratio_weighted)
    per_token = _clipped_less_penalty(batch, batch.sequence_log_ratio, clip_low, clip_high)
    return -aggregation.mean_of_sequence_sums(per_token, batch.mask)


def cispo_loss(
    logp: Any,
    logp_old: Any,
    logp_ref: Any,
    advantages: Any,
    mask: Any,
    *,
    clip_high: float = 5.0,
    beta: float = 0.0,
    kl_ratio_weighted: bool = False,
    token_count: int | None = None,
) -> Tensor:
    """REINFORCE on every token, weighted by its ratio capped at clip_high and held constant; token mean.

    Arguments: the module's text; clip_high is an absolute cap on the ratio, not a radius; token_count as in
    `dapo_loss`. Source: CISPO, MiniMax-M1 arXiv 2506.13585, eq. 4.
    """
    batch = _prepare(logp, logp_old, logp_ref, advantages, mask, beta, kl_ratio_weighted)
    surrogate = policy_gradient.capped_weight_surrogate(
        batch.logp, batch.log_ratio, batch.advantages, clip_high=clip_high
    )
    per_token = batch.penalized(surrogate, batch.log_ratio)
    return -aggregation.mean_over_tokens(per_token, batch.mask, token_count=token_count)


def sapo_loss(
    logp: Any,
    logp_old: Any,
    logp_ref: Any,
    advantages: Any,
    mask: Any,
    *,
    temperature_positive: float = 1.0,
    temperature_negative: float = 1.05,
    beta: float = 0.0,
    kl_ratio_weighted: bool = False,
) -> Tensor:
    """A smooth gate on the token ratio in the clip's place; mean over each sequence, then over the batch.

    Arguments: the module's text. Source: SAPO arXiv 2511.20347.
    """
    batch = _prepare(logp, logp_old, logp_ref, advantages, mask, beta, kl_ratio_weighted)
    surrogate = policy_gradient.soft_gated_surrogate(
        batch.log_ratio,
        batch.advantages,
        temperature_positive=temperature_positive,
        temperature_negative=temperature_negative,
    )
    return -aggregation.mean_of_sequence_means(batch.penalized(surrogate, batch.log_ratio), batch.mask)


def vespo_loss(
    logp: Any,
    logp_old: Any,
    logp_ref: Any,
    advantages: Any,
    mask: Any,
    *,
    shape_positive: float = 2.0,
    rate_positive: float = 3.0,
    shape_negative: float = 3.0,
    rate_negative: float = 2.0,
    beta: float = 0.0,
    kl_ratio_weighted: bool = False,
    token_count: int | None = None,
) -> Tensor:
    """REINFORCE on every token, weighted by a gamma-shaped function of the whole sequence's ratio; token mean.

    Arguments: the module's text; shapes and rates as in `policy_gradient.gamma_weighted_surrogate`; token_count as in
    `dapo_loss`. Source: VESPO, as in TRL 1.16.0.
    """
    batch = _prepare(logp, logp_old, logp_ref, advantages, mask, beta, kl_ratio_weighted)
    surrogate = policy_gradient.gamma_weighted_surrogate(
        batch.logp,
        batch.log_ratio,
        batch.advantages,
        batch.mask,
        shape_positive=shape_positive,
        rate_positive=rate_positive,
        shape_negative=shape_negative,
        rate_negative=rate_negative,
    )
    per_token = batch.penalized(surrogate, batch.log_ratio)
    return -aggregation.mean_over_tokens(per_token, batch.mask, token_count=token_count)


def _clipped_less_penalty(batch: _Batch, log_ratio: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """The clipped surrogate less the penalty, both at one ratio: the token's or the sequence's."""
    surrogate = policy_gradient.clipped_surrogate(log_ratio, batch.advantages, clip_low=clip_low, clip_high=clip_high)
    return batch.penalized(surrogate, log_ratio)


def _prepare(
    logp: Any, logp_old: Any, logp_ref: Any, advantages: Any, mask: Any, beta: float, kl_ratio_weighted: bool
) -> _Batch:
    beta = checks.non_negative("beta", beta)
    logp = checks.float_tensor("logp", logp)
    if logp.dim() != 2:
        raise ValueError(f"logp must be (B, T), one number per token; got shape {tuple(logp.shape)}")
    mask = masking.as_mask(mask, like=logp)
    logp_valid = masking.keep_valid("logp", logp, mask)
    log_ratio = logp_valid - _constant_tokens("logp_old", logp_old, logp, mask)
    k3 = None
    if beta > 0:
        k3 = kl.kl_k3(logp_valid, _constant_tokens("logp_ref", logp_ref, logp, mask))
    return _Batch(
        logp=logp_valid,
        log_ratio=checks.exponent("logp - logp_old", log_ratio),
        advantages=_token_advantages(advantages, logp, mask),
        mask=mask,
        k3=k3,
        beta=beta,
        kl_ratio_weighted=kl_ratio_weighted,
    )


def _constant_tokens(name: str, values: Any, logp: Tensor, mask: Tensor) -> Tensor:
    if values is None:
        raise ValueError(f"{name} must be the (B, T) log-probabilities of that policy; got None")
    values = checks.float_tensor(name, values)
    checks.same_shape(**{"logp": logp, name: values})
    return masking.keep_valid(name, _constant(name, values), mask)


def _token_advantages(advantages: Any, logp: Tensor, mask: Tensor) -> Tensor:
    advantages = _constant("advantages", checks.float_tensor("advantages", advantages))
    sequences, tokens = logp.shape
    if tuple(advantages.shape) not in {(sequences,), (sequences, tokens)}:
        wanted = f"(B,) = ({sequences},) or (B, T) = ({sequences}, {tokens})"
        raise ValueError(f"advantages must be {wanted}; got shape {tuple(advantages.shape)}")
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(-1).expand_as(logp)
    return masking.keep_valid("advantages", advantages, mask)


def _constant(name: str, values: Tensor) -> Tensor:
    # With a gradient on the sampling policy, ρ = π/π_old would be 1 whatever the policy does and nothing would train.
    if values.requires_grad:
        raise ValueError(f"{name} must carry no gradient; got a tensor that does: make it under no_grad or detach it")
    return values
