"""The closed form of KL-regularised RLHF: the Gibbs identity, stationarity, limits, support, and best of n."""

import itertools
import math

import numpy as np
import pytest
import torch
from finite_differences import assert_gradient
from hypothesis import given
from hypothesis import strategies as st
from tolerances import RTOL
from torch import Tensor, tensor
from torch.distributions import Categorical
from torch.distributions import kl_divergence as library_kl

from labsrc import closed_form

Q, REWARDS, BETA = [0.2, 0.3, 0.5], [-0.5, 0.7, 1.1], 0.6


def close(actual: Tensor, expected, rtol: float = RTOL, atol: float = 1e-14) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def f64(*values: float) -> Tensor:
    return tensor(values, dtype=torch.float64)


def distributions(size: int = 4):
    weights = st.lists(st.floats(0.01, 1.0), min_size=size, max_size=size)
    return weights.map(lambda w: f64(*w) / sum(w))


def reward_lists(size: int = 4):
    return st.lists(st.floats(-3.0, 3.0), min_size=size, max_size=size).map(lambda r: f64(*r))


BETAS = st.floats(0.1, 10.0)


# ---------------------------------------------------------------- worked by hand


def test_two_actions_by_hand():
    # Weights ½·1 and ½·3: Z = 2, p* = (¼, ¾), and the best objective is log 2.
    q, rewards = [0.5, 0.5], [0.0, math.log(3)]
    close(closed_form.optimal_policy(q, rewards, beta=1.0), [0.25, 0.75])
    close(closed_form.log_partition(q, rewards, beta=1.0), math.log(2))
    close(closed_form.objective([0.25, 0.75], q, rewards, beta=1.0), math.log(2))
    # Staying at q earns half of log 3 and costs nothing.
    close(closed_form.objective(q, q, rewards, beta=1.0), math.log(3) / 2)
    # The certain choice of the better action earns log 3 and costs log 2.
    close(closed_form.objective([0.0, 1.0], q, rewards, beta=1.0), math.log(3) - math.log(2))
    close(closed_form.objective([0.0, 1.0], q, rewards, beta=0.25), math.log(3) - 0.25 * math.log(2))


def test_beta_divides_the_rewards():
    # With β = ½ the weights are ½·1 and ½·9.
    close(closed_form.optimal_policy([0.5, 0.5], [0.0, math.log(3)], beta=0.5), [0.1, 0.9])
    close(closed_form.log_partition([0.5, 0.5], [0.0, math.log(3)], beta=0.5), math.log(5))


def test_the_worked_policy_of_three_actions():
    p = closed_form.optimal_policy(Q, REWARDS, beta=BETA)
    close(p, [0.020805863, 0.230603537, 0.748590599], rtol=0, atol=5e-10)


def test_the_optimal_policy_beats_two_hundred_others_and_the_gibbs_identity_names_the_loss():
    best = closed_form.optimal_policy(Q, REWARDS, beta=BETA)
    log_z = closed_form.log_partition(Q, REWARDS, beta=BETA)
    policies = torch.from_numpy(np.random.default_rng(0).dirichlet([1.0, 1.0, 1.0], size=200))
    values = closed_form.objective(policies, Q, REWARDS, beta=BETA)
    lost = BETA * library_kl(Categorical(probs=policies), Categorical(probs=best))
    assert (values - (BETA * log_z - lost)).abs().max().item() <= 2e-15
    assert (values < closed_form.objective(best, Q, REWARDS, beta=BETA)).all()


# ---------------------------------------------------------------- the optimum, by other roads


def test_the_gradient_of_the_objective_vanishes_at_the_optimum_and_not_at_the_reference():
    def on_logits(logits: Tensor) -> Tensor:
        return closed_form.objective(logits.softmax(-1), Q, REWARDS, beta=BETA)

    optimum = closed_form.optimal_policy(Q, REWARDS, beta=BETA)
    close(assert_gradient(on_logits, optimum.log()), [0.0, 0.0, 0.0], atol=1e-14)
    # At q the KL is flat, so only the reward pulls: q·(r − E_q[r]), with E_q[r] = 0.66.
    close(assert_gradient(on_logits, f64(*Q).log()), [0.2 * -1.16, 0.3 * 0.04, 0.5 * 0.44])


