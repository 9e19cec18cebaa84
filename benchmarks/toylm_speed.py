"""The toy LM's GRPO against a loop over completions and tokens, and a sweep against one run after another.

    python benchmarks/toylm_speed.py

Prints ratios of medians of five rounds in which the contenders take turns. Both ways of training end in the same
numbers, which is checked first.
"""

from __future__ import annotations

import plain_loop
import timing
import torch

from labsrc import toylm
from labsrc.toylm import sweep


def by_loops(settings: toylm.GrpoSettings) -> tuple[list[dict], torch.nn.Module]:
    """The protocol one completion after another."""
    trainer = toylm.new_trainer(settings)
    task = settings.task
    record = plain_loop.train(
        trainer.policy,
        trainer.reference,
        lambda completion: float(completion[0] == task.target),
        prompt=list(task.prompts[0]),
        length=task.max_new_tokens,
        groups=settings.steps,
        group_size=settings.group_size,
        inner_updates=settings.inner_updates,
        lr=settings.lr,
        clip=0.2,
        beta=settings.beta,
        std_eps=settings.std_eps,
        seed=settings.seed,
    )
    return record, trainer.policy


def largest_difference(settings: toylm.GrpoSettings) -> float:
    """Of losses, rewards and final weights between the two ways; raises if the completions differ."""
    record, plain_policy = by_loops(settings)
    trainer = toylm.train(settings)
    worst = 0.0
    for plain, ours in zip(record, trainer.groups, strict=True):
        if plain["completions"] != ours["completions"] or [plain["rewards"]] != ours["rewards"]:
            raise SystemExit("the two ways drew different completions")
        pairs = zip(plain["losses"], ours["updates"], strict=True)
        worst = max(worst, *(abs(loss - update["loss"]) for loss, update in pairs))
    weights = zip(plain_policy.parameters(), trainer.policy.parameters(), strict=True)
    return max(worst, *((one - other).abs().max().item() for one, other in weights))


def protocol(group_size: int, steps: int, wanted: float) -> None:
    """Compare at one group size."""
    settings = toylm.GrpoSettings(group_size=group_size, steps=steps)
    difference = largest_difference(settings)
    print(f"G = {group_size}: largest difference between the two ways {difference:.1e}")
    if difference > 1e-9:
        raise SystemExit("the two ways do not agree to 1e-9")
    contenders = {"loop": lambda: by_loops(settings), "toylm": lambda: toylm.train(settings)}
    timing.show(f"G = {group_size}, {steps} groups", timing.take_turns(contenders), wanted=wanted)


def sweeping() -> None:
    """Ten seeds of 24 settings each, together and one after another."""
    runs = sweep.grid(
        toylm.GrpoSettings(),
        beta=(0.0, 0.02, 0.04, 0.2),
        lr=(0.02, 0.1, 0.5),
        clip_low=(0.1, 0.2),
        seed=tuple(range(10)),
    )

    def one_after_another() -> list[float]:
        ends = []
        for run in runs:
            trainer = toylm.train(run, keep_groups=False)
            ends.append(toylm.evaluate(trainer.policy, trainer.reference, run.task)["expected_reward"])
        return ends

    together = sweep.train_sweep(runs).expected_reward[:, -1]
    difference = (together - torch.tensor(one_after_another(), dtype=torch.float64)).abs().max().item()
    print(f"{len(runs)} runs: largest difference in final E[r] {difference:.1e}")
    contenders = {"one after another": one_after_another, "together": lambda: sweep.train_sweep(runs)}
    timing.show("sweep, 10 seeds × 24 settings", timing.take_turns(contenders), wanted=8)


if __name__ == "__main__":
    torch.set_num_threads(1)
    protocol(16, 8, 15)
    protocol(256, 2, 100)
    sweeping()
