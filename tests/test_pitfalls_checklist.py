"""`pitfalls.inspect` is silent on right batches, whatever is absent, and names each fault that is put in."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labsrc import advantages, masking, policy_gradient, toylm
from labsrc.pitfalls import Batch, inspect
from labsrc.pitfalls.checklist import LEVELS, absent

EOS = 0
OPTIONAL = ("logp", "logp_old", "logp_ref", "ratios", "mask", "rewards", "group_ids", "advantages", "token_ids")
KINDS = {
    "population": lambda rewards, eps: advantages.standardized(rewards, std_eps=eps, ddof=0),
    "sample": lambda rewards, eps: advantages.standardized(rewards, std_eps=eps, ddof=1),
    "centered": lambda rewards, eps: advantages.centered(rewards),
    "leave one out": lambda rewards, eps: advantages.leave_one_out(rewards),
    "batch": lambda rewards, eps: advantages.batch_standardized(rewards, std_eps=eps),
}


def right_batch(
    seed=0,
    *,
    prompts=3,
    group_size=4,
    length=5,
    kind="population",
    std_eps=1e-4,
    level="token",
    first=False,
    discrete=True,
):
    """A batch as a correct trainer holds it before an update."""
    generator = torch.Generator().manual_seed(seed)
    rows = prompts * group_size
    token_ids = torch.randint(0, 4, (rows, length), generator=generator)
    token_ids[0, -1] = EOS  # one row at least ends
    mask = masking.completion_mask(token_ids, eos_token=EOS)
    logp_old = -3 * torch.rand(rows, length, generator=generator, dtype=torch.float64)
    moved = 0.0 if first else 0.2 * torch.randn(rows, length, generator=generator, dtype=torch.float64)
    logp = (logp_old + moved).clamp(max=0.0)
    logp_ref = -3 * torch.rand(rows, length, generator=generator, dtype=torch.float64)
    rewards = torch.rand(prompts, group_size, generator=generator, dtype=torch.float64)
    rewards = rewards.round() if discrete else rewards
    log_ratio = torch.where(mask, logp - logp_old, 0.0)
    ratios = {
        "token": log_ratio,
        "geometric mean": policy_gradient.sequence_log_ratio(log_ratio, mask)[:, None].expand_as(log_ratio),
        "product": log_ratio.sum(-1, keepdim=True).expand_as(log_ratio),
    }[level].exp()
    padded = torch.where(mask, 0.0, torch.nan)  # whatever stands in the padding
    return Batch(
        logp=logp + padded,
        logp_old=logp_old + padded,
        logp_ref=logp_ref + padded,
        ratios=ratios,
        mask=mask,
        rewards=rewards.flatten(),
        group_ids=torch.arange(prompts).repeat_interleave(group_size) + 7,
        advantages=KINDS[kind](rewards, std_eps).flatten(),
        token_ids=token_ids,
        eos_token=EOS,
        ddof={"population": 0, "sample": 1}.get(kind),
        ratio_level=level,
        first_update=first,
    )


def names(batch):
    return [finding.name for finding in inspect(batch)]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    prompts=st.integers(1, 4),
    group_size=st.integers(2, 12),
    length=st.integers(1, 6),
    kind=st.sampled_from(sorted(KINDS)),
    std_eps=st.sampled_from([0.0, 1e-8, 1e-6, 1e-4]),
    level=st.sampled_from(LEVELS),
    first=st.booleans(),
    discrete=st.booleans(),
    missing=st.sets(st.sampled_from(OPTIONAL)),
    single=st.booleans(),
)
def test_a_right_batch_raises_no_alarm_whatever_is_absent(missing, single, **options):
    batch = right_batch(**options)
    if single:
        floats = ("logp", "logp_old", "logp_ref", "ratios", "rewards", "advantages")
        batch = replace(batch, **{name: getattr(batch, name).float() for name in floats})
    if "mask" in missing:  # then nothing may stand in the padding
        tables = {name: getattr(batch, name).nan_to_num(-1.0) for name in ("logp", "logp_old", "logp_ref")}
        batch = replace(batch, **tables, ratios=None)
    batch = replace(batch, **dict.fromkeys(missing))
    found = inspect(batch)
    # That groups are constant is worth a look at any time, and is not a fault of the batch.
    assert [finding for finding in found if finding.name != "constant groups"] == []
    assert set(missing) <= set(absent(batch))


def _with(batch, name, change):
    value = getattr(batch, name).clone()
    change(value)
    return replace(batch, **{name: value})


def _set(index, number):
    def change(values):
        values[index] = number

    return change


def _per_rank(batch, shares):
    rewards = torch.tensor([0.0, 1.0, 4.0, 7.0, 2.0, 5.0, 3.0, 3.5], dtype=torch.float64)
    found = torch.empty(8, dtype=torch.float64)
    for share in shares:
        found[share] = advantages.standardized(rewards[share])
    ids = torch.zeros(8, dtype=torch.long)
    return Batch(rewards=rewards, advantages=found, group_ids=ids)


def _other_deviation(batch):
    return replace(right_batch(kind="sample", group_size=4, discrete=False), ddof=0)


RIGHT = right_batch(discrete=False)
SHUFFLE = torch.randperm(12, generator=torch.Generator().manual_seed(1))
BLOCKS = [torch.arange(4), torch.arange(4, 8)]
TURNS = [torch.arange(0, 8, 2), torch.arange(1, 8, 2)]
FAULTS = {
    "logp not finite": lambda b: _with(b, "logp", _set((2, 0), torch.nan)),
    "logp_old not finite": lambda b: _with(b, "logp_old", _set((2, 0), -torch.inf)),
    "logp_ref above 0": lambda b: _with(b, "logp_ref", _set((1, 0), 0.5)),
    "empty mask": lambda b: replace(_with(b, "mask", _set(3, False)), ratios=None),
    "padding inside": lambda b: Batch(mask=[[1, 0, 1], [1, 1, 0]]),
    "EOS never trained": lambda b: Batch(mask=b.mask & (b.token_ids != EOS), token_ids=b.token_ids, eos_token=EOS),
    "old is the reference": lambda b: replace(b, logp_ref=b.logp_old),
    "first ratio not 1": lambda b: replace(b, first_update=True),
    "ratio of another level": lambda b: replace(b, ratio_level="product"),
    "ratio of no level": lambda b: replace(b, ratios=b.ratios * 1.1),
    "groups not contiguous": lambda b: Batch(group_ids=b.group_ids[SHUFFLE]),
    "group of one": lambda b: Batch(group_ids=[0, 0, 1, 2, 2]),
    "unequal groups": lambda b: Batch(group_ids=[0, 0, 1, 1, 1]),
    "reward not finite": lambda b: Batch(rewards=[1.0, torch.nan], group_ids=[0, 0]),
    "constant groups": lambda b: Batch(rewards=[1.0, 1.0, 0.0, 1.0], group_ids=[0, 0, 1, 1]),
    "equal rewards, advantage": lambda b: Batch(rewards=[0.7] * 4, group_ids=[0] * 4, advantages=[0.8] * 4),
    "advantage not finite": lambda b: Batch(advantages=[torch.nan, 0.0]),
    "advantages not centred": lambda b: replace(b, advantages=b.advantages[SHUFFLE]),
    "the other deviation": _other_deviation,
    "normalised per rank": lambda b: _per_rank(b, BLOCKS),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_is_put_in_is_named(name):
    assert name not in names(RIGHT)
    found = {finding.name: finding for finding in inspect(FAULTS[name](RIGHT))}
    assert name in found
    finding = found[name]
    assert finding.severity in ("wrong", "look")
    assert finding.rows
    assert finding.advice
    assert name in str(finding)


def test_rows_and_numbers_are_those_of_the_fault():
    finding = inspect(FAULTS["logp_ref above 0"](RIGHT))[0]
    assert (finding.rows, finding.number) == ((1,), 0.5)
    finding = inspect(FAULTS["the other deviation"](RIGHT))[0]
    assert finding.number == pytest.approx((4 / 3) ** 0.5)
    finding = next(f for f in inspect(FAULTS["constant groups"](RIGHT)) if f.name == "constant groups")
    assert (finding.rows, finding.number) == ((0, 1), 0.5)


def test_groups_dealt_in_turn_are_recognised_as_those_dealt_in_blocks():
    assert "normalised per rank" in names(_per_rank(RIGHT, TURNS))


def test_what_is_wrong_comes_before_what_is_worth_a_look():
    batch = replace(RIGHT, logp_ref=RIGHT.logp_old, first_update=True)
    assert [finding.severity for finding in inspect(batch)] == ["wrong", "look"]


def test_a_truncated_completion_padded_with_eos_is_no_alarm():
    batch = Batch(token_ids=[[5, 5, 0, 0], [5, 0, 0, 0]], mask=[[1, 1, 0, 0], [1, 1, 0, 0]], eos_token=0)
    assert inspect(batch) == []


def test_token_advantages_are_read_at_the_first_valid_token():
    values = torch.tensor([[9.0, 1.0, 9.0], [-1.0, 9.0, 9.0]])
    batch = Batch(advantages=values, mask=[[0, 1, 1], [1, 0, 0]], group_ids=[0, 0], rewards=[1.0, 0.0])
    assert batch.row_advantages.tolist() == [1.0, -1.0]
    assert inspect(batch) == []
    assert Batch(advantages=values).row_advantages.tolist() == [9.0, -1.0]


@pytest.mark.parametrize("std_eps", [0.0, 1e-8, 1e-4])
def test_a_batch_of_the_toy_lm_raises_no_alarm(std_eps):
    settings_ = toylm.GrpoSettings(steps=4, std_eps=std_eps, lr=0.1)
    entry = toylm.train(settings_).groups[-1]
    batch = Batch(
        logp_old=entry["logp_old"],
        logp_ref=entry["logp_ref"],
        rewards=entry["rewards"][0],
        advantages=entry["advantages"][0],
        group_ids=[0] * 16,
        token_ids=entry["completions"],
        ddof=0,
    )
    assert [finding for finding in inspect(batch) if finding.severity == "wrong"] == []


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"logp": [1.0]}, r"logp must be \(B, T\); got shape \(1,\)"),
        ({"rewards": [[1.0]]}, r"rewards must be \(B,\)"),
        ({"rewards": [1.0], "group_ids": [0, 0]}, "rewards and group_ids must have"),
        ({"logp": [[-1.0]], "rewards": [1.0, 2.0]}, "one number of completions"),
        ({"mask": [[0.5]]}, "mask must hold only True/False or 1/0"),
        ({"group_ids": [0.5]}, "group_ids must be whole numbers; got 0.5"),
        ({"ddof": 2}, "ddof must be one of"),
        ({"ratio_level": "word"}, "ratio_level must be one of"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_parts_that_are_no_batch_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        Batch(**parts)


def test_an_empty_batch_shows_nothing():
    assert inspect(Batch()) == []
    assert "logp" in absent(Batch())
