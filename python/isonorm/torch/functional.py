"""torch.nn.functional's normalizations, with the activation and the residual add behind them in the same pass.

Each takes what torch's function of the same name takes, and besides `activation`, one of `"relu"`, `"leaky_relu"` (slope 0.01),
`"leaky_relu:SLOPE"`, `"silu"`, `"gelu"`, `"gelu_tanh"`, `"sigmoid"`, `"tanh"`, `"hardswish"` or None, and `residual`, a tensor that is added
before the activation: `activation(norm(input) + residual)`. Errors for bad input are torch's.
"""

from __future__ import annotations

from typing import Sequence

from torch import Tensor

from . import _activations, _checks
from ._normalize import normalize
from ._problem import Call

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "layer_norm_stream",
    "rms_norm",
    "rms_norm_stream",
]


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """BatchNorm of `N, C` or `N, C, spatial`; parameters and running statistics are `[C]`.

    In training the statistics are those of each channel over batch and positions, and `running = (1 − momentum)·running +
    momentum·batch`, with the variance that has n − 1 in its denominator; otherwise they are the running ones.
    """
    _checks.batch_has_statistics(input, training)
    _activations.function(activation)
    call = Call("batchnorm", 0, eps, activation, training)
    return normalize(call, input, weight, bias, residual, running_mean, running_var, momentum)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """InstanceNorm of `N, C, spatial`; parameters and running statistics are `[C]`, the latter averages over the
    instances."""
    _checks.instance_has_statistics(input, use_input_stats)
    _activations.function(activation)
    call = Call("instancenorm", 0, eps, activation, use_input_stats)
    return normalize(call, input, weight, bias, residual, running_mean, running_var, momentum)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """GroupNorm of `N, C, spatial`: statistics of each sample over C/num_groups channels and all positions; parameters
    are `[C]`."""
    _activations.function(activation)
    return normalize(Call("groupnorm", num_groups, eps, activation, True), input, weight, bias, residual)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """LayerNorm over the last dimensions, `normalized_shape`, which is also the parameters' shape."""
    _activations.function(activation)
    call = Call("layernorm", _checks.last_dimensions(input, normalized_shape, "layer_norm"), eps, activation, True)
    return normalize(call, input, weight, bias, residual)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """RMSNorm over the last dimensions: `x / √(mean(x²) + eps) · weight`. `eps` None: the machine epsilon of the type
    that is computed in."""
    _activations.function(activation)
    call = Call("rmsnorm", _checks.last_dimensions(input, normalized_shape, "rms_norm"), eps, activation, True)
    return normalize(call, input, weight, None, residual)


def layer_norm_stream(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The residual stream of a pre-norm transformer: `stream = input + residual`, and its LayerNorm. Returns both, the
    norm first."""
    _activations.function(activation)
    call = Call(
        "layernorm", _checks.last_dimensions(input, normalized_shape, "layer_norm"), eps, activation, True, True
    )
    return normalize(call, input, weight, bias, residual)


def rms_norm_stream(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The residual stream of a pre-norm transformer: `stream = input + residual`, and its RMSNorm. Returns both, the
    norm first."""
    _activations.function(activation)
    call = Call("rmsnorm", _checks.last_dimensions(input, normalized_shape, "rms_norm"), eps, activation, True, True)
    return normalize(call, input, weight, None, residual)
