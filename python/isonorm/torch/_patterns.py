"""Finds in the trace of a module where an addition or an activation follows a norm, and lets the norm do them.

`relu(bn(x) + r)` becomes `bn(x, residual=r, activation="relu")`. What was computed in between has to be seen by nobody
else, and the norm may be computed as late as the addition only if nothing changes its input in the meantime.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import fx, nn

from . import _activations
from ._trace import IN_PLACE, Fact


class Site(NamedTuple):
    """A call of a norm that does more than to normalize."""

    #: The norm's path in the module.
    norm: str
    #: What it does, for people: `BatchNorm2d + add + relu`.
    what: str


class Near(NamedTuple):
    """A norm with something behind it that stays apart, and why."""

    norm: str
    reason: str


class Found(NamedTuple):
    sites: list[Site]
    near: list[Near]
    #: What has to hold besides the facts of the trace. Of kind "plain": the child at that path has no hooks and no
    #: forward of its own; of kind "child": it has the attribute `value[0]` with the value `value[1]`.
    facts: frozenset[Fact]


def fuse(graph: fx.Graph, module: nn.Module, norm_class) -> Found:
    """Rewrites the graph.

    `norm_class(child)` is isonorm's class of a child that is a norm of isonorm without an activation, or becomes one;
    else None."""
    return _Search(graph, module, norm_class).run()


def add_in_place(norm: nn.Module, x: torch.Tensor, residual: torch.Tensor, activation: str | None) -> torch.Tensor:
    """`activation(norm(x).add_(residual))`: the sum has the shape and type of the norm's result, whatever is added."""
    if isinstance(residual, torch.Tensor) and residual.shape == x.shape and residual.dtype == x.dtype:
        return norm(x, residual=residual, activation=activation)
    y = norm(x)
    y += residual
    function = _activations.function(activation)
    return y if function is None else function(y)


def is_plain(module: nn.Module) -> bool:
    """Whether a call of the module is a call of its class's forward and nothing else."""
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
    )


_ADDITIONS = {operator.add, torch.add, torch.Tensor.add}
_ADDITIONS_IN_PLACE = {IN_PLACE["iadd"], torch.Tensor.add_}

# Each activation's arguments behind the input.
_INPLACE = ("inplace",)
_FUNCTIONS = {
    torch.relu: ("relu", ()),
    torch.relu_: ("relu", ()),
    F.relu: ("relu", _INPLACE),
    F.silu: ("silu", _INPLACE),
    F.hardswish: ("hardswish", _INPLACE),
    F.gelu: ("gelu", ("approximate",)),
    F.leaky_relu: ("leaky_relu", ("negative_slope", "inplace")),
    F.leaky_relu_: ("leaky_relu", ("negative_slope",)),
    torch.sigmoid: ("sigmoid", ()),
    torch.sigmoid_: ("sigmoid", ()),
    torch.tanh: ("tanh", ()),
    torch.tanh_: ("tanh", ()),
}
_METHODS = {"relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_"}
_MODULES = {
    nn.ReLU: "relu",
    nn.SiLU: "silu",
    nn.Hardswish: "hardswish",
    nn.GELU: "gelu",
    nn.LeakyReLU: "leaky_relu",
    nn.Sigmoid: "sigmoid",
    nn.Tanh: "tanh",
}
#: The attribute of a module, or the argument of a function, that says which activation of its kind it is.
_PARAMETER = {"gelu": "approximate", "leaky_relu": "negative_slope"}


def _activation(kind: str, parameter: Any) -> str | None:
    """isonorm's name of an activation; None if it has none."""
    if kind == "gelu":
        return {"none": "gelu", "tanh": "gelu_tanh"}.get(parameter) if isinstance(parameter, str) else None
    if kind == "leaky_relu":
        if type(parameter) not in (int, float) or not math.isfinite(parameter):
            return None
        return kind if parameter == 0.01 else f"{kind}:{float(parameter)!r}"
    return kind


_DEFAULTS = {"gelu": "none", "leaky_relu": 0.01}

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
#: Functions whose result is a new tensor, and that change nothing.
_FRESH = {
    torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d,
    F.linear, torch.matmul, operator.matmul, operator.add, operator.sub, operator.mul, operator.truediv, torch.cat,
}  # fmt: skip