def test_a_numerical_search_from_anywhere_ends_at_the_closed_form():
    for seed in range(3):
        logits = torch.randn(3, dtype=torch.float64, generator=torch.manual_seed(seed)).requires_grad_()
        search = torch.optim.LBFGS(
            [logits], max_iter=200, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
        )

        def loss(logits=logits, search=search) -> Tensor:
            search.zero_grad()
            value = -closed_form.objective(logits.softmax(-1), Q, REWARDS, beta=BETA)
            value.backward()
            return value

        search.step(loss)
        close(logits.softmax(-1).detach(), closed_form.optimal_policy(Q, REWARDS, beta=BETA), rtol=0, atol=1e-7)


@given(distributions(), reward_lists(), BETAS)
def test_the_best_objective_is_beta_log_z_and_its_slope_in_the_rewards_is_the_policy(q, rewards, beta):
    best = closed_form.optimal_policy(q, rewards, beta=beta)
    close(best.sum(), 1.0)
    log_z = closed_form.log_partition(q, rewards, beta=beta)
    close(log_z, math.log(sum(a * math.exp(r / beta) for a, r in zip(q.tolist(), rewards.tolist(), strict=True))), 1e-9)
    close(closed_form.objective(best, q, rewards, beta=beta), beta * log_z, rtol=1e-9, atol=1e-12)
    slope = assert_gradient(lambda r: beta * closed_form.log_partition(q, r, beta=beta), rewards)
    close(slope, best, rtol=1e-9)


@given(distributions(), distributions(), reward_lists(), BETAS)
def test_no_policy_beats_the_optimal_one(p, q, rewards, beta):
    best = closed_form.optimal_policy(q, rewards, beta=beta)
    gap = closed_form.objective(best, q, rewards, beta=beta) - closed_form.objective(p, q, rewards, beta=beta)
    close(gap, beta * library_kl(Categorical(probs=p), Categorical(probs=best)), rtol=1e-7, atol=1e-12)


# ---------------------------------------------------------------- invariances


@given(distributions(), reward_lists(), BETAS, st.floats(-5, 5))
def test_a_shift_of_all_rewards_moves_the_value_and_not_the_policy(q, rewards, beta, shift):
    best = closed_form.optimal_policy(q, rewards, beta=beta)
    close(closed_form.optimal_policy(q, rewards + shift, beta=beta), best, rtol=1e-9)
    moved = closed_form.log_partition(q, rewards + shift, beta=beta) - closed_form.log_partition(q, rewards, beta=beta)
    close(beta * moved, shift, rtol=1e-9, atol=1e-9)


@given(distributions(), reward_lists(), BETAS, st.floats(0.1, 10), st.permutations(range(4)))
def test_only_the_ratio_of_reward_to_beta_counts_and_no_order_does(q, rewards, beta, scale, order):
    best = closed_form.optimal_policy(q, rewards, beta=beta)
    close(closed_form.optimal_policy(q, scale * rewards, beta=scale * beta), best, rtol=1e-9)
    close(closed_form.optimal_policy(q[order], rewards[order], beta=beta), best[order], rtol=1e-9)


@given(distributions(), reward_lists(), reward_lists(), BETAS)
def test_tilting_twice_is_tilting_once_by_the_sum(q, first, second, beta):
    once = closed_form.optimal_policy(q, first + second, beta=beta)
    tilted = closed_form.optimal_policy(q, first, beta=beta)
    close(closed_form.optimal_policy(tilted, second, beta=beta), once, rtol=1e-9)


def test_a_batch_of_prompts_is_each_prompt_alone():
    q = torch.stack([f64(*Q), f64(0.6, 0.3, 0.1)])
    rewards = torch.stack([f64(*REWARDS), f64(0.0, 2.0, -1.0)])
    p = f64(0.3, 0.3, 0.4)
    for batched, alone in (
        (closed_form.optimal_policy(q, rewards, beta=BETA), lambda a, r: closed_form.optimal_policy(a, r, beta=BETA)),
        (closed_form.log_partition(q, rewards, beta=BETA), lambda a, r: closed_form.log_partition(a, r, beta=BETA)),
        (closed_form.objective(p, q, rewards, beta=BETA), lambda a, r: closed_form.objective(p, a, r, beta=BETA)),
        (closed_form.implicit_reward(p, q, beta=BETA), lambda a, r: closed_form.implicit_reward(p, a, beta=BETA)),
        (closed_form.best_of_n(q, rewards, n=3), lambda a, r: closed_form.best_of_n(a, r, n=3)),
    ):
        close(batched, torch.stack([alone(a, r) for a, r in zip(q, rewards, strict=True)]))


