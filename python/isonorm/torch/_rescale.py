"""The arithmetic of folding a BatchNorm into the layer in front of it: in float64, rounded once, all or nothing.

    W'[o, …] = W[o, …]·γ[o]/√(σ²[o] + eps)        b'[o] = (b[o] − μ[o])·γ[o]/√(σ²[o] + eps) + β[o]

The factor belongs to the output channel; a transposed convolution has those in dimension 1, of each group. Source:
Jacob et al., *Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference* (2018),
section 3.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ._purity import Refused

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
LAYERS = (*CONVOLUTIONS, *TRANSPOSED, nn.Linear)


def rescaled(layer: nn.Module, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias with which the layer does what it and the norm behind it do. Raises `Refused`."""
    weight, bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
    if weight.is_meta or not weight.is_floating_point():
        raise Refused(f"the weight of the layer in front is {weight.dtype} on {weight.device}")
    outputs = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    scale, shift = _affine(norm, outputs, weight)
    new_weight = _rounded(_by_channel(layer, weight.double(), scale), weight.dtype, "weight")
    old_bias = torch.zeros_like(shift) if bias is None else bias.double()
    new_bias = (old_bias - norm.running_mean.double()) * scale + shift
    return new_weight, _rounded(new_bias, weight.dtype if bias is None else bias.dtype, "bias")


def _affine(norm: nn.Module, channels: int, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`γ/√(σ² + eps)` and `β` of each channel."""
    if not (math.isfinite(norm.eps) and norm.eps >= 0):
        raise Refused(f"its eps is {norm.eps}, expected a finite number that is not negative")
    values = {}
    for name, missing in (("running_mean", 0.0), ("running_var", 1.0), ("weight", 1.0), ("bias", 0.0)):
        tensor = getattr(norm, name)
        if tensor is None and name.startswith("running"):
            raise Refused("it has no running statistics")
        if tensor is None:
            tensor = weight.new_full((channels,), missing)
        if tensor.shape != (channels,):
            raise Refused(f"its {name} has shape {tuple(tensor.shape)}, and the layer in front {channels} outputs")
        if tensor.device != weight.device:
            raise Refused(f"its {name} is on {tensor.device}, and the layer in front on {weight.device}")
        if tensor.dtype not in (weight.dtype, torch.float32):
            raise Refused(f"its {name} is {tensor.dtype}, and the weight of the layer in front {weight.dtype}")
        values[name] = tensor.detach().double()
        if not values[name].isfinite().all():
            raise Refused(f"its {name} has a value that is not finite")
    var = values["running_var"]
    bad = ~((var >= 0) & (var + norm.eps > 0))
    if bad.any():
        channel = int(bad.nonzero()[0])
        value = float(var[channel])
        raise Refused(f"its running_var[{channel}] is {value}, and with eps {norm.eps} that has no reciprocal root")
    return values["weight"] / (var + norm.eps).sqrt(), values["bias"]


def _by_channel(layer: nn.Module, weight: Tensor, scale: Tensor) -> Tensor:
    if not isinstance(layer, TRANSPOSED):
        return weight * scale.view(-1, *[1] * (weight.dim() - 1))
    # [in, out/groups, kernel]: the rows of one group after those of another.
    inputs, outputs, *kernel = weight.shape
    by_group = scale.view(layer.groups, 1, outputs).expand(layer.groups, inputs // layer.groups, outputs)
    return weight * by_group.reshape(inputs, outputs, *[1] * len(kernel))


def _rounded(value: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    rounded = value.to(dtype)
    if not rounded.isfinite().all():
        raise Refused(f"the {name} of the layer in front would have a value that is not finite in {dtype}")
    return rounded
