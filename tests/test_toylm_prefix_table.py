import pytest
import torch
from tolerances import RTOL

from labsrc import toylm
from labsrc.toylm import sampling, start
from labsrc.toylm.prefix_table import PrefixTable

TASKS = [
    toylm.FirstToken(vocabulary=5, target=2, max_new_tokens=3, prompts=((1, 3), (2, 0)), eos_token=1),
    toylm.FirstToken(),
    toylm.FirstToken(max_new_tokens=1),
]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_looking_up_is_the_same_as_reading(task, temperature):
    policy = start.fresh_model(toylm.ModelSettings(), task)
    prompts, count = task.prompt_tokens, 40
    uniforms = sampling.uniform_table(
        len(prompts) * count, task.max_new_tokens, generator=torch.Generator().manual_seed(0)
    )
    table = PrefixTable(policy, task, temperature=temperature)
    looked_up = table.sample(uniforms)
    read = sampling.sample(policy, prompts, uniforms, eos_token=task.eos_token, temperature=temperature)
    assert torch.equal(looked_up.tokens, read.tokens) and torch.equal(looked_up.mask, read.mask)
    mask = read.mask
    for name in ("logp", "entropy"):
        torch.testing.assert_close(getattr(looked_up, name)[mask], getattr(read, name)[mask], rtol=RTOL, atol=1e-14)
    gradients = [
        torch.autograd.grad(logp[mask].sum(), list(policy.parameters()))
        for logp in (
            table.logp(read.tokens),
            sampling.completion_logp(policy, prompts, read.tokens, temperature=temperature),
        )
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_the_table_of_several_policies_is_each_ones_table(task):
    policies = [start.fresh_model(toylm.ModelSettings(seed=seed), task) for seed in (0, 1, 2)]
    prompts, count = len(task.prompt_tokens), 12
    uniforms = sampling.uniform_table(
        len(policies) * prompts * count, task.max_new_tokens, generator=torch.Generator().manual_seed(3)
    ).view(len(policies), prompts * count, -1)

    def together(tokens, *_):
        return torch.stack([policy(part)[0] for policy, part in zip(policies, tokens, strict=True)]), None

    table = PrefixTable(together, task, temperature=0.7, runs=(len(policies),))
    drawn = table.sample(uniforms)
    for index, policy in enumerate(policies):
        alone = PrefixTable(policy, task, temperature=0.7).sample(uniforms[index])
        for name in ("tokens", "mask", "logp", "entropy"):
            assert torch.equal(getattr(drawn, name)[index], getattr(alone, name))
    assert torch.equal(table.logp(drawn.tokens), drawn.logp)


@pytest.mark.parametrize("kind", [toylm.GrpoSettings, toylm.PpoSettings])
def test_a_run_that_looks_up_is_the_run_that_reads(kind, monkeypatch):
    settings = kind(lr=0.3)
    looked_up = toylm.train(settings)
    assert looked_up.tabled
    monkeypatch.setattr(PrefixTable, "pays", staticmethod(lambda *_: False))
    read = toylm.train(settings)
    assert not read.tabled
    assert [g["completions"] for g in looked_up.groups] == [g["completions"] for g in read.groups]
    assert looked_up.cost == read.cost
    for one, other in zip(looked_up.policy.parameters(), read.policy.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
