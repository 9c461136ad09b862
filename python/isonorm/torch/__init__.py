"""isonorm for PyTorch: `convert(model)` makes a model faster and leaves everything else about it as it was.

Modules are subclasses of torch.nn's of the same names; `functional` has torch.nn.functional's. See docs/python.md.
"""

from __future__ import annotations

from . import functional
from .convert import convert, plan_conversion, revert
from .fold import fold
from .modules import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    FrozenBatchNorm2d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)
from .sync import SyncBatchNorm, convert_sync_batchnorm

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "FrozenBatchNorm2d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "RMSNorm",
    "SyncBatchNorm",
    "convert",
    "convert_sync_batchnorm",
    "fold",
    "functional",
    "plan_conversion",
    "revert",
]
