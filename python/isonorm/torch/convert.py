"""Converts a model to isonorm in place, and back.

A norm is converted by changing its class: parameters, buffers, hooks, and every reference to it stay. Where a trace
proves it, the addition and the activation behind a norm are made part of it (`_fuse`), again by changing the class of
the module around them.
"""

from __future__ import annotations

from typing import Iterator

from torch import nn

from . import _fuse, _fused
from ._classes import known, own_norm, why_not
from ._report import Report
from .modules import SITE

__all__ = ["convert", "plan_conversion", "revert"]

#: Set on what was converted, so that `revert` knows it from what was made as isonorm's.
_CONVERTED = "_isonorm_converted"


def convert(model: nn.Module, *, fuse: bool = True, verbose: bool = True) -> nn.Module:
    """Makes each norm of the model one of isonorm's; in place, and returns the model.

    Nothing else changes: the modules are the same objects with the same parameters, buffers, hooks and state dict; only
    their class is another, a subclass of the one before. Converted are instances of exactly torch.nn's classes, and of
    torchvision's FrozenBatchNorm2d.

    fuse: Let norms do the activation and the residual addition behind them too, where the forward of the module that
        owns them proves to be `activation(norm(x) + residual)` there. The class of such a module becomes a subclass of
        its class, whose forward is the original again when the module is changed later.
    verbose: Print what was done and what was left alone, and why; `plan_conversion` returns the same.
    """
    report = plan_conversion(model, fuse=fuse) if verbose else None
    classes = known()
    for module in model.modules():
        if why_not(module, classes) is None:
            module.__class__ = classes[type(module)]
            module.__dict__[_CONVERTED] = True
    if fuse:
        for _, module in _owners(model, own_norm):
            _fuse.separate(module)
            _fuse.fuse_module(module)
    if report is not None:
        print(report)
    return model


def revert(model: nn.Module) -> nn.Module:
    """Undoes `convert`, in place, and returns the model: classes and forwards are what they were.

    Norms that were made as isonorm's stay, and so do those that have been given an `activation` since."""
    torchs = {ours: theirs for theirs, ours in known().items()}
    for module in model.modules():
        if _fused.is_fused(module):
            _fuse.separate(module)
        module.__dict__.pop(SITE, None)
        if _CONVERTED in module.__dict__ and type(module) in torchs and module.activation is None:
            module.__class__ = torchs[type(module)]
            for name in (_CONVERTED, "activation"):
                module.__dict__.pop(name, None)
    return model


def plan_conversion(model: nn.Module, *, fuse: bool = True) -> Report:
    """What `convert` would do with the model, which stays as it is."""
    report = Report()
    classes = known()

    def norm_class(module: nn.Module) -> type | None:
        return classes[type(module)] if why_not(module, classes) is None else own_norm(module)

    norms: dict[nn.Module, bool] = {}
    for path, module in model.named_modules():
        reason = why_not(module, classes)
        if reason is None:
            report.done[type(module).__name__] += 1
        elif reason:
            report.leave(path, reason)
        if norm_class(module) is not None:
            norms[module] = False
    if fuse:
        for path, module in _owners(model, norm_class):
            outcome = _fuse.look(module, norm_class)
            if outcome.refused:
                report.leave(path, f"not fused, since {outcome.refused}")
            for site in outcome.sites:
                report.fused[site.what] += 1
                norms[module.get_submodule(site.norm)] = True
            for near in outcome.near:
                report.leave(f"{path}.{near.norm}".lstrip("."), f"not fused, since {near.reason}")
    report.plain = list(norms.values()).count(False)
    return report


def _owners(model: nn.Module, norm_class) -> Iterator[tuple[str, nn.Module]]:
    """The modules whose forward may call a norm of their own."""
    for path, module in list(model.named_modules()):
        if _fuse.owns_norms(module, lambda m: norm_class(m) is not None):
            yield path, module
