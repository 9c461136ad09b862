"""The types that `_core.pyi` promises are those of the compiled module; the package says that it has types."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import isonorm
from isonorm import _core

PACKAGE = Path(isonorm.__file__).parent
STUBS = ast.parse((PACKAGE / "_core.pyi").read_text())


def parameters(function: ast.FunctionDef) -> list[str]:
    a = function.args
    return [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.arg not in ("self", "cls")]


def test_the_module_has_what_the_stubs_say_and_nothing_else():
    said = {node.name for node in STUBS.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert said == {name for name in dir(_core) if not name.startswith("_")}
    for node in STUBS.body:
        if isinstance(node, ast.ClassDef):
            found = getattr(_core, node.name)
            attributes = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
            methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
            public = {name for name in dir(found) if not name.startswith("_")}
            assert public == attributes | {name for name in methods if not name.startswith("_")}, node.name
            for name, method in methods.items():
                target = found if name == "__new__" else getattr(found, name)
                signature = [p for p in inspect.signature(target).parameters if p != "self"]
                assert signature == parameters(method), f"{node.name}.{name}"
        elif isinstance(node, ast.FunctionDef):
            assert list(inspect.signature(getattr(_core, node.name)).parameters) == parameters(node), node.name


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").is_file()
    assert isonorm.__version__ == _core.__version__
