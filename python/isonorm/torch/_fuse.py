"""Fuses one module: the norms that it owns do the addition and the activation behind them.

As far as the trace of its forward proves that this is the same.
"""

from __future__ import annotations

import abc
import types
from typing import NamedTuple, Optional

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize

from . import _fused, _patterns
from ._classes import own_norm
from ._purity import Refused
from ._trace import Trace, trace


class Outcome(NamedTuple):
    """What was found in a module."""

    #: What makes the class of the fused module: `_fused.make` of these; None where there is nothing to fuse.
    parts: Optional[tuple] = None
    sites: tuple[_patterns.Site, ...] = ()
    near: tuple[_patterns.Near, ...] = ()
    #: Why nothing could be looked for.
    refused: str = ""


def look(module: nn.Module, norm_class) -> Outcome:
    """What of the module can be fused; changes nothing. `norm_class` is as in `_patterns.fuse`."""
    base = _fused.base_of(type(module))
    try:
        check(module, base)
        traces = [first] = [_in_both_modes(module, base, Tensor)]
        found = [_patterns.fuse(first.graph, module, norm_class)]
        if first.asks:
            # It may be meant for a list of tensors; that is another trace.
            second = _trace_or_none(module, base, list)
            if second is not None:
                traces.append(second)
                found.append(_patterns.fuse(second.graph, module, norm_class))
        best = max(found, key=lambda f: len(f.sites))
        if not best.sites:
            return Outcome(near=tuple(best.near))
        facts = frozenset().union(*(t.facts for t in traces), *(f.facts for f in found))
        return Outcome((base, traces, facts), tuple(best.sites), tuple(best.near))
    except Refused as refused:
        return Outcome(refused=str(refused))


def fuse_module(module: nn.Module) -> Outcome:
    """Fuses the module as far as it can be, in place."""
    outcome = look(module, own_norm)
    if outcome.parts is not None:
        module.__class__ = _fused.make(*outcome.parts)
    return outcome


def separate(module: nn.Module) -> None:
    """Undoes `fuse_module`."""
    module.__class__ = _fused.base_of(type(module))


def owns_norms(module: nn.Module, is_norm) -> bool:
    """Whether the module has a norm as a child, or in a list or dict of modules, and a forward that may call it."""
    if type(module) in (nn.ModuleList, nn.ModuleDict) or is_norm(module):
        return False
    if getattr(type(module), "forward", None) is nn.Module.forward:
        return False
    for child in module._modules.values():
        inner = child._modules.values() if type(child) in (nn.ModuleList, nn.ModuleDict) else (child,)
        if any(m is not None and is_norm(m) for m in inner):
            return True
    return False


#: What a class may not define itself: a trace or a copy would not see what it does.
_TORCHS_OWN = (
    "__call__ __delattr__ __getattr__ __getattribute__ __getnewargs__ __getnewargs_ex__ __new__ __reduce__ "
    "__reduce_ex__ __setattr__"
).split()


def check(module: nn.Module, base: type) -> None:
    """Raises `Refused` for modules that cannot be looked at by a trace of their forward."""
    if "forward" in module.__dict__:
        raise Refused("its forward is replaced on the instance")
    if isinstance(module, torch.jit.ScriptModule):
        raise Refused("it is scripted")
    if isinstance(module, fx.GraphModule):
        raise Refused("it is a graph module of torch.fx")
    if parametrize.is_parametrized(module):
        raise Refused("it has parametrizations")
    if type(base) not in (type, abc.ABCMeta):
        raise Refused(f"its class is a {type(base).__name__}")
    for name in _TORCHS_OWN:
        if getattr(base, name, None) is not getattr(nn.Module, name, None):
            raise Refused(f"its class defines {name}")
    for cls in base.__mro__[:-1]:
        for name in ("__class__", "__init_subclass__"):
            if name in vars(cls):
                raise Refused(f"{cls.__name__} defines {name}")
    if not isinstance(base.forward, types.FunctionType):
        raise Refused(f"its forward is a {type(base.forward).__name__}")


def _in_both_modes(module: nn.Module, base: type, kind: type) -> Trace:
    found = trace(module, base, True, kind)
    if found.reads_training:
        other = trace(module, base, False, kind)
        if _text(found.graph) != _text(other.graph):
            raise Refused("its forward differs between training and evaluation")
        found = found._replace(facts=found.facts | other.facts)
    return found


def _trace_or_none(module: nn.Module, base: type, kind: type) -> Trace | None:
    try:
        return _in_both_modes(module, base, kind)
    except Refused:
        return None


def _text(graph: fx.Graph) -> list[tuple]:
    """What tells one graph from another."""
    return [(node.op, node.name, str(node.target), str(node.args), str(node.kwargs)) for node in graph.nodes]
