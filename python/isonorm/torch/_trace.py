"""Traces the forward of one module, whose children are taken as they are, and keeps what the forward read on the way.

The trace is a torch.fx graph of calls of children, functions and tensor methods. It stands for the forward as long as
the *facts* hold: the values of the module's attributes and the types of its children as the forward found them.
`_purity` sees to it that there is nothing else that the forward depends on.
"""

from __future__ import annotations

import inspect
import operator
import sys
import types
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ._purity import Refused, Watch, has_plain_defaults, is_trusted

_MISSING = object()
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_SIMPLE = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.memory_format, torch.layout, torch.Size)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


class Fact(NamedTuple):
    """Something that held when the forward was traced.

    `kind` is "value" (the module's attribute `name` is `value`), "same" (is that function), "class" (is its class's,
    where it is that), "missing" (there is none), "tensor" (is a tensor), "type" (the child at the path `name` has the
    type `value`), or "keys" (the child at the path has children of these names).
    """

    kind: str
    name: str
    value: Any = None


class Trace(NamedTuple):
    """`graph` is what `forward` does with inputs of the type `kind`, where the facts hold."""

    graph: fx.Graph
    facts: frozenset[Fact]
    #: The type of inputs that was assumed: Tensor or list.
    kind: type
    #: Whether the forward asked for the type of an input.
    asks: bool
    #: Whether it read `self.training`.
    reads_training: bool
    #: The children, and their children, whose parts it called or counted.
    entered: frozenset[nn.Module]


