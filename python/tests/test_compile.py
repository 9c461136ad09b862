"""What looks at operators rather than runs them: torch.compile, export, make_fx, fake and meta tensors, opcheck."""

from __future__ import annotations

import os
import shutil

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import isonorm.torch as iso
from isonorm.torch import _operators, functional
from layers import LAYERS, Layer, composed, leaf, of_name, run, strides
from reference import away_from_kinks, call_of, judge

NAMES = ("BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm", "RMSNorm")
BACKENDS = ("eager", "aot_eager")


@pytest.fixture(autouse=True)
def _forget():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(module, backend, **keywords):
    """The module's forward, compiled as one graph."""
    return torch.compile(module, backend=backend, fullgraph=True, **keywords)


def compare(layer, backend, activation=None, residual=False, training=True, dtype=torch.float32, form=None, **keywords):
    """Results of the compiled module: within tolerance, PyTorch's strides, PyTorch's running statistics."""
    theirs, ours = layer.pair(dtype, activation=activation, training=training)
    x = layer.input(dtype)
    x = x if form is None else x.to(memory_format=form)
    skip = torch.randn(layer.shape).to(dtype) if residual else None
    call = call_of(theirs, x, residual=skip, act=activation)
    dy = away_from_kinks(call, torch.randn(layer.shape).to(dtype))
    reference = lambda x, residual=None: composed(theirs, x, residual, activation)
    wanted = run(reference, theirs, x, dy, skip)
    found = run(compiled(ours, backend, **keywords), ours, x, dy, skip)
    judge(call, dy, found, wanted)
    eager = run(layer.pair(dtype, activation=activation, training=training)[1], ours, x)
    assert strides(found["y"]) == strides(eager["y"]), "eager and compiled results lie differently"
    if getattr(ours, "num_batches_tracked", None) is not None:
        assert torch.equal(ours.num_batches_tracked, theirs.num_batches_tracked)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_compile(layer, backend, training):
    compare(layer, backend, training=training)


@pytest.mark.parametrize("activation,residual", [("relu", True), ("silu", False), (None, True)])
@pytest.mark.parametrize("name", NAMES)
def test_compile_fused(name, activation, residual):
    compare(of_name(name), "aot_eager", activation, residual)


@pytest.mark.parametrize("name", NAMES)
def test_compile_in_bfloat16_channels_last(name):
    form = torch.channels_last if len(of_name(name).shape) == 4 else None
    compare(of_name(name), "aot_eager", "relu", True, dtype=torch.bfloat16, form=form)


@pytest.mark.parametrize("name", NAMES)
def test_compile_with_dynamic_shapes(name):
    """One graph for several sizes."""
    theirs, ours = of_name(name).pair(torch.float64)
    graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    step = torch.compile(ours, backend=graphs, fullgraph=True, dynamic=True)
    for batch in (3, 5, 8, 13):
        x = torch.randn(batch, *of_name(name).shape[1:], dtype=torch.float64)
        a, b = leaf(x), leaf(x)
        composed(theirs, a).pow(2).sum().backward()
        y = step(b)
        y.pow(2).sum().backward()
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-8, atol=1e-8)
    assert graphs.frame_count <= 2


@pytest.mark.parametrize("name", NAMES if os.environ.get("ISONORM_LONG") else ("BatchNorm2d", "LayerNorm"))
def test_compile_with_inductor(name):
    """PyTorch's own code generator around our operator: what is fused before and behind it does not disturb it."""
    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("no C++ compiler for inductor")
    theirs, ours = of_name(name).pair(torch.float32, activation="relu")
    x = of_name(name).input()
    around = lambda module, t: (module(t * 2 + 1) - 3).sin()
    step = torch.compile(lambda t: around(ours, t), backend="inductor", fullgraph=True)
    a, b = leaf(x), leaf(x)
    around(lambda t: composed(theirs, t, None, "relu"), a).sum().backward()
    step(b).sum().backward()
    torch.testing.assert_close(b.grad, a.grad, rtol=2e-4, atol=2e-4)
    for mine, other in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(mine.grad, other.grad, rtol=2e-4, atol=2e-4)


