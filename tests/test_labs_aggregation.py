"""Lab *aggregation* against sums by hand, and against the losses of whole batches and of slices."""

import math

import pytest
import torch
from tolerances import RTOL

from labsrc import labs
from labsrc.grpo import bnpo_loss, dapo_loss, dr_grpo_loss, grpo_loss

METHODS = ("grpo", "bnpo", "dapo", "dr_grpo")


def preset(label):
    return next(one.state for one in labs.aggregation.presets if one.label == label)


def weights(**state):
    result = labs.aggregation(**state).result
    return {name: result[f"weight_{name}"] for name in METHODS}


def test_100_and_1000_tokens_differ_ten_to_one_under_grpo_alone():
    result = labs.aggregation().result
    assert result["spread_grpo"] == pytest.approx(10.0, rel=RTOL)
    assert [result[f"spread_{name}"] for name in METHODS[1:]] == pytest.approx([1.0] * 3, rel=RTOL)
    found = weights()
    # Each completion has half the weight, over its own tokens; 1100 tokens make a mean over all weigh 1.
    assert found["grpo"] == pytest.approx([1100 / 200, 1100 / 2000], rel=RTOL)
    assert found["bnpo"] == pytest.approx([1.0, 1.0], rel=RTOL) and found["dapo"] == pytest.approx([1.0, 1.0], rel=RTOL)
    assert found["dr_grpo"] == pytest.approx([1100 / 2048] * 2, rel=RTOL)


def test_micro_batches_of_one_turn_bnpo_into_grpo_and_leave_the_others():
    whole, cut = weights(), weights(**preset("Micro-batches of 1"))
    assert cut["bnpo"] == pytest.approx(whole["grpo"], rel=RTOL)
    for name in ("grpo", "dapo", "dr_grpo"):
        assert cut[name] == pytest.approx(whole[name], rel=RTOL)


def test_micro_batches_of_two_by_hand():
    found = weights(lengths=[100, 1000, 300, 300], advantages=[1.0] * 4, micro_batch=2)
    # Each slice is half of the batch: 1/2 over its 1100, its 600 tokens; 1700 in all.
    assert found["bnpo"] == pytest.approx([1700 / 2200] * 2 + [1700 / 1200] * 2, rel=RTOL)
    assert labs.aggregation(lengths=[100, 1000, 300], advantages=[1.0] * 3, micro_batch=2).result["slices"] == 2


@pytest.mark.parametrize("micro_batch", [1, 2, 3])
def test_pushes_are_the_gradients_of_accumulated_losses(micro_batch):
    lengths, advantages = [3, 7, 1], [0.5, -1.0, 2.0]
    state = dict(lengths=lengths, advantages=advantages, micro_batch=micro_batch, max_length=1024)
    result, rows = labs.aggregation(**state).result, range(0, 3, micro_batch)
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    losses = {
        "grpo": grpo_loss,
        "bnpo": bnpo_loss,
        "dapo": lambda *batch, **options: dapo_loss(*batch, token_count=11, **options),
        "dr_grpo": lambda *batch, **options: dr_grpo_loss(*batch, max_length=1024, **options),
    }
    for name, loss in losses.items():
        logp = torch.full((3, 7), -1.0, dtype=torch.float64, requires_grad=True)
        for start in rows:
            part = slice(start, start + micro_batch)
            share = 1.0 if name == "dapo" else len(lengths[part]) / 3
            batch = (logp[part], logp[part].detach(), None, torch.tensor(advantages)[part], mask[part])
            (share * loss(*batch, beta=0.0)).backward()
        assert result[f"push_{name}"] == pytest.approx((-logp.grad.sum(-1)).tolist(), rel=RTOL), name


def test_the_long_wrong_answer_cancels_under_grpo_and_prevails_under_dapo():
    result = labs.aggregation(**preset("Long and wrong")).result
    assert sum(result["push_grpo"]) == pytest.approx((3 * 0.58 - 1.73) / 4, abs=1e-12)
    right, wrong = sum(result["push_dapo"][:3]), -result["push_dapo"][3]
    assert wrong / right == pytest.approx(1730 / (3 * 116), rel=RTOL) and round(wrong / right) == 5


@pytest.mark.parametrize(
    ("ratios", "counts", "mean", "product"),
    [
        ([2.0, 0.5], [1, 1], 1.0, 1.0),
        ([2.0, 2.0], [1, 1], 2.0, 4.0),
        ([2.0], [2], 2.0, 4.0),
        ([math.exp(3), 1.0], [1, 999], math.exp(0.003), math.exp(3)),
    ],
)
def test_ratios(ratios, counts, mean, product):
    result = labs.aggregation(ratios=ratios, counts=counts).result
    assert result["geometric_mean"] == pytest.approx(mean, rel=RTOL)
    assert result["product"] == pytest.approx(product, rel=RTOL)


def test_one_token_of_e_cubed_in_a_thousand_moves_the_geometric_mean_by_three_thousandths():
    result = labs.aggregation(**preset("e³ in a thousand")).result
    assert f"{result['geometric_mean']:.4f}" == "1.0030" and result["log_product"] == pytest.approx(3.0, rel=RTOL)


def test_a_product_too_large_for_a_number_is_infinite_and_keeps_its_logarithm():
    result = labs.aggregation(ratios=[1000.0], counts=[4096]).result
    assert result["product"] == math.inf
    assert result["log_product"] == pytest.approx(4096 * math.log(1000), rel=RTOL)


def test_a_completion_longer_than_dr_grpos_divisor_is_refused():
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 2000; got 1024"):
        labs.aggregation(lengths=[100, 2000])
