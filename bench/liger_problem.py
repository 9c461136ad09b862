"""Problems as Liger-Kernel carries them out, with its Triton kernels, where it has a function for them."""

from __future__ import annotations

import importlib.metadata

from problems import Problem

# Everything is computed in f32, as PyTorch, isonorm and Liger's own LayerNorm do.
CASTING = "gemma"
# What a model adds to RMSNorm's weight.
OFFSET = 0.0
# Whether dx is written over dy, which is needed again here.
IN_PLACE = False


def version() -> str:
    """Liger's version; `ImportError` where it is not installed, or cannot be imported."""
    try:
        found = importlib.metadata.version("liger-kernel")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError("not installed (pip install liger-kernel)") from None
    try:
        import liger_kernel.ops  # noqa: F401
    except Exception as error:  # Whatever goes wrong with the versions of PyTorch and Triton that are there.
        raise ImportError(f"{found} cannot be imported: {error}") from error
    return found


def formula(p: Problem):
    """The problem as a function of its tensors, as `torch_problem.formula`; `ValueError` where Liger has none for it."""
    from liger_kernel import ops

    eps, dims = p.resolved_eps, p.dims if p.is_rows else 0
    # Its rows are the last dimension; its LayerNorm and GroupNorm have weight and bias, its RMSNorm no bias.
    kind = (p.op, dims, p.affine, p.residual)
    if p.dtype == "f64" or p.act != "none":
        kind = None
    if kind == ("layernorm", 1, "full", ""):
        return lambda x, weight, bias, *_: ops.LigerLayerNormFunction.apply(x, weight, bias, eps)
    if kind in (("rmsnorm", 1, "weight", ""), ("rmsnorm", 1, "none", "")):
        return lambda x, weight, *_: ops.LigerRMSNormFunction.apply(x, weight, eps, OFFSET, CASTING, IN_PLACE)
    if kind == ("rmsnorm", 1, "weight", "stream"):
        add_norm = lambda *tensors: ops.LigerFusedAddRMSNormFunction.apply(*tensors, eps, OFFSET, CASTING, IN_PLACE)
        return lambda x, weight, bias, mean, var, residual: add_norm(x, residual, weight)
    if kind == ("groupnorm", 0, "full", "") and not p.channels_last:
        sizes = (p.shape[1], p.groups)
        return lambda x, weight, bias, *_: ops.LigerGroupNormFunction.apply(x, weight, bias, *sizes, eps)
    raise ValueError("it has no function for this")
