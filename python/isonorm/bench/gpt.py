"""Blocks of a GPT: pre-norm, attention by `scaled_dot_product_attention`, an MLP with GELU, and a residual stream."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Causal self-attention. `x` is batch, sequence, width."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, length, width))


class Mlp(nn.Module):
    """Two linear maps around a GELU."""

    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Blocks(nn.Module):
    """Blocks and the norm behind the last. `norm` makes a norm of a width, such as `torch.nn.LayerNorm`.

    With `fused` the norms are isonorm's: each adds what comes to the residual stream and normalizes the sum in one
    kernel.
    """

    def __init__(self, norm, width: int, heads: int, layers: int, fused: bool):
        super().__init__()
        self.fused = fused
        # Attention and MLP alternate; each has its norm in front.
        self.norms = nn.ModuleList(norm(width) for _ in range(2 * layers))
        self.parts = nn.ModuleList(Attention(width, heads) if i % 2 == 0 else Mlp(width) for i in range(2 * layers))
        self.last = norm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._fused(x) if self.fused else self._plain(x)

    def _plain(self, x: torch.Tensor) -> torch.Tensor:
        for norm, part in zip(self.norms, self.parts):
            x = x + part(norm(x))
        return self.last(x)

    def _fused(self, stream: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](stream)
        for part, norm in zip(self.parts, [*self.norms[1:], self.last]):
            y, stream = norm(part(y), stream=stream)
        return y
