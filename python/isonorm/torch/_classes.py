"""Which classes are norms: torch's, isonorm's for each of them, and those that stay as they are."""

from __future__ import annotations

import re
import sys

import torch
from torch import nn
from torch.nn.utils import parametrize

from . import modules
from .sync import SyncBatchNorm

_CLASSES: dict[type, type] = {
    nn.BatchNorm1d: modules.BatchNorm1d,
    nn.BatchNorm2d: modules.BatchNorm2d,
    nn.BatchNorm3d: modules.BatchNorm3d,
    nn.SyncBatchNorm: SyncBatchNorm,
    nn.InstanceNorm1d: modules.InstanceNorm1d,
    nn.InstanceNorm2d: modules.InstanceNorm2d,
    nn.InstanceNorm3d: modules.InstanceNorm3d,
    nn.LayerNorm: modules.LayerNorm,
    nn.GroupNorm: modules.GroupNorm,
    nn.RMSNorm: modules.RMSNorm,
}
_OURS = frozenset([*_CLASSES.values(), modules.FrozenBatchNorm2d])


def own_norm(module: nn.Module) -> type | None:
    """The class of the module if it is a norm of isonorm that nothing is fused to."""
    return type(module) if type(module) in _OURS and module.activation is None else None


def known() -> dict[type, type]:
    """isonorm's class for each of torch's, and of torchvision's if that is there."""
    misc = sys.modules.get("torchvision.ops.misc")
    frozen = getattr(misc, "FrozenBatchNorm2d", None)
    return _CLASSES if frozen is None else {**_CLASSES, frozen: modules.FrozenBatchNorm2d}


def why_not(module: nn.Module, classes: dict[type, type]) -> str | None:
    """Why a module is not converted: None if it is, empty if it is no norm, or isonorm's already."""
    cls = type(module)
    if cls in classes:
        return "its forward is replaced on the instance" if "forward" in module.__dict__ else None
    if cls in _OURS or isinstance(module, tuple(_OURS)):
        return ""
    name = cls.__name__
    known = next((c for c in classes if isinstance(module, c)), None)
    if isinstance(module, torch.jit.ScriptModule):
        name = getattr(module, "original_name", "")
        return f"a scripted {name}" if _is_norm(name) else ""
    if parametrize.is_parametrized(module) and known is not None:
        return f"a {known.__name__} with parametrizations"
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and _is_norm(name):
        return f"a {name}, which has no parameters before its first call"
    if known is not None:
        return f"a subclass of {known.__name__}: {name}"
    return f"not a class of torch.nn: {cls.__module__}.{name}" if _is_norm(name) and not module._modules else ""


def _is_norm(name: str) -> bool:
    return re.search(r"Norm(\dd)?$", name) is not None
