"""Many runs trained together: their parameters are stacked and go through the decoder as one batch (torch.func).

Every run keeps its own seed, weights, learning rate, β and clip, and gives the numbers it would give alone. What must
agree is what shapes the tensors: task, model size, group size, prompts, steps, inner updates and temperature.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from labsrc import advantages, exact, kl
from labsrc.toylm import exact_policy, records, sampling, start
from labsrc.toylm.model import Decoder
from labsrc.toylm.prefix_table import PrefixTable
from labsrc.toylm.rollout import choose_prompts
from labsrc.toylm.settings import GrpoSettings

# What all runs of one batch share: anything else may differ from run to run.
SHARED = ("task", "group_size", "prompts_per_step", "steps", "inner_updates", "temperature")

CURVES = ("expected_reward", "sequence_kl", "reward_mean", "zero_variance_share")

# Losses in which each completion counts by itself, so that one call can serve the runs of equal hyper-parameters.
_SEPARABLE = frozenset({"grpo", "dr_grpo", "gspo", "luspo", "sapo"})


@dataclass(frozen=True)
class SweepResult:
    """R runs of S steps. expected_reward and sequence_kl are exact and have S + 1 entries, the start first.

    expected_reward, sequence_kl (nats): (R, S + 1), None for a task that cannot be enumerated; reward_mean and
    zero_variance_share: (R, S).
    """

    settings: list[GrpoSettings]
    expected_reward: Tensor | None
    sequence_kl: Tensor | None
    reward_mean: Tensor
    zero_variance_share: Tensor

    def to_dict(self) -> dict[str, Any]:
        """Plain data: each run's settings with its curves."""
        curves = {name: getattr(self, name) for name in CURVES}
        return {
            "runs": [
                {"settings": records.settings_to_dict(settings)}
                | {name: None if curve is None else curve[run].tolist() for name, curve in curves.items()}
                for run, settings in enumerate(self.settings)
            ]
        }


def grid(base: GrpoSettings, **values: Sequence[Any]) -> list[GrpoSettings]:
    """`base` with every combination of the given values, the last name varying fastest.

    >>> [(s.beta, s.seed) for s in grid(GrpoSettings(), beta=(0.0, 0.1), seed=(1, 2))]
    [(0.0, 1), (0.0, 2), (0.1, 1), (0.1, 2)]
    """
    return [replace(base, **dict(zip(values, chosen, strict=True))) for chosen in itertools.product(*values.values())]


def train_sweep(runs: Sequence[GrpoSettings]) -> SweepResult:
    """Train all runs at once. Raises ValueError for no runs, a method or optimiser other than GRPO by SGD, a KL in the
    reward, or runs that differ in what shapes the tensors.
    """
    _check(runs)
    batch = _Batch(runs)
    for _ in range(runs[0].steps):
        batch.step()
    curves = {name: torch.stack(columns, 1) if columns else None for name, columns in batch.curves.items()}
    return SweepResult(settings=list(runs), **curves)


def _check(runs: Sequence[GrpoSettings]) -> None:
    if not runs:
        raise ValueError("runs must hold at least one GrpoSettings; got none")
    for run in runs:
        if not isinstance(run, GrpoSettings) or run.optimizer != "sgd" or run.kl_in_reward:
            raise ValueError(f"runs must be GrpoSettings with optimizer sgd and no KL in the reward; got {run!r}")
    for name in SHARED:
        different = {str(getattr(run, name)) for run in runs}
        if len(different) > 1:
            raise ValueError(f"runs must agree in {name}; got {sorted(different)}")
    shapes = {str(replace(run.model, seed=0)) for run in runs}
    if len(shapes) > 1:
        raise ValueError(f"runs must agree in model, but for its seed; got {sorted(shapes)}")


class _Stack:
    """R decoders of one shape called as one: (R, B, L) ids → (R, B, L, V) logits."""

    def __init__(self, models: Sequence[Decoder]) -> None:
        self.parameters, _ = stack_module_state(list(models))
        skeleton = models[0]

        def one(parameters: Mapping[str, Tensor], tokens: Tensor, *cache: Any) -> tuple[Tensor, Any]:
            # The plain formula: the fused kernels of attention cannot be stacked.
            with sdpa_kernel(SDPBackend.MATH):
                return functional_call(skeleton, dict(parameters), (tokens, *cache))

        self.many = vmap(one)

    def __call__(self, tokens: Tensor, cache: Any = None) -> tuple[Tensor, Any]:
        return self.many(self.parameters, tokens, *([] if cache is None else [cache]))


