"""Makes the class of a module whose forward is a rewritten trace.

It is a subclass of the module's class and adds no state, so that a module is fused by changing its `__class__`, and
separated by changing it back. The forward looks first whether what it stands on still holds: the facts of the trace,
and inputs of the types that were assumed. If not, it is the original one. Copies keep the class; pickles name the
original one, and are fused again when they are loaded.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import types
import weakref
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as _module

from ._patterns import is_plain
from ._trace import Fact, Trace

_MISSING = object()
#: Values of these types are compared by identity, others by type and value.
_SINGLE = (type(None), bool, types.FunctionType, types.BuiltinFunctionType, property)
_MARK = "_isonorm_base"
_numbers = itertools.count()
_classes: weakref.WeakValueDictionary[tuple, type] = weakref.WeakValueDictionary()


def base_of(cls: type) -> type:
    """The class that a module had before it was fused; `cls` itself if it is not a class that was made here."""
    return vars(cls).get(_MARK, cls)


def is_fused(module: nn.Module) -> bool:
    """Whether the module's forward is one that was made here."""
    return _MARK in vars(type(module))


def make(base: type, traces: list[Trace], facts: frozenset[Fact]) -> type:
    """A subclass of `base` whose forward is that of the rewritten traces. The same arguments make the same class."""
    codes = [found.graph.python_code("self") for found in traces]
    names, source = _source(base, traces, facts)
    key = (base, source, tuple(names.values()), *((code.src, tuple(code.globals.values())) for code in codes))
    found = _classes.get(key)
    if found is None:
        for number, code in enumerate(codes):
            names[f"_trace{number}"] = _compiled(base, code.src, code.globals)
        found = _classes[key] = _new(base, _compiled(base, source, names))
    return found


def no_global_hooks() -> bool:
    """Whether no hook wants to see the calls of all modules."""
    return not (
        _module._global_forward_hooks
        or _module._global_forward_pre_hooks
        or _module._global_backward_hooks
        or _module._global_backward_pre_hooks
    )


def _compiled(base: type, source: str, names: dict[str, Any]) -> types.FunctionType:
    """The function `forward` of a source text."""
    file = f"<isonorm {base.__qualname__} {next(_numbers)}>"
    scope = dict(names)
    exec(compile(source, file, "exec"), scope)
    forward = scope["forward"]
    # Tracebacks and inspect find the source there.
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    weakref.finalize(forward, linecache.cache.pop, file, None)
    return forward


def _new(base: type, forward: types.FunctionType) -> type:
    def reduce(self, protocol):
        parts = object.__reduce_ex__(self, protocol)
        return (restore, (base, _Copied(cls)), parts[2]) if type(self) is cls else parts

    body = {
        "forward": forward,
        "__reduce_ex__": reduce,
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        _MARK: base,
    }
    cls = types.new_class(f"Fused<{base.__name__}>", (base,), {}, lambda namespace: namespace.update(body))
    return cls


class _Copied:
    """Carries the class of a module to its copy in the same process; a pickle of it carries nothing."""

    def __init__(self, cls: type | None = None):
        self.cls = cls

    def __deepcopy__(self, memo: dict) -> _Copied:
        return self

    def __reduce__(self):
        return _Copied, ()


def restore(base: type, copied: _Copied) -> nn.Module:
    """The empty module that a copy or a pickle begins with: fused, or to be fused when it has its state."""
    cls = copied.cls
    if cls is None:

        def settle(self, state):
            from ._fuse import fuse_module

            self.__class__ = base
            self.__setstate__(state)
            fuse_module(self)

        cls = types.new_class(base.__name__, (base,), {}, lambda namespace: namespace.update(__setstate__=settle))
    return cls.__new__(cls)


