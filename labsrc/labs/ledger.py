"""Lab *ledger* (chapter 8): bytes of state and tokens of one update under PPO, GRPO and DPO, side by side."""

from __future__ import annotations

from typing import Any

from labsrc.labs.controls import Choice, Preset, Slider, State, Toggle
from labsrc.labs.lab import Lab
from labsrc.labs.panels import Grid, Numbers, Sentence, Series, Stacked, Tile
from labsrc.ledger import GIB, Ledger, Workload, dpo_ledger, grpo_ledger, optimizer_bytes, ppo_ledger

METHODS = ("PPO", "GRPO", "DPO")
WEIGHT_BYTES = {"bf16": 2, "mixed": 2, "fp32": 4}
GRADIENT_BYTES = {"bf16": 2, "mixed": 4, "fp32": 4}
MOMENT_BYTES = {"adam": 8, "adam8": 2, "sgd": 0}


def workload(state: State) -> Workload:
    """The state as a `Workload` of one prompt; the sizes of critic and reward model are shares of the policy's."""
    parameters, share = state["billions"] * 1e9, state["adapter_percent"] / 100
    critic, weight_bytes = state["critic"] * parameters, WEIGHT_BYTES[state["precision"]]
    return Workload(
        parameters=parameters,
        prompts=1,
        completions=state["group_size"],
        ppo_completions=state["ppo_completions"],
        prompt_tokens=state["prompt_tokens"],
        completion_tokens=state["completion_tokens"],
        inner_updates=state["inner_updates"],
        critic_parameters=critic,
        reward_parameters=state["reward_model"] * parameters,
        adapter_parameters=share * parameters if state["adapters"] else None,
        critic_adapter_parameters=share * critic if state["adapters"] and critic else None,
        keep_reference=state["reference"],
        weight_bytes=weight_bytes,
        gradient_bytes=GRADIENT_BYTES[state["precision"]],
        optimizer_bytes=optimizer_bytes(weight_bytes=weight_bytes, moment_bytes=MOMENT_BYTES[state["optimizer"]]),
    )


def compute(state: State) -> dict[str, Any]:
    """The three ledgers of one prompt: bytes in GB by network, tokens in thousands by kind, operations in 10¹⁵.

    state: as the controls below. Lists are in the order of METHODS. Raises ValueError as `ledger.Workload` does.
    """
    work = workload(state)
    ledgers = [ppo_ledger(work), grpo_ledger(work), dpo_ledger(work, reference_precomputed=not state["reference"])]
    ppo, grpo, dpo = ledgers
    memory = [one.memory / 1e9 for one in ledgers]
    return {
        **{f"{key}_gb": [size / 1e9 for size in sizes] for key, sizes in _memory(ledgers).items()},
        "generated": [one.generated_tokens / 1e3 for one in ledgers],
        "scored": [one.frozen_tokens / 1e3 for one in ledgers],
        "trained": [one.trained_tokens / 1e3 for one in ledgers],
        "memory": memory,
        "gib": [one.memory / GIB for one in ledgers],
        "flops": [one.flops / 1e15 for one in ledgers],
        "rewards": [one.reward_evaluations for one in ledgers],
        "policy_gb": ppo.policy.total / 1e9,
        "policy_gib": ppo.policy.total / GIB,
        "bytes_a_parameter": ppo.policy.total / work.parameters,
        "memory_ratio": ppo.memory / grpo.memory,
        "flops_ratio": ppo.flops / grpo.flops,
        "saved": memory[0] - memory[1],
        "flops_to_dpo": grpo.flops / dpo.flops,
        "grpo_dearer": grpo.flops > ppo.flops,
        "same": ppo == grpo,
        "parameters": work.parameters,
        "critic_parameters": work.critic_parameters,
        "reward_parameters": work.reward_parameters,
        "adapter_parameters": work.adapter_parameters,
        "critic_adapter_parameters": work.critic_adapter_parameters,
        "weight_bytes": work.weight_bytes,
        "gradient_bytes": work.gradient_bytes,
        "optimizer_bytes": work.optimizer_bytes,
        "precomputed": not state["reference"],
    }