# ---------------------------------------------------------------- limits


def test_a_large_beta_returns_the_reference_and_its_mean_reward():
    close(closed_form.optimal_policy(Q, REWARDS, beta=1e12), Q, rtol=1e-9)
    close(1e6 * closed_form.log_partition(Q, REWARDS, beta=1e6), 0.66, rtol=1e-5)
    assert closed_form.optimal_policy(Q, REWARDS, beta=1e308).tolist() == pytest.approx(Q, rel=RTOL)


def test_a_small_beta_puts_all_mass_on_the_best_supported_action():
    close(closed_form.optimal_policy(Q, REWARDS, beta=1e-4), [0.0, 0.0, 1.0])
    close(1e-6 * closed_form.log_partition(Q, REWARDS, beta=1e-6), 1.1, rtol=1e-5)
    # The best action of all has no support, so the best supported one takes its place.
    close(closed_form.optimal_policy([0.4, 0.6, 0.0], REWARDS, beta=1e-4), [0.0, 1.0, 0.0])
    # Actions that tie share in proportion to the reference.
    close(closed_form.optimal_policy(Q, [0.0, 1.0, 1.0], beta=1e-4), [0.0, 0.375, 0.625])


def test_a_small_beta_does_not_overflow():
    close(closed_form.log_partition([0.5, 0.5], [1000.0, 0.0], beta=1e-3), 1e6 + math.log(0.5))
    close(closed_form.optimal_policy([0.5, 0.5], [1000.0, 999.0], beta=1e-3), [1.0, 0.0])


# ---------------------------------------------------------------- support and inversion


def test_what_the_reference_never_does_the_optimal_policy_never_does():
    q = f64(0.4, 0.6, 0.0).requires_grad_()
    rewards = f64(0.0, 1.0, 100.0).requires_grad_()
    best = closed_form.optimal_policy(q, rewards, beta=0.5)
    assert best[2].item() == 0.0
    close(closed_form.log_partition(q, rewards, beta=0.5), math.log(0.4 + 0.6 * math.exp(2)))
    for gradient in torch.autograd.grad(best[0] + closed_form.log_partition(q, rewards, beta=0.5), (q, rewards)):
        assert gradient.isfinite().all()
        assert gradient[2] == 0.0


def test_a_policy_outside_the_support_has_the_objective_minus_infinity():
    assert closed_form.objective([0.5, 0.5], [1.0, 0.0], [0.0, 100.0], beta=0.5).item() == -math.inf


@given(distributions(), reward_lists(), BETAS)
def test_the_implicit_reward_of_the_optimal_policy_is_the_reward_up_to_a_constant(q, rewards, beta):
    best = closed_form.optimal_policy(q, rewards, beta=beta)
    implied = closed_form.implicit_reward(best, q, beta=beta)
    close(implied + beta * closed_form.log_partition(q, rewards, beta=beta), rewards, rtol=1e-9, atol=1e-9)


def test_the_implicit_reward_says_what_was_never_seen():
    implied = closed_form.implicit_reward([0.5, 0.5, 0.0, 0.0], [0.25, 0.0, 0.75, 0.0], beta=2.0)
    assert implied[:3].tolist() == [2 * math.log(2), math.inf, -math.inf]
    assert math.isnan(implied[3].item())


# ---------------------------------------------------------------- best of n


def test_best_of_two_coins_by_hand():
    # Two tails in a row are the only way to keep the worse one.
    close(closed_form.best_of_n([0.5, 0.5], [0.0, 1.0], n=2), [0.25, 0.75])
    close(closed_form.best_of_n([0.1, 0.9], [5.0, 1.0], n=3), [1 - 0.9**3, 0.9**3])


@pytest.mark.parametrize("rewards", [[-0.5, 0.7, 1.1, 0.0], [1.0, 0.3, 1.0, 0.3], [2.0, 2.0, 2.0, 2.0]], ids=str)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_best_of_n_is_what_drawing_n_and_keeping_the_first_best_gives(rewards, n):
    q = [0.1, 0.2, 0.3, 0.4]
    expected = [0.0] * 4
    for draws in itertools.product(range(4), repeat=n):
        expected[max(draws, key=lambda action: rewards[action])] += math.prod(q[action] for action in draws)
    close(closed_form.best_of_n(q, rewards, n=n), expected)


