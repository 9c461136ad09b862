"""SyncBatchNorm: a BatchNorm whose batch is spread over the ranks of a process group.

Each rank takes the moments of its own part; one small collective carries count, mean and variance of all to all, which each merges by
Chan's formula (Chan, Golub and LeVeque, *Algorithms for computing the sample variance*, 1983); then each normalizes its part. Backward, the two
sums of the input's gradient go the same way. The count stays on the device: nothing waits for it. A rank without samples takes part.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.fx import Proxy

from . import _autograd, _native, _sync_plans
from ._problem import DTYPES, Call, dense, in_layout, is_rectified, layout, statistics_types, to_keep
from .modules import OWN, _BatchNorm, _OwnActivation

__all__ = ["SyncBatchNorm", "convert_sync_batchnorm"]


class SyncBatchNorm(_BatchNorm, nn.SyncBatchNorm):
    """torch.nn.SyncBatchNorm of `N, C` or `N, C, spatial`, on GPUs (NCCL) and on CPUs (gloo).

    In training, with a process group of more than one rank, the statistics are those of all ranks' inputs, of which some may be empty;
    otherwise it is a BatchNorm. The gradients of weight and bias are of this rank's part, as DistributedDataParallel expects them.
    """

    def forward(
        self, input: Tensor, residual: Tensor | None = None, *, activation: str | None | _OwnActivation = OWN
    ) -> Tensor:
        """`activation(norm(input) + residual)`; `activation` is the module's unless it is given."""
        if type(input) is Proxy:
            return self._traced(input, residual=residual, activation=activation)
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        activation = self.activation if activation is OWN else activation
        group = self._group()
        if group is None:
            return self._normalize(input, residual, activation)
        running_mean = running_var = None
        factor = 0.0 if self.momentum is None else self.momentum
        if self.track_running_stats:
            running_mean, running_var = self.running_mean, self.running_var
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                if self.momentum is None:
                    factor = 1.0 / float(self.num_batches_tracked)
        return sync_batch_norm(
            input, running_mean, running_var, self.weight, self.bias, factor, self.eps, group, activation, residual
        )

    def _group(self):
        """The process group to agree with; None where there is nobody else, or nothing to agree on."""
        if not self.training or not dist.is_available() or not dist.is_initialized():
            return None
        group = dist.group.WORLD if self.process_group is None else self.process_group
        return group if dist.get_world_size(group) > 1 else None


def convert_sync_batchnorm(module: nn.Module, process_group=None) -> nn.Module:
    """Every BatchNorm of the model, torch's or isonorm's, as a `SyncBatchNorm` with the same parameters and buffers.

    As torch.nn.SyncBatchNorm.convert_sync_batchnorm: returns the model, of which BatchNorms are replaced; activations are kept.
    """
    converted = module
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
        converted = SyncBatchNorm(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
            process_group,
            activation=getattr(module, "activation", None),
        )
        # The parameters themselves, so that optimizers and ties go on.
        converted.weight, converted.bias = module.weight, module.bias
        converted.running_mean, converted.running_var = module.running_mean, module.running_var
        converted.num_batches_tracked = module.num_batches_tracked
        converted.training = module.training
        if hasattr(module, "qconfig"):
            converted.qconfig = module.qconfig
    elif isinstance(module, nn.SyncBatchNorm) and type(module) is nn.SyncBatchNorm:
        module.__class__ = SyncBatchNorm
        module.process_group = module.process_group if process_group is None else process_group
    for name, child in module.named_children():
        converted.add_module(name, convert_sync_batchnorm(child, process_group))
    return converted


@torch.compiler.disable
def sync_batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    factor: float,
    eps: float,
    group,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """BatchNorm in training over the inputs of all ranks of `group`, each of which has to call this.

    Raises `TypeError` and `ValueError` for tensors that do not fit, before anything is sent."""
    _check(input, weight, bias, running_mean, running_var)
    if residual is not None and (residual.shape != input.shape or residual.dtype != input.dtype):
        y = sync_batch_norm(input, running_mean, running_var, weight, bias, factor, eps, group)
        return _native.finish(y, residual, activation)
    input, where = dense(input, True)
    if residual is not None:
        residual = in_layout(residual, where)
    # Gradients of parameters are sums, and are kept wide until they are a parameter's.
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    channels = input.shape[1]
    weight = input.new_ones(channels, dtype=wide) if weight is None else weight.to(wide)
    bias = input.new_zeros(channels, dtype=wide) if bias is None else bias.to(wide)
    call = Call("batchnorm", 0, eps, activation, False)
    running = (running_mean, running_var, factor)
    if is_rectified(call, residual is not None):
        y = _Synchronized.apply(input, weight, bias, residual.detach(), call, *running, group)
        return _autograd.Rectify.apply(y, residual)
    return _Synchronized.apply(input, weight, bias, residual, call, *running, group)


