"""Mistakes that normalization layers elsewhere made, each a test here (docs/semantics.md has the promises)."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from torch import nn

import isonorm.torch as iso
from isonorm.torch import functional as f
from layers import LAYERS, composed, leaf, of_name, outcome, run
from reference import DTYPES, Call, call_of, judge

NAMES = ("BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm", "RMSNorm")
CENTRED = ("BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm")


@pytest.mark.parametrize("value", [0.0, 1.0, 1234.567, -3e4, 0.1], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CENTRED)
def test_a_constant_group_is_exactly_the_bias(name, dtype, value, device):
    """pytorch#8283: the distance from the mean is exactly zero, whatever the rounding of the sum."""
    if device == "cuda" and dtype == torch.float64:
        pytest.skip("float64 on a GPU is PyTorch's own function")
    for activation, form in itertools.product((None, "relu"), (torch.contiguous_format, torch.channels_last)):
        _, ours = of_name(name).pair(dtype, device, activation)
        x = torch.full(of_name(name).shape, value, dtype=dtype, device=device)
        x = x.to(memory_format=form) if x.ndim == 4 else x
        bias = ours.bias if name == "LayerNorm" else ours.bias.view(-1, 1, 1)
        wanted = bias.expand_as(x) if activation is None else bias.relu().expand_as(x)
        assert torch.equal(ours(x), wanted)
        if hasattr(ours, "running_var") and ours.running_var is not None:
            # An update with momentum 1: the batch's variance is exactly 0.
            ours.momentum = 1.0
            ours(x)
            assert (ours.running_var == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mean,spread", [(100.0, 1e-3), (1e6, 1.0), (-1e6, 0.5), (3e4, 1e-2)])
@pytest.mark.parametrize("name", CENTRED)
def test_means_far_from_zero(name, mean, spread, dtype, device):
    """burn#5607: E[x²] − E[x]² loses everything; forward, backward and running statistics keep what the type holds."""
    shape = (4, 8, 16, 16)
    layer = dataclasses.replace(
        of_name(name), shape=shape, arguments=(16,) if name == "LayerNorm" else of_name(name).arguments
    )
    for form in (torch.contiguous_format, torch.channels_last):
        theirs, ours = layer.pair(dtype, device)
        x = (mean + spread * torch.randn(shape, dtype=torch.float64)).to(device, dtype).to(memory_format=form)
        dy = torch.randn(shape, dtype=torch.float64).to(device, dtype)
        judge(call_of(theirs, x), dy, run(ours, ours, x, dy))


@pytest.mark.parametrize("length", [8, 1000])
def test_halves_where_the_processor_flushes_subnormal_numbers(length):
    """Subnormal numbers of f16 are not subnormal in f32: whoever told the processor to flush those does not lose them."""
    x = (torch.arange(4 * length) % 1023).to(torch.int16).view(torch.float16).view(4, length)
    assert 0 < x.abs().max() < 2**-14
    wanted = f.layer_norm(x, [length], eps=1e-20)
    assert (wanted.abs().amax(1) > 1).all()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        assert torch.equal(f.layer_norm(x, [length], eps=1e-20), wanted)
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e18, 1e25, 1e30, 1e36])
@pytest.mark.parametrize("name", NAMES)
def test_sizes_of_numbers(name, scale, device):
    """pytorch#178123: squares beyond the range of f32 do not make the result 0, infinite or NaN; on GPUs they make it the bias."""
    theirs, ours = of_name(name).pair(torch.float32, device)
    base = of_name(name).input()
    x = (base * scale).to(device)
    exact, _ = of_name(name).pair(torch.float64)
    exact.load_state_dict({n: t.cpu() for n, t in theirs.state_dict().items()})
    exact.eps = ours.eps if ours.eps is not None else torch.finfo(torch.float32).eps
    y = ours(x)
    assert y.isfinite().all()
    if device == "cuda" and scale > 2.0**64:
        # rstd is 0 then, as docs/numerics.md says; PyTorch has that or NaN.
        bias = 0 if getattr(ours, "bias", None) is None else ours.bias.detach()
        bias = bias if name == "LayerNorm" or isinstance(bias, int) else bias.view(-1, *[1] * (x.dim() - 2))
        torch.testing.assert_close(y, torch.zeros_like(x) + bias, rtol=0, atol=1e-6)
        return
    torch.testing.assert_close(y.cpu(), exact.double()(x.cpu().double()).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [65535, 65536, 70001])
