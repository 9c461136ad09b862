"""Calls one after another: a module keeps what it found out about its last one, and no call may be taken for another.

The reference is a copy of the module that was never called: it looks at everything."""

from __future__ import annotations

import contextlib
from typing import Callable

import pytest
import torch
from torch import nn

import isonorm.torch as iso
from isonorm import _core
from isonorm.torch import _plans
from layers import LAYERS, Layer, clone, leaf, of_name, outcome, run, same_refusal

NAMES = ("BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm", "RMSNorm")


def negative(t: torch.Tensor) -> torch.Tensor:
    """A view with the values of `t` of memory that holds their negatives, as the imaginary part of a conjugate is."""
    view = torch._neg_view(-t)
    assert view.is_neg() and torch.equal(view, t)
    return view


@contextlib.contextmanager
def attributes_only():
    """Tensors are read as with a PyTorch that has no C functions for it."""
    _core.read_by_attributes(True)
    try:
        yield
    finally:
        _core.read_by_attributes(False)


def same(found, wanted) -> bool:
    """The same bits, and strides, in the same places; or the same refusal."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, torch.Tensor):
        return (
            type(found) is type(wanted)
            and (found.dtype, found.stride(), found.device) == (wanted.dtype, wanted.stride(), wanted.device)
            and found.requires_grad == wanted.requires_grad
            and torch.equal(found, wanted)
        )
    return found is wanted is None


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_by_attributes_as_by_the_table(layer: Layer, training, device):
    """However tensors are read, results are the same: on the first call, the second, and of another shape."""
    _, ours = layer.pair(device=device, training=training, activation="silu")
    x = layer.input(device=device)
    found = []
    for reading in (contextlib.nullcontext, attributes_only):
        module = clone(ours)
        with reading():
            found.append([run(module, module, given, torch.ones_like) for given in (x, x, torch.cat([x, x]))])
    for by_table, by_attributes in zip(*found):
        assert same(by_attributes, by_table)


def _transposed(x):
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def _last(x):
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def _with(module: nn.Module, **attributes) -> nn.Module:
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def _parameter(change: Callable[[torch.Tensor], torch.Tensor]):
    def changed(module):
        return _with(module, weight=nn.Parameter(change(module.weight.detach())))

    return changed


def _with_running(module, change):
    if getattr(module, "running_mean", None) is None:
        pytest.skip("no running statistics")
    module.running_mean = change(module.running_mean)
    return module


# Changes of the input.
INPUTS = {
    "nothing": lambda x: x,
    "a larger batch": lambda x: torch.cat([x, x]),
    "float64": lambda x: x.double(),
    "bfloat16": lambda x: x.bfloat16(),
    "an order of its own": _transposed,
    "channels last": _last,
    "every second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda x: x[:1].expand(x.shape),
    "negative": negative,
    "misaligned": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "no gradient": lambda x: x.detach(),
    "a parameter": lambda x: nn.Parameter(x.detach()),
    "integers": lambda x: x.int(),
    "sparse": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "complex": lambda x: torch.complex(x, x),
    "a list": lambda x: x.tolist(),
    "nothing at all": lambda x: None,
    "one dimension less": lambda x: x[0],
    "one dimension more": lambda x: x[None],
    "empty": lambda x: x[:0],
}
# Changes of the module.
MODULES = {
    "evaluation": lambda m: m.eval(),
    "eps": lambda m: _with(m, eps=0.5),
    "activation": lambda m: _with(m, activation="tanh"),
    "no activation": lambda m: _with(m, activation=None),
    "double": lambda m: m.double(),
    "half": lambda m: m.half(),
    "no bias": lambda m: _with(m, bias=None) if hasattr(m, "bias") else m,
    "no weight": lambda m: _with(m, weight=None),
    "frozen": lambda m: m.requires_grad_(False),
    "a negative weight": _parameter(negative),
    "a weight apart": _parameter(lambda w: w.repeat_interleave(2)[::2]),
    "a shorter weight": _parameter(lambda w: w[:-1]),
    "a weight elsewhere": _parameter(lambda w: w.to("meta")),
    "a half weight": _parameter(lambda w: w.half()),
    "momentum": lambda m: _with(m, momentum=0.5),
    "no running mean": lambda m: _with_running(m, lambda mean: None),
    "a wide running mean": lambda m: _with_running(m, lambda mean: mean.double()),
    "a running mean that asks for a gradient": lambda m: _with_running(m, lambda mean: mean.requires_grad_()),
    "a running mean apart": lambda m: _with_running(m, lambda mean: mean.repeat_interleave(2)[::2]),
}


def _primed(name: str, device: str, keeps: bool) -> tuple[nn.Module, torch.Tensor]:
    """A module after two calls that are alike."""
    layer = of_name(name)
    _, ours = layer.pair(device=device, activation="relu")
    x = layer.input(device=device)
    for _ in range(2):
        with torch.set_grad_enabled(keeps):
            ours(leaf(x))
    return ours, x


def _called(module, x, *rest):
    """The result, its gradients, and the running statistics; or the exception."""

    def call():
        given = leaf(x) if isinstance(x, torch.Tensor) and x.requires_grad and type(x) is torch.Tensor else x
        y = module(given, *rest)
        found = {"y": y}
        if y.requires_grad:
            wanted = [t for t in (given, *module.parameters()) if t.requires_grad]
            gradients = torch.autograd.grad(y, wanted, torch.ones_like(y), allow_unused=True)
            found.update(enumerate(gradients))
        found.update({name: t.clone() for name, t in module.named_buffers()})
        return found

    return outcome(call)


def _compare(found, wanted):
    if not same_refusal(found, wanted):
        y = wanted["y"]
        if y.is_meta:
            assert found["y"].is_meta and found["y"].shape == y.shape
        else:
            assert same(found, wanted)


@pytest.mark.filterwarnings("ignore:input's size at dim")
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("change", INPUTS)
@pytest.mark.parametrize("name", NAMES)
def test_another_input(name, change, keeps, device):
    ours, x = _primed(name, device, keeps)
    fresh = clone(ours)
    given = outcome(INPUTS[change], x.requires_grad_(keeps))
    if isinstance(given, Exception):
        raise given
    _compare(_called(ours, given), _called(fresh, given))
    # And back.
    _compare(_called(ours, x), _called(fresh, x))


@pytest.mark.parametrize("change", MODULES)
@pytest.mark.parametrize("name", NAMES)
def test_another_module(name, change, device):
    ours, x = _primed(name, device, True)
    changed, fresh = MODULES[change](ours), MODULES[change](clone(ours))
    x.requires_grad_()
    _compare(_called(changed, x), _called(fresh, x))


@pytest.mark.parametrize("name", NAMES)
def test_with_and_without_a_residual(name, device):
    ours, x = _primed(name, device, True)
    fresh = clone(ours)
    residual = torch.randn_like(x)
    for rest in (
        (residual,),
        (residual,),
        (negative(residual),),
        (_transposed(residual),),
        (residual.double(),),
        (None,),
    ):
        _compare(_called(ours, x, *rest), _called(fresh, x, *rest))
        fresh = clone(ours)


@pytest.mark.parametrize("name", NAMES)
def test_under_another_mode(name):
    """What asks torch for something else than the result, after calls that it did not want to see."""
    ours, x = _primed(name, "cpu", True)
    fresh = clone(ours)

    def jvp(module):
        return torch.func.jvp(module.eval(), (x,), (torch.ones_like(x),))[1]

    def vmap(module):
        return torch.func.vmap(module.eval())(torch.stack([x, x]))

    def gradient(module):
        return torch.func.grad(lambda t: module.eval()(t).sum())(x)

    def inference(module):
        with torch.inference_mode():
            return module(x).clone()

    def elsewhere(module):
        with torch.device("meta"):
            return module(leaf(x))

    for mode in (jvp, vmap, gradient, inference, elsewhere):
        found, wanted = outcome(mode, ours), outcome(mode, fresh)
        if not same_refusal(found, wanted):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_negative_gradient(name, device):
    """A view stands for a gradient with the other sign."""
    layer = of_name(name)
    theirs, ours = layer.pair(dtype=torch.float32, device=device)
    x = leaf(layer.input(device=device))
    dy = negative(torch.randn(x.shape, device=device))
    gradients = []
    for module in (ours, theirs):
        y = module(x)
        # A function between them, for autograd.grad would resolve the view.
        gradients.append(torch.autograd.grad(_Given.apply(y, dy), (x, *module.parameters()), torch.ones_like(y)))
    for mine, wanted in zip(*gradients):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)


class _Given(torch.autograd.Function):
    """Hands on a gradient that it was given."""

    @staticmethod
    def forward(ctx, y, dy):
        ctx.dy = dy
        return y.clone()

    @staticmethod
    def backward(ctx, _):
        return ctx.dy, None


@pytest.mark.parametrize("reading", [contextlib.nullcontext, attributes_only])
def test_what_is_no_tensor_is_refused(reading):
    """The engine's own functions read nothing that is not a tensor."""
    x = torch.randn(2, 4)
    _plans._plans.clear()
    iso.LayerNorm(4)(x)
    (plans,) = _plans._plans.values()
    with reading(), pytest.raises(TypeError, match="a list was given, expected a Tensor"):
        plans.forward(x, [1.0], None, None, None, None, 0.0, False)