def _memory(ledgers: list[Ledger]) -> dict[str, list[float]]:
    """Bytes by part, one list entry a method."""
    return {
        "weights": [one.policy.weights for one in ledgers],
        "gradients": [one.policy.gradients for one in ledgers],
        "optimizer": [one.policy.optimizer for one in ledgers],
        "critic": [one.critic.total for one in ledgers],
        "reference": [one.reference.total for one in ledgers],
        "reward_model": [one.reward_model.total for one in ledgers],
    }


def _share(key: str, label: str, meaning: str) -> Slider:
    return Slider(key, label, meaning, 1.0, 0.0, 1.0, step=0.05, format=".2f", unit="× policy")


def _count(key: str, label: str, meaning: str, value: int, most: int, unit: str = "") -> Slider:
    return Slider(key, label, meaning, value, 1, most, step=1, integer=True, format="d", unit=unit)


ledger = Lab(
    name="ledger",
    title="What one update costs",
    lead=(
        "State in memory and tokens of one update, for one prompt. Arithmetic on sizes: activations, the cache of "
        "generation and buffers come on top. Without a reference in memory, DPO reads log-probabilities stored before."
    ),
    prompt=(
        "A policy of 7 billion parameters, critic, reference and reward model of the same size, 64 completions a "
        "prompt for PPO and for GRPO. By which factors does GRPO save memory, and FLOPs?"
    ),
    answer=(
        "1.80 and 1.59: policy, reference and reward model stay, and so does sampling. If PPO makes do with 4 "
        "completions, GRPO saves the same memory and computes ten times as much."
    ),
    compute=compute,
    controls=(
        Slider("billions", "policy", "parameters of the policy", 7.0, 0.1, 100.0, log=True, unit="billion"),
        Choice(
            "precision",
            "precision",
            {"bf16": "bf16", "mixed": "bf16, gradients fp32", "fp32": "fp32"},
            "bf16",
        ),
        Choice("optimizer", "optimiser", {"adam": "Adam", "adam8": "Adam, 8 bits", "sgd": "plain SGD"}, "adam"),
        Toggle("adapters", "train adapters only (LoRA)"),
        Slider(
            "adapter_percent",
            "adapters",
            "size of the adapters, in per cent of their network",
            0.57,
            0.01,
            10.0,
            log=True,
            unit="%",
        ),
        Toggle("reference", "reference in memory (off: β = 0)", True),
        _share("critic", "critic", "size of PPO's critic, as a share of the policy"),
        _share("reward_model", "reward model", "size of the reward model, as a share of the policy; 0 is a verifier"),
        Slider("group_size", "G, GRPO", "GRPO's completions a prompt", 64, 2, 128, step=1, integer=True, format="d"),
        _count("ppo_completions", "n, PPO", "PPO's completions a prompt", 64, 128),
        _count("prompt_tokens", "prompt", "tokens of a prompt", 256, 4096, "tokens"),
        _count("completion_tokens", "answer", "mean tokens of a completion", 1024, 8192, "tokens"),
        _count("inner_updates", "passes", "optimiser passes over a batch", 1, 8),
    ),
    presets=(
        Preset("7 billion", {}, "14 GB of weights, 14 of gradients, 84 of fp32 copy and Adam's moments: 112 GB."),
        Preset(
            "PPO with n = 4",
            {"ppo_completions": 4},
            "A critic judges a single completion; a group mean needs a group. The memory saved is paid in samples.",
        ),
        Preset(
            "Small critic",
            {"critic": 0.1},
            "Most of what GRPO saves is the critic's optimiser state: with a critic a tenth the size there is little "
            "to save.",
        ),
        Preset(
            "Verifier, β = 0",
            {"reward_model": 0.0, "reference": False},
            "No reward model and no reference: one network is left for GRPO, and the policy's own scoring pass.",
        ),
        Preset(
            "LoRA, rank 16",
            {"adapters": True},
            "Rank 16 on every matrix of a 7B decoder is 0.57% of it. The base is its own reference, and the frozen "
            "weights are most of what is left.",
        ),
        Preset(
            "Long answers",
            {"completion_tokens": 8192, "group_size": 16, "ppo_completions": 16},
            "No byte of state more; tokens, and with them time and the cache of generation, grow eightfold.",
        ),
    ),
    panels=(
        Stacked(
            parts=(
                Series("weights_gb", "weights", "part1", ".1f"),
                Series("gradients_gb", "gradients", "part2", ".1f"),
                Series("optimizer_gb", "optimiser", "part3", ".1f"),
                Series("critic_gb", "critic, all of it", "part4", ".1f"),
                Series("reference_gb", "reference", "part5", ".1f"),
                Series("reward_model_gb", "reward model", "part6", ".1f"),
            ),
            rows=METHODS,
            format=".4g",
            unit="GB",
            title="State in memory",
        ),
        Stacked(
            parts=(
                Series("generated", "generated", "part1", ".1f"),
                Series("scored", "scored, no gradient", "part6", ".1f"),
                Series("trained", "trained on", "part3", ".1f"),
            ),
            rows=METHODS,
            format=".4g",
            unit="k",
            title="Tokens through the networks, for one prompt (DPO: one pair)",
        ),
        Numbers(
            tiles=(
                Tile("policy_gb", "policy in training, GB", ".1f", note="{policy_gib:.4g} GiB"),
                Tile("bytes_a_parameter", "bytes a parameter", ".3g", note="of the policy in training"),
                Tile("memory_ratio", "memory, PPO : GRPO", ".2f", note="{saved:.4g} GB less"),
                Tile("flops_ratio", "FLOPs, PPO : GRPO", ".3g", note="GRPO : DPO {flops_to_dpo:.3g}"),
            ),
        ),
        Grid(
            columns=(
                Series("memory", "GB", "policy", ".1f"),
                Series("gib", "GiB", "policy", ".1f"),
                Series("rewards", "rewards", "policy", "d"),
                Series("flops", "PFLOP", "policy", ".3g"),
            ),
            rows=METHODS,
            corner="method",
        ),
    ),
    sentence=Sentence(
        cases=(
            (
                "same",
                "Without a critic and with as many completions, PPO's bill is GRPO's: {memory[1]:.4g} GB and "
                "{generated[1]:.4g} thousand tokens a prompt. DPO keeps {memory[2]:.4g} GB and generates nothing.",
            ),
            (
                "grpo_dearer",
                "Dropping the critic saves {saved:.4g} of {memory[0]:.4g} GB. GRPO pays in samples: "
                "{generated[1]:.4g} thousand tokens a prompt against {generated[0]:.4g}, and more FLOPs.",
            ),
        ),
        otherwise=(
            "Dropping the critic saves {saved:.4g} of {memory[0]:.4g} GB, {memory_ratio:.2f} times, and "
            "{flops_ratio:.2f} times in FLOPs. DPO keeps {memory[2]:.4g} GB and generates nothing."
        ),
    ),
    python=(
        "from labsrc.ledger import Workload, dpo_ledger, grpo_ledger, ppo_ledger\n\n"
        "work = Workload(\n"
        "    parameters={parameters:py}, prompts=1, completions={group_size:py}, "
        "ppo_completions={ppo_completions:py},\n"
        "    prompt_tokens={prompt_tokens:py}, completion_tokens={completion_tokens:py}, "
        "inner_updates={inner_updates:py},\n"
        "    critic_parameters={critic_parameters:py}, reward_parameters={reward_parameters:py},\n"
        "    adapter_parameters={adapter_parameters:py}, "
        "critic_adapter_parameters={critic_adapter_parameters:py},\n"
        "    keep_reference={reference:py}, weight_bytes={weight_bytes:py}, gradient_bytes={gradient_bytes:py}, "
        "optimizer_bytes={optimizer_bytes:py},\n"
        ")\n"
        "ledgers = [ppo_ledger(work), grpo_ledger(work), dpo_ledger(work, reference_precomputed={precomputed:py})]\n"
        "memory = [one.memory / 1e9 for one in ledgers]  # GB\n"
        "flops = [one.flops / 1e15 for one in ledgers]\n"
        "print(memory, flops)"
    ),
)
