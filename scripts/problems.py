"""Problem strings in Python: parsed, and carried out by PyTorch.

A problem string is one line such as `batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu pass=train`; the Rust
library's `NormDesc` parses the same.
"""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
LAST_LAYOUTS = {2: "nc", 3: "nlc", 4: "nhwc", 5: "ndhwc"}
FIRST_LAYOUTS = {2: "nc", 3: "ncl", 4: "nchw", 5: "ncdhw"}
OPS = ("batchnorm", "layernorm", "rmsnorm", "groupnorm", "instancenorm")
MODES = ("train", "eval", "backward", "backward_eval")
DEFAULT_EPS = 1e-5
DEFAULT_SLOPE = 0.01


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is computed. Shapes are `N, C, spatial` (or rows of any rank) whatever the layout."""

    op: str
    shape: tuple[int, ...]
    dims: int = 1
    over_channels: bool = False
    groups: int = 0
    channels_last: bool = False
    dtype: str = "f32"
    param: str = ""
    affine: str = ""
    act: str = "none"
    # "add": added before the activation; "masked" and "result": so, and a mask of the ReLU behind it is kept, or its result is read (to PyTorch it is the same); "stream": added to x, and the sum is an output.
    residual: str = ""
    mode: str = "train"
    eps: float | None = None

    @staticmethod
    def parse(text: str) -> Problem:
        """The problem that a string describes; `ValueError` when it is none."""
        op, *words = text.split()
        if op not in OPS:
            raise ValueError(f"unknown op {op!r} in {text!r}; expected one of {', '.join(OPS)}")
        given = dict(word.split("=", 1) for word in words if "=" in word)
        if len(given) != len(words) or "x" not in given:
            raise ValueError(f"{text!r} is not a problem string: an op, then key=value words, x= among them")
        shape = tuple(int(size) for size in given.pop("x").split("x"))
        layout = given.pop("layout", "")
        problem = Problem(
            op=op,
            shape=shape,
            dims=int(given.pop("dims", 1)),
            over_channels=given.pop("over", "") == "channels",
            groups=int(given.pop("groups", 0)),
            channels_last=layout == "channels_last" or (len(shape) > 2 and layout == LAST_LAYOUTS.get(len(shape))),
            dtype=given.pop("dtype", "f32"),
            param=given.pop("param", ""),
            affine=given.pop("affine", ""),
            act=given.pop("act", "none"),
            residual=given.pop("residual", "").replace("none", ""),
            mode=given.pop("pass", "train"),
            eps=float(given["eps"]) if "eps" in given else None,
        )
        unknown = set(given) - {"eps", "inplace"}
        known = problem.residual in ("", "add", "masked", "result", "stream")
        if unknown or not known or problem.dtype not in DTYPES or problem.mode not in MODES:
            raise ValueError(f"{text!r} has unknown words, or an unknown type or pass")
        default = {"rmsnorm": "weight", "instancenorm": "none"}.get(op, "full")
        wide = "f64" if problem.dtype == "f64" else "f32"
        return dataclasses.replace(problem, param=problem.param or wide, affine=problem.affine or default)

    def __str__(self) -> str:
        words = [self.op, "x=" + "x".join(map(str, self.shape))]
        if self.over_channels:
            words.append("over=channels")
        elif self.dims != 1:
            words.append(f"dims={self.dims}")
        if self.groups:
            words.append(f"groups={self.groups}")
        if not self.is_rows:
            names, other = (LAST_LAYOUTS, "channels_last") if self.channels_last else (FIRST_LAYOUTS, "channels_first")
            words.append("layout=" + names.get(len(self.shape), other))
        words += [f"dtype={self.dtype}", f"param={self.param}", f"affine={self.affine}", f"act={self.act}"]
        if self.residual:
            words.append(f"residual={self.residual}")
        if self.eps is not None:
            words.append(f"eps={self.eps!r}")
        return " ".join([*words, f"pass={self.mode}"])

    @property
    def is_rows(self) -> bool:
        """Whether there is no channel dimension."""
        return self.op in ("layernorm", "rmsnorm") and not self.over_channels

    @property
    def is_backward(self) -> bool:
        return self.mode.startswith("backward")

    @property
    def forward(self) -> Problem:
        """The problem whose gradients a backward problem computes; a forward problem itself."""
        modes = {"backward": "train", "backward_eval": "eval"}
        return dataclasses.replace(self, mode=modes.get(self.mode, self.mode))

    @property
    def has_running(self) -> bool:
        """Whether the op can have running statistics."""
        return self.op in ("batchnorm", "instancenorm")

    @property
    def uses_running(self) -> bool:
        """Whether the statistics are given, not computed from x."""
        return self.has_running and self.mode in ("eval", "backward_eval")

    @property
    def param_shape(self) -> tuple[int, ...]:
        return self.shape[-self.dims :] if self.is_rows else (self.shape[1],)

    @property
    def wide(self) -> torch.dtype:
        """The type that is computed in."""
        return torch.float64 if self.dtype == "f64" else torch.float32

    @property
    def resolved_eps(self) -> float:
        if self.eps is not None:
            return self.eps
        return torch.finfo(self.wide).eps if self.op == "rmsnorm" else DEFAULT_EPS

    def to_memory(self, t: torch.Tensor) -> torch.Tensor:
        """The elements as they lie in memory, flat."""
        return (t.movedim(1, -1) if self.channels_last else t).contiguous().flatten()

    def from_memory(self, flat: torch.Tensor) -> torch.Tensor:
        """A tensor of the problem's shape and memory order over these elements."""
        if not self.channels_last:
            return flat.view(self.shape)
        n, c, *spatial = self.shape
        return flat.view(n, *spatial, c).movedim(-1, 1)

    def normalize(self, x, weight, bias, mean=None, var=None, momentum=0.1, eps=None):
        """The normalization and its affine map, as a PyTorch user writes them. Updates running statistics in place."""
        eps = self.eps if eps is None else eps
        given = DEFAULT_EPS if eps is None else eps
        if self.op == "batchnorm":
            return F.batch_norm(x, mean, var, weight, bias, not self.uses_running, momentum, given)
        if self.op == "instancenorm":
            return F.instance_norm(x, mean, var, weight, bias, not self.uses_running, momentum, given)
        if self.op == "groupnorm":
            return F.group_norm(x, self.groups, weight, bias, given)
        x = x.movedim(1, -1) if self.over_channels else x
        if self.op == "layernorm":
            y = F.layer_norm(x, self.param_shape, weight, bias, given)
        else:
            y = F.rms_norm(x, self.param_shape, weight, eps)
        return y.movedim(-1, 1) if self.over_channels else y

    def activate(self, z):
        """The activation."""
        name, _, slope = self.act.partition(":")
        if name == "leaky_relu":
            return F.leaky_relu(z, float(slope or DEFAULT_SLOPE))
        functions = {
            "none": lambda v: v,
            "relu": F.relu,
            "silu": F.silu,
            "gelu": F.gelu,
            "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
            "sigmoid": torch.sigmoid,
            "tanh": torch.tanh,
            "hardswish": F.hardswish,
        }
        return functions[name](z)

    def _over_groups(self, t: torch.Tensor, reduce) -> torch.Tensor:
        """A reduction over each element's group, in the shape of `t`."""
        if self.op == "groupnorm":
            grouped = t.reshape(self.shape[0], self.groups, -1)
            return reduce(grouped, dim=-1, keepdim=True).expand_as(grouped).reshape(t.shape)
        rank = len(self.shape)
        if self.is_rows:
            dims = range(rank - self.dims, rank)
        else:
            dims = {"batchnorm": [0, *range(2, rank)], "instancenorm": range(2, rank)}.get(self.op, [1])
        return reduce(t, dim=tuple(dims), keepdim=True).expand_as(t)

    def group_mean(self, t: torch.Tensor) -> torch.Tensor:
        """The mean over each element's group."""
        return self._over_groups(t, torch.mean)

    def group_max(self, t: torch.Tensor) -> torch.Tensor:
        """The largest of each element's group."""
        return self._over_groups(t, torch.amax)

    @property
    def group_size(self) -> int:
        """The number of elements that share statistics."""
        elements = math.prod(self.shape)
        if self.is_rows:
            return math.prod(self.param_shape)
        n, c = self.shape[:2]
        groups = {"batchnorm": c, "instancenorm": n * c, "groupnorm": n * self.groups}
        return elements // groups.get(self.op, elements // c)

    def spread(self, p: torch.Tensor) -> torch.Tensor:
        """A parameter in a shape that multiplies x."""
        return p if self.is_rows else p.view(-1, *[1] * (len(self.shape) - 2))

    def param_sum(self, t: torch.Tensor) -> torch.Tensor:
        """The sum over all elements that share a parameter."""
        rank = len(self.shape)
        dims = range(rank - self.dims) if self.is_rows else [0, *range(2, rank)]
        return t.sum(tuple(dims)) if len(dims) else t
