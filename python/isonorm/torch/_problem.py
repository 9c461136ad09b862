"""What is asked for, apart from the tensors; and how a tensor lies in memory."""

from __future__ import annotations

from typing import NamedTuple

import torch

#: PyTorch's types under the names of problem strings.
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}

#: Ops whose statistics can be given (running ones), so that training and evaluation differ.
HAVE_RUNNING = ("batchnorm", "instancenorm")
#: Ops that have a channel dimension, and so layouts.
HAVE_CHANNELS = ("batchnorm", "groupnorm", "instancenorm")

FIRST, LAST = 0, 1


class Call(NamedTuple):
    """A normalization, as the functions and modules ask for it."""

    #: The op's name in problem strings.
    op: str
    #: The groups of a GroupNorm; the number of dimensions that LayerNorm and RMSNorm go over.
    size: int
    eps: float | None
    activation: str | None
    #: Whether the statistics are those of the input.
    training: bool
    #: Whether the residual is added before the normalization, and the sum is a second result.
    stream: bool = False


def layout(x: torch.Tensor, has_channels: bool) -> int | None:
    """`FIRST` for `N, C, spatial` in the order of the shape, `LAST` for `N, spatial, C`; None for any other order."""
    if x.is_contiguous():
        return FIRST
    if has_channels and x.dim() > 2 and x.movedim(1, -1).is_contiguous():
        return LAST
    return None


def in_layout(x: torch.Tensor, wanted: int) -> torch.Tensor:
    """The same values in that layout; a copy where it has another."""
    if wanted == FIRST:
        return x.contiguous()
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def dense(x: torch.Tensor, has_channels: bool) -> tuple[torch.Tensor, int]:
    """`x` in a layout that kernels know, which is its own where that is one."""
    found = layout(x, has_channels)
    if found is not None:
        return x, found
    found = FIRST
    if has_channels and x.dim() > 2 and _is_channels_last(x):
        found = LAST
    return in_layout(x, found), found


def _is_channels_last(x: torch.Tensor) -> bool:
    """Whether the channels are what lies closest together, as torch sees it for four and five dimensions."""
    strides = x.stride()
    return 0 < strides[1] < strides[-1] and all(a >= b for a, b in zip(strides[2:], strides[3:]))


def is_rectified(call: Call, has_residual: bool) -> bool:
    """Whether there is a ReLU behind a residual. Its result, which the layer behind keeps anyway, says all about its derivative; so the
    backward pass is the ReLU's first, and then that of the norm without either."""
    return has_residual and not call.stream and call.activation == "relu"


def in_backward(call: Call, has_residual: bool) -> tuple[Call, bool]:
    """The call whose backward pass is run, and whether it has a residual: without a ReLU that has a backward pass of its own."""
    return (call._replace(activation=None), False) if is_rectified(call, has_residual) else (call, has_residual)


def to_keep(call: Call, residual):
    """The residual, where the backward pass reads it."""
    return None if call.stream or call.activation is None else residual


def problem(call: Call, shape, dtype, where: int, params, affine: str, has_residual: bool, way: str) -> str:
    """The problem string of a pass: `way` is forward, backward or moments."""
    if way == "backward":
        call, has_residual = in_backward(call, has_residual)
    words = [call.op, "x=" + "x".join(map(str, shape)), f"dtype={DTYPES[dtype]}", f"param={DTYPES[params]}"]
    if call.op in ("layernorm", "rmsnorm"):
        words.append(f"dims={call.size}")
    if call.op == "groupnorm":
        words.append(f"groups={call.size}")
    if call.op in HAVE_CHANNELS and where == LAST:
        words.append("layout=channels_last")
    if call.eps is not None:
        words.append(f"eps={float(call.eps)!r}")
    words += [f"affine={affine}", f"act={call.activation or 'none'}"]
    if has_residual:
        words.append("residual=stream" if call.stream else "residual=add")
    uses_running = call.op in HAVE_RUNNING and not call.training
    passes = {
        "forward": ("train", "eval"),
        "backward": ("backward", "backward_eval"),
        "moments": ("moments", "moments"),
    }
    words.append(f"pass={passes[way][uses_running]}")
    return " ".join(words)


def groups(call: Call, shape: torch.Size) -> int:
    """How many groups have statistics of their own."""
    if call.op == "batchnorm":
        return shape[1]
    if call.op == "groupnorm":
        return shape[0] * call.size
    if call.op == "instancenorm":
        return shape[0] * shape[1]
    count = 1
    for size in shape[: len(shape) - call.size]:
        count *= size
    return count


def statistics_types(x: torch.Tensor) -> tuple[torch.dtype, torch.dtype]:
    """The types of a mean, as precise as the device's backward pass can use it, and of a variance or an rstd."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return (torch.float64 if x.device.type == "cpu" else wide), wide


class Kept(NamedTuple):
    """Where in the bytes that a forward pass keeps for its backward pass rstd begins, behind the mean, and how many there
    are in all."""

    rstd: int
    bytes: int
    #: Whether there are bytes between the parts.
    gaps: bool


#: Parts begin on lines of any cache.
_LINE = 128


def _up(size: int) -> int:
    return (size + _LINE - 1) // _LINE * _LINE


def kept(call: Call, x: torch.Tensor) -> Kept:
    """Of a forward pass with the statistics of `x`: mean and rstd, in this order, without what there is not."""
    mean_dtype, rstd_dtype = statistics_types(x)
    count = groups(call, x.shape)
    means = 0 if call.op == "rmsnorm" else count * mean_dtype.itemsize
    rstd = _up(means)
    return Kept(rstd, rstd + count * rstd_dtype.itemsize, rstd != means)
