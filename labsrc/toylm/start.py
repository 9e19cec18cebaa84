"""Where training starts: freshly drawn weights, or these after a short supervised fit to the task's answers."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from labsrc import aggregation
from labsrc.toylm import sampling
from labsrc.toylm.model import Decoder
from labsrc.toylm.settings import ModelSettings, StartSettings, TrainingSettings
from labsrc.toylm.tasks import Task


def fresh_model(settings: ModelSettings, task: Task, *, outputs: int | None = None, seed: int | None = None) -> Decoder:
    """A decoder for the task with weights from settings.seed (or `seed`); outputs=1 makes a critic or reward model."""
    return Decoder(
        task.vocabulary,
        task.prompt_tokens.shape[1] + task.max_new_tokens,
        width=settings.width,
        heads=settings.heads,
        layers=settings.layers,
        outputs=outputs,
        dtype=settings.dtype,
        generator=torch.Generator().manual_seed(settings.seed if seed is None else seed),
    )


def supervised_loss(policy: Decoder, prompts: Tensor, answers: Tensor, mask: Tensor) -> Tensor:
    """−mean log π(answer token) over all valid tokens, EOS included, in nats per token."""
    return -aggregation.mean_over_tokens(sampling.completion_logp(policy, prompts, answers), mask)


def fine_tune(policy: Decoder, task: Task, settings: StartSettings) -> list[float]:
    """Fit the policy to the task's answers, in place; returns the loss of each step, nats per token."""
    generator = torch.Generator().manual_seed(settings.seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.lr)
    prompts, history = task.prompt_tokens, []
    for _ in range(settings.steps):
        batch = prompts[torch.randint(len(prompts), (settings.batch_size,), generator=generator)]
        answers = task.answers(batch)
        loss = supervised_loss(policy, batch, answers, sampling.valid_tokens(answers, task.eos_token))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


def start_policy(settings: TrainingSettings) -> Decoder:
    """The policy a run starts from: the same weights for every method with the same task, model and start."""
    policy = fresh_model(settings.model, settings.task)
    if settings.start is not None:
        policy.load_state_dict(_fine_tuned(settings.model, settings.task, settings.start))
    return policy


@functools.lru_cache(maxsize=16)
def _fine_tuned(model: ModelSettings, task: Task, start: StartSettings) -> dict[str, Tensor]:
    # Methods compared on one start fit it once; the weights are copied out, never handed out to be trained.
    policy = fresh_model(model, task)
    fine_tune(policy, task, start)
    return policy.state_dict()