class _Search:
    def __init__(self, graph: fx.Graph, module: nn.Module, norm_class):
        self.graph, self.module, self.norm_class = graph, module, norm_class
        self.sites: list[Site] = []
        self.near: list[Near] = []
        self.facts: set[Fact] = set()

    def run(self) -> Found:
        # From the last to the first: of two norms that are added, the later one can wait for the other.
        for node in reversed(list(self.graph.nodes)):
            if node.op == "call_module" and self.norm_class(self.child(node)) is not None:
                self.try_norm(node)
        self.sites.reverse()
        return Found(self.sites, self.near, frozenset(self.facts))

    def child(self, node: fx.Node) -> nn.Module:
        return self.module.get_submodule(node.target)

    def try_norm(self, norm: fx.Node) -> None:
        if len(norm.args) != 1 or norm.kwargs or not isinstance(norm.args[0], fx.Node) or len(norm.users) != 1:
            return
        (user,) = norm.users
        addition = self.addition(user, norm)
        activation = None
        last = norm
        if addition is not None:
            residual, in_place = addition
            last = user
            user = next(iter(user.users)) if len(user.users) == 1 else None
        if user is not None:
            activation = self.activation(norm, user, last)
        if addition is None and activation is None:
            return
        if not is_plain(self.child(norm)):
            return self.stays(norm, "the norm has hooks or a forward of its own")
        if addition is not None:
            reason = self.cannot_wait(norm, last) or self.changes_later(residual, last)
            if reason is not None:
                return self.stays(norm, reason)
        self.rewrite(norm, last, addition, activation, user)

    def stays(self, norm: fx.Node, reason: str) -> None:
        self.near.append(Near(norm.target, reason))

    def rewrite(self, norm, last, addition, activation, user) -> None:
        graph, (x,) = self.graph, norm.args
        keywords: dict[str, Any] = {} if activation is None else {"activation": activation}
        with graph.inserting_before(last):
            if addition is None:
                call = graph.call_module(norm.target, (x,), keywords)
            elif addition[1]:
                holder = graph.create_node("get_attr", norm.target)
                call = graph.call_function(add_in_place, (holder, x, addition[0], activation))
            else:
                call = graph.call_module(norm.target, (x,), {"residual": addition[0], **keywords})
        end = last if activation is None else user
        end.replace_all_uses_with(call)
        gone = [end, last, norm]
        for node in dict.fromkeys(gone):
            graph.erase_node(node)
        self.facts.add(Fact("plain", norm.target))
        self.facts.add(Fact("child", norm.target, ("activation", None)))
        words = [self.norm_class(self.child(norm)).__name__]
        words += ["add"] if addition is not None else []
        words += [activation.partition(":")[0]] if activation is not None else []
        self.sites.append(Site(norm.target, " + ".join(words)))

    def addition(self, user: fx.Node, norm: fx.Node) -> tuple[fx.Node, bool] | None:
        """The other operand if `user` adds something to the norm's result, and whether it does so in place."""
        method = {"add": torch.Tensor.add, "add_": torch.Tensor.add_}
        target = method.get(user.target) if user.op == "call_method" else user.target
        if user.op not in ("call_function", "call_method") or len(user.args) != 2:
            return None
        in_place = target in _ADDITIONS_IN_PLACE
        if not in_place and target not in _ADDITIONS:
            return None
        alpha = user.kwargs.get("alpha", 1)
        if set(user.kwargs) - {"alpha"} or type(alpha) is not int or alpha != 1:
            return None
        first, second = user.args
        residual = second if first is norm else first
        if not isinstance(residual, fx.Node) or residual is norm or (in_place and first is not norm):
            return None
        return residual, in_place

    def activation(self, norm: fx.Node, user: fx.Node, given: fx.Node) -> str | None:
        """isonorm's name of what `user` does with `given` if it is an activation."""
        if not user.args or user.args[0] is not given:
            return None
        if user.op == "call_module":
            return self.module_activation(norm, user)
        if user.op == "call_method" and user.target in _METHODS and len(user.args) == 1 and not user.kwargs:
            return user.target.rstrip("_")
        if user.op != "call_function" or user.target not in _FUNCTIONS:
            return None
        kind, names = _FUNCTIONS[user.target]
        if len(user.args) > 1 + len(names) or not set(user.kwargs) <= set(names):
            return None
        given_args = {**dict(zip(names, user.args[1:])), **user.kwargs}
        return _activation(kind, given_args.get(_PARAMETER.get(kind), _DEFAULTS.get(kind)))

    def module_activation(self, norm: fx.Node, user: fx.Node) -> str | None:
        module = self.child(user)
        kind = next((name for cls, name in _MODULES.items() if isinstance(module, cls)), None)
        if kind is None:
            if type(module).__module__ == nn.ReLU.__module__ and not isinstance(module, nn.MultiheadAttention):
                self.stays(norm, f"the activation {type(module).__name__} is not one of isonorm's")
            return None
        if type(module) not in _MODULES:
            parent = next(cls for cls in _MODULES if isinstance(module, cls))
            self.stays(norm, f"the activation is a subclass of {parent.__name__}")
            return None
        if not is_plain(module):
            self.stays(norm, "the activation has hooks or a forward of its own")
            return None
        if len(user.args) != 1 or user.kwargs:
            return None
        attribute = _PARAMETER.get(kind)
        found = _activation(kind, getattr(module, attribute) if attribute else None)
        if found is not None:
            self.facts.add(Fact("plain", user.target))
            if attribute:
                self.facts.add(Fact("child", user.target, (attribute, getattr(module, attribute))))
        return found

    def cannot_wait(self, norm: fx.Node, until: fx.Node) -> str | None:
        """Why the norm may not be computed right before `until` instead of where it is."""
        (x,) = norm.args
        between = []
        node = norm.next
        while node is not until:
            between.append(node)
            node = node.next
        between = [node for node in between if node.op not in ("placeholder", "get_attr")]
        if not between:
            return None
        if not (self.is_fresh(x) and len(x.users) == 1) and not all(map(self.is_quiet, between)):
            return "its input may be changed before the addition"
        module = self.child(norm)
        shared = {id(module)} | {id(b) for b in module.buffers()}
        for node in between:
            if node.op != "call_module":
                continue
            child = self.child(node)
            if shared & {id(t) for t in (*child.modules(), *child.buffers())}:
                return f"{node.target}, which is called before the addition, shares its state"
            if isinstance(module, nn.SyncBatchNorm) and not self.is_quiet(node):
                return f"{node.target}, which is called before the addition, may communicate"
        return None

    def changes_later(self, residual: fx.Node, addition: fx.Node) -> str | None:
        """A residual may be needed by the backward pass."""
        later = set()
        node = addition.next
        while node.op != "root":
            later.add(node)
            node = node.next
        for user in residual.users:
            name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "")
            changes = user.op == "call_method" and name.endswith("_") and not name.endswith("__")
            changes = changes or (user.op == "call_function" and (name.endswith("_") or name in IN_PLACE))
            changes = changes or (user.op == "call_module" and getattr(self.child(user), "inplace", False))
            changes = changes or user.kwargs.get("inplace", False)
            if changes and user in later:
                return "the residual is changed in place later"
        return None

    def is_fresh(self, node: fx.Node) -> bool:
        """Whether the result is a tensor that nobody else has."""
        if node.op == "call_module":
            return self.is_fresh_module(node.target, self.child(node))
        return node.op == "call_function" and node.target in _FRESH

    def is_fresh_module(self, path: str, module: nn.Module) -> bool:
        self.facts.add(Fact("type", path, type(module)))
        if not is_plain(module):
            return False
        if type(module) is nn.Sequential and len(module) > 0:
            keys = tuple(module._modules)
            self.facts.add(Fact("keys", path, keys))
            return self.is_fresh_module(f"{path}.{keys[-1]}", module[-1])
        return type(module) in _CONVOLUTIONS or type(module) in _NORMS or self.norm_class(module) is not None

    def is_quiet(self, node: fx.Node) -> bool:
        """Whether the call changes none of its arguments, and does not communicate."""
        if node.op == "call_module":
            return self.is_quiet_module(node.target, self.child(node))
        return node.op == "call_function" and node.target in _FRESH

    def is_quiet_module(self, path: str, module: nn.Module) -> bool:
        self.facts.add(Fact("type", path, type(module)))
        if not is_plain(module) or isinstance(module, nn.SyncBatchNorm):
            return False
        if type(module) is nn.Sequential:
            self.facts.add(Fact("keys", path, tuple(module._modules)))
            return all(self.is_quiet_module(f"{path}.{key}", child) for key, child in module._modules.items())
        return type(module) in _POOLS or type(module) is nn.Identity or self.is_fresh_module(path, module)