@given(distributions(), reward_lists())
def test_best_of_one_is_the_reference_and_best_of_many_the_best_action(q, rewards):
    close(closed_form.best_of_n(q, rewards, n=1), q)
    many = closed_form.best_of_n(q, rewards, n=100_000)
    close(many[rewards == rewards.max()].sum(), 1.0, rtol=1e-9)
    close(many.sum(), 1.0)


def test_best_of_n_never_takes_what_the_reference_never_does():
    close(closed_form.best_of_n([0.5, 0.5, 0.0], [0.0, 1.0, 2.0], n=2), [0.25, 0.75, 0.0])
    close(closed_form.best_of_n([0.5, 0.5, 0.0], [0.0, 1.0, 1.0], n=2), [0.25, 0.75, 0.0])


# ---------------------------------------------------------------- β for a given KL


@given(distributions(), st.floats(0.2, 5.0))
def test_the_beta_found_for_a_kl_is_the_beta_that_made_it(q, beta):
    rewards = f64(-0.5, 0.7, 1.1, 0.2)
    made = library_kl(Categorical(probs=closed_form.optimal_policy(q, rewards, beta=beta)), Categorical(probs=q))
    assert closed_form.beta_for_kl(q, rewards, kl=made.item()) == pytest.approx(beta, rel=1e-7)


def test_the_kl_of_best_of_n_is_reached_by_a_tilt_that_earns_at_least_as_much():
    q, rewards = f64(*Q), f64(*REWARDS)
    best_of_four = closed_form.best_of_n(q, rewards, n=4)
    moved = library_kl(Categorical(probs=best_of_four), Categorical(probs=q)).item()
    tilt = closed_form.optimal_policy(q, rewards, beta=closed_form.beta_for_kl(q, rewards, kl=moved))
    close(library_kl(Categorical(probs=tilt), Categorical(probs=q)), moved)
    assert tilt @ rewards > best_of_four @ rewards


def test_a_kl_that_no_tilt_reaches_is_refused():
    # All mass on the best action, of probability 0.5, is log 2 nats away; unsupported actions do not count.
    for q, rewards in ((Q, REWARDS), ([0.5, 0.5, 0.0], [1.0, 0.0, 9.0])):
        for bad in (0.0, -1.0, math.log(2) * 1.0001, 5.0):
            with pytest.raises(ValueError, match=r"kl must lie strictly between 0 and 0.693147 nats.*; got "):
                closed_form.beta_for_kl(q, rewards, kl=bad)
        assert closed_form.beta_for_kl(q, rewards, kl=math.log(2) * 0.999) > 0
    with pytest.raises(ValueError, match="kl must lie strictly between"):
        closed_form.beta_for_kl([0.5, 0.5], [1.0, 1.0], kl=0.1)
    with pytest.raises(ValueError, match="kl must be a finite number; got nan"):
        closed_form.beta_for_kl(Q, REWARDS, kl=math.nan)
    for q, rewards, name in (([Q], [REWARDS], "q"), (Q, [REWARDS], "rewards")):
        with pytest.raises(ValueError, match=rf"{name} must be \(K,\), one prompt; got shape \(1, 3\)"):
            closed_form.beta_for_kl(q, rewards, kl=0.1)


# ---------------------------------------------------------------- graph, dtype, refusals


def test_autograd_of_every_function_is_the_derivative():
    logits, reference, rewards = torch.randn(3, 3, dtype=torch.float64, generator=torch.manual_seed(0)).requires_grad_()

    def softmaxed(function):
        return lambda p, q, r: function(p.softmax(-1), q.softmax(-1), r)

    for function in (
        lambda p, q, r: closed_form.objective(p, q, r, beta=0.6),
        lambda p, q, r: closed_form.optimal_policy(q, r, beta=0.6),
        lambda p, q, r: closed_form.log_partition(q, r, beta=0.6),
        lambda p, q, r: closed_form.implicit_reward(p, q, beta=0.6),
        lambda p, q, r: closed_form.best_of_n(q, r, n=3),
    ):
        assert torch.autograd.gradcheck(softmaxed(function), (logits, reference, rewards))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_dtype_is_kept(dtype):
    q, rewards = tensor([0.25, 0.25, 0.5], dtype=dtype), tensor(REWARDS, dtype=dtype)
    p = tensor([0.5, 0.25, 0.25], dtype=dtype)
    for result in (
        closed_form.objective(p, q, rewards, beta=BETA),
        closed_form.log_partition(q, rewards, beta=BETA),
        closed_form.optimal_policy(q, rewards, beta=BETA),
        closed_form.implicit_reward(p, q, beta=BETA),
        closed_form.best_of_n(q, rewards, n=2),
    ):
        assert result.dtype == dtype


