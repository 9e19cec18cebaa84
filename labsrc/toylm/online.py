"""Methods that sample from the policy they train: GRPO, RLOO, REINFORCE; and PPO, which adds a critic.

A step has three roles for log-probabilities. *Old*: the policy that sampled, captured once a group and detached.
*Current*: the policy being trained, differentiable; in the first inner update it is the old one, so that ratio is
exactly 1. *Reference*: a frozen copy of the start, no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labsrc import kl, masking
from labsrc.toylm import critic, monitors, sampling, start
from labsrc.toylm.model import Decoder
from labsrc.toylm.prefix_table import PrefixTable
from labsrc.toylm.rollout import Rollout, choose_prompts
from labsrc.toylm.settings import OnlineSettings, PpoSettings
from labsrc.toylm.trainer import Trainer, ragged


class OnlineTrainer(Trainer):
    """GRPO, RLOO and REINFORCE are one loop: they differ in the advantage, the loss and the place of the KL."""

    settings: OnlineSettings

    def __init__(self, settings: OnlineSettings) -> None:
        super().__init__(settings)
        every_prompt = settings.prompts_per_step == len(settings.task.prompt_tokens)
        self.tabled = every_prompt and PrefixTable.pays(settings.task, settings.group_size)
        self.table: PrefixTable | None = None  # of the policy as it is now, until it has been differentiated
        self.reference_table: PrefixTable | None = None

    def load_state(self, state: dict[str, Any]) -> None:
        """As every trainer's; nothing that was looked up before is kept."""
        super().load_state(state)
        self.table = self.reference_table = None

    def advance(self) -> tuple[Any, dict[str, float | None]]:
        """Sample groups, score them, and make the inner updates on them."""
        settings = self.settings
        drawn, prompts = self.draw()
        logp = self.logp(prompts, drawn.tokens)
        rollout = self.score(prompts, drawn, logp.detach())
        judged = self.judge(rollout)
        updates = []
        for update in range(settings.inner_updates):
            # The first update reuses the forward that gave the old log-probabilities.
            if update:
                logp = self.logp(prompts, drawn.tokens)
            loss = settings.loss_function(
                logp, rollout.logp_old, rollout.logp_ref, judged["advantages"], rollout.mask, **settings.loss_keywords
            )
            extra, extra_entry = self.extra_loss(rollout, judged)
            self.update(loss if extra is None else loss + extra)
            updates.append((loss.detach(), logp.detach(), extra_entry))
        shown = monitors.monitor(settings, rollout, judged["advantages"], updates[-1][1])
        shown["loss"] = updates[-1][0].item()
        return lambda: self.entry(rollout, judged, updates), shown

    def draw(self) -> tuple[sampling.Completions, Tensor]:
        """Choose this step's prompts and sample a group of completions of each."""
        settings, task = self.settings, self.settings.task
        prompts = choose_prompts(task.prompt_tokens, settings.prompts_per_step, generator=self.generator)
        uniforms = sampling.uniform_table(
            len(prompts) * settings.group_size, task.max_new_tokens, generator=self.generator
        )
        if self.tabled:
            self.table = self.new_table(self.policy)
            drawn = self.table.sample(uniforms)
        else:
            drawn = sampling.sample(
                self.policy, prompts, uniforms, eos_token=task.eos_token, temperature=settings.temperature
            )
        self.cost.generated_tokens += int(drawn.mask.sum())
        return drawn, prompts

    def logp(self, prompts: Tensor, completions: Tensor) -> Tensor:
        """Log-probabilities under the policy as it now is, with their gradient: (B, T), nats."""
        self.cost.trained_forwards += len(completions)
        if self.tabled:
            # What was computed to sample serves the first update too; after that the policy has moved.
            table, self.table = self.table or self.new_table(self.policy), None
            return table.logp(completions)
        return sampling.completion_logp(self.policy, prompts, completions, temperature=self.settings.temperature)

    def score(self, prompts: Tensor, drawn: sampling.Completions, logp_old: Tensor) -> Rollout:
        """Rewards from the tokens, and the reference's log-probabilities if β asks for them."""
        beside = sampling.repeat_prompts(prompts, self.settings.group_size)
        rewards = self.settings.task.rewards(beside, drawn.tokens, drawn.mask)
        self.cost.reward_evaluations += len(rewards)
        logp_ref = None
        if self.settings.beta > 0:
            self.cost.frozen_forwards += len(rewards)
            logp_ref = self.reference_logp(prompts, drawn.tokens)
        rewards = rewards.view(len(prompts), self.settings.group_size)
        return Rollout(prompts, drawn.tokens, drawn.mask, rewards, logp_old, logp_ref, drawn.entropy)

    def new_table(self, model: Decoder) -> PrefixTable:
        """Every next-token distribution of the task, with its gradient."""
        return PrefixTable(model, self.settings.task, temperature=self.settings.temperature)

    @torch.no_grad()
    def reference_logp(self, prompts: Tensor, completions: Tensor) -> Tensor:
        """Log-probabilities under the reference: (B, T), nats. It never moves, so its table is made once."""
        if not self.tabled:
            temperature = self.settings.temperature
            return sampling.completion_logp(self.reference, prompts, completions, temperature=temperature)
        if self.reference_table is None:
            self.reference_table = self.new_table(self.reference)
        return self.reference_table.logp(completions)

    def judge(self, rollout: Rollout) -> dict[str, Tensor]:
        """The advantages, (B,), and whatever else the updates need."""
        return {"advantages": group_advantages(self.settings, rollout).flatten()}

    def extra_loss(self, rollout: Rollout, judged: dict[str, Tensor]) -> tuple[Tensor | None, dict[str, Any]]:
        """A second loss for a second network, and its entry in the record."""
        return None, {}

    def entry(self, rollout: Rollout, judged: dict[str, Tensor], updates: list[tuple]) -> dict[str, Any]:
        """The step as plain lists: everything `verify` needs to recompute it."""
        lengths = rollout.lengths
        per_token = judged["advantages"].dim() == 2
        flat = judged["advantages"] if per_token else judged["advantages"].view_as(rollout.rewards)
        missing = rollout.rewards.isnan()
        rewards = rollout.rewards.tolist()
        if missing.any():
            rewards = [[None if reward != reward else reward for reward in group] for group in rewards]
        constant = rollout.rewards.amax(-1) == rollout.rewards.amin(-1)
        return {
            "prompts": rollout.prompts.tolist(),
            "completions": ragged(rollout.completions, lengths),
            "rewards": rewards,
            "zero_variance": constant.tolist(),
            "advantages": ragged(flat, lengths) if per_token else flat.tolist(),
            "logp_old": ragged(rollout.logp_old, lengths),
            "logp_ref": None if rollout.logp_ref is None else ragged(rollout.logp_ref, lengths),
            "updates": [
                {"loss": loss.item(), "logp": ragged(logp, lengths)} | {key: value() for key, value in extra.items()}
                for loss, logp, extra in updates
            ],
        }


