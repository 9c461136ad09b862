"""Memory layouts of inputs, residuals and gradients: values within tolerance, and PyTorch's output strides."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from layers import LAYERS, check_strides, composed, leaf, of_name, outcome, run, same_refusal
from reference import away_from_kinks, call_of, judge


def _last_first(t):
    """Channels last, whatever the number of dimensions."""
    return t.movedim(1, -1).contiguous().movedim(-1, 1)


def _reversed(t):
    """All dimensions in the opposite order of memory."""
    return t.permute(*reversed(range(t.ndim))).contiguous().permute(*reversed(range(t.ndim)))


def _batch_inside(t):
    """The first dimension lies closest together."""
    return t.movedim(0, -1).contiguous().movedim(-1, 0)


def _sliced(t, dim, step=2, start=1):
    """Every second element of a larger tensor, from the second on."""
    shape = list(t.shape)
    shape[dim] = shape[dim] * step + start
    wide = torch.full(shape, float("nan"), dtype=t.dtype, device=t.device)
    view = wide.narrow(dim, start, shape[dim] - start)[(slice(None),) * (dim % t.ndim) + (slice(None, None, step),)]
    assert view.shape == t.shape
    return view.copy_(t)


def _misaligned(t):
    """Not at the beginning of an allocation: one element after it."""
    flat = torch.full((t.numel() + 1,), float("nan"), dtype=t.dtype, device=t.device)
    return flat[1:].view(t.shape).copy_(t)


def _misaligned_last(t):
    return _misaligned(t.movedim(1, -1)).movedim(-1, 1)


LAYOUTS = {
    "contiguous": lambda t: t.contiguous(),
    "channels last": _last_first,
    "reversed": _reversed,
    "batch inside": _batch_inside,
    "last two swapped": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
    "steps in the last": lambda t: _sliced(t, -1),
    "steps in channels": lambda t: _sliced(t, 1),
    "steps in the batch": lambda t: _sliced(t, 0),
    "part of wider rows": lambda t: _sliced(t, -1, 1, 3),
    "steps in channels last": lambda t: _sliced(t.movedim(1, -1), -1).movedim(-1, 1),
    "part of wider channels last": lambda t: _sliced(t.movedim(1, -1), -1, 1, 3).movedim(-1, 1),
    "expanded batch": lambda t: t[:1].expand(t.shape),
    "expanded channels": lambda t: t[:, :1].expand(t.shape),
    "expanded last": lambda t: t[..., :1].expand(t.shape),
    "flipped": lambda t: t.flip(1).flip(1),
    "misaligned": _misaligned,
    "misaligned channels last": _misaligned_last,
    "one memory for all": lambda t: t.as_strided(t.shape, [1] * t.ndim),
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_input(layer, layout, training, device):
    for dtype in (torch.float32, torch.bfloat16):
        theirs, ours = layer.pair(dtype, device, training=training)
        x = LAYOUTS[layout](layer.input(dtype, device))
        dy = torch.randn(layer.shape).to(device, dtype)
        call = call_of(theirs, x)
        # cuDNN fails on a channels-last tensor that does not start on 16 bytes ("misaligned address").
        aligned = x.clone(memory_format=torch.preserve_format) if device == "cuda" and "misaligned" in layout else x
        wanted, found = run(theirs, theirs, aligned, dy), run(ours, ours, x, dy)
        judge(call, dy, found, wanted)
        check_strides(ours, x, found["y"], wanted["y"])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_gradient_of_the_output(layer, layout, device):
    """Gradients come in any strides, whatever those of the output are."""
    for form in ("contiguous", "channels last"):
        theirs, ours = layer.pair(torch.float32, device, activation="relu")
        x = LAYOUTS[form](layer.input(device=device))
        call = call_of(theirs, x, act="relu")
        dy = LAYOUTS[layout](torch.randn(layer.shape, device=device))
        if "expanded" in layout or "one memory" in layout:
            # Kinks cannot be zeroed one by one there.
            theirs, ours = layer.pair(torch.float32, device, activation="silu")
            call = call_of(theirs, x, act="silu")
        else:
            dy = away_from_kinks(call, dy)
        judge(call, dy, run(ours, ours, x, dy))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm"])
def test_residual(name, layout, device):
    """Residuals in other strides than the input's."""
    layer = of_name(name)
    for form in ("contiguous", "channels last"):
        theirs, ours = layer.pair(torch.float32, device, activation="relu")
        x, skip = LAYOUTS[form](layer.input(device=device)), LAYOUTS[layout](layer.input(device=device))
        call = call_of(theirs, x, residual=skip, act="relu")
        dy = away_from_kinks(call, torch.randn(layer.shape, device=device))
        reference = lambda x, residual: composed(theirs, x, residual, "relu")
        wanted, found = run(reference, theirs, x, dy, skip), run(ours, ours, x, dy, skip)
        judge(call, dy, found, wanted)


