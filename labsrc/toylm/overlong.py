"""A task whose scorer also takes off for answers that run into the length limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from labsrc import length_penalty
from labsrc.toylm.tasks import LengthBonus


@dataclass(frozen=True)
class SoftOverlong(LengthBonus):
    """`LengthBonus` less the soft overlong penalty over the last `cache` tokens before max_new_tokens.

    The intended reward stays what it was. Raises ValueError as `length_penalty.soft_overlong_penalty`.
    """

    name: ClassVar[str] = "soft_overlong"
    cache: int = 4

    def __post_init__(self) -> None:
        """Refuse a cache longer than the completions."""
        super().__post_init__()
        self._penalty(self.prompt_tokens[:, 0])

    def rewards(self, prompts: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """The length-loving reward plus the penalty: (B,)."""
        return super().rewards(prompts, completions, mask) + self._penalty(mask.sum(-1))

    def _penalty(self, lengths: Tensor) -> Tensor:
        return length_penalty.soft_overlong_penalty(lengths.double(), max_length=self.max_new_tokens, cache=self.cache)
