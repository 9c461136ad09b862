"""The same normalizations by torch's own functions: for what isonorm has no kernels for, and for second derivatives."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from . import _activations
from ._problem import Call


def normalize(call: Call, x, weight, bias, residual, running_mean, running_var, factor: float):
    """The result, or the result and the residual stream. Every error is torch's."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{call.op}: the input is a {type(x).__name__}, expected a Tensor")
    if call.stream:
        x = stream = x + residual
    op, eps = call.op, call.eps
    if op == "batchnorm":
        y = F.batch_norm(x, running_mean, running_var, weight, bias, call.training, factor, eps)
    elif op == "instancenorm":
        y = F.instance_norm(x, running_mean, running_var, weight, bias, call.training, factor, eps)
    elif op == "groupnorm":
        y = F.group_norm(x, call.size, weight, bias, eps)
    elif op == "layernorm":
        y = F.layer_norm(x, x.shape[x.dim() - call.size :], weight, bias, eps)
    else:
        y = F.rms_norm(x, x.shape[x.dim() - call.size :], weight, eps)
    y = finish(y, None if call.stream else residual, call.activation)
    return (y, stream) if call.stream else y


def finish(y, residual, activation: str | None):
    """What comes behind a normalization."""
    if residual is not None:
        y = torch.add(y, residual)
    act = _activations.function(activation)
    return y if act is None else act(y)


def backward(call: Call, dy, dstream, x, weight, bias, residual, running_mean, running_var, needs):
    """The gradients of x, weight, bias and residual, as far as they are needed, else None. `x` is the stream where
    there is one; `residual` is what `to_keep` kept."""
    leaves = [None if t is None else t.detach().requires_grad_() for t in (x, weight, bias, residual)]
    plain = call._replace(stream=False)
    running = _unheld(call, running_mean, running_var)
    if call.stream:
        leaves[3] = None
    with torch.enable_grad():
        y = normalize(plain, *leaves, *running, 0.0)
    present = [t for t in leaves if t is not None]
    found = iter(torch.autograd.grad(y, present, dy, allow_unused=True))
    dx, dweight, dbias, dresidual = (None if t is None else next(found) for t in leaves)
    if dstream is not None:
        dx = dx + dstream
    if call.stream:
        dresidual = dx
    elif dresidual is None:
        dresidual = dy
    return tuple(t if need else None for t, need in zip((dx, dweight, dbias, dresidual), needs))


def _unheld(call: Call, running_mean, running_var, dtype=None):
    """The running statistics that a call reads, or None: copies, as PyTorch 2.4 writes to those of an
    InstanceNorm in evaluation, if only what they were, and autograd keeps them."""
    if call.training:
        return None, None
    return tuple(None if s is None else s.detach().to(dtype or s.dtype, copy=True) for s in (running_mean, running_var))


def _wide(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A leaf with the same values, in a type that derivatives of derivatives survive in."""
    if tensor is None:
        return None
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to(dtype).requires_grad_()


def double_backward(call: Call, gradients, dy, dstream, x, weight, bias, residual, running_mean, running_var):
    """The gradients of the backward pass: of `dy`, `dstream`, `x`, `weight`, `bias` and the residual, given those of its results
    (`gradients` of dx, dweight, dbias, dresidual; None where there is none).

    Carried out by torch: the gradient of the gradient of the formula. `x` is the stream where there is one; `residual` is what
    `to_keep` kept."""
    plain = call._replace(stream=False)
    wide = [_wide(t) for t in (dy, x, weight, bias, residual)]
    leaf_dy, leaf_x, leaf_weight, leaf_bias, leaf_residual = wide
    running = _unheld(call, running_mean, running_var, leaf_x.dtype)
    with torch.enable_grad():
        added = None if call.stream else leaf_residual
        y = normalize(plain, leaf_x, leaf_weight, leaf_bias, added, *running, 0.0)
        inputs = [t for t in (leaf_x, leaf_weight, leaf_bias, added) if t is not None]
        first = iter(torch.autograd.grad(y, inputs, leaf_dy, create_graph=True, allow_unused=True))
        firsts = [None if t is None else next(first) for t in (leaf_x, leaf_weight, leaf_bias, added)]
        dx, dweight, dbias, dresidual = firsts
        if call.stream:
            dresidual = dx
        elif added is None and gradients[3] is not None:
            dresidual = leaf_dy
        pairs = [
            (result, given.to(result.dtype))
            for result, given in zip((dx, dweight, dbias, dresidual), gradients)
            if result is not None and given is not None and result.requires_grad
        ]
        leaves = [leaf_dy, leaf_x, leaf_weight, leaf_bias, leaf_residual]
        present = [t for t in leaves if t is not None]
        if pairs:
            results, given = zip(*pairs)
            second = iter(torch.autograd.grad(results, present, given, allow_unused=True))
        else:
            second = iter([None] * len(present))
    d_dy, d_x, d_weight, d_bias, d_residual = (None if t is None else next(second) for t in leaves)
    d_dstream = None
    if dstream is not None:
        # The stream's other gradient is added to dx, which is also the residual's.
        through = [g for g in (gradients[0], gradients[3]) if g is not None]
        d_dstream = sum(through) if through else None
    out = (d_dy, d_dstream, d_x, d_weight, d_bias, d_residual)
    like = (dy, dstream, x, weight, bias, residual)
    return tuple(None if g is None or t is None else g.to(t.dtype) for g, t in zip(out, like))
