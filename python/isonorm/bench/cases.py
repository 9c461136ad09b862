"""Problem strings, as everywhere in isonorm: `batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu residual=add`.

Of the words that the Rust library knows these are what a module of `torch.nn` can be asked for: `x`, `layout`,
`groups`, `dims`, `dtype`, `param`, `affine`, `act`, `residual=add|stream`, `eps` and `pass`. Without a `pass` both
`train` and `backward` are measured.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Optional, Tuple

OPS = ("batchnorm", "layernorm", "rmsnorm", "groupnorm", "instancenorm")
KEYS = ("x", "layout", "groups", "dims", "dtype", "param", "affine", "act", "residual", "eps", "pass")
PASSES = ("train", "eval", "backward", "backward_eval")
ACTIVATIONS = ("none", "relu", "leaky_relu", "silu", "gelu", "gelu_tanh", "sigmoid", "tanh", "hardswish")
# Bytes of an element.
DTYPES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
FIRST_LAYOUTS = {2: "nc", 3: "ncl", 4: "nchw", 5: "ncdhw"}
LAST_LAYOUTS = {2: "nc", 3: "nlc", 4: "nhwc", 5: "ndhwc"}
DEFAULT_EPS = 1e-5
# RMSNorm's eps where none is given: the distance from 1 to the next number of the type that is computed in.
RMS_EPS = {"f64": 2.0**-52}
RMS_EPS_OF_OTHERS = 2.0**-23


class Failure(ValueError):
    """Something that is not as the user thinks, in a sentence."""


class CaseError(Failure):
    """A problem string that cannot be measured here, with the reason."""


@dataclasses.dataclass(frozen=True)
class Case:
    """What is computed. `shape` is N, C, spatial (or rows of any rank) whatever the layout."""

    op: str
    shape: Tuple[int, ...]
    channels_last: bool = False
    groups: int = 0
    dims: int = 1
    dtype: str = "f32"
    param: str = "f32"
    affine: str = "full"
    act: str = "none"
    # "add": added before the activation; "stream": added to x, and the sum is an output.
    residual: str = ""
    eps: Optional[float] = None
    passes: Tuple[str, ...] = ("train", "backward")

    @staticmethod
    def parse(text: str) -> Case:
        """The case that a problem string describes.

        Raises `CaseError` where it is no problem string, or none that a module can be asked for.
        """
        try:
            return _parse(text)
        except CaseError as error:
            raise CaseError(f"{text!r}: {error}") from None

    @property
    def is_rows(self) -> bool:
        """Whether the statistics are of rows: there is no channel dimension."""
        return self.op in ("layernorm", "rmsnorm")

    @property
    def param_shape(self) -> Tuple[int, ...]:
        """The shape of weight and bias."""
        return self.shape[len(self.shape) - self.dims :] if self.is_rows else (self.shape[1],)

    @property
    def resolved_eps(self) -> float:
        """The eps that everyone is given."""
        if self.eps is not None:
            return self.eps
        return RMS_EPS.get(self.dtype, RMS_EPS_OF_OTHERS) if self.op == "rmsnorm" else DEFAULT_EPS

    @property
    def activation(self) -> Optional[str]:
        """The activation's name, None where there is none."""
        return None if self.act == "none" else self.act

    def name(self, a_pass: str) -> str:
        """The problem string as the Rust library writes it, with one pass."""
        words = [self.op, "x=" + "x".join(map(str, self.shape))]
        if self.is_rows and self.dims != 1:
            words.append(f"dims={self.dims}")
        if self.op == "groupnorm":
            words.append(f"groups={self.groups}")
        rank = len(self.shape)
        if not self.is_rows and (rank > 2 or self.channels_last):
            names, other = (LAST_LAYOUTS, "channels_last") if self.channels_last else (FIRST_LAYOUTS, "channels_first")
            words.append("layout=" + (other if rank == 2 else names.get(rank, other)))
        words.append(f"dtype={self.dtype}")
        if self.param != self.dtype or DTYPES[self.dtype] == 2:
            words.append(f"param={self.param}")
        if self.affine != default_affine(self.op):
            words.append(f"affine={self.affine}")
        if self.act != "none":
            words.append(f"act={self.act}")
        if self.residual:
            words.append(f"residual={self.residual}")
        if self.eps is not None:
            words.append(f"eps={self.eps!r}")
        return " ".join([*words, f"pass={a_pass}"])

    def compulsory_bytes(self, a_pass: str) -> int:
        """Every input read once, every output written once, parameters and statistics included."""
        backward = is_backward(a_pass)
        tensors = {
            # x, dy | dx; with an epilogue: x, dy, residual | dx, dresidual; behind a stream: stream, dy, dstream | dx
            True: {"": 3, "add": 5 if self.act != "none" else 4, "stream": 4},
            # x | y; x, residual | y; x, residual | y, stream
            False: {"": 2, "add": 3, "stream": 4},
        }[backward][self.residual]
        parameters = math.prod(self.param_shape) * DTYPES[self.param]
        affine = {"none": 0, "weight": 1, "full": 2}[self.affine]
        statistic = self._statistics() * (8 if self.dtype == "f64" else 4)
        once = math.prod(self.shape) * DTYPES[self.dtype]
        return once * tensors + parameters * affine * (2 if backward else 1) + 2 * statistic

    def _statistics(self) -> int:
        """How many groups of elements share statistics."""
        if self.is_rows:
            return math.prod(self.shape) // max(1, math.prod(self.param_shape))
        n, c = self.shape[:2]
        return {"batchnorm": c, "groupnorm": n * self.groups}.get(self.op, n * c)


