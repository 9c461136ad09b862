"""First and second derivatives against finite differences in float64; third ones; function transforms."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from isonorm.torch import functional
from layers import BARE, LAYERS, STREAMED, composed, leaf, of_name, outcome

SMALL = {
    "BatchNorm1d": ((4,), (3, 4)),
    "BatchNorm2d": ((3,), (2, 3, 2, 2)),
    "BatchNorm3d": ((2,), (2, 2, 2, 1, 2)),
    "InstanceNorm1d": ((2,), (2, 2, 3)),
    "InstanceNorm2d": ((2,), (2, 2, 2, 2)),
    "InstanceNorm3d": ((2,), (1, 2, 2, 2, 1)),
    "GroupNorm": ((2, 4), (2, 4, 2)),
    "LayerNorm": ((3,), (2, 2, 3)),
    "RMSNorm": ((3,), (2, 2, 3)),
}
# Activations with two derivatives everywhere, and one with a kink that the data keep away from.
FORMS = (
    ("plain", None, False),
    ("silu", "silu", False),
    ("gelu", "gelu", False),
    ("tanh", "tanh", False),
    ("relu", "relu", False),
    ("leaky", "leaky_relu:0.2", False),
    ("hardswish", "hardswish", False),
    ("residual", None, True),
    ("residual silu", "silu", True),
    ("residual relu", "relu", True),
)
KINKS = {"relu": (0.0,), "leaky_relu:0.2": (0.0,), "hardswish": (-3.0, 3.0)}
FAR = 0.02


def small(name, activation, training):
    """PyTorch's and our module on few elements."""
    arguments, shape = SMALL[name]
    layer = dataclasses.replace(of_name(name), arguments=arguments, shape=shape)
    return layer, layer.pair(torch.float64, activation=activation, training=training)


def inputs_away_from_kinks(layer, theirs, activation, residual):
    """x and a residual for which the pre-activation is not near a kink, so that finite differences are right."""
    for _ in range(200):
        x = layer.input(torch.float64)
        skip = torch.randn(layer.shape, dtype=torch.float64) if residual else None
        z = composed(theirs, x, skip)
        if all((z - kink).abs().min() > FAR for kink in KINKS.get(activation, ())):
            return x, skip
    raise AssertionError("no such data")


def pure(module, activation, has_residual):
    """The module as a function of x, its parameters and the residual, which leaves no trace in its buffers."""
    names = [name for name, _ in module.named_parameters()]
    buffers = {name: b.clone() for name, b in module.named_buffers()}

    def function(x, *rest):
        values = dict(zip(names, rest), **{name: b.clone() for name, b in buffers.items()})
        extra = rest[len(names) :] if has_residual else ()
        return torch.func.functional_call(module, values, (x, *extra))

    return function


def check(function, inputs, second=True):
    """Both derivatives of a function of these inputs."""
    inputs = tuple(t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in inputs)
    assert gradcheck(function, inputs, fast_mode=True, nondet_tol=0.0)
    if second:
        assert gradgradcheck(function, inputs, fast_mode=True, nondet_tol=0.0)


@pytest.mark.parametrize("form", FORMS, ids=[f[0] for f in FORMS])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", SMALL)
def test_gradcheck(name, training, form):
    _, activation, residual = form
    layer, (theirs, ours) = small(name, activation, training)
    x, skip = inputs_away_from_kinks(layer, theirs, activation, residual)
    parameters = [p.detach().clone() for p in ours.parameters()]
    inputs = [x, *parameters] + ([skip] if residual else [])
    check(pure(ours, activation, residual), inputs)


@pytest.mark.parametrize("layout", ["channels_last", "permuted", "sliced"])
@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d", "GroupNorm"])
def test_gradcheck_of_layouts(name, layout):
    arguments = (2, 4) if name == "GroupNorm" else (4,)
    layer = dataclasses.replace(of_name(name), arguments=arguments, shape=(2, 4, 2, 3))
    _, ours = layer.pair(torch.float64, activation="silu")
    x = layer.input(torch.float64)
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    elif layout == "permuted":
        x = x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    function = pure(ours, "silu", False)
    inputs = [x, *(p.detach().clone() for p in ours.parameters())]
    if layout == "sliced":
        wide = torch.randn(2, 4, 2, 6, dtype=torch.float64)
        inputs[0] = wide
        check(lambda w, *rest: function(w[..., ::2], *rest), inputs)
    else:
        check(function, inputs)


