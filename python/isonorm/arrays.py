"""The functions for arrays that are in the memory of the host: NumPy's, and whatever has `__dlpack__`.

Shapes are `N, C, spatial`. An array whose memory has the order `N, spatial, C` (say `numpy.moveaxis(a, -1, 1)` of one that is stored that
way) is taken as it is, and so is its result; any other order is copied once.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Sequence

from . import _core

_NAMES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}


class _Operand:
    """An array as the engine sees it: an address, a shape, strides in elements, a type; and what has to be kept alive."""

    __slots__ = ("address", "dtype", "owner", "read_only", "shape", "source", "strides")

    def __init__(self, op: str, name: str, source: Any):
        self.source = source
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(source, numpy.ndarray):
            dtype = _NAMES.get(source.dtype.name)
            if dtype is None or not source.dtype.isnative:
                raise TypeError(f"{op}: {name} is {source.dtype}, expected float16, bfloat16, float32 or float64")
            size = source.dtype.itemsize
            if any(stride % size for stride in source.strides) or not source.flags.aligned:
                source = source.copy(order="C")
            self.owner = source
            self.address = source.__array_interface__["data"][0]
            self.shape, self.dtype = source.shape, dtype
            self.strides = tuple(stride // size for stride in source.strides)
            self.read_only = not source.flags.writeable
        elif hasattr(source, "__dlpack__"):
            try:
                capsule = source.__dlpack__(max_version=(1, 0))
            except TypeError:
                capsule = source.__dlpack__()
            try:
                self.owner = imported = _core.Imported(capsule)
            except (TypeError, BufferError) as error:
                raise type(error)(f"{op}: {name}: {error}") from None
            self.address, self.dtype, self.read_only = imported.address, imported.dtype, imported.read_only
            self.shape, self.strides = tuple(imported.shape), tuple(imported.strides)
        else:
            raise TypeError(
                f"{op}: {name} is a {type(source).__name__}, expected an array: NumPy's, or one with __dlpack__"
            )

    def has_strides(self, wanted: Sequence[int]) -> bool:
        """Whether elements lie so; where there is one, a stride has no meaning."""
        return all(size == 1 or a == b for size, a, b in zip(self.shape, self.strides, wanted)) or 0 in self.shape

    def copied(self, op: str, name: str, strides: Sequence[int]) -> _Operand:
        """The same values in that order."""
        numpy = _numpy(op, name)
        base = _as_numpy(numpy, self) if isinstance(self.owner, _core.Imported) else self.owner
        order = sorted(range(len(self.shape)), key=lambda axis: -strides[axis])
        moved = numpy.ascontiguousarray(base.transpose(order)).transpose(
            [order.index(axis) for axis in range(len(order))]
        )
        copy = _Operand.__new__(_Operand)
        # The source stays what was given: its library gets the result.
        copy.source, copy.dtype, copy.shape, copy.read_only = self.source, self.dtype, self.shape, False
        copy.owner, copy.address = moved, moved.__array_interface__["data"][0]
        copy.strides = tuple(stride // _BYTES[self.dtype] for stride in moved.strides)
        return copy


def _numpy(op: str, name: str):
    """NumPy, which copies arrays that are in no order that the engine knows."""
    try:
        import numpy
    except ImportError:
        raise ValueError(f"{op}: {name} is not contiguous, and NumPy is not installed to copy it") from None
    return numpy


def _as_numpy(numpy, operand: _Operand):
    """A view of an imported array; 16-bit floats as integers, which are only moved."""
    kind = {"f16": "u2", "bf16": "u2", "f32": "f4", "f64": "f8"}[operand.dtype]
    size = _BYTES[operand.dtype]
    interface = {
        "version": 3,
        "shape": operand.shape,
        "typestr": f"<{kind}",
        "data": (operand.address, True),
        "strides": tuple(size * stride for stride in operand.strides),
    }
    view = type("View", (), {"__array_interface__": interface, "owner": operand.owner})()
    return numpy.asarray(view)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    moved = _row_major((shape[0], *shape[2:], shape[1]))
    return (moved[0], moved[-1], *moved[1:-1])


@functools.lru_cache(maxsize=1024)
def _plan(problem: str) -> _core.Plan:
    return _core.Plan(problem, -1, 0)


def _empty_like(x: _Operand, strides: Sequence[int]):
    """A result like `x`, its address, and how to hand it over."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x.source, numpy.ndarray):
        order = sorted(range(len(x.shape)), key=lambda axis: -strides[axis])
        memory = numpy.empty([x.shape[axis] for axis in order], x.source.dtype)
        y = memory.transpose([order.index(axis) for axis in range(len(order))])
        return y, y.__array_interface__["data"][0]
    array = _core.Array(list(x.shape), list(strides), x.dtype)
    return array, array.address