def inputs(forward: types.FunctionType) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """The parameters of a forward that have to be given, and those with a default. Raises `Refused` for `*args`."""
    required, optional = [], []
    for parameter in list(inspect.signature(forward).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Refused(f"its forward takes {parameter}")
        if parameter.default is parameter.empty:
            required.append(parameter)
        elif isinstance(parameter.default, _SIMPLE):
            optional.append(parameter)
        else:
            raise Refused(f"the default of its argument {parameter.name} is not a plain value")
    return required, optional


def trace(module: nn.Module, base: type, training: bool, kind: type = Tensor) -> Trace:
    """The trace of `base.forward` of the instance, with the defaults of optional arguments. Raises `Refused`."""
    forward = base.forward
    required, optional = inputs(forward)
    run = _Run(module, base, training, kind)
    args = {p.name: run.input(p.name) for p in required}
    args.update((p.name, p.default) for p in optional)
    positional = [p for p in required + optional if p.kind is not p.KEYWORD_ONLY]
    named = {p.name: args[p.name] for p in required + optional if p.kind is p.KEYWORD_ONLY}
    try:
        with _NoTensors(), run.watch:
            result = forward(run.probe, *(args[p.name] for p in positional), **named)
        run.tracer.graph.output(run.tracer.create_arg(result))
    except Exception as error:
        refused = error if isinstance(error, Refused) else Refused(_reason(error))
        refused.entered = frozenset(run.entered)
        raise refused from None
    return Trace(run.tracer.graph, frozenset(run.facts), kind, run.asks, run.reads_training, frozenset(run.entered))


def _reason(error: Exception) -> str:
    if isinstance(error, fx.proxy.TraceError) and "control flow" in str(error):
        return "its control flow depends on its input"
    first_line = str(error).partition("\n")[0]
    return f"it cannot be traced: {type(error).__name__}: {first_line}"


class _NoTensors(TorchDispatchMode):
    """Stops at every operator on true tensors: its result would become a constant of the trace."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise Refused(f"its forward computes {func} of what is not its input")


class _Run:
    """One run of a forward on traced values."""

    def __init__(self, module: nn.Module, base: type, training: bool, kind: type):
        self.module, self.base, self.training, self.kind = module, base, training, kind
        self.facts: set[Fact] = set()
        self.asks = self.reads_training = False
        self.entered: set[nn.Module] = set()
        self._keep("class", "forward", base.forward)
        self.tracer = _Tracer(self)
        self.probe = self._make_probe()
        self.watch = Watch(base.forward, self.probe)

    def input(self, name: str) -> _Value:
        value = self.tracer.create_proxy("placeholder", name, (), {})
        value.__dict__["is_input"] = True
        return value

    def _make_probe(self) -> nn.Module:
        """What stands for the module in the run: it has no state, and asks here for every attribute."""

        def store(_, name, *value):
            raise Refused(f"its forward stores the attribute {name}")

        body = {
            "__getattribute__": lambda probe, name: self.read(probe, name),
            "__setattr__": store,
            "__delattr__": store,
            "__module__": self.base.__module__,
        }
        probe_class = types.new_class(self.base.__name__, (self.base,), {}, lambda namespace: namespace.update(body))
        return object.__new__(probe_class)

    def read(self, probe: nn.Module, name: str) -> Any:
        """The value of an attribute of the module, as the run is to see it; the fact is kept."""
        own, state = self.module, self.module.__dict__
        if name == "__class__":
            return self.base
        if name == "__dict__":
            raise Refused("its forward reads __dict__")
        if name == "training":
            self.reads_training = True
            return self.training
        if name == "_modules":
            self._keep("keys", "", tuple(own._modules))
            return types.MappingProxyType({key: self.child(key, child) for key, child in own._modules.items()})
        static = inspect.getattr_static(self.base, name, _MISSING)
        if hasattr(type(static), "__get__") and hasattr(type(static), "__set__"):
            self._keep("class", name, getattr(self.base, name))
            return self.watch.untrusted(object.__getattribute__, probe, name)
        if name in state:
            return self._plain(name, state[name])
        if static is not _MISSING:
            if isinstance(static, types.FunctionType) and not has_plain_defaults(static):
                raise Refused(f"the default of an argument of {name} may change")
            if isinstance(static, (*_FUNCTIONS, staticmethod)):
                self._keep("class", name, getattr(self.base, name))
                return object.__getattribute__(probe, name)
            return self._plain(name, getattr(self.base, name))
        for tensors in (own._parameters, own._buffers):
            if name in tensors:
                return self._plain(name, tensors[name])
        if name in own._modules:
            return self.child(name, own._modules[name])
        self._keep("missing", name)
        raise AttributeError(f"{self.base.__name__!r} object has no attribute {name!r}")

    def _plain(self, name: str, value: Any) -> Any:
        if isinstance(value, Tensor):
            self._keep("tensor", name)
            return self.tracer.create_proxy("get_attr", name, (), {})
        if _is_simple(value):
            self._keep("value", name, value)
            return value
        if isinstance(value, _FUNCTIONS):
            self._keep("same", name, value)
            return value
        raise Refused(f"its forward reads self.{name}, a {type(value).__name__} that may change")

    def child(self, path: str, child: nn.Module | None) -> _Child | None:
        self._keep("type", path, type(child))
        return None if child is None else _Child(self, path, child)

    def keys(self, path: str, container: nn.Module) -> list[str]:
        self._keep("keys", path, tuple(container._modules))
        return list(container._modules)

    def _keep(self, kind: str, name: str, value: Any = None) -> None:
        self.facts.add(Fact(kind, name, value))

    def type_of(self, value: _Value) -> type:
        """The type that the forward is told when it asks for that of a traced value."""
        if not value.__dict__.get("is_input"):
            raise Refused("its forward asks for the type of a value that it computed")
        self.asks = True
        return self.kind


def _is_simple(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_simple, value))
    # A number that is not one is never found to be the same again.
    return type(value) in _SIMPLE and value == value


class _Tracer(fx.proxy.GraphAppendingTracer):
    """Appends to a graph what traced values meet."""

    def __init__(self, run: _Run):
        super().__init__(fx.Graph())
        self.run = run

    def proxy(self, node: fx.Node) -> _Value:
        return _Value(node, self)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, fx.Proxy):
            return a.node
        if type(a) in (tuple, list):
            return type(a)(map(self.create_arg, a))
        if type(a) is dict:
            return {self._key(k): self.create_arg(v) for k, v in a.items()}
        if type(a) is slice:
            return slice(*map(self.create_arg, (a.start, a.stop, a.step)))
        if type(a) is torch.Size:
            return tuple(a)
        if type(a) in (*_SIMPLE, complex) or a is ...:
            return a
        raise Refused(f"its forward passes a {type(a).__name__} on, which cannot be traced")

    @staticmethod
    def _key(key: Any) -> Any:
        if not isinstance(key, (str, int)):
            raise Refused(f"its forward makes a dict with keys of type {type(key).__name__}")
        return key


class _Watched:
    """What a traced value must not tell anybody but torch: its type, and attributes that tensors do not have."""

    @property
    def __class__(self):
        if is_trusted(sys._getframe(1).f_code):
            return type(self)
        return self.tracer.run.type_of(self)

    def __getattr__(self, name: str) -> _Attribute:
        if not hasattr(Tensor, name):
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        return _Attribute(self, name)


def _in_place(operation: str):
    """What `x += y` means, as a function: for tensors the operation in place, for numbers another number.

    torch.fx would write it as a statement, which also changes the number x; where a proxy does not know it, as
    `x = x + y`, which does not change the tensor x."""
    change = getattr(operator, operation)

    def function(x, y):
        return change(x, y)

    function.__name__ = function.__qualname__ = operation

    def record(self, y):
        return self.tracer.create_proxy("call_function", function, (self, y), {})

    setattr(_Watched, f"__{operation}__", record)
    return function


#: By their names in `operator`, the functions that stand for operations in place.
IN_PLACE = {
    name: _in_place(name)
    for name in "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift".split()
}


class _Value(_Watched, fx.Proxy):
    """A value that is known when the forward runs."""


class _Attribute(_Watched, fx.proxy.Attribute):
    """An attribute or method of such a value."""


class _Child:
    """A child of the module in a run: it can be called, compared with None, and entered if it is a plain container."""

    __slots__ = ("_run", "_path", "_module")

    def __init__(self, run: _Run, path: str, module: nn.Module):
        self._run, self._path, self._module = run, path, module

    @property
    def __class__(self):
        return _Child if is_trusted(sys._getframe(1).f_code) else type(self._module)

    def __getattr__(self, name: str):
        self._run.entered.update(self._module.modules())
        raise Refused(f"its forward reads {self._path}.{name}")

    def __call__(self, *args, **kwargs) -> _Value:
        return self._run.tracer.create_proxy("call_module", self._path, args, kwargs)

    def __bool__(self) -> bool:
        return len(self) > 0 if hasattr(type(self._module), "__len__") else True

    def __len__(self) -> int:
        return len(self._keys())

    def __iter__(self):
        if type(self._module) is nn.ModuleDict:
            return iter(self._keys())
        return iter([self._at(key) for key in self._keys()])

    def __getitem__(self, key):
        keys = self._keys()
        if type(self._module) is not nn.ModuleDict:
            if not isinstance(key, int):
                self._run.entered.update(self._module.modules())
                raise Refused(f"its forward takes a part of {self._path}")
            key = keys[key]
        return self._at(key)

    def _at(self, key: str) -> _Child | None:
        return self._run.child(f"{self._path}.{key}", self._module._modules[key])

    def _keys(self) -> list[str]:
        self._run.entered.add(self._module)
        if type(self._module) not in _CONTAINERS:
            self._run.entered.update(self._module.modules())
            raise Refused(f"its forward looks into {self._path}")
        return self._run.keys(self._path, self._module)
