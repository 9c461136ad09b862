"""Normalization layers, fused with the activation and the residual add around them, on CPUs and NVIDIA GPUs.

`isonorm.torch` has modules, functions and `convert` for PyTorch. The functions here work on NumPy's arrays, and on whatever else
has `__dlpack__`, in the memory of the host; they need neither of both to be imported.
"""

from __future__ import annotations

from . import _core
from .arrays import batch_norm, group_norm, instance_norm, layer_norm, rms_norm

__version__: str = _core.__version__

__all__ = [
    "__version__",
    "batch_norm",
    "cuda_available",
    "explain",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "rms_norm",
]


def cuda_available() -> bool:
    """Whether there is a GPU, and a driver for it, that isonorm can work on."""
    return _core.cuda_devices() > 0


def explain(problem: str, device: str | None = None) -> str:
    """How a problem is carried out, and why: each candidate taken or declined with its reason, and the bytes it moves.

    `problem` is a problem string such as ``"batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu pass=train"``; `device` is ``"cpu"``,
    ``"cuda"``, ``"cuda:N"`` or a GPU that need not be there, such as ``"h200"``. None: the first GPU if there is one, else the CPU.
    Raises `ValueError` for a problem that cannot be, or a device that is not known.
    """
    return _core.explain(problem, device or ("cuda" if cuda_available() else "cpu"))