def test_lists_and_numpy_float32_become_float64():
    half = np.array([0.5, 0.5], dtype=np.float32)
    assert closed_form.optimal_policy(half, np.float32([0, 1]), beta=1).dtype == torch.float64
    assert closed_form.objective([0, 1], half, [0, 1], beta=1).dtype == torch.float64


ENTRIES = {
    "objective": lambda q, r, beta: closed_form.objective([0.2, 0.3, 0.5], q, r, beta=beta),
    "log_partition": lambda q, r, beta: closed_form.log_partition(q, r, beta=beta),
    "optimal_policy": lambda q, r, beta: closed_form.optimal_policy(q, r, beta=beta),
}


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize(
    "changed, message",
    [
        ({"q": [0.2, 0.3, 0.4]}, "q must sum to 1"),
        ({"q": [0.2, 0.9, -0.1]}, "q must be non-negative"),
        ({"r": [0.0, math.nan, 1.0]}, r"rewards must be finite; got nan at index \(1,\)"),
        ({"r": [0.0, math.inf, 1.0]}, "rewards must be finite; got inf"),
        ({"r": [0.0, 1.0]}, r"q and rewards must have shapes that broadcast; got .*q \(3,\), rewards \(2,\)"),
        ({"r": [1.0]}, "q and rewards must list the same actions; got .*'q': 3, 'rewards': 1"),
        ({"r": 1.0}, "q and rewards must list the same actions; got .*'rewards': 0"),
        ({"beta": 0}, "beta must be greater than 0; got 0"),
        ({"beta": -1}, "beta must be greater than 0; got -1"),
        ({"beta": math.inf}, "beta must be a finite number; got inf"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, changed, message):
    with pytest.raises(ValueError, match=message) as refusal:
        ENTRIES[name](**({"q": Q, "r": REWARDS, "beta": BETA} | changed))
    # A message speaks only of arguments that the function has.
    assert ("p" in str(refusal.value).split()) == (name == "objective" and "r" in changed and "finite" not in message)


def test_a_reward_too_large_for_its_beta_is_refused():
    for function in (closed_form.log_partition, closed_form.optimal_policy):
        with pytest.raises(ValueError, match="rewards / beta must be finite; got inf"):
            function(Q, [0.0, 0.0, 1e300], beta=1e-300)


def test_policies_and_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="p must sum to 1"):
        closed_form.objective([0.5, 0.4, 0.2], Q, REWARDS, beta=BETA)
    with pytest.raises(ValueError, match="p must sum to 1"):
        closed_form.implicit_reward([0.5, 0.4, 0.2], Q, beta=BETA)
    with pytest.raises(ValueError, match="q must sum to 1"):
        closed_form.implicit_reward(Q, [0.5, 0.4, 0.2], beta=BETA)
    with pytest.raises(ValueError, match="p and q must have shapes that broadcast"):
        closed_form.implicit_reward([0.5, 0.5], Q, beta=BETA)
    with pytest.raises(ValueError, match=r"p and q must list the same actions; got .*'p': 1, 'q': 3"):
        closed_form.implicit_reward([1.0], Q, beta=BETA)
    with pytest.raises(ValueError, match="beta must be greater than 0; got 0"):
        closed_form.implicit_reward(Q, Q, beta=0)
    for n in (0, 1.5, None):
        with pytest.raises(ValueError, match="n must be a whole number of at least 1; got "):
            closed_form.best_of_n(Q, REWARDS, n=n)
    with pytest.raises(ValueError, match="rewards must be finite"):
        closed_form.best_of_n(Q, [0.0, 0.0, math.nan], n=2)