def test_a_compiler_may_change_the_order_in_memory(monkeypatch):
    """Where inductor keeps a network's convolutions channels last, norms take and give what lies so, and nothing is copied between them."""
    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("no C++ compiler for inductor")
    from torch._inductor import config

    class Block(torch.nn.Module):
        def __init__(self, library):
            super().__init__()
            torch.manual_seed(7)
            keywords = {"activation": "relu"} if library is iso else {}
            self.fused = library is iso
            self.conv1, self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1)
            self.bn1, self.bn2 = library.BatchNorm2d(8, **keywords), library.BatchNorm2d(8, **keywords)

        def forward(self, x):
            if self.fused:
                return self.bn2(self.conv2(self.bn1(self.conv1(x))), x)
            return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + x)

    seen = []
    dense = _operators.dense
    monkeypatch.setattr(_operators, "dense", lambda x, has_channels: seen.append(x.stride()) or dense(x, has_channels))
    theirs, ours = Block(torch.nn), Block(iso)
    x = torch.randn(4, 8, 12, 12)
    with config.patch(force_layout_optimization=True):
        torch.compile(ours, backend="inductor", fullgraph=True)(x).pow(2).mean().backward()
    theirs(x).pow(2).mean().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-4)
    assert len(seen) >= 4 and all(strides[1] == 1 for strides in seen), seen


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_results_lie_as_the_fake_kernels_say(name, order):
    """Whatever order in memory x has: a compiler reckons with the strides that fake kernels give."""
    layer = Layer(
        name, *{"GroupNorm": ((2, 4),), "LayerNorm": ((6,),), "RMSNorm": ((6,),)}.get(name, ((4,),)), (3, 4, 5, 6)
    )

    def ordered(t):
        back = tuple(order.index(d) for d in range(4))
        return t.permute(order).contiguous().permute(back) if t.dim() == 4 else t

    for op, args, kwargs in recorded(layer, "relu", True, True):
        args = tuple(ordered(a.detach()) if isinstance(a, torch.Tensor) else a for a in args)
        real = op(*args, **kwargs)
        with FakeTensorMode(allow_non_fake_inputs=False) as mode:
            fake = op(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args), **kwargs)
        for mine, promised in zip(real, fake):
            assert (mine.shape, mine.stride(), mine.dtype) == (promised.shape, promised.stride(), promised.dtype)


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm"])
def test_compile_streams(name):
    theirs, ours = of_name(name).pair(torch.float64)
    step = torch.compile(lambda x, r: ours(x, stream=r), backend="aot_eager", fullgraph=True)
    x, r = of_name(name).input(torch.float64), of_name(name).input(torch.float64)
    a, b, c, d = (leaf(t) for t in (x, r, x, r))
    wanted = (theirs(a + b), a + b)
    found = step(c, d)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    for outputs in (wanted, found):
        (outputs[0].pow(2).sum() + outputs[1].sin().sum()).backward()
    torch.testing.assert_close((c.grad, d.grad), (a.grad, b.grad), rtol=1e-8, atol=1e-8)


def test_compile_functional_updates_running_statistics():
    """In the graph new statistics are results; outside they arrive in the buffers, also when a graph runs again."""
    mean, var = torch.zeros(4), torch.ones(4)
    step = torch.compile(
        lambda x: functional.batch_norm(x, mean, var, training=True, activation="relu"),
        backend="aot_eager",
        fullgraph=True,
    )
    reference = torch.nn.BatchNorm1d(4, affine=False)
    for _ in range(3):
        x = torch.randn(6, 4, 5)
        torch.testing.assert_close(step(x), reference(x).relu())
    torch.testing.assert_close((mean, var), (reference.running_mean, reference.running_var))


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_export(layer, strict):
    theirs, ours = layer.pair(torch.float64, activation="silu", training=False)
    x = layer.input(torch.float64)
    program = torch.export.export(ours, (x,), strict=strict)
    assert any(name.startswith("isonorm") for name in operators(program.graph)), "exported without our operator"
    torch.testing.assert_close(program.module()(x), composed(theirs, x, None, "silu"), rtol=1e-9, atol=1e-9)
    assert program.state_dict.keys() >= {n for n, _ in ours.named_parameters()}


def operators(graph):
    """Names of the operators of a graph."""
    return {str(node.target) for node in graph.nodes if node.op == "call_function"}


