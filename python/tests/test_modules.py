"""Modules are PyTorch's in all but their kernels: constructors, state, modes, copies, types."""

from __future__ import annotations

import copy
import inspect
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import isonorm.torch as iso
from isonorm.torch import _normalize
from layers import ACTIVATIONS, BARE, LAYERS, composed, of_name, outcome, randomize, run, same_refusal
from reference import away_from_kinks, call_of, judge

NAMES = sorted({layer.name for layer in LAYERS})
ALL = [*NAMES, "SyncBatchNorm"]


@pytest.mark.parametrize("name", ALL)
def test_constructor(name):
    """PyTorch's parameters in PyTorch's order, then `activation`, a keyword."""
    theirs = inspect.signature(getattr(nn, name))
    ours = inspect.signature(getattr(iso, name))
    names = list(theirs.parameters)
    if any(p.kind is p.VAR_KEYWORD for p in ours.parameters.values()):
        # Arguments are handed on; then each of PyTorch's has to arrive.
        assert ours.parameters["activation"].kind is inspect.Parameter.KEYWORD_ONLY
    else:
        describe = lambda p: (p.name, p.kind, p.default)
        assert [describe(p) for p in ours.parameters.values() if p.name != "activation"] == [
            describe(p) for p in theirs.parameters.values()
        ]
    required = {"num_features": 4, "num_groups": 2, "num_channels": 4, "normalized_shape": 4}
    given = {n: required.get(n, theirs.parameters[n].default) for n in names}
    module = getattr(iso, name)(**given)
    reference = getattr(nn, name)(**given)
    positional = [given[n] for n in names if theirs.parameters[n].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    for made in (module, getattr(iso, name)(*positional)):
        assert made.__dict__.keys() == reference.__dict__.keys()
    with pytest.raises(TypeError):
        getattr(iso, name)(**given, nonsense=1)


@pytest.mark.parametrize("name", ALL)
def test_is_one_of_torchs(name):
    assert issubclass(getattr(iso, name), getattr(nn, name))
    assert getattr(iso, name).__name__ == name
    assert getattr(iso, name)._version == getattr(nn, name)._version


@pytest.mark.parametrize("name", ALL)
def test_activation_argument(name):
    arguments = of_name(name).arguments if name != "SyncBatchNorm" else (4,)
    cls = getattr(iso, name)
    assert cls.activation is None and cls(*arguments).activation is None
    assert cls(*arguments, activation="silu").activation == "silu"
    assert "silu" in repr(cls(*arguments, activation="silu"))
    for bad in ("sillu", "leaky_relu:x", 3):
        with pytest.raises((ValueError, TypeError)):
            cls(*arguments, activation=bad)


@pytest.mark.parametrize("layer", LAYERS + BARE, ids=str)
def test_attributes_and_repr(layer):
    theirs, ours = layer.pair()
    assert repr(ours) == repr(theirs)
    for key, value in theirs.__dict__.items():
        if not key.startswith("_"):
            assert getattr(ours, key) == value and type(getattr(ours, key)) is type(value), key
    assert getattr(ours, "__constants__", None) == getattr(theirs, "__constants__", None)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]


@pytest.mark.parametrize("layer", LAYERS + BARE, ids=str)
def test_state_goes_both_ways(layer):
    theirs, ours = layer.pair()
    fresh_theirs = randomize(getattr(nn, layer.name)(*layer.arguments, **dict(layer.keywords)))
    fresh_ours = randomize(getattr(iso, layer.name)(*layer.arguments, **dict(layer.keywords)))
    for source, target in ((theirs, fresh_ours), (ours, fresh_theirs), (ours, fresh_ours)):
        assert str(target.load_state_dict(source.state_dict(), strict=True)) == "<All keys matched successfully>"
        for (name, a), (other, b) in zip(source.state_dict().items(), target.state_dict().items()):
            assert name == other and torch.equal(a, b)
    assert ours.state_dict()._metadata == theirs.state_dict()._metadata
    # Through a file, as PyTorch writes it.
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    fresh_theirs.load_state_dict(torch.load(file, weights_only=True), strict=True)