def _hand_over(x: _Operand, y: Any) -> Any:
    """The result as an array of the library that `x` is from, or, if it has no `from_dlpack`, as one that has
    `__dlpack__`."""
    if not isinstance(y, _core.Array):
        return y
    namespace = getattr(x.source, "__array_namespace__", None)
    library = namespace() if namespace is not None else sys.modules.get(type(x.source).__module__.partition(".")[0])
    from_dlpack = getattr(library, "from_dlpack", None)
    return y if from_dlpack is None else from_dlpack(y)


def _run(
    op,
    x,
    parameters,
    words,
    *,
    has_channels,
    layout=None,
    running=(None, None),
    training=True,
    momentum=0.0,
    residual=None,
):
    """Checks, plans and runs. `parameters` are weight and bias, with the shape that they have to have."""
    x = _Operand(op, "x", x)
    weight, bias, wanted = parameters(x.shape)
    first = _row_major(x.shape)
    last = _channels_last(x.shape) if has_channels and len(x.shape) > 2 else first
    if layout not in (None, "channels_first", "channels_last"):
        raise ValueError(f"{op}: layout is {layout!r}, expected None, 'channels_first' or 'channels_last'")
    is_last = layout == "channels_last" or layout is None and not x.has_strides(first) and x.has_strides(last)
    strides = last if is_last else first
    if not x.has_strides(strides):
        x = x.copied(op, "x", strides)
    operands = {}
    for name, array, shape in (
        ("weight", weight, wanted),
        ("bias", bias, wanted),
        ("residual", residual, x.shape),
        ("running_mean", running[0], wanted),
        ("running_var", running[1], wanted),
    ):
        if array is None:
            continue
        operand = _Operand(op, name, array)
        if tuple(operand.shape) != tuple(shape):
            raise ValueError(
                f"{op}: {name} has shape {tuple(operand.shape)}, expected {tuple(shape)} (x is {tuple(x.shape)})"
            )
        order = strides if name == "residual" else _row_major(shape)
        if not operand.has_strides(order):
            if name.startswith("running") and training:
                raise ValueError(f"{op}: {name} is not contiguous, and would be written")
            operand = operand.copied(op, name, order)
        if name.startswith("running") and training and operand.read_only:
            raise ValueError(f"{op}: {name} is read-only, and training updates it")
        operands[name] = operand
    if ("running_mean" in operands) != ("running_var" in operands):
        raise ValueError(f"{op}: one of running_mean and running_var was given; expected both or neither")
    if not training and "running_mean" not in operands:
        raise ValueError(f"{op}: running_mean and running_var are missing; without training they are what normalizes")
    params = _parameter_type(op, x, operands)
    if bias is not None and weight is None:
        raise ValueError(f"{op}: bias was given without a weight")
    affine = "none" if weight is None else "weight" if bias is None else "full"
    text = [op, "x=" + "x".join(map(str, x.shape)), f"dtype={x.dtype}", f"param={params}", f"affine={affine}", *words]
    text += ["layout=channels_last"] if is_last and len(x.shape) > 2 else []
    text += ["residual=add"] if residual is not None else []
    text += ["pass=train" if training else "pass=eval"]
    y, address = _empty_like(x, strides)
    if 0 not in x.shape:
        addresses = {name: operand.address for name, operand in operands.items()}
        get = addresses.get
        _plan(" ".join(text)).forward(
            0, x.address, address, get("weight", 0), get("bias", 0), get("residual", 0), 0,
            get("running_mean", 0), get("running_var", 0), float(momentum), 0, 0,
        )  # fmt: skip
    return _hand_over(x, y)


