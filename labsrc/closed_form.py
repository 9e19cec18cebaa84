"""The KL-regularised objective of one prompt, and the policy that maximises it (chapter 1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labsrc import checks
from labsrc.kl import kl_divergence


def objective(p: Any, q: Any, rewards: Any, *, beta: float) -> Tensor:
    """J(p) = E_p[r] − β·KL(p‖q): expected reward, less what moving away from the reference costs.

    p, q: (…, K) policy and reference probabilities; rewards: (…, K). Returns (…) in units of reward, −inf where p
    has mass that q lacks. The gradient flows into every tensor. beta: reward per nat, > 0. Raises ValueError for
    anything else. Source: Ziegler et al. 2019 (arXiv 1909.08593), eq. 2; DPO arXiv 2305.18290, eq. 3.

    >>> objective([0.2, 0.8], [0.2, 0.8], [1.0, 2.0], beta=0.5).item()
    1.8
    """
    p, q, rewards, beta = _arguments(q, rewards, beta, p=p)
    return (p * rewards).sum(-1) - beta * kl_divergence(p, q)


def log_partition(q: Any, rewards: Any, *, beta: float) -> Tensor:
    """log Z = log Σ_a q(a)·exp(r(a)/β), summed in the log domain so that a small β cannot overflow.

    q, rewards: (…, K). Returns (…), in nats; the best attainable objective is β·log Z. Raises ValueError as
    `objective` does, and where r/β itself is too large for the dtype. Source: DPO arXiv 2305.18290, eq. 4.
    """
    _, q, rewards, beta = _arguments(q, rewards, beta)
    return torch.logsumexp(_log_weights(q, rewards, beta), -1)


def optimal_policy(q: Any, rewards: Any, *, beta: float) -> Tensor:
    """p*(a) = q(a)·exp(r(a)/β)/Z: the reference tilted by reward, the one maximiser of `objective`.

    q, rewards: (…, K). Returns (…, K) probabilities; an action with q = 0 stays at exactly 0. Raises ValueError as
    `log_partition` does. Source: DPO arXiv 2305.18290, eq. 4.

    >>> optimal_policy([0.5, 0.5], [0.0, 0.0], beta=1.0).tolist()
    [0.5, 0.5]
    """
    _, q, rewards, beta = _arguments(q, rewards, beta)
    return torch.softmax(_log_weights(q, rewards, beta), -1)


def implicit_reward(p: Any, q: Any, *, beta: float) -> Tensor:
    """β·log(p(a)/q(a)): the reward for which p would be optimal, up to the constant β·log Z.

    p, q: (…, K). Returns (…, K) in units of reward: −inf where only p is zero, +inf where only q is, NaN where both
    are, since a reward that was never sampled cannot be recovered. Raises ValueError unless p and q are
    distributions over the same actions and beta > 0. Source: DPO arXiv 2305.18290, eq. 5.
    """
    p, q = checks.distribution("p", p), checks.distribution("q", q)
    _same_actions(p=p, q=q)
    return checks.positive("beta", beta) * (p.log() - q.log())


def _arguments(q: Any, rewards: Any, beta: float, *, p: Any = None) -> tuple[Tensor, Tensor, Tensor, float]:
    q, rewards = checks.distribution("q", q), checks.finite("rewards", rewards)
    policy = {} if p is None else {"p": checks.distribution("p", p)}
    _same_actions(**policy, q=q, rewards=rewards)
    return policy.get("p", q), q, rewards, checks.positive("beta", beta)


def _same_actions(**tensors: Tensor) -> None:
    checks.broadcastable(**tensors)
    counts = {name: tensor.shape[-1] if tensor.dim() else 0 for name, tensor in tensors.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"{' and '.join(counts)} must list the same actions; got {counts}")


def _log_weights(q: Tensor, rewards: Tensor, beta: float) -> Tensor:
    scaled = checks.finite("rewards / beta", rewards / beta)
    # q = 0 enters as −inf through a constant, not through log(0), whose gradient is infinite.
    support = q > 0
    return torch.where(support, torch.where(support, q, 1.0).log() + scaled, -torch.inf)


def best_of_n(q: Any, rewards: Any, *, n: int) -> Tensor:
    """The policy of "draw n completions from q, keep the best": P(level) = F(level)^n − F(level below)^n.

    q, rewards: (…, K); F is the probability under q of a reward at most that high, and actions of equal reward share
    their level in proportion to q. Returns (…, K) probabilities; n = 1 returns q. Raises ValueError for n < 1 and as
    `optimal_policy` does. Source: order statistics; Beirami et al., arXiv 2401.01879.

    >>> best_of_n([0.5, 0.5], [0.0, 1.0], n=2).tolist()
    [0.25, 0.75]
    """
    _, q, rewards, _ = _arguments(q, rewards, 1.0)
    n = checks.integer_at_least("n", n, 1)
    mine, other = rewards.unsqueeze(-1), rewards.unsqueeze(-2)
    below = torch.where(other < mine, q.unsqueeze(-2), 0.0).sum(-1)
    at_level = torch.where(other == mine, q.unsqueeze(-2), 0.0).sum(-1)
    level_mass = (below + at_level).pow(n) - below.pow(n)
    return torch.where(q > 0, q / torch.where(at_level > 0, at_level, 1.0) * level_mass, 0.0)


def beta_for_kl(q: Any, rewards: Any, *, kl: float) -> float:
    """The β whose optimal policy lies exactly `kl` nats from q, by bisection: KL(p*‖q) falls as β grows.

    q, rewards: (K,). kl: nats, above 0 and below −log q(best actions), which only β → 0 reaches. Returns β, to
    a relative 1e-12. Raises ValueError for a kl outside that range, which is empty when all rewards are equal.
    """
    _, q, rewards, _ = _arguments(q, rewards, 1.0)
    for name, tensor in (("q", q), ("rewards", rewards)):
        if tensor.dim() != 1:
            raise ValueError(f"{name} must be (K,), one prompt; got shape {tuple(tensor.shape)}")
    supported = torch.where(q > 0, rewards, -torch.inf)
    limit = -q[supported == supported.max()].sum().log().item()
    if not 0 < checks.number("kl", kl) < limit:
        raise ValueError(f"kl must lie strictly between 0 and {limit:.6g} nats, the limit of β → 0; got {kl!r}")

    def moved(beta: float) -> float:
        return kl_divergence(optimal_policy(q, rewards, beta=beta), q).item()

    low = high = (supported.max() - rewards[q > 0].min()).item()
    while moved(low) < kl:
        low /= 2
    while moved(high) > kl:
        high *= 2
    while high > low * (1 + 1e-12):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if moved(middle) < kl else (middle, high)
    return high