def _source(base: type, traces: list[Trace], facts: frozenset[Fact]) -> tuple[dict[str, Any], str]:
    """The source of the forward, and the global names that it needs."""
    names: dict[str, Any] = {
        "_base": base,
        "_Tensor": Tensor,
        "_missing": _MISSING,
        "_is_plain": is_plain,
        "_no_global_hooks": no_global_hooks,
    }
    parameters, call = _signature(base, names)
    guard = _Guard(names)
    lines = [f"def forward({parameters}):", "    _m, _d = self._modules, self.__dict__", "    if (_no_global_hooks()"]
    lines += [f"        and {text}" for text in guard.all(facts)]
    lines.append("    ):")
    for number, found in enumerate(traces):
        placeholders = [node.target for node in found.graph.nodes if node.op == "placeholder"]
        checks = [guard.input(name, found) for name in placeholders]
        checks += [guard.same(p.name, p.default) for p in inspect.signature(base.forward).parameters.values()
                   if p.default is not p.empty]  # fmt: skip
        lines.append(f"        if {' and '.join(checks) or 'True'}:")
        lines.append(f"            return _trace{number}({', '.join(['self', *placeholders])})")
    lines.append(f"    return _base.forward({call})")
    return names, "\n".join(lines) + "\n"


def _signature(base: type, names: dict[str, Any]) -> tuple[str, str]:
    """The parameters of the forward as they stand in its definition, and as they are passed on."""
    parameters, call = [], ["self"]
    kinds = []
    for parameter in list(inspect.signature(base.forward).parameters.values())[1:]:
        name = parameter.name
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.KEYWORD_ONLY not in kinds:
            parameters.append("*")
        if kinds and kinds[-1] is parameter.POSITIONAL_ONLY and parameter.kind is not parameter.POSITIONAL_ONLY:
            parameters.append("/")
        kinds.append(parameter.kind)
        if parameter.default is parameter.empty:
            parameters.append(name)
        else:
            names[f"_default_{name}"] = parameter.default
            parameters.append(f"{name}=_default_{name}")
        call.append(f"{name}={name}" if parameter.kind is parameter.KEYWORD_ONLY else name)
    if kinds and kinds[-1] is inspect.Parameter.POSITIONAL_ONLY:
        parameters.append("/")
    return ", ".join(["self", *parameters]), ", ".join(call)


class _Guard:
    """Expressions that ask whether facts still hold; what they compare with are global names."""

    def __init__(self, names: dict[str, Any]):
        self._names = names

    def all(self, facts: frozenset[Fact]) -> list[str]:
        # A path is followed only when the types on the way have been found right.
        order = {"keys": 1, "plain": 2, "child": 2}

        def key(fact: Fact):
            depth = fact.name.count(".") if fact.kind in _OF_CHILDREN else -1
            return depth, order.get(fact.kind, 0), str(fact)

        return [self._fact(*fact) for fact in sorted(facts, key=key)]

    def input(self, name: str, found: Trace) -> str:
        if found.kind is Tensor and not found.asks:
            return f"isinstance({name}, _Tensor)"
        return f"type({name}) is {self._constant(found.kind)}"

    def same(self, expression: str, value: Any) -> str:
        constant = self._constant(value)
        if isinstance(value, _SINGLE):
            return f"{expression} is {constant}"
        return f"type(_v := {expression}) is {self._constant(type(value))} and _v == {constant}"

    def _fact(self, kind: str, name: str, value: Any) -> str:
        if kind == "missing":
            return f"not hasattr(self, {name!r})"
        if kind == "tensor":
            return f"isinstance(getattr(self, {name!r}, None), _Tensor)"
        if kind == "class":
            text = f"_base.{name} is {self._constant(value)}"
            return text if isinstance(value, property) else f"{text} and {name!r} not in _d"
        if kind in ("value", "same"):
            return self.same(f"getattr(self, {name!r}, _missing)", value)
        children = "_m" + "".join(f".get({part!r})._modules" for part in name.split(".") if part)
        child = children[: -len("._modules")]
        if kind == "type":
            return f"type({child}) is {self._constant(value)}"
        if kind == "keys":
            return f"tuple({children}) == {value!r}"
        if kind == "plain":
            return f"_is_plain({child})"
        if kind == "child":
            return self.same(f"{child}.{value[0]}", value[1])
        raise ValueError(f"unknown fact {kind!r}")

    def _constant(self, value: Any) -> str:
        for name, known in self._names.items():
            if known is value:
                return name
        name = f"_c{len(self._names)}"
        self._names[name] = value
        return name


_OF_CHILDREN = ("type", "keys", "plain", "child")
