"""Random shapes, strides, types, modes, activations and residuals, within tolerances derived from the types.

Runs for about 40 seconds, always with the same cases; ISONORM_LONG=1 runs twenty times as many, and new ones each time.
"""

from __future__ import annotations

import dataclasses
import math
import os

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from isonorm.torch import functional
from problems import Problem
from random_problems import ACTIVATIONS, MEANS, STDS
from reference import Call, away_from_kinks, judge
from tolerances import KINKS

LONG = bool(os.environ.get("ISONORM_LONG"))
SETTINGS = settings(
    max_examples=50_000 if LONG else 2500,
    derandomize=not LONG,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
MOST = 6000

SIZES = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33))
CHANNELS = st.sampled_from((1, 2, 3, 4, 6, 8, 12, 16, 17, 31, 32, 33, 64, 130))
ROWS = st.sampled_from((1, 2, 3, 7, 8, 15, 16, 31, 33, 64, 100, 127, 128, 129, 256, 500, 768, 1025))
BATCHES = st.sampled_from((1, 2, 3, 5, 8, 40))


@st.composite
def shapes(draw, op):
    """A shape that the op takes, not too large."""
    if op in ("layernorm", "rmsnorm"):
        return tuple(draw(st.lists(SIZES, max_size=2))) + (draw(ROWS),)
    least = 1 if op == "instancenorm" else 0
    return (draw(BATCHES), draw(CHANNELS), *draw(st.lists(SIZES, min_size=least, max_size=3)))


@st.composite
def strided(draw, shape):
    """How a tensor of this shape lies in memory: an order of dimensions, gaps, an offset, an expanded dimension."""
    rank = len(shape)
    kinds = ["contiguous", "contiguous", "last", "order", "gaps", "expanded"]
    kind = draw(st.sampled_from(kinds if rank > 2 else [k for k in kinds if k != "last"]))
    order = list(range(rank))
    if kind == "last":
        order = [0, *range(2, rank), 1]
    elif kind in ("order", "gaps"):
        order = draw(st.permutations(order))
    steps = [draw(st.integers(1, 3)) if kind == "gaps" else 1 for _ in order]
    expanded = draw(st.integers(0, rank - 1)) if kind == "expanded" else None
    return order, steps, draw(st.integers(0, 3)), expanded


def lay(values: torch.Tensor, layout) -> torch.Tensor:
    """These values, lying so; what lies between them is NaN."""
    order, steps, offset, expanded = layout
    if expanded is not None:
        return values.narrow(expanded, 0, 1).contiguous().expand(values.shape)
    wide = [values.shape[axis] * step for axis, step in zip(order, steps)]
    flat = torch.full((offset + math.prod(wide),), float("nan"), dtype=values.dtype)
    memory = flat[offset:].view(wide)
    for at, step in enumerate(steps):
        memory = memory[(slice(None),) * at + (slice(None, None, step),)]
    memory.copy_(values.permute(order))
    return memory.permute([order.index(axis) for axis in range(len(order))])


