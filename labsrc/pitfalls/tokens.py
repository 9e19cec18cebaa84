"""Which tokens are trained, and under which distribution: not those that were sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from labsrc import masking, toylm
from labsrc.pitfalls.record import Effect, Pitfall
from labsrc.toylm import sampling, start
from labsrc.toylm.model import Decoder
from labsrc.toylm.online import OnlineTrainer

# The text of each id. "abc" can be written as a + bc or as ab + c.
PIECES = ("a", "bc", "ab", "c")


@dataclass(frozen=True)
class AvoidText(toylm.FirstToken):
    """Reward 1 for every text of two pieces but "abc", however that is cut into tokens."""

    name: ClassVar[str] = "avoid_text"
    target: int = 0
    vocabulary: int = len(PIECES)

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """0 where the completion reads "abc", else 1: (B,)."""
        return torch.tensor([float(decoded(ids) != "abc") for ids in completions.tolist()], dtype=torch.float64)


def decoded(ids: list[int]) -> str:
    """The text of a list of ids."""
    return "".join(PIECES[token] for token in ids)


def encoded(text: str) -> list[int]:
    """The ids a greedy tokenizer gives a text: at each place the longest piece that fits."""
    ids = []
    while text:
        piece = max((piece for piece in PIECES if text.startswith(piece)), key=len)
        ids.append(PIECES.index(piece))
        text = text[len(piece) :]
    return ids


def tokens_as_sampled(completions: Tensor) -> Tensor:
    """The (B, T) ids to train on: those that were sampled."""
    rows = completions.tolist()
    return torch.tensor([list(ids) for ids in rows])


def tokens_from_text(completions: Tensor) -> Tensor:
    """Faulty: the completions go through text, and come back as other ids."""
    rows = completions.tolist()
    return torch.tensor([encoded(decoded(ids)) for ids in rows])


def assert_trains_what_was_sampled(function: Callable[[Tensor], Tensor]) -> None:
    """The ids that are trained are the ids that were sampled."""
    sampled = torch.tensor([[0, 1], [2, 3]])
    changed = (function(sampled) != sampled).any(-1).sum()
    assert changed == 0, f"{changed} of {len(sampled)} completions are trained as other tokens"


def mask_with_eos(tokens: Tensor, eos_token: int) -> Tensor:
    """True up to and including the first EOS: the policy chose it."""
    mask = masking.completion_mask(tokens, eos_token=eos_token)
    return mask


def mask_without_eos(tokens: Tensor, eos_token: int) -> Tensor:
    """Faulty: EOS is also the padding token, and all padding is masked."""
    mask = masking.completion_mask(tokens, eos_token=eos_token)
    return mask & (tokens != eos_token)


def assert_eos_counts(function: Callable[[Tensor, int], Tensor]) -> None:
    """Of three tokens, EOS and padding, four count."""
    counted = function(torch.tensor([[5, 6, 7, 0, 0, 0]]), 0).sum()
    assert counted == 4, f"{counted} tokens of 3 and an EOS are trained"


def logp_at_temperature(policy: Decoder, prompts: Tensor, completions: Tensor, temperature: float) -> Tensor:
    """Log-probabilities (B, T) under the distribution that sampled, softmax(logits/temperature)."""
    scaled = {"temperature": temperature}
    return sampling.completion_logp(policy, prompts, completions, **scaled)


def logp_at_one(policy: Decoder, prompts: Tensor, completions: Tensor, temperature: float) -> Tensor:
    """Faulty: the sampler had a temperature, the trainer has none."""
    scaled = {"temperature": 1.0}
    return sampling.completion_logp(policy, prompts, completions, **scaled)


def assert_first_ratio_is_one(function: Callable[[Decoder, Tensor, Tensor, float], Tensor]) -> None:
    """Before any update, trainer and sampler agree on every token."""
    policy = start.fresh_model(toylm.ModelSettings(), toylm.FirstToken())
    prompts, uniforms = torch.tensor([[1, 3]]), torch.tensor([[0.1, 0.4], [0.8, 0.6]], dtype=torch.float64)
    drawn = sampling.sample(policy, prompts, uniforms, temperature=0.5)
    with torch.no_grad():
        ratio = (function(policy, prompts, drawn.tokens, 0.5) - drawn.logp).exp()
    worst = ratio.flatten()[(ratio - 1).abs().argmax()]
    assert abs(worst - 1) < 1e-6, f"a ratio of the first update is {worst:.4f}"


class _TrainsOn(OnlineTrainer):
    """Trains on what a function makes of the completions."""

    def __init__(self, settings: toylm.GrpoSettings, tokens: Callable[[Tensor], Tensor]) -> None:
        super().__init__(settings)
        self.tokens = tokens

    def logp(self, prompts: Tensor, completions: Tensor) -> Tensor:
        return super().logp(prompts, self.tokens(completions))


def _run(trainer: OnlineTrainer) -> float:
    trainer.finish()
    return toylm.evaluate(trainer.policy, trainer.reference, trainer.settings.task)["expected_reward"]


def forbidden_probability(function: Callable[[Tensor], Tensor], *, steps: int = 5, seeds: int = 10) -> float:
    """P("abc"), exact, after a few steps of GRPO on `AvoidText` that train what `function` makes of the samples.

    The mean over seeds 0 to seeds − 1.
    """
    runs = [toylm.GrpoSettings(task=AvoidText(), steps=steps, lr=0.1, beta=0.0, seed=seed) for seed in range(seeds)]
    return sum(1 - _run(_TrainsOn(settings, function)) for settings in runs) / seeds


def _retokenised_effect() -> Effect:
    runs = (forbidden_probability(twin) for twin in (tokens_as_sampled, tokens_from_text))
    return Effect("P(forbidden text) after 5 steps, mean of 10 seeds", *runs)


def clipped_at_once(function: Callable[[Decoder, Tensor, Tensor, float], Tensor]) -> float:
    """Share of tokens with a ratio outside 0.8 to 1.2 before any update: addition after its start, temperature 0.7."""
    settings = toylm.addition_settings(temperature=0.7)
    trainer = toylm.new_trainer(settings)
    drawn, prompts = trainer.draw()
    with torch.no_grad():
        ratio = (function(trainer.policy, prompts, drawn.tokens, settings.temperature) - drawn.logp).exp()[drawn.mask]
    return ((ratio < 0.8) | (ratio > 1.2)).double().mean().item()


def _temperature_effect() -> Effect:
    runs = (clipped_at_once(twin) for twin in (logp_at_temperature, logp_at_one))
    return Effect("share of tokens outside the clip before the first update", *runs)


def chance_to_stop(mask: Callable[[Tensor, int], Tensor], *, steps: int = 60) -> float:
    """P(EOS | question and right digits) of the addition task, averaged, after a supervised fit under this mask."""
    task = toylm.Addition()
    policy = start.fresh_model(toylm.ModelSettings(), task)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    prompts = task.prompt_tokens
    answers = task.answers(prompts)
    for _ in range(steps):
        optimizer.zero_grad()
        start.supervised_loss(policy, prompts, answers, mask(answers, task.eos_token)).backward()
        optimizer.step()
    with torch.no_grad():
        probability = sampling.completion_logp(policy, prompts, answers).exp()
    last = masking.completion_mask(answers, eos_token=task.eos_token).sum(-1, keepdim=True) - 1
    return probability.gather(-1, last).mean().item()


def _eos_effect() -> Effect:
    return Effect(
        "P(stop after the right digits), 60 supervised steps",
        *(chance_to_stop(twin) for twin in (mask_with_eos, mask_without_eos)),
    )


PITFALLS = (
    Pitfall(
        "re-tokenised text",
        "A bad completion goes away slowly, though every sample of it is punished.",
        tokens_as_sampled,
        tokens_from_text,
        assert_trains_what_was_sampled,
        _retokenised_effect,
    ),
    Pitfall(
        "EOS masked out",
        "The loss falls, the answers are right, and then the model goes on talking.",
        mask_with_eos,
        mask_without_eos,
        assert_eos_counts,
        _eos_effect,
    ),
    Pitfall(
        "temperature on one side",
        "Tokens are clipped at the very first update of a batch.",
        logp_at_temperature,
        logp_at_one,
        assert_first_ratio_is_one,
        _temperature_effect,
    ),
)