def _check(input, weight, bias, running_mean, running_var) -> None:
    if input.dtype not in DTYPES or not (input.is_cpu or input.is_cuda and input.dtype != torch.float64):
        raise TypeError(
            f"sync_batch_norm: the input is {input.dtype} on {input.device}, for which there are no kernels"
        )
    for name, tensor in (
        ("weight", weight),
        ("bias", bias),
        ("running_mean", running_mean),
        ("running_var", running_var),
    ):
        if tensor is None:
            continue
        if tensor.shape != (input.shape[1],):
            raise ValueError(
                f"sync_batch_norm: {name} has shape {tuple(tensor.shape)}, expected ({input.shape[1]},) "
                f"(the input is {tuple(input.shape)})"
            )
        if tensor.device != input.device:
            raise ValueError(f"sync_batch_norm: {name} is on {tensor.device}, the input on {input.device}")


class _Synchronized(torch.autograd.Function):
    """What the ranks do together. The statistics are given to kernels as running ones are, since they are not those of
    the input alone."""

    @staticmethod
    def forward(ctx, x, weight, bias, residual, call, running_mean, running_var, factor, group):
        mean, var, count = _statistics(x, group)
        if running_mean is not None:
            _update(running_mean, running_var, mean, var, count, factor)
        plans = _sync_plans.find(call, x, residual is not None)
        y = plans.forward(x, weight, bias, residual, mean, var)
        ctx.plans, ctx.group, ctx.where = plans, group, layout(x, True)
        residual = None if plans.rectifies else to_keep(call, residual)
        ctx.save_for_backward(x, weight, bias, residual, mean, var, count)
        return y

    @staticmethod
    def backward(ctx, dy):
        found = _Gradients.apply(dy, *ctx.saved_tensors, ctx.plans, ctx.group, ctx.where, ctx.needs_input_grad[:4])
        return (*found, *[None] * 5)


class _Gradients(torch.autograd.Function):
    """The backward pass, which has no derivative: every path through it raises."""

    @staticmethod
    def forward(ctx, dy, x, weight, bias, residual, mean, var, count, plans, group, where, needs):
        needs_x, needs_weight, needs_bias, needs_residual = needs
        given = (in_layout(dy, where), x, weight, bias, residual, mean, var)
        own = plans.sums(*given)
        dx = dresidual = None
        if needs_x or needs_residual:
            sums = own.clone()
            dist.all_reduce(sums, group=group)
            # Without samples anywhere there is nobody to read them.
            means = sums / count.clamp(min=1).to(sums.dtype)
            dx, dresidual = plans.backward(*given, means, needs_residual)
            dresidual = dresidual.clone() if dresidual is dy else dresidual
        dbias, dweight = (part.clone() for part in own)
        return (
            (dx if needs_x else None),
            (dweight if needs_weight else None),
            (dbias if needs_bias else None),
            dresidual,
        )

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("a SyncBatchNorm in training has first derivatives; a second was asked for")


def _statistics(x: Tensor, group) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and biased variance of each channel over all ranks, in the types that kernels read, and how many values
    there are."""
    channels = x.shape[1]
    own = torch.zeros(2 * channels + 1, dtype=torch.float64, device=x.device)
    if x.numel() > 0:
        mean, var = _sync_plans.moments(x)
        own[:channels], own[channels:-1] = mean, var
        own[-1] = x.numel() // channels
    ranks = dist.get_world_size(group)
    everyone = own.new_empty(ranks * own.numel())
    dist.all_gather_into_tensor(everyone, own, group=group)
    everyone = everyone.view(ranks, -1)
    means, variances, counts = everyone[:, :channels], everyone[:, channels:-1], everyone[:, -1:]
    count = counts.sum()
    # A rank without values has weight 0.
    share = counts / count.clamp(min=1)
    mean = (share * means).sum(0)
    var = (share * (variances + (means - mean).square())).sum(0)
    mean_type, var_type = statistics_types(x)
    return mean.to(mean_type), var.to(var_type), count


def _update(running_mean, running_var, mean, var, count, factor: float) -> None:
    """The running statistics, in place; they stay as they are where no rank has a value."""
    factor = factor * (count > 0).to(count.dtype)
    unbiased = var * (count / (count - 1).clamp(min=1)).to(var.dtype)
    for running, new in ((running_mean, mean), (running_var, unbiased)):
        running.copy_(running + factor * (new.to(factor.dtype) - running))
