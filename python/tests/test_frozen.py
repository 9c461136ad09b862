"""FrozenBatchNorm2d beside torchvision's; and parts of a model that are frozen, or run without gradients."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import isonorm.torch as iso
from layers import (
    ACTIVATIONS,
    LAYERS,
    STREAMED,
    composed,
    leaf,
    of_name,
    outcome,
    randomize,
    run,
    same_refusal,
    strides,
)
from reference import DTYPES, NAMES, Call, away_from_kinks, call_of, judge
from tolerances import UNIT_ROUNDOFF


def frozen_pair(dtype=torch.float32, device="cpu", **keywords):
    """torchvision's module and ours, with the same statistics."""
    torchvision = pytest.importorskip("torchvision")
    theirs = randomize(torchvision.ops.FrozenBatchNorm2d(6)).to(device, dtype)
    ours = iso.FrozenBatchNorm2d(6, **keywords).to(device, dtype)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return theirs, ours


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("activation", [None, "relu"], ids=str)
@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_frozen(dtype, residual, activation, form, device):
    theirs, ours = frozen_pair(dtype, device, activation=activation)
    x = (torch.randn(2, 6, 5, 4) + 0.5).to(device, dtype, memory_format=form)
    skip = torch.randn(2, 6, 5, 4).to(device, dtype, memory_format=form) if residual else None
    call = Call("batchnorm", x, ours.weight, ours.bias, skip, ours.running_mean, ours.running_var, training=False)
    call.act, call.eps = activation or "none", ours.eps
    dy = away_from_kinks(call, torch.randn(2, 6, 5, 4).to(device, dtype, memory_format=form))
    reference = lambda x, residual=None: composed(theirs, x, residual, activation)
    for training in (True, False):
        wanted, found = (
            run(reference, theirs.train(training), x, dy, skip),
            run(ours.train(training), ours, x, dy, skip),
        )
        assert strides(found["y"]) == strides(wanted["y"])
        judge(call, dy, found, dict(wanted, running_mean=None, running_var=None))
    for name, buffer in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], buffer)


def test_frozen_state():
    theirs, ours = frozen_pair()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert not list(ours.parameters())
    assert repr(ours) == repr(theirs)
    trained = randomize(nn.BatchNorm2d(6)).state_dict()
    assert "num_batches_tracked" in trained
    ours.load_state_dict(trained, strict=True)
    theirs.load_state_dict(trained, strict=True)
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values()))
    with pytest.raises(RuntimeError, match="running_mean"):
        ours.load_state_dict({k: v for k, v in trained.items() if k != "running_mean"})
    assert iso.FrozenBatchNorm2d(6, eps=0.5).eps == 0.5 and iso.FrozenBatchNorm2d(6, 0.5).eps == 0.5


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_without_gradients(layer, training, mode):
    """The same values as with gradients; no graph; running statistics go on."""
    theirs, ours = layer.pair(activation="silu", training=training)
    x = layer.input()
    call = call_of(theirs, x, act="silu")
    tracked = copy.deepcopy(ours)
    with mode():
        y = ours(x)
        wanted = composed(theirs, x, None, "silu")
    assert not y.requires_grad and y.is_inference() == wanted.is_inference()
    assert torch.equal(y, tracked(x).detach())
    for (name, mine), other in zip(ours.named_buffers(), tracked.buffers()):
        assert torch.equal(mine, other), name
    results = lambda module, y: dict(module.named_buffers(), y=y.clone())
    judge(call, torch.zeros_like(x), results(ours, y), results(theirs, wanted))


@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm", "RMSNorm"])
def test_parts_without_gradients(name):
    """Frozen parameters get no gradient, the rest the same one; nothing is dropped."""
    layer = of_name(name)
    x = layer.input(torch.float64)
    for asks in ((True, False, True), (False, True, True), (False, False, True), (True, True, False)):
        theirs, ours = layer.pair(torch.float64)
        found = []
        for module in (theirs, ours):
            given = leaf(x).requires_grad_(asks[2])
            module.weight.requires_grad_(asks[0])
            if getattr(module, "bias", None) is not None:
                module.bias.requires_grad_(asks[1])
            y = module(given)
            if not y.requires_grad:
                found.append([False])
                continue
            y.pow(3).sum().backward()
            found.append([given.grad, module.weight.grad, module.bias.grad if hasattr(module, "bias") else None])
        for mine, other in zip(found[1], found[0]):
            assert (mine is None) == (other is None)
            if isinstance(other, torch.Tensor):
                torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, w):
        return 2 * w


@pytest.mark.parametrize("name", ["BatchNorm2d", "GroupNorm", "LayerNorm", "RMSNorm"])
def test_parametrize(name):
    """Parametrized weights are followed, and their originals get the gradients."""
    layer = of_name(name)
    theirs, ours = layer.pair(torch.float64)
    x = layer.input(torch.float64)
    for module in (theirs, ours):
        parametrize.register_parametrization(module, "weight", Doubled())
        module(x).pow(2).sum().backward()
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-9)
    mine, other = (m.parametrizations.weight.original.grad for m in (ours, theirs))
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