@pytest.mark.parametrize("activation", [None, "silu", "relu"], ids=str)
@pytest.mark.parametrize("name", STREAMED)
def test_gradcheck_of_streams(name, activation):
    layer, (theirs, ours) = small(name, activation, True)
    x, skip = inputs_away_from_kinks(layer, theirs, None, True)
    while activation == "relu" and composed(theirs, x + skip).abs().min() < FAR:
        x, skip = layer.input(torch.float64), torch.randn(layer.shape, dtype=torch.float64)
    names = [n for n, _ in ours.named_parameters()]

    def function(x, r, *parameters):
        return torch.func.functional_call(ours, dict(zip(names, parameters)), (x,), {"stream": r})

    check(function, [x, skip, *(p.detach() for p in ours.parameters())])


@pytest.mark.parametrize("layer", BARE, ids=str)
def test_gradcheck_without_parameters(layer):
    shape = (2, 8, 2, 1) if len(layer.shape) == 4 else (2, 1, 12)
    layer = dataclasses.replace(layer, shape=shape)
    _, ours = layer.pair(torch.float64, activation="silu")
    check(pure(ours, "silu", False), [layer.input(torch.float64), *(p.detach().clone() for p in ours.parameters())])


@pytest.mark.parametrize("asks", [s for s in itertools.product([False, True], repeat=3) if any(s)], ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm"])
def test_frozen_parts(name, training, asks):
    """Only what asks for a gradient gets one, and the same one, to the second derivative."""
    layer, (theirs, ours) = small(name, None, training)
    x = layer.input(torch.float64)
    dy = torch.randn(layer.shape, dtype=torch.float64)
    found = []
    for module in (theirs, ours):
        leaves = [leaf(x), module.weight, module.bias]
        for t, ask in zip(leaves, asks):
            t.requires_grad_(ask)
        asked = [t for t in leaves if t.requires_grad]
        y = module(leaves[0])
        assert y.requires_grad
        gradients = torch.autograd.grad((y * y * dy).sum(), asked, create_graph=True)
        total = sum((g * g).sum() for g in gradients)
        seconds = torch.autograd.grad(total, asked, allow_unused=True) if total.requires_grad else ()
        found.append([*gradients, *seconds])
    for mine, other in zip(found[1], found[0]):
        # Autograd may say None for a zero.
        zero = lambda t: torch.zeros(()) if t is None else t
        torch.testing.assert_close(
            zero(mine).expand_as(zero(other)), zero(other).expand_as(zero(mine)), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("to", ["input", "parameter", "leaves"])
@pytest.mark.parametrize("activation", [None, "silu"], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_third_derivatives_raise(name, activation, to):
    """A third derivative is not there: that is said, and no wrong number comes out, whichever way it is asked for."""
    layer, (_, ours) = small(name, activation, True)
    x = layer.input(torch.float64).requires_grad_()
    (first,) = torch.autograd.grad(ours(x).pow(3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(3).sum(), x, create_graph=True)
    with pytest.raises((RuntimeError, NotImplementedError)):
        if to == "leaves":
            second.pow(2).sum().backward()
        else:
            torch.autograd.grad(second.pow(2).sum(), x if to == "input" or ours.weight is None else ours.weight)


@pytest.mark.parametrize("name", SMALL)
def test_input_changed_in_place_before_backward(name):
    """PyTorch notices that a saved tensor changed; so must we."""
    layer, (theirs, ours) = small(name, None, True)
    for module in (theirs, ours):
        x = layer.input(torch.float64).requires_grad_()
        middle = x * 1
        y = module(middle)
        middle.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_weight_changed_in_place_before_backward():
    layer, (theirs, ours) = small("LayerNorm", None, True)
    for module in (theirs, ours):
        y = module(layer.input(torch.float64).requires_grad_())
        with torch.no_grad():
            module.weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("activation", [None, "relu", "sigmoid"], ids=str)
@pytest.mark.parametrize("name", ["BatchNorm2d", "LayerNorm", "GroupNorm"])
def test_output_changed_in_place(name, activation):
    """The result may be changed in place behind the layer: gradients stay right, or it is an error as in PyTorch."""
    layer, (theirs, ours) = small(name, activation, True)
    x = layer.input(torch.float64)
    found = []
    for forward in (lambda t: composed(theirs, t, None, activation), ours):
        leaf_ = leaf(x)
        y = forward(leaf_)
        try:
            y.mul_(3)
            (y * y).sum().backward()
            found.append(leaf_.grad)
        except RuntimeError as error:
            assert "inplace" in str(error)
            found.append(None)
    theirs_gradient, ours_gradient = found
    if ours_gradient is not None and theirs_gradient is not None:
        torch.testing.assert_close(ours_gradient, theirs_gradient, rtol=1e-9, atol=1e-9)
    assert ours_gradient is not None or theirs_gradient is None or activation is not None


def function_pairs():
    """Functions of x alone, ours and PyTorch's."""
    weight, bias = torch.rand(4, dtype=torch.float64) + 0.5, torch.rand(4, dtype=torch.float64)
    f, t = functional, torch.nn.functional
    silu = t.silu
    return {
        "layer": (lambda x: f.layer_norm(x, (4,), weight, bias), lambda x: t.layer_norm(x, (4,), weight, bias)),
        "layer silu": (
            lambda x: f.layer_norm(x, (4,), weight, bias, activation="silu"),
            lambda x: silu(t.layer_norm(x, (4,), weight, bias)),
        ),
        "rms": (lambda x: f.rms_norm(x, (4,), weight), lambda x: t.rms_norm(x, (4,), weight)),
        "group": (lambda x: f.group_norm(x, 2, weight, bias), lambda x: t.group_norm(x, 2, weight, bias)),
        "group relu": (
            lambda x: f.group_norm(x, 2, weight, bias, activation="relu"),
            lambda x: t.group_norm(x, 2, weight, bias).relu(),
        ),
        "batch": (
            lambda x: f.batch_norm(x, None, None, weight, bias, True),
            lambda x: t.batch_norm(x, None, None, weight, bias, True),
        ),
        "batch eval": (
            lambda x: f.batch_norm(x, bias, weight, weight, bias, residual=x),
            lambda x: t.batch_norm(x, bias, weight, weight, bias) + x,
        ),
    }


PAIRS = function_pairs()
TRANSFORMS = {
    "grad": lambda f, x, v: torch.func.grad(lambda t: f(t).pow(2).sum())(x),
    "grad of grad": lambda f, x, v: torch.func.grad(
        lambda s: (torch.func.grad(lambda t: f(t).pow(2).sum())(s) * v).sum()
    )(x),
    "vjp": lambda f, x, v: torch.func.vjp(f, x)[1](v)[0],
    "jvp": lambda f, x, v: torch.func.jvp(f, (x,), (v,)),
    "jacrev": lambda f, x, v: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x, v: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x, v: torch.func.hessian(lambda t: f(t).pow(2).sum())(x),
    "vmap": lambda f, x, v: torch.func.vmap(f)(torch.stack([x, v])),
    "vmap of grad": lambda f, x, v: torch.func.vmap(torch.func.grad(lambda t: f(t).pow(2).sum()))(torch.stack([x, v])),
    "autograd jacobian": lambda f, x, v: torch.autograd.functional.jacobian(f, x),
    "autograd hessian": lambda f, x, v: torch.autograd.functional.hessian(lambda t: f(t).pow(2).sum(), x),
    "autograd hvp": lambda f, x, v: torch.autograd.functional.hvp(lambda t: f(t).pow(2).sum(), x, v),
    "autograd jvp": lambda f, x, v: torch.autograd.functional.jvp(f, x, v),
    "vectorized jacobian": lambda f, x, v: torch.autograd.functional.jacobian(f, x, vectorize=True),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PAIRS)
def test_transforms(name, transform):
    ours, theirs = PAIRS[name]
    x, v = torch.randn(2, 3, 4, dtype=torch.float64)
    wanted = TRANSFORMS[transform](theirs, x, v)
    if transform == "autograd hvp":
        # It differentiates three times, the last time in what the second derivative is linear in: right, or refused.
        found = outcome(TRANSFORMS[transform], ours, x, v)
        if isinstance(found, RuntimeError) and "derivative" in str(found):
            return
    found = TRANSFORMS[transform](ours, x, v)
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", PAIRS)
def test_forward_mode(name):
    from torch.autograd import forward_ad

    ours, theirs = PAIRS[name]
    x, v = torch.randn(2, 3, 4, dtype=torch.float64)
    with forward_ad.dual_level():
        tangents = [forward_ad.unpack_dual(f(forward_ad.make_dual(x, v))).tangent for f in (ours, theirs)]
    assert tangents[0] is not None
    torch.testing.assert_close(*tangents, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_gradients_of_twice_used_and_shared(layer):
    """A module applied twice adds both gradients to its parameters."""
    theirs, ours = layer.pair(torch.float64)
    x = layer.input(torch.float64)
    for module in (theirs, ours):
        module(module(x.clone())).pow(2).sum().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-8, atol=1e-8)
