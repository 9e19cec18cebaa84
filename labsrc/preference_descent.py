"""A preference loss over a table of pairs, its exact gradient, and where descending it leads (chapter 2).

Nothing is sampled: a table of pairs (`preference_pairs`) holds the share of every label, and the policy is a softmax
over the K completions of one prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labsrc import checks
from labsrc.preference_pairs import pairs_table

# Four columns of log-probabilities, chosen, rejected and both under the reference, to a loss a pair.
PairLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def expected_loss(logits: Any, logits_ref: Any, pairs: Any, loss: PairLoss) -> Tensor:
    """Σ_ab W_ab·loss(a chosen over b) / Σ_ab W_ab: the mean loss of a label from the table.

    logits, logits_ref: (…, K) of the policy and the reference; pairs: (…, K, K). loss: for instance
    `functools.partial(preference.dpo_loss, beta=0.1)`. Returns (…), in the unit of the loss; the gradient flows into
    the logits. Raises ValueError for shapes that do not fit and for anything `pairs_table` refuses.

    >>> from functools import partial
    >>> from labsrc.preference import dpo_loss
    >>> loss = partial(dpo_loss, beta=0.1)
    >>> expected_loss([0.0, 0.0], [0.0, 0.0], [[0, 3], [1, 0]], loss).item()  # doctest: +ELLIPSIS
    0.693147...
    """
    logits, logits_ref = checks.finite("logits", logits), checks.finite("logits_ref", logits_ref)
    pairs = pairs_table("pairs", pairs)
    actions = {"logits": logits, "logits_ref": logits_ref, "pairs": pairs[..., 0]}
    checks.broadcastable(**actions)
    counts = {name: tensor.shape[-1] if tensor.dim() else 0 for name, tensor in actions.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"logits, logits_ref and pairs must list the same actions; got {counts}")
    return _mean_loss(torch.log_softmax(logits, -1), torch.log_softmax(logits_ref, -1), pairs, loss)


def _mean_loss(logp: Tensor, logp_ref: Tensor, pairs: Tensor, loss: PairLoss) -> Tensor:
    columns = logp[..., :, None], logp[..., None, :], logp_ref[..., :, None], logp_ref[..., None, :]
    per_pair = loss(*torch.broadcast_tensors(*columns))
    return (pairs * per_pair).sum((-2, -1)) / pairs.sum((-2, -1))


@dataclass(frozen=True)
class Descent:
    """A run: what was there before the first step and after each one, (…, steps + 1) leading axes of runs first.

    policies: (…, steps + 1, K) probabilities; losses: (…, steps + 1); slope: the largest component of the gradient
    after the last step, over all runs, which says how far from a minimum it stopped.
    """

    policies: Tensor
    losses: Tensor
    slope: float

    @property
    def final(self) -> Tensor:
        """The last policy of each run, (…, K)."""
        return self.policies[..., -1, :]

    def log_odds(self, first: int = 0, second: int = 1) -> Tensor:
        """log p(first)/p(second) at the start and after each step, (…, steps + 1), in nats."""
        return self.policies[..., first].log() - self.policies[..., second].log()


@torch.enable_grad()
def descend(
    q: Any, pairs: Any, loss: PairLoss, *, steps: int, lr: float, features: Any = None, start: Any = None
) -> Descent:
    """Gradient descent on `expected_loss` by its exact gradient, without momentum, from the reference or from `start`.

    q: (K,) reference probabilities > 0; pairs: (K, K), or (…, K, K) for runs that share nothing but q. lr: step on the
    parameters. The parameters are the K logits themselves; with features (K, D) they are D weights w, and the logits
    are log(start) + features·w: actions with like features move together. start: (K,) probabilities > 0, q by
    default. Raises ValueError for anything else.
    """
    q, start = _positive("q", q), _positive("start", q if start is None else start)
    checks.same_shape(q=q, start=start)
    pairs, logp_ref = pairs_table("pairs", pairs), q.log()
    if pairs.shape[-1] != len(q):
        raise ValueError(f"pairs must list the {len(q)} actions of q; got shape {tuple(pairs.shape)}")
    steps, lr = checks.integer_at_least("steps", steps, 1), checks.positive("lr", lr)
    features = checks.finite("features", torch.eye(len(q)) if features is None else features).to(q.dtype)
    if features.dim() != 2 or len(features) != len(q):
        raise ValueError(f"features must be ({len(q)}, D), a row an action; got shape {tuple(features.shape)}")
    weights = torch.zeros(*pairs.shape[:-2], features.shape[1], dtype=q.dtype)
    policies, losses = [], []
    for step in range(steps + 1):
        leaf = weights.requires_grad_()
        logp = torch.log_softmax(start.log() + leaf @ features.T, -1)
        value = _mean_loss(logp, logp_ref, pairs, loss)
        # Runs share no weight, so the gradient of their sum is each run's own.
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        policies.append(logp.detach().exp())
        losses.append(value.detach())
        if step < steps:
            weights = leaf.detach() - lr * gradient
    return Descent(torch.stack(policies, -2), torch.stack(losses, -1), gradient.abs().max().item())


def _positive(name: str, value: Any) -> Tensor:
    probabilities = checks.distribution(name, value).detach()
    if probabilities.dim() != 1 or (probabilities == 0).any():
        raise ValueError(f"{name} must be (K,) with every probability above 0; got {probabilities.tolist()}")
    return probabilities
