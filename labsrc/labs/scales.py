"""Scales with round ends and ticks. The page's twin is book/_static/labs/scales.js."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

from labsrc.labs.formats import significant
from labsrc.labs.markup import clip


@dataclass(frozen=True)
class Scale:
    """Maps a value to 0…1 along an axis from `low` to `high`."""

    low: float
    high: float
    ticks: Sequence[float]
    format: str
    log: bool = False

    def __call__(self, value: float) -> float:
        """The share of the way from low to high, beyond 0…1 for values outside."""
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        if value <= 0:
            return -10.0
        return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))


def share(value: float, low: float, high: float) -> float:
    """Where a bar's end lies between the ends of its scale, 0…1; what has no value lies at zero."""
    if value != value:  # NaN
        value = 0.0
    if value in (float("inf"), -float("inf")):
        return 1.0 if value > 0 else 0.0
    return clip((value - low) / (high - low))


def power_of_ten(exponent: int) -> float:
    """The float nearest to 10^exponent: read from text, since pow differs between machines."""
    return float(f"1e{exponent}")


def round_step(span: float) -> float:
    """The round distance between ticks, 1, 2 or 5 times a power of ten, that cuts `span` into three to six."""
    digits, exponent = significant(span / 4, 3)
    mantissa = int(digits)
    factor = 1 if mantissa < 150 else 2 if mantissa < 350 else 5 if mantissa < 750 else 10
    return factor * power_of_ten(exponent)


def round_domain(values: Sequence[float], *, around_zero: bool = True) -> tuple[float, float]:
    """Round ends that hold all finite `values`, and zero too where asked."""
    known = [value for value in values if isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    if around_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-9 * max(1.0, abs(low), abs(high)):
        low, high = (low, low + 1.0) if around_zero else (low - 0.5, low + 0.5)
    step = round_step(high - low)
    return step * floor(low / step + 1e-9), -step * floor(-high / step + 1e-9)


def round_ticks(low: float, high: float) -> list[float]:
    """The multiples of a round step from `low` to `high`."""
    step = round_step(high - low)
    first, last = -floor(-low / step + 1e-9), floor(high / step + 1e-9)
    return [step * index for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """The powers of ten from `low` to `high`."""
    powers = [power_of_ten(exponent) for exponent in range(-12, 13)]
    return [power for power in powers if low * (1 - 1e-9) <= power <= high * (1 + 1e-9)]


def tick_format(low: float, high: float, *, log: bool) -> str:
    """As many decimals as the distance between the ticks has."""
    if log:
        return ".1g"
    _, exponent = significant(round_step(high - low), 1)
    return f".{min(max(-exponent, 0), 9)}f"