@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "InstanceNorm1d"])
def test_many_rows(name, rows, device):
    """apex#411, pytorch#16998: a grid's second dimension ends at 65,535."""
    keywords = {"InstanceNorm1d": {"affine": True}}.get(name, {})
    arguments = {"GroupNorm": (2, 4)}.get(name, (4,))
    shape = (rows, 4, 2) if name == "InstanceNorm1d" else (rows, 4)
    theirs, ours = (getattr(library, name)(*arguments, **keywords).to(device) for library in (nn, iso))
    x, dy = torch.randn(shape, device=device), torch.randn(shape, device=device)
    wanted, found = run(theirs, theirs, x, dy), run(ours, ours, x, dy)
    judge(
        Call(call_of(theirs, x).op, x, *_affine(theirs), **_more(theirs)),
        dy,
        found,
        dict(wanted, running_mean=None, running_var=None),
    )


def _affine(module):
    return [getattr(module, n).detach() if getattr(module, n, None) is not None else None for n in ("weight", "bias")]


def _more(module):
    return {"eps": module.eps, "groups": getattr(module, "num_groups", 0)}


@pytest.mark.parametrize("channels", [65536, 70001])
def test_many_channels(channels, device):
    theirs, ours = (library.BatchNorm1d(channels).to(device) for library in (nn, iso))
    x, dy = torch.randn(5, channels, device=device), torch.randn(5, channels, device=device)
    call = call_of(theirs, x)
    judge(call, dy, run(ours, ours, x, dy), run(theirs, theirs, x, dy))


POISON = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_not_a_number_stays_in_its_group(name, dtype, poison, device):
    """The group that has it is NaN as a whole; every other group, and its gradient, is as if it were not there."""
    for form in (torch.contiguous_format, torch.channels_last):
        _, ours = of_name(name).pair(dtype, device)
        x = of_name(name).input(dtype, device)
        x = x.to(memory_format=form) if x.ndim == 4 else x
        at = (1,) * x.ndim
        bad = x.clone()
        bad[at] = POISON[poison]
        group = _group_of(name, x, at)
        a, b = leaf(x), leaf(bad)
        clean, dirty = ours(a), ours(b)
        dy = torch.randn(x.shape).to(device, dtype)
        clean.backward(dy)
        dirty.backward(dy)
        if name == "RMSNorm" and poison != "nan":
            # x/∞ is 0; ∞/∞ is NaN.
            assert dirty[at].isnan()
        else:
            assert dirty[group].isnan().all()
        # Blocks that have it are summed again in f64, so that neighbours may round otherwise; they are no less right.
        torch.testing.assert_close(dirty[~group], clean[~group])
        torch.testing.assert_close(b.grad[~group], a.grad[~group])