@pytest.mark.parametrize("reduce", ["sum", "mean", "first", "strided"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_gradients_as_autograd_makes_them(layer, reduce):
    """sum() sends an expanded number, mean() too, a selection sends a tensor of zeros, a stride a copy."""
    theirs, ours = layer.pair(torch.float64)
    x = layer.input(torch.float64)
    select = {
        "sum": lambda y: (y * 1.0).sum() + y.sum(),
        "mean": lambda y: y.mean(),
        "first": lambda y: y[:, 0].pow(2).sum(),
        "strided": lambda y: y[..., ::2].pow(3).sum(),
    }[reduce]
    found = []
    for module in (theirs, ours):
        given = leaf(x)
        found.append(torch.autograd.grad(select(module(given)), [given, *module.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_views_that_ask_for_gradients(layer):
    """The input is a view of a leaf; the gradient arrives at the leaf."""
    theirs, ours = layer.pair(torch.float64)
    base = torch.randn(2, *layer.shape, dtype=torch.float64)
    found = []
    for module in (theirs, ours):
        whole = base.clone().requires_grad_()
        module(whole.transpose(0, 1).transpose(0, 1)[1]).pow(2).sum().backward()
        found.append(whole.grad)
    assert (found[1][0] == 0).all()
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_every_pair_of_layouts_agrees(layer):
    """The same numbers in two layouts give results within tolerance (in bf16, where it broke elsewhere)."""
    base, dy = layer.input(torch.bfloat16), torch.randn(layer.shape).bfloat16()
    for layout in ("contiguous", "channels last", "reversed", "misaligned", "steps in the last"):
        for gradient in ("contiguous", "channels last"):
            theirs, ours = layer.pair(torch.bfloat16)
            for module in (theirs, ours):
                with torch.no_grad():
                    for p in module.state_dict().values():
                        p.copy_(torch.linspace(0.5, 1.5, p.numel()).view(p.shape))
            call = call_of(ours, base)
            judge(call, dy, run(ours, ours, LAYOUTS[layout](base), LAYOUTS[gradient](dy)))


EMPTY = {
    "BatchNorm1d": [((4,), (0, 4)), ((4,), (0, 4, 3)), ((4,), (2, 4, 0))],
    "BatchNorm2d": [((4,), (0, 4, 3, 3)), ((4,), (2, 4, 0, 3)), ((4,), (2, 4, 3, 0))],
    "InstanceNorm2d": [((4,), (0, 4, 3, 3)), ((4,), (2, 4, 0, 3))],
    "GroupNorm": [((2, 4), (0, 4, 3)), ((2, 4), (0, 4)), ((2, 4), (2, 4, 0))],
    "LayerNorm": [((4,), (0, 4)), ((4,), (3, 0, 4)), (((0,),), (3, 0)), (((2, 0),), (3, 2, 0))],
    "RMSNorm": [((4,), (0, 4)), ((4,), (3, 0, 4)), (((0,),), (3, 0))],
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("activation", [None, "relu"], ids=str)
@pytest.mark.parametrize("name,which", [(n, i) for n in EMPTY for i in range(len(EMPTY[n]))])
def test_no_elements(name, which, activation, training):
    """Empty in, empty out; differentiable; statistics untouched, parameters' gradients zero, or PyTorch's error."""
    arguments, shape = EMPTY[name][which]
    layer = dataclasses.replace(of_name(name), arguments=arguments, shape=shape)
    theirs, ours = layer.pair(activation=activation, training=training)
    x = torch.empty(shape)
    wanted = outcome(run, lambda t: composed(theirs, t, None, activation), theirs, x, torch.ones_like)
    found = outcome(run, ours, ours, x, torch.ones_like)
    if same_refusal(found, wanted):
        return
    assert found.keys() == wanted.keys()
    for key, other in wanted.items():
        assert (found[key] is None) == (other is None), key
        if other is not None:
            assert found[key].shape == other.shape and found[key].dtype == other.dtype
            assert torch.equal(found[key].nan_to_num(), other.nan_to_num()), key


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_input_is_left_alone(layer):
    """Nothing that is read is written, and results are apart from what went in."""
    _, ours = layer.pair(activation="relu")
    x, skip, dy = layer.input(), layer.input(), torch.randn(layer.shape)
    given = [leaf(t) for t in (x, skip)]
    parameters = [p.detach().clone() for p in ours.parameters()]
    y = ours(*given)
    gradients = torch.autograd.grad(y, given + list(ours.parameters()), dy, retain_graph=True)
    again = torch.autograd.grad(y, given + list(ours.parameters()), dy)
    assert torch.equal(given[0], x) and torch.equal(given[1], skip)
    assert all(torch.equal(p, q) for p, q in zip(ours.parameters(), parameters))
    assert all(torch.equal(g, h) for g, h in zip(gradients, again))
    memories = [t.data_ptr() for t in (y, *given, dy)]
    assert len(set(memories)) == len(memories)
    assert gradients[0].data_ptr() not in memories


@pytest.mark.parametrize("name", ["BatchNorm2d", "LayerNorm", "GroupNorm"])
def test_the_residual_may_be_the_input(name):
    """m(x, x): both gradients add up; and gradients kept in .grad are memory of their own."""
    theirs, ours = of_name(name).pair(torch.float64)
    x = of_name(name).input(torch.float64)
    a, b = leaf(x), leaf(x)
    dy = torch.randn(x.shape, dtype=torch.float64)
    composed(theirs, a, a).backward(dy)
    ours(b, b).backward(dy)
    torch.testing.assert_close(b.grad, a.grad, rtol=1e-9, atol=1e-9)
    c, d = leaf(x), leaf(x)
    ours(c, d).backward(dy)
    assert len({c.grad.data_ptr(), d.grad.data_ptr(), dy.data_ptr()}) == 3
    torch.testing.assert_close(d.grad, dy, rtol=0, atol=0)