def test_a_missing_counter_loads_as_zero():
    """Checkpoints of before version 2 have no num_batches_tracked."""
    old = nn.BatchNorm2d(4).state_dict()
    del old["num_batches_tracked"]
    old._metadata[""]["version"] = 1
    module = iso.BatchNorm2d(4)
    module.load_state_dict(old, strict=True)
    assert module.num_batches_tracked == 0 and module.num_batches_tracked.dtype == torch.long
    del old._metadata
    iso.BatchNorm2d(4).load_state_dict(dict(old), strict=True)
    new = nn.BatchNorm2d(4).state_dict()
    del new["num_batches_tracked"]
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        iso.BatchNorm2d(4).load_state_dict(new, strict=True)


@pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm2d", "InstanceNorm2d"])
@pytest.mark.parametrize("momentum", [None, 0.0, 0.3, 1.0])
def test_running_statistics(name, momentum):
    """The counter and both statistics, over steps in training with evaluations between them."""
    import dataclasses

    base = of_name(name)
    layer = dataclasses.replace(base, keywords=(*base.keywords, ("momentum", momentum)))
    theirs, ours = layer.pair(torch.float64)
    for _ in range(5):
        x = layer.input(torch.float64)
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-9)
        for key, value in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[key], value, rtol=1e-12, atol=1e-12)
        counter = None if theirs.num_batches_tracked is None else theirs.num_batches_tracked.clone()
        theirs.eval(), ours.eval()
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-9)
        theirs.train(), ours.train()
        assert counter is None or torch.equal(ours.num_batches_tracked, counter)
    ours.reset_running_stats(), theirs.reset_running_stats()
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values()))


