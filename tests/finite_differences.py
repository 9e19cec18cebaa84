"""Gradients without autograd: the slope between two values of the function itself."""

from collections.abc import Callable

import torch
from torch import Tensor

# For functions of size one in float64 the step leaves an error of about step² from the curvature and 1e-16/step from
# rounding: both near 1e-11 here.
STEP = 1e-5
# What the comparisons allow; a wrong sign or a lost term is of size one.
ERROR = 1e-9


def central_gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Central differences of a scalar function, in the shape of x."""
    gradient = torch.zeros_like(x)
    for index in range(x.numel()):
        shift = torch.zeros_like(x).flatten()
        shift[index] = STEP
        shift = shift.reshape(x.shape)
        with torch.no_grad():
            gradient.view(-1)[index] = (function(x + shift) - function(x - shift)) / (2 * STEP)
    return gradient


def assert_gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Autograd's gradient of a scalar function at x, after comparing it with central differences."""
    leaf = x.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf), leaf)
    worst = (gradient - central_gradient(function, x.detach())).abs().max().item()
    assert worst < ERROR, f"autograd and central differences are {worst:.3g} apart"
    return gradient