def is_backward(a_pass: str) -> bool:
    """Whether gradients are computed."""
    return a_pass.startswith("backward")


def default_affine(op: str) -> str:
    """Which parameters a module of this op has where nothing is said."""
    return {"rmsnorm": "weight", "instancenorm": "none"}.get(op, "full")


def _parse(text: str) -> Case:
    op, *words = text.split() or [""]
    if op not in OPS:
        raise CaseError(f"unknown op {op!r}; expected one of {', '.join(OPS)}")
    given = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise CaseError(f"{word!r} is not key=value")
        if key not in KEYS:
            raise CaseError(f"unknown key {key!r}; expected one of {', '.join(KEYS)}")
        if key in given:
            raise CaseError(f"{key} is given twice")
        given[key] = value
    if "x" not in given:
        raise CaseError("the shape is missing: x=64x256x56x56")
    shape = tuple(_number("x", size) for size in given["x"].split("x"))
    dtype = _one_of("dtype", given.get("dtype", "f32"), DTYPES)
    case = Case(
        op=op,
        shape=shape,
        channels_last=_layout(given.get("layout"), op, len(shape)),
        groups=_number("groups", given["groups"]) if "groups" in given else 0,
        dims=_number("dims", given.get("dims", "1")),
        dtype=dtype,
        param=_one_of("param", given.get("param", "f64" if dtype == "f64" else "f32"), DTYPES),
        affine=_one_of("affine", given.get("affine", default_affine(op)), ("none", "weight", "full")),
        act=_activation(given.get("act", "none")),
        residual=_residual(given.get("residual", "")),
        eps=_real("eps", given["eps"]) if "eps" in given else None,
        passes=(_one_of("pass", given["pass"], PASSES),) if "pass" in given else ("train", "backward"),
    )
    _check(case, given)
    return case


def _check(case: Case, given: dict) -> None:
    """What each word may be beside the others; the sentences are the Rust library's where it has them."""
    rank = len(case.shape)
    for key, allowed in (("groups", case.op == "groupnorm"), ("dims", case.is_rows), ("layout", not case.is_rows)):
        if key in given and not allowed:
            raise CaseError(f"{case.op} takes no {key}")
    least, most = {"batchnorm": (2, 5), "instancenorm": (3, 5), "groupnorm": (2, 8)}.get(case.op, (1, 8))
    if not least <= rank <= most:
        raise CaseError(f"expected x of {least} to {most} dimensions, got {rank}")
    if case.is_rows and not 1 <= case.dims <= rank:
        raise CaseError(f"cannot normalize over the last {case.dims} dimensions of x of {rank}")
    if case.op == "groupnorm":
        if not case.groups:
            raise CaseError("groupnorm needs groups=")
        if case.shape[1] % case.groups:
            raise CaseError(f"{case.shape[1]} channels are no multiple of {case.groups} groups")
    if case.param not in ("f32", case.dtype):
        raise CaseError(f"parameters must be f32 or of x's type {case.dtype}, got {case.param}")
    if case.residual == "stream" and not case.is_rows:
        raise CaseError("residual=stream is for layernorm and rmsnorm")
    if case.affine == "weight" and case.op not in ("layernorm", "rmsnorm"):
        raise CaseError(f"the module of {case.op} has weight and bias or neither: affine=full or none")
    if case.affine == "full" and case.op == "rmsnorm":
        raise CaseError("the module of rmsnorm has no bias: affine=weight or none")