def test_momentum_none_averages_all_batches():
    module = iso.BatchNorm1d(3, momentum=None).double()
    batches = torch.randn(7, 10, 3, dtype=torch.float64)
    for batch in batches:
        module(batch)
    torch.testing.assert_close(module.running_mean, batches.mean((0, 1)), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(module.running_var, batches.var(1).mean(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("tracks", ["no buffers", "switched off", "no counter"])
def test_odd_states_of_tracking(tracks, training):
    """Statistics that are not kept, buffers that are no longer updated, a counter that was taken away."""
    found = []
    x = torch.randn(4, 3, 5, dtype=torch.float64) + 1
    for library in (nn, iso):
        module = library.BatchNorm1d(3, track_running_stats=tracks != "no buffers").double().train(training)
        if tracks == "switched off":
            module.track_running_stats = False
        if tracks == "no counter":
            module.num_batches_tracked = None
        found.append((module(x), [b for b in module.buffers() if b is not None]))
    (wanted, buffers), (mine, own) = found
    torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(own, buffers, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_copies(layer):
    """Deep copies, pickles and torch.save of whole modules are modules of the same class that compute the same."""
    _, ours = layer.pair(activation="gelu")
    x = layer.input()
    ours.eval()
    wanted = ours(x)
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    copies = [
        copy.deepcopy(ours),
        copy.copy(ours),
        pickle.loads(pickle.dumps(ours)),
        torch.load(file, weights_only=False),
    ]
    for made in copies:
        assert type(made) is type(ours) and made.activation == "gelu" and repr(made) == repr(ours)
        assert torch.equal(made(x), wanted)
    with torch.no_grad():
        for p in copies[0].parameters():
            p.add_(1)
    assert torch.equal(ours(x), wanted)


@pytest.mark.parametrize("layer", LAYERS + BARE, ids=str)
def test_class_assignment_is_a_conversion(layer):
    """An instance of PyTorch's becomes ours by its class alone, and goes back; nothing else changes."""
    theirs, _ = layer.pair()
    reference = copy.deepcopy(theirs)
    x = layer.input()
    theirs.__class__ = getattr(iso, layer.name)
    assert theirs.activation is None
    assert theirs.__dict__.keys() == reference.__dict__.keys()
    call, dy = call_of(reference, x), torch.randn(layer.shape)
    judge(call, dy, run(theirs, theirs, x, dy), run(reference, reference, x, dy))
    theirs.__class__ = getattr(nn, layer.name)
    assert repr(theirs) == repr(reference)


@pytest.mark.parametrize("to", ["half", "bfloat16", "double", "float"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_types(layer, to):
    """Modules change their type as PyTorch's do, and their result's type is PyTorch's."""
    theirs, ours = layer.pair(torch.float32)
    theirs, ours = getattr(theirs, to)(), getattr(ours, to)()
    assert {n: t.dtype for n, t in ours.state_dict().items()} == {n: t.dtype for n, t in theirs.state_dict().items()}
    dtype = {"half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64, "float": torch.float32}[to]
    x, dy = layer.input(dtype), torch.randn(layer.shape).to(dtype)
    call = call_of(theirs, x)
    judge(call, dy, run(ours, ours, x, dy), run(theirs, theirs, x, dy))


@pytest.mark.parametrize("data", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("params", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_mixed_types(name, data, params):
    """Every pair of types: what PyTorch takes we take, with its results' types; parameters of f32 always work."""
    layer = of_name(name)
    theirs, ours = layer.pair(params)
    x, dy = layer.input(data), torch.randn(layer.shape).to(data)
    call = call_of(theirs, x)
    wanted, found = outcome(run, theirs, theirs, x, dy), outcome(run, ours, ours, x, dy)
    if isinstance(wanted, Exception) and params == torch.float32:
        judge(call, dy, found)
    elif not same_refusal(found, wanted):
        judge(call, dy, found, wanted)


@pytest.mark.parametrize("activation", list(ACTIVATIONS), ids=str)
@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", NAMES)
def test_fused(name, training, residual, activation, device):
    """Activation and residual behind the norm, forward and backward, in f32 and bf16."""
    layer = of_name(name)
    for dtype in (torch.float32, torch.bfloat16):
        theirs, ours = layer.pair(dtype, device, activation, training)
        x = layer.input(dtype, device)
        skip = torch.randn(layer.shape).to(device, dtype) if residual else None
        call = call_of(theirs, x, residual=skip, act=activation)
        dy = away_from_kinks(call, torch.randn(layer.shape).to(device, dtype))
        reference = lambda x, residual=None: composed(theirs, x, residual, activation)
        wanted = run(reference, theirs, x, dy, skip)
        judge(call, dy, run(ours, ours, x, dy, skip), wanted)


@pytest.mark.parametrize("name", NAMES)
def test_activation_of_a_call(name):
    """A call's own activation replaces the module's, None too."""
    layer = of_name(name)
    theirs, ours = layer.pair(torch.float64, activation="relu", training=False)
    x = layer.input(torch.float64)
    for activation in ("tanh", None):
        torch.testing.assert_close(ours(x, activation=activation), composed(theirs, x, None, activation))
    torch.testing.assert_close(ours(x), composed(theirs, x, None, "relu"))
    with pytest.raises(ValueError, match="nonsense"):
        ours(x, activation="nonsense")


@pytest.mark.parametrize("form", ["plain", "residual", "stream"])
def test_rms_norm_where_torch_promotes(monkeypatch, form):
    """PyTorch 2.4's RMSNorm gives the wider of two types; so do ours there, as exact as that type."""
    monkeypatch.setattr(_normalize, "RMSNORM_PROMOTES", True)
    x, more = (torch.randn(5, 12, dtype=torch.bfloat16).requires_grad_() for _ in range(2))
    ours = iso.RMSNorm(12, eps=1e-6)
    torch.nn.init.normal_(ours.weight)
    given = x + more if form == "stream" else x
    expected = F.rms_norm(given.float(), (12,), ours.weight, 1e-6)
    found = {
        "plain": lambda: ours(x),
        "residual": lambda: ours(x, more, activation="relu"),
        "stream": lambda: ours(x, stream=more),
    }[form]()
    if form == "stream":
        found, stream = found
        assert stream.dtype == torch.bfloat16 and torch.equal(stream, given)
    if form == "residual":
        expected = torch.relu(expected + more)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    dy = torch.randn_like(expected)
    leaves = [x, ours.weight] + [more] * (form != "plain")
    mine, wanted = (torch.autograd.grad(y, leaves, dy) for y in (found, expected))
    torch.testing.assert_close(mine, wanted)
