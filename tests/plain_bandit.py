"""The online group bandit as a plain loop: NumPy, one run, every derivative by hand. The twin of labsrc.bandit."""

import numpy as np


def softmax(logits):
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def run(*, steps, group_size, seed, rewards, beta, lr, clip, inner_updates, std_eps):
    """Return the policy after each step: (steps, K)."""
    rng, rewards = np.random.default_rng(seed), np.array(rewards, dtype=float)
    actions = len(rewards)
    logits, reference = np.zeros(actions), np.full(actions, 1 / actions)
    history = np.empty((steps, actions))
    for step in range(steps):
        old = softmax(logits)
        group = rng.choice(actions, size=group_size, p=old)
        drawn = rewards[group]
        # Constant groups apart: their mean may round, and 0/0 is no advantage.
        if drawn.min() == drawn.max():
            advantages = np.zeros(group_size)
        else:
            advantages = (drawn - drawn.mean()) / (drawn.std() + std_eps)
        for _ in range(inner_updates):
            policy = softmax(logits)
            ratio = policy[group] / old[group]
            on_plateau = np.where(advantages > 0, ratio > 1 + clip, ratio < 1 - clip)
            # d(ρA)/d log π = ρA off the plateau; d(k3)/d log π = 1 − π_ref/π.
            slope = np.where(on_plateau, 0, ratio * advantages) - beta * (1 - reference[group] / policy[group])
            # d log π(a)/d logits = onehot(a) − π, averaged over the group.
            onto_actions = np.bincount(group, weights=slope, minlength=actions)
            logits = logits + lr * (onto_actions - slope.sum() * policy) / group_size
        history[step] = softmax(logits)
    return history