def test_weight_norm_like_hooks():
    """Hooks on modules and on tensors run as on PyTorch's."""
    theirs, ours = of_name("LayerNorm").pair(torch.float64)
    x = of_name("LayerNorm").input(torch.float64)
    seen = []
    for module in (theirs, ours):
        log = []
        module.register_forward_pre_hook(lambda m, args, log=log: log.append(("pre", args[0].shape)))
        module.register_forward_hook(lambda m, args, y, log=log: y * 2)
        module.register_full_backward_hook(lambda m, gi, go, log=log: log.append(("back", gi[0].shape, go[0].shape)))
        given = leaf(x)
        y = module(given)
        y.sum().backward()
        seen.append((log, y.detach(), given.grad))
    assert seen[0][0] == seen[1][0] and len(seen[0][0]) == 2
    torch.testing.assert_close(seen[1][1:], seen[0][1:], rtol=1e-9, atol=1e-9)


BROADCAST = {
    "channel": lambda x: torch.randn(x.shape[1], *[1] * (x.ndim - 2)),
    "one": lambda x: torch.randn(()),
    "larger": lambda x: torch.randn(2, *x.shape),
    "double": lambda x: torch.randn(x.shape, dtype=torch.float64),
    "bfloat16": lambda x: torch.randn(x.shape).bfloat16(),
    "integers": lambda x: torch.randint(-3, 3, x.shape),
    "expanded": lambda x: torch.randn(x.shape[-1]).expand(x.shape),
    "transposed": lambda x: torch.randn(x.shape[::-1]).permute(*reversed(range(x.ndim))),
}


@pytest.mark.parametrize("kind", BROADCAST)
@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm"])
def test_residuals_of_other_forms(name, kind):
    """What PyTorch's addition makes of residuals of other shapes, types and strides, forward and backward."""
    layer = of_name(name)
    theirs, ours = layer.pair(activation="silu")
    x = layer.input()
    residual = BROADCAST[kind](x)
    found = []
    for forward in (lambda *a: composed(theirs, *a, "silu"), ours):
        a, b = leaf(x), residual.clone() if not residual.is_floating_point() else leaf(residual)
        y = forward(a, b)
        asked = [a, b] if residual.is_floating_point() else [a]
        found.append((y.detach(), *torch.autograd.grad(y.float().pow(2).sum(), asked)))
    for mine, other in zip(found[1], found[0]):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        tolerance = 8 * UNIT_ROUNDOFF[NAMES[mine.dtype]] if mine.dtype == torch.bfloat16 else 2e-5
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


BAD_RESIDUALS = {"shape": lambda x: torch.randn(7, *x.shape[1:]), "number": lambda x: "one", "list": lambda x: [1.0]}


@pytest.mark.parametrize("kind", BAD_RESIDUALS)
@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm"])
def test_bad_residuals(name, kind):
    theirs, ours = of_name(name).pair()
    x = of_name(name).input()
    residual = BAD_RESIDUALS[kind](x)
    wanted = outcome(lambda: composed(theirs, x, residual, "relu"))
    assert isinstance(wanted, Exception)
    same_refusal(outcome(ours, x, residual), wanted)


@pytest.mark.parametrize("activation", [None, "relu", "silu"], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", STREAMED)
def test_streams(name, dtype, activation, device):
    """(y, s) with s = r + x rounded to the type, and y of s; both results have gradients."""
    assert activation in ACTIVATIONS
    theirs, ours = of_name(name).pair(dtype, device, activation)
    x, r = of_name(name).input(dtype, device), of_name(name).input(dtype, device)
    s = x + r
    call = call_of(theirs, s, act=activation)
    dy, ds = torch.randn(s.shape).to(device, dtype), torch.randn(s.shape).to(device, dtype)
    dy = away_from_kinks(call, dy)
    a, b = leaf(x), leaf(r)
    y, stream = ours(a, stream=b)
    assert torch.equal(stream, s)
    wanted = run(lambda t: composed(theirs, t, None, activation), theirs, s, dy)
    alone = torch.autograd.grad(y, [a, b, *ours.parameters()], dy, retain_graph=True)
    names = ["dx", "dresidual", "dweight", "dbias"]
    judge(call, dy, dict(zip(names, alone), y=y.detach()), wanted)
    torch.testing.assert_close(alone[0], alone[1], rtol=0, atol=0)
    both = torch.autograd.grad([y, stream], [a, b], [dy, ds], retain_graph=True)
    exact = alone[0].double() + ds.double()
    limit = 4 * UNIT_ROUNDOFF[NAMES[dtype]] * (alone[0].double().abs() + ds.double().abs())
    for gradient in both:
        assert ((gradient.double() - exact).abs() <= limit).all()
    # The stream's gradient alone goes through to both.
    only = torch.autograd.grad(stream, [a, b], ds)
    assert all(torch.equal(g, ds) for g in only)
