"""What a result is held against: PyTorch in float64, with tolerances derived from the types (scripts/tolerances.py)."""

from __future__ import annotations

import dataclasses
import math
from typing import Dict, Optional

import torch
from problems import Problem
from tolerances import Exact

NAMES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
OPS = {
    "BatchNorm": "batchnorm",
    "InstanceNorm": "instancenorm",
    "GroupNorm": "groupnorm",
    "LayerNorm": "layernorm",
    "RMSNorm": "rmsnorm",
}
Results = Dict[str, Optional[torch.Tensor]]


@dataclasses.dataclass
class Call:
    """One application of a normalization, with all that goes in, before running statistics are updated."""

    op: str
    x: torch.Tensor
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    running_mean: torch.Tensor | None = None
    running_var: torch.Tensor | None = None
    act: str = "none"
    eps: float | None = None
    groups: int = 0
    dims: int = 1
    training: bool = True
    momentum: float | None = 0.1

    @property
    def problem(self) -> Problem:
        """What the tolerances are derived for."""
        params = [t for t in (self.weight, self.bias, self.running_mean) if t is not None]
        return Problem(
            op=self.op,
            shape=tuple(self.x.shape),
            dims=self.dims,
            groups=self.groups,
            dtype=NAMES[self.x.dtype],
            param=NAMES[params[0].dtype] if params else NAMES[self.x.dtype],
            affine="full" if self.bias is not None else "weight" if self.weight is not None else "none",
            act=self.act or "none",
            residual="add" if self.residual is not None else "",
            mode="train" if self.training else "eval",
            eps=self.eps,
        )

    def wide(self) -> Call:
        """The same in float64, contiguous, on the CPU, apart from every graph."""
        change = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, torch.Tensor):
                change[field.name] = value.detach().cpu().to(torch.float64, copy=True).contiguous()
        # The default eps is that of the type computed in, which is not the wide one.
        return dataclasses.replace(self, **change, eps=self.problem.resolved_eps)


def call_of(module, x, *, residual=None, act=None) -> Call:
    """What a module of torch.nn (or of isonorm.torch) computes for `x`; call it before the module runs."""
    name = next(base for cls in type(module).__mro__ for base in OPS if cls.__name__.startswith(base))
    op = OPS[name]
    of = lambda attribute: getattr(module, attribute, None)
    call = Call(op, x, of("weight"), of("bias"), residual, act=act or "none", eps=module.eps)
    copy = lambda t: None if t is None else t.detach().clone()
    call.weight, call.bias = copy(call.weight), copy(call.bias)
    if op in ("batchnorm", "instancenorm"):
        call.running_mean, call.running_var = copy(module.running_mean), copy(module.running_var)
        call.training = module.training or call.running_mean is None
        tracked = int(module.num_batches_tracked) + 1 if module.num_batches_tracked is not None else 1
        cumulative = 1 / tracked if op == "batchnorm" else 0.0
        call.momentum = cumulative if module.momentum is None else module.momentum
    if op == "groupnorm":
        call.groups = module.num_groups
    if op in ("layernorm", "rmsnorm"):
        call.dims = len(module.normalized_shape)
    return call


def exact_results(call: Call, dy: torch.Tensor) -> Results:
    """PyTorch's results in float64."""
    wide, p = call.wide(), call.problem
    leaves = {"dx": wide.x, "dweight": wide.weight, "dbias": wide.bias, "dresidual": wide.residual}
    leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items() if leaf is not None}
    mean, var = wide.running_mean, wide.running_var
    z = p.normalize(wide.x, wide.weight, wide.bias, mean, var, wide.momentum, wide.eps)
    y = p.activate(z if wide.residual is None else z + wide.residual)
    gradients = torch.autograd.grad(y, list(leaves.values()), dy.detach().cpu().double().contiguous())
    found = dict(zip(leaves, gradients), y=y.detach())
    if mean is not None and call.training:
        found.update(running_mean=mean, running_var=var)
    return found