class _Batch:
    """The runs between two steps."""

    def __init__(self, runs: Sequence[GrpoSettings]) -> None:
        self.runs, self.shared = runs, runs[0]
        self.task = self.shared.task
        models = [start.start_policy(run) for run in runs]
        self.policy, self.reference = _Stack(models), _Stack(models)
        self.reference.parameters = {name: value.detach() for name, value in self.reference.parameters.items()}
        self.policy.parameters = {
            name: value.detach().clone().requires_grad_() for name, value in self.policy.parameters.items()
        }
        self.generators = [torch.Generator().manual_seed(run.seed) for run in runs]
        self.rates = torch.tensor([run.lr for run in runs], dtype=torch.float64)
        self.advantage_rows = _rows_by(runs, lambda run: (str(run.advantage), run.std_eps, run.ddof))
        self.loss_rows = _rows_by(
            runs,
            lambda run: (run.loss_name, str(run.loss_keywords)),
            apart=lambda run: run.loss_name not in _SEPARABLE,
        )
        self.curves: dict[str, list[Tensor]] = {name: [] for name in CURVES}
        self.enumerable = exact_policy.is_enumerable(self.task)
        every_prompt = self.shared.prompts_per_step == len(self.task.prompt_tokens)
        self.tabled = every_prompt and PrefixTable.pays(self.task, self.shared.group_size)
        # Of the policies as they are now: what is read for the exact curves serves the step that follows.
        self.table = self._new_table(self.policy)
        self.reference_table = self._new_table(self.reference)
        self._look()

    def step(self) -> None:
        """One step of every run."""
        shared = self.shared
        prompts, uniforms = self._draw()
        drawn = self._sample(prompts, uniforms)
        with torch.no_grad():
            logp_ref = self._logp(self.reference, self.reference_table, prompts, drawn.tokens)
        beside = sampling.repeat_prompts(prompts, shared.group_size)
        flat = [values.flatten(0, 1) for values in (beside, drawn.tokens, drawn.mask)]
        rewards = self.task.rewards(*flat).view(len(self.runs), shared.prompts_per_step, shared.group_size)
        weights = torch.empty_like(rewards)
        for rows in self.advantage_rows:
            weights[rows] = self._advantages(self.runs[rows[0]], rewards[rows])
        logp_old = None
        for _ in range(shared.inner_updates):
            logp = self._logp(self.policy, self.table, prompts, drawn.tokens)
            logp_old = logp.detach() if logp_old is None else logp_old
            self._update(logp, logp_old, logp_ref, weights.flatten(1), drawn.mask)
            self.table = self._new_table(self.policy)
        self.curves["reward_mean"].append(rewards.mean((1, 2)))
        self.curves["zero_variance_share"].append(advantages.is_constant_group(rewards).double().mean(1))
        self._look()

    def _draw(self) -> tuple[Tensor, Tensor]:
        """Prompts (R, P, L) and uniforms (R, P·G, T), each run's from its own generator, in the order it uses alone."""
        prompts, uniforms = [], []
        for generator in self.generators:
            chosen = choose_prompts(self.task.prompt_tokens, self.shared.prompts_per_step, generator=generator)
            rows = len(chosen) * self.shared.group_size
            prompts.append(chosen)
            uniforms.append(sampling.uniform_table(rows, self.task.max_new_tokens, generator=generator))
        return torch.stack(prompts), torch.stack(uniforms)

    def _new_table(self, models: _Stack) -> PrefixTable | None:
        """Every next-token distribution of every run, where looking up is faster than reading completions."""
        if not self.tabled:
            return None
        return PrefixTable(models, self.task, temperature=self.shared.temperature, runs=(len(self.runs),))

    def _sample(self, prompts: Tensor, uniforms: Tensor) -> sampling.Completions:
        if self.table is not None:
            return self.table.sample(uniforms)
        eos_token, temperature = self.task.eos_token, self.shared.temperature
        return sampling.sample(self.policy, prompts, uniforms, eos_token=eos_token, temperature=temperature)

    def _logp(self, models: _Stack, table: PrefixTable | None, prompts: Tensor, completions: Tensor) -> Tensor:
        if table is not None:
            return table.logp(completions)
        return sampling.completion_logp(models, prompts, completions, temperature=self.shared.temperature)

    @staticmethod
    def _advantages(run: GrpoSettings, rewards: Tensor) -> Tensor:
        if run.advantage in ("batch_standardized", "batch_centered"):
            return torch.stack([run.advantages(batch) for batch in rewards])  # their batch is one run's
        return run.advantages(rewards)

    def _update(self, logp: Tensor, logp_old: Tensor, logp_ref: Tensor, weights: Tensor, mask: Tensor) -> None:
        """One SGD step of every run."""
        total = 0.0
        for rows in self.loss_rows:
            run = self.runs[rows[0]]
            parts = (values[rows].flatten(0, 1) for values in (logp, logp_old, logp_ref, weights, mask))
            loss = run.loss_function(*parts, **run.loss_keywords)
            # Runs share no parameter: the gradient of the sum of their losses is each run's own gradient.
            total = total + loss * len(rows)
        parameters = self.policy.parameters
        slopes = torch.autograd.grad(total, list(parameters.values()))
        with torch.no_grad():
            for weight, slope in zip(parameters.values(), slopes, strict=True):
                rates = self.rates.to(weight.dtype).view(-1, *[1] * (weight.dim() - 1))
                weight.addcmul_(rates, slope, value=-1)  # a product of its own would be as large as the weights

    @torch.no_grad()
    def _look(self) -> None:
        if not self.enumerable:
            return
        policies, references = self._whole(self.policy, self.table), self._whole(self.reference, self.reference_table)
        rewards = exact_policy.reward_table(self.task)
        self.curves["expected_reward"].append(exact.expected_value(policies, rewards).mean(1))
        self.curves["sequence_kl"].append(kl.kl_divergence(policies.exp(), references.exp()).mean(1))

    def _whole(self, models: _Stack, table: PrefixTable | None) -> Tensor:
        """Every completion's log-probability, (R, N, C), at temperature 1."""
        if table is None or self.shared.temperature != 1:
            table = PrefixTable(models, self.task, temperature=1.0, runs=(len(self.runs),))
        return exact_policy.table_from_prefixes(table, self.task)


def _rows_by(runs: Sequence[GrpoSettings], key: Any, *, apart: Any = lambda run: False) -> list[list[int]]:
    """Indices of runs with equal keys, together; those that must stand apart, alone."""
    rows = defaultdict(list)
    for index, run in enumerate(runs):
        rows[(key(run), index if apart(run) else None)].append(index)
    return list(rows.values())