def group_advantages(settings: OnlineSettings, rollout: Rollout) -> Tensor:
    """Advantages (P, G) from the rewards, less the KL of each completion if it belongs in its reward."""
    rewards = rollout.rewards
    if settings.kl_in_reward and rollout.logp_ref is not None:
        rewards = penalized_rewards(rollout, beta=settings.beta)
    return settings.advantages(rewards)


def critic_advantages(settings: PpoSettings, rollout: Rollout, values: Tensor) -> Tensor:
    """Advantages (B, T) from the critic's values; the score is earned at the last token, the KL at every one."""
    penalty = None if rollout.logp_ref is None else settings.beta * kl.kl_k1(*_valid_logp(rollout))
    rewards = critic.token_rewards(rollout.rewards.flatten(), rollout.mask, penalty)
    return critic.generalized_advantages(
        rewards, values, rollout.mask, gamma=settings.gamma, gae_lambda=settings.gae_lambda
    )


def penalized_rewards(rollout: Rollout, *, beta: float) -> Tensor:
    """r − β·Σ_t k1_t: the KL estimate of the whole completion taken off its reward, (P, G)."""
    log_ratio_ref = masking.sum_over_tokens(kl.kl_k1(*_valid_logp(rollout)), rollout.mask)
    return rollout.rewards - beta * log_ratio_ref.view_as(rollout.rewards)


def _valid_logp(rollout: Rollout) -> list[Tensor]:
    roles = {"logp_old": rollout.logp_old, "logp_ref": rollout.logp_ref}
    return [masking.keep_valid(name, values, rollout.mask) for name, values in roles.items()]


class PpoTrainer(OnlineTrainer):
    """PPO on the same loop: a critic judges every token, and is itself trained in every inner update."""

    settings: PpoSettings

    def __init__(self, settings: PpoSettings) -> None:
        # Its weights come from a seed of their own, one above the policy's; its head starts at zero, so the first
        # judgement is "every state is worth nothing" rather than noise.
        self.critic = start.fresh_model(settings.model, settings.task, outputs=1, seed=settings.model.seed + 1)
        nn.init.zeros_(self.critic.head.weight)
        super().__init__(settings)

    def extra_models(self) -> dict[str, nn.Module]:
        """The critic."""
        return {"critic": self.critic}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The policy's parameters and the critic's, each at its rate."""
        return [*super().parameter_groups(), {"params": list(self.critic.parameters()), "lr": self.settings.critic_lr}]

    def judge(self, rollout: Rollout) -> dict[str, Tensor]:
        """Advantages (B, T) from the critic's values, and the returns it will be trained on."""
        with torch.no_grad():
            values = self.values(rollout)
        self.cost.frozen_forwards += len(rollout.completions)
        advantages = critic_advantages(self.settings, rollout, values)
        return {"advantages": advantages, "values": values, "returns": advantages + values}

    def values(self, rollout: Rollout) -> Tensor:
        """V of the state each token was chosen in: (B, T), in units of reward."""
        return sampling.completion_outputs(self.critic, rollout.prompts, rollout.completions).squeeze(-1)

    def extra_loss(self, rollout: Rollout, judged: dict[str, Tensor]) -> tuple[Tensor | None, dict[str, Any]]:
        """The critic's squared error."""
        values = self.values(rollout)
        self.cost.trained_forwards += len(rollout.completions)
        loss = critic.value_loss(values, judged["returns"], rollout.mask)
        entry = {"value_loss": loss.item, "values": lambda: ragged(values, rollout.lengths)}
        return loss, entry

    def entry(self, rollout: Rollout, judged: dict[str, Tensor], updates: list[tuple]) -> dict[str, Any]:
        """As the other methods', with the critic's values at the time of sampling."""
        return super().entry(rollout, judged, updates) | {"values": ragged(judged["values"], rollout.lengths)}
