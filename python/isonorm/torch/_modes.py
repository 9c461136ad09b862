"""What changes how torch runs an operator, or in which type."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

# What changes how torch runs an operator. Absent in some version: then it is never active there.
_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_jit_state = getattr(torch._C, "_get_tracing_state", lambda: None)


_is_batched = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda tensor: False)


def is_batched(tensor: torch.Tensor) -> bool:
    """Whether it stands for several tensors, as gradients do that torch.autograd.grad is given with
    `is_grads_batched`."""
    return _is_batched(tensor)


def _is_cast(operator: str) -> bool:
    """Whether autocast on CUDA does something about an operator. Which it does has changed between versions of torch."""
    has_kernel = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", lambda name, key: operator != "rms_norm")
    return has_kernel(f"aten::{operator}", "AutocastCUDA")


#: Ops that autocast on CUDA sends to `float32`.
AUTOCAST_TO_F32 = tuple(
    op
    for op, operator in (("layernorm", "layer_norm"), ("rmsnorm", "rms_norm"), ("groupnorm", "group_norm"))
    if _is_cast(operator)
)


def _rms_norm_promotes() -> bool:
    # Since there is a kernel for it in torch, it does not; to ask would warn of two types then.
    if hasattr(torch.ops.aten, "_fused_rms_norm"):
        return False
    one = torch.ones(1, dtype=torch.float32, device="cpu")
    return torch.rms_norm(one.bfloat16(), (1,), one).dtype != torch.bfloat16


#: Whether torch's RMSNorm gives the wider of two types, as PyTorch 2.4's does.
RMSNORM_PROMOTES = _rms_norm_promotes()


def is_transformed() -> bool:
    """Whether torch does something else with a function than to call it: torch.func's transforms, forward-mode
    derivatives, torch.jit.trace."""
    return _transforms_active() or forward_ad._current_level >= 0 or _jit_state() is not None


def is_watched() -> bool:
    """Whether something else than torch's own dispatcher wants to see operators."""
    return _dispatch_modes() > 0