def _number(key: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**40:
        raise CaseError(f"{key}: {text!r} is not a positive number")
    return int(text)


def _real(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise CaseError(f"{key}={text} is not a finite number of 0 or more")
    return value


def _one_of(key: str, value: str, known) -> str:
    if value not in known:
        raise CaseError(f"unknown {key} {value!r}; expected one of {', '.join(known)}")
    return value


def _activation(text: str) -> str:
    name, colon, slope = text.partition(":")
    if colon and name == "leaky_relu":
        try:
            if math.isfinite(float(slope)):
                return text
        except ValueError:
            pass
        raise CaseError(f"the slope {slope!r} is not a finite number")
    return _one_of("act", text, ACTIVATIONS)


def _residual(text: str) -> str:
    if text == "masked":
        raise CaseError("residual=masked is how isonorm carries residual=add act=relu out; say residual=add")
    if text not in ("", "none", "no", "add", "stream"):
        raise CaseError(f"residual={text}; expected add, stream or none")
    return text if text in ("add", "stream") else ""


def _layout(text: Optional[str], op: str, rank: int) -> bool:
    """Whether channels come last."""
    first, last = FIRST_LAYOUTS.get(rank, "channels_first"), LAST_LAYOUTS.get(rank, "channels_last")
    if text in (None, first, "channels_first"):
        return False
    if text in (last, "channels_last"):
        return True
    raise CaseError(
        f"unknown layout {text!r} for {rank} dimensions; expected {first}, {last}, channels_first or channels_last"
    )


# What is measured where no case is named. Layers of ResNets, transformers, diffusion and style networks.
GPU_CASES = (
    "batchnorm x=64x256x56x56 layout=nchw dtype=f32",
    "batchnorm x=64x256x56x56 layout=nchw dtype=bf16",
    "batchnorm x=64x256x56x56 layout=nhwc dtype=f32",
    "batchnorm x=64x256x56x56 layout=nhwc dtype=bf16",
    "batchnorm x=64x1024x14x14 layout=nhwc dtype=bf16",
    "batchnorm x=64x256x56x56 layout=nchw dtype=f32 act=relu",
    "batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu",
    "batchnorm x=64x256x56x56 layout=nchw dtype=f32 act=relu residual=add",
    "batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu residual=add",
    "layernorm x=4096x1024 dtype=f32",
    "layernorm x=8192x4096 dtype=bf16 param=bf16",
    "layernorm x=65536x768 dtype=bf16 param=bf16",
    "layernorm x=8192x4096 dtype=bf16 param=bf16 residual=stream",
    "rmsnorm x=16384x4096 dtype=bf16 param=bf16",
    "rmsnorm x=131072x128 dtype=bf16 param=bf16",
    "rmsnorm x=16384x4096 dtype=bf16 param=bf16 residual=stream",
    "groupnorm x=8x512x64x64 groups=32 layout=nchw dtype=f32",
    "groupnorm x=16x320x64x64 groups=32 layout=nchw dtype=bf16 param=bf16 act=silu",
    "groupnorm x=16x320x64x64 groups=32 layout=nhwc dtype=bf16 param=bf16 act=silu",
    "instancenorm x=16x64x256x256 layout=nchw dtype=f32",
    "instancenorm x=64x288x35x35 layout=nchw dtype=bf16",
)
GPU_QUICK_CASES = tuple(GPU_CASES[i] for i in (3, 8, 10, 13, 18, 19))
CPU_CASES = (
    "batchnorm x=16x64x56x56 layout=nchw dtype=f32",
    "batchnorm x=16x64x56x56 layout=nchw dtype=bf16",
    "batchnorm x=16x64x56x56 layout=nhwc dtype=f32",
    "batchnorm x=16x64x56x56 layout=nhwc dtype=bf16",
    "batchnorm x=16x64x56x56 layout=nchw dtype=f32 act=relu",
    "batchnorm x=16x64x56x56 layout=nhwc dtype=bf16 act=relu",
    "batchnorm x=16x64x56x56 layout=nchw dtype=f32 act=relu residual=add",
    "layernorm x=2048x1024 dtype=f32",
    "layernorm x=2048x1024 dtype=bf16",
    "layernorm x=2048x1024 dtype=f32 residual=stream",
    "rmsnorm x=2048x1024 dtype=f32",
    "rmsnorm x=2048x1024 dtype=bf16 param=bf16",
    "groupnorm x=16x64x56x56 groups=32 layout=nchw dtype=f32",
    "groupnorm x=16x64x56x56 groups=32 layout=nhwc dtype=f32",
    "groupnorm x=16x64x56x56 groups=32 layout=nchw dtype=bf16 act=silu",
    "instancenorm x=8x64x64x64 layout=nchw dtype=f32",
)
CPU_QUICK_CASES = (
    "batchnorm x=4x32x14x14 layout=nchw dtype=f32",
    "batchnorm x=4x32x14x14 layout=nhwc dtype=bf16 act=relu residual=add",
    "layernorm x=128x256 dtype=f32 residual=stream",
    "rmsnorm x=128x256 dtype=bf16 param=bf16",
    "groupnorm x=4x32x14x14 groups=8 layout=nchw dtype=f32 act=silu",
    "instancenorm x=4x16x16x16 layout=nchw dtype=f32",
)


def default_cases(on_gpu: bool, quick: bool) -> Tuple[str, ...]:
    """The cases that are measured when none is named."""
    if on_gpu:
        return GPU_QUICK_CASES if quick else GPU_CASES
    return CPU_QUICK_CASES if quick else CPU_CASES