@st.composite
def calls(draw):
    """A call, and the layouts of x, the residual and the output's gradient."""
    op = draw(st.sampled_from(("batchnorm", "instancenorm", "groupnorm", "layernorm", "rmsnorm")))
    shape = draw(shapes(op).filter(lambda s: math.prod(s) <= MOST))
    dtype = draw(st.sampled_from(("f32", "f32", "f64", "bf16", "f16")))
    params = draw(st.sampled_from((dtype, dtype, "f64" if dtype == "f64" else "f32")))
    training = draw(st.booleans()) if op in ("batchnorm", "instancenorm") else True
    groups = draw(st.sampled_from([g for g in range(1, shape[1] + 1) if shape[1] % g == 0])) if op == "groupnorm" else 0
    dims = draw(st.integers(1, len(shape))) if op in ("layernorm", "rmsnorm") else 1
    act = draw(st.sampled_from((*ACTIVATIONS, "none", "none")))
    affine = draw(st.sampled_from(("none", "weight") if op == "rmsnorm" else ("none", "weight", "full", "full")))
    residual = draw(st.booleans()) and draw(st.booleans())
    running = not training or (op in ("batchnorm", "instancenorm") and draw(st.booleans()))
    mean, std = draw(st.sampled_from(MEANS[dtype])), draw(st.sampled_from(STDS[dtype]))
    eps = draw(st.sampled_from((None, 1e-5, 1e-3))) if op == "rmsnorm" else draw(st.sampled_from((1e-5, 1e-3)))
    momentum = draw(st.sampled_from((0.1, 0.1, 1.0, 0.0, 0.37)))

    problem = Problem(op, shape, dims=dims, groups=groups, mode="train" if training else "eval")
    size = problem.group_size
    if (training and op in ("batchnorm", "instancenorm") and size < 2) or (op == "groupnorm" and size * shape[0] < 2):
        shape = (*shape[:2], *[s + 1 for s in shape[2:]]) if len(shape) > 2 else (shape[0] + 1, shape[1])
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    normal = lambda s, scale=1.0, shift=0.0, t=dtype: torch.from_numpy(rng.normal(shift, scale, s)).to(TYPES[t])
    layouts = {name: draw(strided(shape)) for name in ("x", "residual", "dy")}
    param_shape = dataclasses.replace(problem, shape=shape).param_shape
    call = Call(op, lay(normal(shape, std, std * mean), layouts["x"]), act=act, eps=eps, groups=groups, dims=dims)
    call.training, call.momentum = training, momentum
    if affine != "none":
        call.weight = normal(param_shape, 0.5, 1.0, params)
    if affine == "full":
        call.bias = normal(param_shape, 0.5, 0.0, params)
    if residual:
        call.residual = lay(normal(shape), layouts["residual"])
    if running:
        call.running_mean = normal(shape[1], std, std * mean, params)
        call.running_var = torch.from_numpy(rng.uniform(0.5, 2.0, shape[1]) * std**2).to(TYPES[params])
    return call, lay(normal(shape), layouts["dy"])


def ours(call: Call, dy):
    """Our functional form: y, gradients and running statistics."""
    f = functional
    leaves = {"dx": call.x, "dweight": call.weight, "dbias": call.bias, "dresidual": call.residual}
    leaves = {k: v.detach().requires_grad_() for k, v in leaves.items() if v is not None}
    of = leaves.get
    mean, var = (None if t is None else t.clone() for t in (call.running_mean, call.running_var))
    keywords = {"activation": None if call.act == "none" else call.act, "residual": of("dresidual")}
    x, weight, bias = of("dx"), of("dweight"), of("dbias")
    if call.op == "batchnorm":
        y = f.batch_norm(x, mean, var, weight, bias, call.training, call.momentum, call.eps, **keywords)
    elif call.op == "instancenorm":
        y = f.instance_norm(x, mean, var, weight, bias, call.training, call.momentum, call.eps, **keywords)
    elif call.op == "groupnorm":
        y = f.group_norm(x, call.groups, weight, bias, call.eps, **keywords)
    elif call.op == "layernorm":
        y = f.layer_norm(x, x.shape[x.ndim - call.dims :], weight, bias, call.eps, **keywords)
    else:
        y = f.rms_norm(x, x.shape[x.ndim - call.dims :], weight, call.eps, **keywords)
    found = dict(zip(leaves, torch.autograd.grad(y, list(leaves.values()), dy)), y=y.detach())
    if mean is not None and call.training:
        found.update(running_mean=mean, running_var=var)
    elif mean is not None:
        assert torch.equal(mean, call.running_mean) and torch.equal(var, call.running_var)
    return found


def theirs(call: Call, dy):
    """PyTorch's results in the same types, or None where it refuses those."""
    p = call.problem
    leaves = {"dx": call.x, "dweight": call.weight, "dbias": call.bias, "dresidual": call.residual}
    leaves = {k: v.detach().clone().requires_grad_() for k, v in leaves.items() if v is not None}
    mean, var = (None if t is None else t.clone() for t in (call.running_mean, call.running_var))
    try:
        z = p.normalize(leaves["dx"], leaves.get("dweight"), leaves.get("dbias"), mean, var, call.momentum, call.eps)
        y = p.activate(z if call.residual is None else z + leaves["dresidual"])
        found = dict(zip(leaves, torch.autograd.grad(y, list(leaves.values()), dy.contiguous())), y=y.detach())
    except RuntimeError:
        return None
    if mean is not None and call.training:
        found.update(running_mean=mean, running_var=var)
    return found


@pytest.mark.filterwarnings("ignore")
@SETTINGS
@given(calls())
def test_random_calls(drawn):
    call, dy = drawn
    note(f"{call.problem} x {call.x.stride()} dy {dy.stride()}")
    if call.problem.act.partition(":")[0] in KINKS:
        dy = away_from_kinks(call, dy if 0 not in dy.stride() else dy.contiguous())
    judge(call, dy, ours(call, dy), theirs(call, dy))