def exact_of(call: Call) -> Exact:
    """The intermediate values and their errors."""
    wide = call.wide()
    return Exact(call.problem, wide.x, wide.weight, wide.bias, wide.residual, wide.running_mean, wide.running_var)


def away_from_kinks(call: Call, dy: torch.Tensor) -> torch.Tensor:
    """`dy` without the elements at which rounding decides the activation's slope; strides are kept."""
    near = exact_of(call).near_kink()
    with torch.no_grad():
        return dy.masked_fill_(near.to(dy.device), 0)


def bounds(call: Call, dy: torch.Tensor, results: Results) -> Results:
    """How far each result may be from the exact one."""
    p, exact = call.problem, exact_of(call)
    z = exact.z.detach().requires_grad_()
    (slope,) = torch.autograd.grad(p.activate(z).sum(), z)
    wide_dy = dy.detach().cpu().double().contiguous()
    of = results.get
    found = exact.gradient_bounds(wide_dy, slope, results["dx"], of("dweight"), of("dbias"))
    found["y"] = exact.y_bound(results["y"])
    if of("running_mean") is not None:
        old = call.running_mean.cpu().double(), call.running_var.cpu().double()
        found["running_mean"], found["running_var"] = exact.running_bounds(
            results["running_mean"], results["running_var"], *old, call.momentum, 1
        )
    return found


def judge(call: Call, dy: torch.Tensor, ours: Results, theirs: Results | None = None, by_torch: bool = False) -> None:
    """Fails where a result of ours is not within its derived tolerance of the exact one.

    `theirs` are PyTorch's results in the same types: what there is, and of which types, is compared with them.
    `by_torch` is for what PyTorch computes for us: there a result need only be as near as PyTorch's.
    """
    exact = exact_results(call, dy)
    limits = bounds(call, dy, exact) if call.x.numel() else {}
    for name, wanted in exact.items():
        mine = ours.get(name)
        if mine is None:
            assert theirs is not None and theirs.get(name) is None, f"{name} is missing"
            continue
        assert mine.shape == wanted.shape, f"{name}: shape {tuple(mine.shape)}, not {tuple(wanted.shape)}"
        other = None if theirs is None else theirs.get(name)
        if theirs is not None:
            assert other is not None, f"{name}: PyTorch has none"
            assert mine.dtype == other.dtype, f"{name}: {mine.dtype}, not {other.dtype}"
        within(name, mine, wanted, limits.get(name), other, call.problem, by_torch)


def within(name, mine, wanted, bound, other, problem, by_torch=False) -> None:
    """The comparison of one tensor: |mine − wanted| ≤ bound; `by_torch`: or no more than PyTorch's largest error."""
    if not wanted.numel():
        return
    wide = mine.detach().cpu().double()
    same = (wide == wanted) | (wide.isnan() & wanted.isnan())
    # A result beyond the type's range is infinite in the type.
    largest = torch.finfo(mine.dtype).max
    same |= wide.isinf() & (wanted.abs() >= largest) & (wide.sign() == wanted.sign())
    error = torch.where(same, 0.0, (wide - wanted).abs())
    bound = torch.zeros(()) if bound is None else bound  # of an empty batch: nothing may change
    bad = ~(error <= bound)
    if by_torch and bad.any():
        theirs = other.detach().cpu().double()
        largest = torch.where((theirs == wanted) | theirs.isnan(), 0.0, (theirs - wanted).abs()).max()
        bad &= ~(error <= largest)
    if bad.any():
        worst = int(torch.where(bad, error.nan_to_num(math.inf), -1.0).argmax())
        at = lambda t: t.detach().cpu().double().expand(wanted.shape).reshape(-1)[worst].item()
        beside = "" if other is None else f", PyTorch {at(other):.9g}"
        raise AssertionError(
            f"{problem}: {name} is off at {int(bad.sum())} of {bad.numel()} elements, worst at element {worst}: "
            f"{at(mine):.9g}, exactly {at(wanted):.9g}{beside}; error {at(error):.3g}, allowed {at(bound):.3g}"
        )
