"""What torch's functions refuse before they look at a kernel, with torch's types of errors."""

from __future__ import annotations

import math
from typing import Sequence

from torch import Tensor


def last_dimensions(input: Tensor, normalized_shape: Sequence[int], name: str) -> int:
    """How many dimensions `normalized_shape` has; they have to be the input's last ones."""
    count = len(normalized_shape)
    if isinstance(input, Tensor) and (
        count == 0 or tuple(input.shape[max(input.dim() - count, 0) :]) != tuple(normalized_shape)
    ):
        raise RuntimeError(
            f"{name}: expected an input whose last dimensions are normalized_shape={list(normalized_shape)}, "
            f"got an input of size {list(input.shape)}"
        )
    return count


def batch_has_statistics(input: Tensor, training: bool) -> None:
    """A channel has more than one value, if its statistics are those of the input."""
    if training and isinstance(input, Tensor) and input.dim() >= 2:
        _more_than_one_value(input, input.numel() // max(input.shape[1], 1), "channel")


def instance_has_statistics(input: Tensor, use_input_stats: bool) -> None:
    """A channel of a sample has more than one value, if its statistics are those of the input."""
    if use_input_stats and isinstance(input, Tensor) and input.dim() > 2:
        _more_than_one_value(input, math.prod(input.shape[2:]), "channel of a sample")


def _more_than_one_value(input: Tensor, values: int, unit: str) -> None:
    if values == 1 and input.numel() > 0:
        raise ValueError(f"Expected more than 1 value per {unit} when training, got input size {tuple(input.shape)}")
