"""Looks at what Python code could do besides compute: the ground on which a trace may stand for the function.

A trace is what one run did. It stands for every run if whatever the function reads either cannot change or is watched,
and if it does nothing that the trace does not record. So each Python function that the traced one enters is looked at
before it runs, and what is not known to be harmless ends the trace: stores to attributes and globals, reads of globals
that are neither functions nor classes, context managers, exception handlers, imports, comparisons by identity. That
global functions and classes stay what they are is taken for granted.
"""

from __future__ import annotations

import builtins
import dis
import functools
import gc
import math
import operator
import os
import sys
import types
from typing import Any

import torch


class Refused(Exception):
    """Why something is left as it is."""

    #: The modules whose parts were looked at before that.
    entered: frozenset = frozenset()


#: Builtins whose result depends on their arguments alone, and that change nothing.
_BUILTINS = {
    getattr(builtins, name)
    for name in (
        "abs all any bool dict enumerate filter float frozenset getattr hasattr int isinstance iter len list map max "
        "min next pow range reversed round set slice sorted str sum super tuple zip"
    ).split()
}

_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
#: torch's own files whose functions record what they are given, or only read the modules that are watched.
_TRUSTED_FILES = {
    os.path.join(_TORCH, *path.split("/"))
    for path in (
        "_jit_internal.py functional.py nn/functional.py nn/modules/container.py nn/modules/module.py overrides.py"
    ).split()
}
_HERE = os.path.dirname(os.path.abspath(__file__))
_TRUSTED_FILES.update(os.path.join(_HERE, name) for name in ("_purity.py", "_trace.py"))
_TRUSTED_FOLDER = os.path.join(_TORCH, "fx") + os.sep

_CONSTANTS = (torch.dtype, torch.memory_format, torch.layout, torch.device)
#: What a call of a module enters. The children of a module are called otherwise.
_MODULE_CALLS = {
    getattr(torch.nn.Module, name).__code__
    for name in ("_call_impl", "_wrapped_call_impl")
    if hasattr(torch.nn.Module, name)
}


def is_trusted(code: types.CodeType) -> bool:
    """Whether this function is one of torch's or isonorm's that a trace goes through without harm."""
    file = code.co_filename
    return file in _TRUSTED_FILES or file.startswith(_TRUSTED_FOLDER) or code is torch._assert.__code__


@functools.lru_cache(maxsize=1)
def _recorded() -> frozenset:
    """torch's functions that a trace records when they are given a traced value."""
    found = {function for functions in torch.overrides.get_overridable_functions().values() for function in functions}
    # The list lacks some functions that change their argument, which are recorded as well.
    in_place = [(space, name) for space in (torch, torch.nn.functional) for name in dir(space) if name.endswith("_")]
    found.update(getattr(space, name) for space, name in in_place if getattr(space, name[:-1], None) in found)
    return frozenset(found)


def _is_harmless(value: Any) -> bool:
    """Whether code may read this value from a global: it stays the same, and a call of it is harmless or seen."""
    if isinstance(value, types.FunctionType):
        return has_plain_defaults(value)
    if isinstance(value, type) or value is Ellipsis:
        return True
    if isinstance(value, types.MethodType):
        return isinstance(value.__self__, type)
    if isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
        return value in _BUILTINS or value in _recorded() or value.__module__ in ("math", "_operator")
    return isinstance(value, _CONSTANTS) or getattr(type(value), "__module__", "") == "typing"


def has_plain_defaults(function: types.FunctionType) -> bool:
    """Whether the defaults of a function's arguments are values that cannot change."""
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    while defaults:
        value = defaults.pop()
        if type(value) is tuple:
            defaults.extend(value)
        elif not (value is None or isinstance(value, (bool, int, float, str, bytes)) or _is_harmless(value)):
            return False
    return True


class Watch:
    """Looks at each Python function that is called while it is entered; `Refused` stops one that may do harm."""

    def __init__(self, forward: types.FunctionType, owner: object):
        self._forward, self._owner = forward.__code__, owner
        self._depth = 0
        self._refused: Refused | None = None
        self._inner: set[types.CodeType] = set()

    def __enter__(self) -> Watch:
        self._before, self._collects = sys.getprofile(), gc.isenabled()
        # What a collection would call has nothing to do with the function.
        gc.disable()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)
        if self._collects:
            gc.enable()
        # It was raised already, but there are places where Python drops an exception.
        if self._refused is not None:
            raise self._refused

    def untrusted(self, function, *args):
        """Calls what trusted code has to call, but which is not trusted for that."""
        depth, self._depth = self._depth, 0
        try:
            return function(*args)
        finally:
            self._depth = depth

    def _event(self, frame: types.FrameType, event: str, _: object) -> None:
        if event == "call":
            # What trusted functions call is their business.
            if self._depth == 0 and frame.f_code in _MODULE_CALLS:
                self._refused = Refused("its forward calls a module that is not one of its children")
                raise self._refused
            if self._depth or is_trusted(frame.f_code):
                self._depth += 1
            else:
                try:
                    self._look_at(frame)
                except Refused as refused:
                    if frame.f_code.co_filename.startswith(_TORCH + os.sep):
                        refused = Refused(f"its forward runs {frame.f_globals.get('__name__')}.{frame.f_code.co_name}")
                    self._refused = self._refused or refused
                    raise self._refused from None
        elif event == "return" and self._depth:
            self._depth -= 1

    def _look_at(self, frame: types.FrameType) -> None:
        code = frame.f_code
        self._inner.update(c for c in code.co_consts if isinstance(c, types.CodeType))
        if code not in self._inner:
            for name in code.co_freevars:
                value = frame.f_locals.get(name)
                if not _is_harmless(value):
                    raise Refused(f"{code.co_name} reads {name} of the function around it")
        first = code.co_varnames[0] if code.co_argcount else None
        owner = first if first is not None and frame.f_locals.get(first) is self._owner else None
        _Reader(code, frame.f_globals, frame.f_builtins, owner, code is self._forward).read()