def test_export_with_dynamic_batch():
    theirs, ours = of_name("LayerNorm").pair(torch.float64)
    x = of_name("LayerNorm").input(torch.float64)
    program = torch.export.export(ours, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    more = torch.randn(9, *x.shape[1:], dtype=torch.float64)
    torch.testing.assert_close(program.module()(more), theirs(more), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", NAMES)
def test_make_fx(name, mode):
    from torch.fx.experimental.proxy_tensor import make_fx

    theirs, ours = of_name(name).pair(torch.float64, training=False)
    x = of_name(name).input(torch.float64)
    state = dict(ours.state_dict())
    graph = make_fx(lambda t, s: torch.func.functional_call(ours, s, t).sin(), tracing_mode=mode)(x, state)
    assert "isonorm.forward.default" in operators(graph.graph)
    other = torch.randn_like(x)
    torch.testing.assert_close(graph(other, state), theirs(other).sin(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_fake_tensors(layer, form):
    """Shapes, types and strides without numbers are those with numbers, forward and backward."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    _, ours = layer.pair(torch.bfloat16, activation="relu")
    x = layer.input(torch.bfloat16)
    x = x.to(memory_format=form) if x.ndim == 4 else x
    real = run(ours, ours, x, torch.ones_like)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        given = fake.from_tensor(x).requires_grad_()
        y = ours(given)
        (dx,) = torch.autograd.grad(y.sum(), given)
    for found, wanted in ((y, real["y"]), (dx, real["dx"])):
        assert found.shape == wanted.shape and found.dtype == wanted.dtype and strides(found) == strides(wanted)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_meta_tensors(layer):
    theirs, ours = layer.pair(torch.float32, device="meta")
    x = torch.empty(layer.shape, device="meta", requires_grad=True)
    y, wanted = ours(x), theirs(x)
    assert y.is_meta and y.shape == wanted.shape and y.dtype == wanted.dtype
    y.sum().backward()
    assert x.grad.is_meta and x.grad.shape == x.shape


class Recorder(TorchDispatchMode):
    """Keeps the calls of our operators."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == "isonorm":
            self.calls.append((op, args, kwargs or {}))
        return op(*args, **(kwargs or {}))


def recorded(layer, activation, residual, training, second=False):
    """The operators' calls of a forward and a backward pass (and a second derivative)."""
    _, ours = layer.pair(torch.float32, activation=activation, training=training)
    x = leaf(layer.input())
    skip = leaf(layer.input()) if residual else None
    with Recorder() as recorder:
        y = ours(x, skip)
        (dx,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=second)
        if second:
            dx.pow(2).sum().backward()
    return recorder.calls


@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name, training, residual):
    """Schema, fake implementation, autograd and AOT dispatch of each operator, on calls that modules make."""
    calls = recorded(of_name(name), "relu" if residual else "silu", residual, training, second=True)
    seen = {op._schema.name for op, _, _ in calls}
    assert seen == {"isonorm::forward", "isonorm::backward"}
    for op, args, kwargs in calls:
        detach = lambda t: t.detach().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t
        args = tuple(detach(a) for a in args)
        torch.library.opcheck(op, args, kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_of_operators(name):
    """As test_gradients has them for the kernels: here for what dispatch modes see."""
    theirs, ours = of_name(name).pair(torch.float64, activation="silu")
    x = of_name(name).input(torch.float64)
    found = []
    for forward in (lambda t: composed(theirs, t, None, "silu"), ours):
        a = leaf(x)
        with Recorder() as recorder:
            (g,) = torch.autograd.grad(forward(a).pow(2).sum(), a, create_graph=True)
            (h,) = torch.autograd.grad(g.pow(3).sum(), a)
        found.append((g.detach(), h))
    assert recorder.calls
    torch.testing.assert_close(found[1], found[0], rtol=1e-7, atol=1e-7)


def test_compiled_model():
    """Convolutions, norms and activations of a small network as one graph, in training."""

    def network(library):
        torch.manual_seed(5)
        keywords = {"activation": "relu"} if library is iso else {}
        norm = lambda c: [library.BatchNorm2d(c, **keywords)] + ([] if keywords else [torch.nn.ReLU()])
        parts = [torch.nn.Conv2d(3, 8, 3), *norm(8), torch.nn.Conv2d(8, 4, 3), *norm(4), torch.nn.Flatten()]
        return torch.nn.Sequential(*parts).double()

    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    theirs, ours = network(torch.nn), network(iso)
    step = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        for forward, model in ((theirs, theirs), (step, ours)):
            model.zero_grad()
            forward(x).pow(2).mean().backward()
        for mine, other in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-7, atol=1e-7)
    for mine, other in zip(ours.buffers(), theirs.buffers()):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
