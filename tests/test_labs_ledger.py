"""Lab *ledger* against sums by hand."""

import pytest
from tolerances import RTOL

from labsrc import labs
from labsrc.ledger import lora_parameters


def preset(label):
    return next(one.state for one in labs.ledger.presets if one.label == label)


def test_the_start_is_the_worked_case():
    result = labs.ledger().result
    assert (result["weights_gb"][0], result["gradients_gb"][0], result["optimizer_gb"][0]) == (14.0, 14.0, 84.0)
    assert result["policy_gb"] == 112.0 and round(result["policy_gib"], 1) == 104.3
    assert result["memory"] == [252.0, 140.0, 126.0]
    # Generation 2·1024/1280; scoring 2 for each of four or three networks; training 6 for each of two or one.
    assert result["flops_ratio"] == pytest.approx((1.6 + 8 + 12) / (1.6 + 6 + 6), rel=RTOL)


def test_every_bar_is_the_sum_of_its_parts():
    for label in ("7 billion", "LoRA, rank 16", "Verifier, β = 0"):
        result = labs.ledger(**preset(label)).result
        parts = [result[f"{name}_gb"] for name in ("weights", "gradients", "optimizer", "critic", "reference")]
        sums = [sum(column) for column in zip(*parts, result["reward_model_gb"], strict=True)]
        assert sums == pytest.approx(result["memory"], rel=RTOL)


def test_four_completions_for_ppo_make_grpo_ten_times_dearer():
    view = labs.ledger(**preset("PPO with n = 4"))
    assert 1 / view.result["flops_ratio"] == pytest.approx(16 * 13.6 / 21.6, rel=RTOL)
    assert view.result["memory"] == labs.ledger().result["memory"]
    assert "pays in samples: 65.54 thousand tokens a prompt against 4.096" in view.words()


@pytest.mark.parametrize(
    ("precision", "optimizer", "wanted"),
    [
        ("bf16", "adam", 16), ("bf16", "adam8", 10), ("bf16", "sgd", 8),
        ("mixed", "adam", 18), ("fp32", "adam", 16), ("fp32", "sgd", 8),
    ],
)  # fmt: skip
def test_bytes_a_parameter(precision, optimizer, wanted):
    result = labs.ledger(precision=precision, optimizer=optimizer).result
    assert result["bytes_a_parameter"] == pytest.approx(wanted, rel=RTOL)


def test_the_share_of_adapters_is_that_of_rank_16():
    shapes = ([(4096, 4096)] * 4 + [(4096, 11008)] * 3) * 32
    assert round(100 * lora_parameters(shapes, rank=16) / 7e9, 2) == labs.ledger.state()["adapter_percent"]
    result = labs.ledger(**preset("LoRA, rank 16")).result
    # Base and adapters of 0.57% at 2 + 2 + 12 bytes; the reference is the base; the reward model stays.
    assert result["memory"][1] == pytest.approx(7 * (2 + 0.0057 * 16 + 2), rel=RTOL)
    assert result["memory"][0] - result["memory"][1] == pytest.approx(7 * (2 + 0.0057 * 16), rel=RTOL)


def test_without_a_critic_ppo_and_grpo_pay_the_same():
    view = labs.ledger(critic=0.0)
    assert view.result["same"] and view.result["memory_ratio"] == view.result["flops_ratio"] == 1.0
    assert not labs.ledger(critic=0.0, ppo_completions=63).result["same"]


def test_dpo_with_a_stored_reference_keeps_one_network():
    result = labs.ledger(reference=False).result
    assert result["memory"][2] == 112.0 and result["scored"][2] == 0.0