def names_of_values(cls: type) -> set[str]:
    """The attributes that the functions of a class do more with than to call them or to compare them with None.

    May name more than those, but not attributes that are read by `getattr`."""
    functions = [f for c in cls.__mro__ if c.__module__.partition(".")[0] != "torch" for f in vars(c).values()]
    functions = [f.fget if isinstance(f, property) else f for f in functions]
    codes = [f.__code__ for f in functions if isinstance(f, types.FunctionType)]
    found = set()
    for code in codes:
        codes.extend(c for c in code.co_consts if isinstance(c, types.CodeType))
        steps = _steps(code)
        for step, *after in zip(steps, steps[1:], steps[2:]):
            # Before Python 3.12 a method call has an operation of its own, since then a bit.
            is_call = sys.version_info >= (3, 12) and step.arg is not None and bool(step.arg & 1)
            asks_none = after[0].opname.endswith(_NONE_TESTS) or after[1].opname == "IS_OP"
            if step.opname == "LOAD_ATTR" and not is_call and not asks_none:
                found.add(step.argval)
    return found


def _steps(code: types.CodeType) -> list[dis.Instruction]:
    return [i for i in dis.get_instructions(code) if i.opname not in _SKIPPED]


_NONE_TESTS = ("IF_NONE", "IF_NOT_NONE")
_SKIPPED = ("EXTENDED_ARG", "CACHE", "NOP", "PRECALL", "RESUME")
_STORES = {
    "STORE_ATTR": "stores the attribute",
    "DELETE_ATTR": "deletes the attribute",
    "STORE_GLOBAL": "stores the global",
    "DELETE_GLOBAL": "deletes the global",
}
_FORBIDDEN = {
    "WITH": "has a with statement",
    "SETUP_FINALLY": "has a try statement",
    "PUSH_EXC_INFO": "has a try or with statement",
    "IMPORT": "imports",
    "AWAIT": "awaits",
    "ASYNC": "awaits",
    "MATCH": "matches patterns",
    "LOAD_BUILD_CLASS": "defines a class",
}


class _Reader:
    """Reads the bytecode of one function."""

    def __init__(self, code, global_names, builtin_names, owner: str | None, is_forward: bool):
        self._code, self._globals, self._builtins = code, global_names, builtin_names
        self._owner, self._is_forward = owner, is_forward
        self._steps = _steps(code)

    def read(self) -> None:
        for step in self._steps:
            name, what = step.opname, step.argval
            if name in _STORES:
                self._refuse(f"{_STORES[name]} {what}")
            for part, reason in _FORBIDDEN.items():
                if part in name:
                    self._refuse(reason)
            if name == "STORE_DEREF" and what in self._code.co_freevars:
                self._refuse(f"stores {what} of the function around it")
        for at, step in enumerate(self._steps):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                self._global(at)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval.startswith("__"):
                self._refuse(f"reads {step.argval}")
            elif step.opname == "IS_OP" or step.opname.endswith(_NONE_TESTS):
                self._identity(at)

    def _refuse(self, what: str):
        raise Refused(f"{self._code.co_name} {what}")

    def _global(self, at: int) -> None:
        """A global, and what is read of it at once if it is a module or class: `torch.nn.functional.relu`."""
        name = path = self._steps[at].argval
        if name in self._globals:
            value = self._globals[name]
        elif name in self._builtins:
            value = self._builtins[name]
            if value is print:
                self._refuse("prints")
            is_exception = isinstance(value, type) and issubclass(value, BaseException)
            if value not in _BUILTINS and not is_exception:
                self._refuse(f"uses {name}")
            return
        else:
            self._refuse(f"reads the global {name}, which there is not")
        is_math = value is math or value is operator
        for step in self._steps[at + 1 :]:
            if step.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            if not isinstance(value, (types.ModuleType, type)):
                self._refuse(f"reads {path}.{step.argval}")
            path = f"{path}.{step.argval}"
            value = getattr(value, step.argval, None)
        if value is type or not (_is_harmless(value) or (is_math and isinstance(value, float))):
            self._refuse(f"reads {path}, which may change or do more than compute")

    def _identity(self, at: int) -> None:
        """`is` asks for None, and of an attribute of the module or an argument of `forward`: those are watched."""
        if self._steps[at].opname == "IS_OP":
            at -= 1
            if self._steps[at].opname != "LOAD_CONST" or self._steps[at].argval is not None:
                self._refuse("compares by identity")
        asked = self._steps[at - 1]
        if asked.opname == "LOAD_ATTR" and self._owner is not None and self._local(at - 2) == self._owner:
            return
        local = self._local(at - 1)
        code = self._code
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if self._is_forward and local in arguments and not self._is_stored(local):
            return
        self._refuse("asks whether a value is None")

    def _local(self, at: int) -> str | None:
        """The name of the local variable that this step leaves on top of the stack."""
        step = self._steps[at]
        if "LOAD_FAST" not in step.opname:
            return None
        return step.argval[-1] if isinstance(step.argval, tuple) else step.argval

    def _is_stored(self, name: str) -> bool:
        for step in self._steps:
            if step.opname.startswith(("STORE_FAST", "DELETE_FAST")):
                names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
                if name in names:
                    return True
        return False