def _group_of(name, x, at):
    """Where the elements are that share statistics with the one at `at`."""
    group = torch.zeros_like(x, dtype=torch.bool)
    n, c = at[0], at[1]
    if name == "BatchNorm2d":
        group[:, c] = True
    elif name == "InstanceNorm2d":
        group[n, c] = True
    elif name == "GroupNorm":
        each = x.shape[1] // of_name(name).arguments[0]
        group[n, c // each * each : (c // each + 1) * each] = True
    else:
        group[at[:-1]] = True
    return group


@pytest.mark.parametrize("given", [float("nan"), float("inf")], ids=str)
def test_gradient_that_is_not_a_number_stays_in_its_channel(given):
    theirs, ours = of_name("BatchNorm2d").pair(torch.float32)
    x = of_name("BatchNorm2d").input()
    dy = torch.randn(x.shape)
    dy[1, 2, 0, 0] = given
    wanted, found = run(theirs, theirs, x, dy), run(ours, ours, x, dy)
    others = [c for c in range(x.shape[1]) if c != 2]
    for key in ("dx", "dweight", "dbias"):
        take = lambda t: t[:, others] if t.ndim > 1 else t[others]
        assert take(found[key]).isfinite().all()
        torch.testing.assert_close(take(found[key]), take(wanted[key]), rtol=1e-4, atol=1e-4)
    assert not found["dbias"][2].isfinite()


@pytest.mark.parametrize(
    "activation", ["relu", "leaky_relu", "hardswish", "silu", "gelu", "tanh", "sigmoid", "gelu_tanh"]
)
def test_activations_of_special_values(activation):
    """What an activation makes of ±∞ and NaN is what PyTorch's makes of them, or its limit."""
    special = torch.tensor([[0.0, -0.0, 3.0, -3.0, 1e30, -1e30, float("inf"), float("-inf"), float("nan")]])
    identity = torch.zeros(9), torch.ones(9)
    y = f.batch_norm(special, *identity, eps=1e-30, activation=activation)
    wanted = composed(lambda t: t, special.double(), None, activation).float()
    limit = torch.where(wanted.isnan() & ~special.isnan(), torch.zeros(()), wanted)
    same = (y == limit) | (y.isnan() & limit.isnan()) | torch.isclose(y, limit, rtol=1e-6, atol=0.0)
    assert same.all(), f"{y} is not {limit}"


@pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm2d", "InstanceNorm1d", "InstanceNorm2d", "GroupNorm"])
def test_one_value_a_group(name):
    """In training no variance: PyTorch's error; in eval mode it is fine."""
    shape = {"BatchNorm1d": (1, 4), "BatchNorm2d": (1, 4, 1, 1), "InstanceNorm1d": (3, 4, 1)}.get(name, (1, 4, 1, 1))
    arguments = (4, 4) if name == "GroupNorm" else (4,)
    x = torch.randn(shape)
    for training in (True, False):
        theirs, ours = (getattr(library, name)(*arguments).train(training) for library in (nn, iso))
        wanted, found = outcome(theirs, x), outcome(ours, x)
        assert type(found) is type(wanted), f"{found!r}, PyTorch {wanted!r}"
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(found, wanted)
        elif name != "GroupNorm":
            assert "Expected more than 1" in str(found)
        if training and hasattr(ours, "num_batches_tracked") and ours.num_batches_tracked is not None:
            assert torch.equal(ours.num_batches_tracked, theirs.num_batches_tracked)
            assert (ours.running_mean == 0).all()


@pytest.mark.parametrize("activation", [None, "relu", "silu"], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_gradient_arrives(name, activation):
    """candle#2168, unsloth: a fused operation dropped gradients. All are there, not zero, and each is right."""
    layer = of_name(name)
    theirs, ours = layer.pair(torch.float64, activation=activation)
    x, skip = layer.input(torch.float64), layer.input(torch.float64)
    a, b, c, d = (leaf(t) for t in (x, skip, x, skip))
    composed(theirs, a, b, activation).pow(3).sum().backward()
    ours(c, d).pow(3).sum().backward()
    for mine, other in (
        (c.grad, a.grad),
        (d.grad, b.grad),
        *((p.grad, q.grad) for p, q in zip(ours.parameters(), theirs.parameters())),
    ):
        assert mine is not None and mine.abs().max() > 0
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("elements", [1, 2, 3, 5, 31, 33, 127, 129, 1000, 1023, 1025, 4099])
@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm", "BatchNorm1d"])
def test_lengths_that_are_no_powers_of_two(name, elements, device):
    """A fused extension reduced only powers of two, and used the batch as its block's size."""
    shape = (elements, 3) if name == "BatchNorm1d" else (3, elements)
    if shape == (1, 3):
        return
    for dtype in (torch.float32, torch.bfloat16):
        layer = dataclasses.replace(of_name(name), arguments=(shape[1],), shape=shape)
        theirs, ours = layer.pair(dtype, device)
        x, dy = layer.input(dtype, device), torch.randn(shape).to(device, dtype)
        call = call_of(theirs, x)
        judge(call, dy, run(ours, ours, x, dy), run(theirs, theirs, x, dy))


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_backward_leaves_its_inputs_alone(layer):
    """A fused extension wrote its gradient over its input, and computed x again from the result."""
    _, ours = layer.pair(activation="relu")
    x, dy = leaf(layer.input()), torch.randn(layer.shape)
    before, kept = x.detach().clone(), dy.clone()
    y = ours(x)
    result = y.detach().clone()
    y.backward(dy)
    assert torch.equal(x.detach(), before) and torch.equal(dy, kept) and torch.equal(y.detach(), result)


def test_weights_of_zero_keep_their_gradient():
    """What computes x̂ as (y − bias)/weight divides by zero here."""
    theirs, ours = of_name("BatchNorm2d").pair(torch.float64, activation="relu")
    x = of_name("BatchNorm2d").input(torch.float64)
    for module in (theirs, ours):
        nn.init.zeros_(module.weight)
        nn.init.ones_(module.bias)
    composed(theirs, x, None, "relu").pow(2).sum().backward()
    ours(x).pow(2).sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d"])
def test_eval_uses_the_running_statistics(name):
    """And a change of them between two calls is seen by the second."""
    theirs, ours = of_name(name).pair(torch.float64, training=False)
    x = of_name(name).input(torch.float64)
    for change in (1.0, 5.0):
        for module in (theirs, ours):
            module.running_mean.add_(change)
            module.running_var.mul_(1 + change)
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-9)