def _parameter_type(op: str, x: _Operand, operands: dict[str, _Operand]) -> str:
    residual = operands.get("residual")
    if residual is not None and residual.dtype != x.dtype:
        raise TypeError(f"{op}: residual is {residual.dtype}, expected x's type {x.dtype}")
    found = {name: o.dtype for name, o in operands.items() if name != "residual"}
    for name, dtype in found.items():
        if dtype not in ("f32", x.dtype):
            raise TypeError(f"{op}: {name} is {dtype}, expected f32 or x's type {x.dtype}")
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {dtype}" for name, dtype in found.items())
        raise TypeError(f"{op}: parameters and statistics are of several types ({listed}), expected one")
    return next(iter(found.values()), "f64" if x.dtype == "f64" else "f32")


def _of_channels(op: str, weight, bias):
    """Parameters of one element a channel."""

    def parameters(shape):
        if len(shape) < 2:
            raise ValueError(f"{op}: expected x of at least 2 dimensions (N, C, spatial), got {tuple(shape)}")
        return weight, bias, (shape[1],)

    return parameters


def _of_last(op: str, normalized_shape, weight, bias):
    """Parameters of the last dimensions."""
    sizes = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)

    def parameters(shape):
        if not sizes or len(sizes) > len(shape) or tuple(shape[len(shape) - len(sizes) :]) != sizes:
            raise ValueError(f"{op}: expected x whose last dimensions are normalized_shape {sizes}, got {tuple(shape)}")
        return weight, bias, sizes

    return parameters, len(sizes)


def _words(eps: float | None, activation: str | None, *more: str) -> list[str]:
    words = [] if eps is None else [f"eps={float(eps)!r}"]
    return [*words, f"act={activation or 'none'}", *more]


def batch_norm(
    x,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    activation: str | None = None,
    residual=None,
    layout: str | None = None,
):
    """BatchNorm of `N, C` or `N, C, spatial`: `activation((x − mean) / √(var + eps) · weight + bias + residual)`.

    Not training, mean and variance are the running ones, `[C]`. Training, they are those of each channel, and the running ones, if
    given, are updated in place: `running = (1 − momentum)·running + momentum·batch`, with the variance that has n − 1 below.
    `weight` and `bias` are `[C]`, `residual` like `x`. Parameters and statistics are `float32` or of `x`'s type. Returns a new array.

    Raises `ValueError` for shapes and values that do not fit, `TypeError` for types; both name what was expected and what came.
    """
    op = "batchnorm"
    return _run(
        op, x, _of_channels(op, weight, bias), _words(eps, activation), has_channels=True, layout=layout,
        running=(running_mean, running_var), training=training, momentum=momentum, residual=residual,
    )  # fmt: skip


def instance_norm(
    x,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    *,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    activation: str | None = None,
    residual=None,
    layout: str | None = None,
):
    """InstanceNorm of `N, C, spatial`: as `batch_norm`, with statistics of each channel of each sample; running ones
    are averages over samples."""
    op = "instancenorm"
    return _run(
        op, x, _of_channels(op, weight, bias), _words(eps, activation), has_channels=True, layout=layout,
        running=(running_mean, running_var), training=use_input_stats, momentum=momentum, residual=residual,
    )  # fmt: skip


def group_norm(
    x,
    num_groups: int,
    weight=None,
    bias=None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual=None,
    layout: str | None = None,
):
    """GroupNorm of `N, C, spatial`: statistics of each sample over C/num_groups channels and all positions; parameters
    are `[C]`."""
    op = "groupnorm"
    words = _words(eps, activation, f"groups={num_groups}")
    return _run(op, x, _of_channels(op, weight, bias), words, has_channels=True, layout=layout, residual=residual)


def layer_norm(
    x, normalized_shape, weight=None, bias=None, eps: float = 1e-5, *, activation: str | None = None, residual=None
):
    """LayerNorm over the last dimensions, `normalized_shape`, which is also the shape of weight and bias."""
    parameters, dims = _of_last("layernorm", normalized_shape, weight, bias)
    words = _words(eps, activation, f"dims={dims}")
    return _run("layernorm", x, parameters, words, has_channels=False, residual=residual)


def rms_norm(
    x, normalized_shape, weight=None, eps: float | None = None, *, activation: str | None = None, residual=None
):
    """RMSNorm over the last dimensions: `x / √(mean(x²) + eps) · weight`. `eps` None: the machine epsilon of the type
    that is computed in."""
    parameters, dims = _of_last("rmsnorm", normalized_shape, weight, None)
    words = _words(eps, activation, f"dims={dims}")
    return _run("rmsnorm", x, parameters, words, has_channels=False, residual=residual)
