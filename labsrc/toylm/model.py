"""A small causal decoder: embeddings, pre-norm attention blocks, one linear head. It knows no objective.

The head gives logits over the vocabulary, or one number a position (a critic, a reward model). Weights are drawn from
an explicit generator; float64 by default, so that enumeration and sampling can be compared to the last digits.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from labsrc import checks

DTYPES = {"float64": torch.float64, "float32": torch.float32}

# The keys and values that one block has computed for the tokens so far, each (B, heads, L, width/heads).
BlockCache = tuple[Tensor, Tensor]


def normalized(hidden: Tensor) -> Tensor:
    """Mean 0, variance 1 at every position; without weights of its own, since a linear map always follows."""
    return functional.layer_norm(hidden, hidden.shape[-1:])


def _matrix(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """Room for weights that `Decoder` draws."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype))


class Block(nn.Module):
    """Pre-norm attention, then a pre-norm two-layer perceptron, each added to its input."""

    # Plain matrices, and not a module for each: making, copying and calling those takes as long as what they compute.
    def __init__(self, width: int, heads: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = _matrix(3 * width, width, dtype=dtype)
        self.attention_out = _matrix(width, width, dtype=dtype)
        self.up = _matrix(4 * width, width, dtype=dtype)
        self.up_bias = _matrix(4 * width, dtype=dtype)
        self.down = _matrix(width, 4 * width, dtype=dtype)
        self.down_bias = _matrix(width, dtype=dtype)

    def forward(self, hidden: Tensor, bias: Tensor, cache: BlockCache | None) -> tuple[Tensor, BlockCache]:
        """(B·L, width) → (B·L, width), and this block's cache with the new positions added.

        The positions of all sequences are one list: only attention asks which belong together. bias: (L, positions so
        far), added to the attention scores: −∞ where a key stands after the query and must not be seen, else 0.
        """
        projected = functional.linear(normalized(hidden), self.query_key_value)
        mixed, cache = self._attend(projected, bias, cache)
        hidden = hidden + functional.linear(mixed, self.attention_out)
        raised = functional.relu(functional.linear(normalized(hidden), self.up, self.up_bias))
        return hidden + functional.linear(raised, self.down, self.down_bias), cache

    def _attend(self, projected: Tensor, bias: Tensor, cache: BlockCache | None) -> tuple[Tensor, BlockCache]:
        length, width = bias.shape[0], projected.shape[-1] // 3
        split = projected.view(-1, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind()  # each (B, heads, L, width/heads)
        if cache is not None:
            key, value = torch.cat([cache[0], key], -2), torch.cat([cache[1], value], -2)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return mixed.transpose(1, 2).reshape(-1, width), (key, value)


class Decoder(nn.Module):
    """Token and position embeddings, `layers` blocks, a final norm and a linear head.

    vocabulary: V ≥ 2; context: longest input in tokens; width: divisible by heads; outputs: size of the head, V unless
    given (1 for a critic or a reward model). Every weight comes from `generator`. Raises ValueError for anything else.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        *,
        width: int = 16,
        heads: int = 2,
        layers: int = 1,
        outputs: int | None = None,
        dtype: str = "float64",
        generator: torch.Generator,
    ) -> None:
        checks.integer_at_least("vocabulary", vocabulary, 2)
        checks.integer_at_least("context", context, 1)
        check_shape(width, heads, layers, dtype)
        super().__init__()
        kind = DTYPES[dtype]
        self.tokens = nn.Embedding(vocabulary, width, dtype=kind)
        self.positions = nn.Embedding(context, width, dtype=kind)
        self.blocks = nn.ModuleList(Block(width, heads, kind) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary if outputs is None else outputs, bias=False, dtype=kind)
        bias = torch.full((context, context), -torch.inf, dtype=kind).triu(1)
        self.register_buffer("bias", bias, persistent=False)
        self._draw_weights(generator)

    @torch.no_grad()
    def _draw_weights(self, generator: torch.Generator) -> None:
        # Matrices keep the variance of what passes through them; the head starts small, so the first policy is
        # close to uniform without being it.
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
            elif weight.dim() == 2:
                scale = 0.25 if name == "head.weight" else 1.0
                weight.normal_(0.0, scale / math.sqrt(weight.shape[-1]), generator=generator)

    def forward(self, tokens: Tensor, cache: Sequence[BlockCache] | None = None) -> tuple[Tensor, list[BlockCache]]:
        """Outputs at every position given, (B, L) → (B, L, outputs), and the cache for the next position.

        tokens: (B, L) ids; with a cache, those that follow the positions it holds. Padding may follow the tokens
        that count, never stand before them: attention looks only backwards.
        """
        start = 0 if cache is None else cache[0][0].shape[-2]
        end = start + tokens.shape[-1]
        hidden = (self.tokens(tokens) + self.positions.weight[start:end]).flatten(0, 1)
        bias = self.bias[start:end, :end]
        new_cache = []
        for index, block in enumerate(self.blocks):
            hidden, block_cache = block(hidden, bias, None if cache is None else cache[index])
            new_cache.append(block_cache)
        return self.head(normalized(hidden)).view(*tokens.shape, -1), new_cache


def check_shape(width: int, heads: int, layers: int, dtype: str) -> None:
    """Raise ValueError for a width that its heads cannot share, no layer, or an unknown dtype."""
    checks.integer_at_least("width", width, 1)
    checks.integer_at_least("heads", heads, 1)
    checks.integer_at_least("layers", layers, 1)
    checks.one_of("dtype", dtype, tuple(DTYPES))
    if width % heads:
        raise ValueError(f"width must be a multiple of heads = {heads}; got {width!r}")


def frozen_copy(model: Decoder) -> Decoder:
    """A copy that carries no gradient: the reference, which stays where it is while the policy moves."""
    return copy.deepcopy(model).requires_grad_(False)


def parameter_count(model: nn.Module) -> int:
    """How many numbers an optimiser would train."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
