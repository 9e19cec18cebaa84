"""Plain gradient descent against torch's own, and its part in a run."""

import pytest
import torch
from tolerances import RTOL

from labsrc import toylm
from labsrc.toylm.descent import Descent


def weights():
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(3, 2, dtype=torch.float64, generator=generator) for _ in range(3))
    return [weight.requires_grad_() for weight in drawn]


@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.5, 0.01)])
def test_steps_are_those_of_torchs_sgd(rates):
    ours, theirs = weights(), weights()
    optimizers = [
        kind([{"params": moved[:2], "lr": rates[0]}, {"params": moved[2:], "lr": rates[1]}])
        for kind, moved in ((Descent, ours), (torch.optim.SGD, theirs))
    ]
    for _ in range(3):
        for moved, optimizer in zip((ours, theirs), optimizers, strict=True):
            for weight in moved:
                weight.grad = None
            (moved[0] * moved[1] + moved[2].square()).sum().backward()
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=RTOL, atol=0)
        assert one.requires_grad


def test_a_weight_without_a_gradient_stays_where_it_is():
    moved = weights()
    before = [weight.detach().clone() for weight in moved]
    moved[0].square().sum().backward()
    Descent([{"params": moved, "lr": 0.1}]).step()
    assert not torch.equal(moved[0], before[0])
    assert torch.equal(moved[1], before[1]) and torch.equal(moved[2], before[2])


def test_a_run_by_sgd_descends_and_one_by_adam_does_not():
    kinds = {name: type(toylm.new_trainer(toylm.GrpoSettings(optimizer=name)).optimizer) for name in ("sgd", "adam")}
    assert kinds == {"sgd": Descent, "adam": torch.optim.Adam}
