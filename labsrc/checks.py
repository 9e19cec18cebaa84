"""What every public function asks of its arguments, in one voice.

Each check raises `ValueError` with the argument's name, what it got and what it wants, and runs before any
mathematics. Nothing here clamps, repairs or detaches a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Probabilities that were float32 in NumPy, or are written with six decimals, still sum to one within these;
# a row with a forgotten action does not.
_SUM_TOLERANCE = {torch.float64: 2e-6, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def float_tensor(name: str, value: Any) -> Tensor:
    """`value` as a floating-point tensor: float tensors stay as they are, all else becomes float64.

    Raises ValueError for text, missing entries (None), ragged lists, complex numbers and empty input.
    """
    if not isinstance(value, Tensor):
        value = _tensor_from_array_like(name, value)
    if value.is_complex():
        raise ValueError(f"{name} must be real numbers; got dtype {value.dtype}")
    if value.numel() == 0:
        raise ValueError(f"{name} must not be empty; got shape {tuple(value.shape)}")
    return value if value.is_floating_point() else value.to(torch.float64)


def _tensor_from_array_like(name: str, value: Any) -> Tensor:
    # Tensors in lists are stacked, at any depth: NumPy would cut them off from autograd without a word.
    if _holds_tensors(value):
        items = [float_tensor(name, item) for item in value]
        shapes = {tuple(item.shape) for item in items}
        if len(shapes) > 1:
            raise ValueError(f"{name} must be rectangular; got items of shapes {sorted(shapes)}")
        return torch.stack(items)
    wanted = f"{name} must be real numbers in a rectangular array; got {value!r}"
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(wanted) from error
    # Asked for float64 at once, NumPy would also read the text "3", make NaN of None and drop an imaginary part.
    if array.dtype.kind not in "biuf":
        raise ValueError(wanted)
    return torch.from_numpy(np.array(array, dtype=np.float64))


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(item, Tensor) or _holds_tensors(item) for item in value)


def finite(name: str, value: Any, *, where: Tensor | None = None) -> Tensor:
    """`value` as a float tensor whose entries (those with `where` True, if given) are all finite."""
    tensor = float_tensor(name, value)
    # No NaN and no infinity ever leaves a sum, so a finite one settles it; a sum that overflows settles nothing.
    if math.isfinite(tensor.detach().sum().item()):
        return tensor
    bad = ~torch.isfinite(tensor.detach())
    if where is not None:
        bad = bad & where
    if bad.any():
        index = tuple(bad.nonzero()[0].tolist())
        raise ValueError(f"{name} must be finite; got {tensor[index].item()} at index {index}")
    return tensor


def exponent(name: str, value: Any, *, where: Tensor | None = None) -> Tensor:
    """`value` as a finite float tensor whose exponential does not overflow its dtype (an error, never a clamp)."""
    tensor = float_tensor(name, value)
    smallest, largest = (bound.item() for bound in tensor.detach().aminmax())
    # A NaN would be both of them, and fail both comparisons.
    if -math.inf < smallest and largest < math.log(torch.finfo(tensor.dtype).max) - 1:
        return tensor
    tensor = finite(name, tensor, where=where)
    # Not a comparison with log(max): rounded to float32 that bound lies above the last argument that fits.
    too_large = tensor.detach().exp().isinf()
    if where is not None:
        too_large = too_large & where
    if too_large.any():
        index = tuple(too_large.nonzero()[0].tolist())
        raise ValueError(f"exp({name}) must fit {tensor.dtype}; got {name} = {tensor[index].item():g} at index {index}")
    return tensor


def distribution(name: str, value: Any) -> Tensor:
    """`value` as probabilities on the last axis: finite, non-negative, each row summing to one."""
    tensor = finite(name, value)
    if tensor.dim() == 0:
        raise ValueError(f"{name} must list a probability for each action; got the single number {tensor.item()}")
    smallest = tensor.detach().min().item()
    if smallest < 0:
        raise ValueError(f"{name} must be non-negative; got {smallest:g}")
    totals = tensor.detach().sum(-1).flatten()
    worst = totals[(totals - 1).abs().argmax()].item()
    if abs(worst - 1) > _SUM_TOLERANCE[tensor.dtype]:
        raise ValueError(f"{name} must sum to 1 on the last axis; got a row that sums to {worst:.10g}")
    return tensor


def same_shape(**tensors: Tensor) -> None:
    """All the named tensors have one shape."""
    if len({tuple(tensor.shape) for tensor in tensors.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"{' and '.join(tensors)} must have the same shape; got {shapes}")


def broadcastable(**tensors: Tensor) -> None:
    """All the named tensors can be broadcast against each other."""
    if len({tensor.shape for tensor in tensors.values()}) == 1:
        return  # torch.broadcast_shapes takes its time
    try:
        torch.broadcast_shapes(*(tensor.shape for tensor in tensors.values()))
    except RuntimeError as error:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"{' and '.join(tensors)} must have shapes that broadcast; got {shapes}") from error


def number(name: str, value: Any) -> float:
    """`value` as one finite real number (a bool is not one)."""
    try:
        if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # an int beyond the largest float
        pass
    raise ValueError(f"{name} must be a finite number; got {value!r}")


def positive(name: str, value: Any) -> float:
    """`value` as a finite number greater than zero."""
    if number(name, value) <= 0:
        raise ValueError(f"{name} must be greater than 0; got {value!r}")
    return float(value)


def non_negative(name: str, value: Any) -> float:
    """`value` as a finite number of at least zero."""
    if number(name, value) < 0:
        raise ValueError(f"{name} must be at least 0; got {value!r}")
    return float(value)


def open_unit_interval(name: str, value: Any) -> float:
    """`value` as a number strictly between 0 and 1."""
    if not 0 < number(name, value) < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1; got {value!r}")
    return float(value)


def integer_at_least(name: str, value: Any, smallest: int) -> int:
    """`value` as an int of at least `smallest`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < smallest:
        raise ValueError(f"{name} must be a whole number of at least {smallest}; got {value!r}")
    return int(value)


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """`value`, which must be one of `allowed`."""
    # True equals 1, and an array compares entry by entry: neither is the value that was asked for.
    if isinstance(value, bool | np.bool_ | np.ndarray | Tensor) or value not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}; got {value!r}")
    return value
